"""`testbed schedule`: jobs that share a lab, where they run, when each starts, and what that brings."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.cli import options, schedule_run
from testbed.cli.completion import lab_files
from testbed.cli.output import print_json, print_lines, print_table
from testbed.cli.unfinished import with_unfinished
from testbed.commands.documents import DONE
from testbed.commands.progress import note_compilation

if TYPE_CHECKING:
    from testbed.design.sharing.cassini.schedule import Schedule, Scheduler
    from testbed.design.sharing.jobs import Burst
    from testbed.lab.model import Lab
    from testbed.measure.sharing.measurement import MeasuredJob

JobsFile = Annotated[Path, typer.Argument(metavar="JOBS", help="File of jobs (YAML).")]
Lab_ = Annotated[
    Path, typer.Option("--lab", metavar="LAB", help="Lab file; nothing need run.", autocompletion=lab_files)
]
HostScheduler = Annotated[
    str,
    typer.Option(
        "--host-scheduler", metavar="NAME", help="Who proposes hosts: themis, pollux or an entry point."
    ),
]
Candidates = Annotated[
    int, typer.Option("--candidates", metavar="N", min=1, max=100, help="Placements to score at most.")
]
JobsPerHost = Annotated[
    int, typer.Option("--jobs-per-host", metavar="N", min=0, help="Jobs that a host takes; 0: as few as fit.")
]
Spread = Annotated[bool, typer.Option("--spread", help="Jobs on the same two hosts take different circuits.")]
Quantum = Annotated[
    float,
    typer.Option("--quantum-ms", metavar="MS", min=0.001, help="Times are rounded to multiples of this."),
]
Bins = Annotated[
    int, typer.Option("--bins", metavar="N", min=0, help="Divide circles into N bins as the paper does: 72.")
]
MostTicks = Annotated[
    int, typer.Option("--most-ticks", metavar="N", min=1, help="Cap on the ticks of a circle.")
]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", metavar="SECONDS", min=0.001, help="Search on one link ends then.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Draw circles and time line there.")]
Picture = Annotated[Literal["svg", "png"], typer.Option("--picture", help="Format of plots.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schedule")(schedule)


@options.grouped("asked", schedule_run.RunOptions.of)
def schedule(
    jobs_file: JobsFile,
    lab_file: Lab_,
    host_scheduler: HostScheduler = "themis",
    candidates: Candidates = 10,
    jobs_per_host: JobsPerHost = 0,
    spread: Spread = False,
    quantum_ms: Quantum = 1.0,
    bins: Bins = 0,
    most_ticks: MostTicks = 100_000,
    time_limit_s: TimeLimit = 2.0,
    out: Out = None,
    picture: Picture = "svg",
    asked: schedule_run.RunOptions = schedule_run.NOT_RUN,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Say where jobs that share a lab run and when each starts, and predict what that brings; --run measures it."""
    from testbed.design.sharing import placement
    from testbed.design.sharing.cassini.circle import Rounding
    from testbed.design.sharing.cassini.schedule import Scheduler
    from testbed.lab.inventory import load_bare_lab
    from testbed.lab.jobs_file import Sources, read_jobs

    lab = load_bare_lab(lab_file)
    note_compilation("contention")
    jobs = read_jobs(jobs_file, Sources(lab.link.represents_gbps, partial(_measured_phases, runs_dir)))
    links, rounding = _links(lab, spread=spread), Rounding(quantum_ms, bins, most_ticks)
    request = placement.PlacementRequest(jobs, links, candidates, jobs_per_host)
    scheduler = Scheduler(jobs, links, rounding, time_limit_s, 8 * time_limit_s)
    found = scheduler.schedule(placement.candidates(host_scheduler, request))
    pictures = _draw(scheduler, found, out, picture) if out else []
    document = schedule_json(found, pictures)
    rows: list[MeasuredJob] = []
    if asked.is_run:
        run_id, rows = schedule_run.run_schedule(lab_file, jobs, found, asked, runs_dir, spread=spread)
        document |= schedule_run.document_of(run_id, rows)
    document, left = with_unfinished(document, [], runs_dir, lab)
    print_json(document) if as_json else _show(found, pictures, rows, left)
    return DONE


def _measured_phases(runs_dir: Path, run_id: str, job: str) -> tuple[float, tuple[Burst, ...]]:
    from testbed.measure.results.store import RunStore
    from testbed.measure.sharing.record import phases_of_run

    return phases_of_run(RunStore(runs_dir), run_id, job)


def _links(lab: Lab, *, spread: bool) -> Any:
    from testbed.design.sharing.jobs import LabLinks

    nics = min(len(host.nics) for host in lab.hosts)
    names = tuple(host.name for host in lab.hosts)
    return LabLinks(names, lab.link.represents_gbps, nics, spread)


def schedule_json(found: Schedule, pictures: list[Path]) -> dict[str, Any]:
    """Return a schedule as programs get it."""
    return {
        "placement": {job: list(hosts) for job, hosts in found.placement.items()},
        "starts_ms": dict(found.starts_ms),
        "links": [
            {
                "link": one.link,
                "jobs": list(one.jobs),
                "score": one.score,
                "score_clamped": one.score_clamped,
                "proven": one.proven,
                "approximate": one.approximate,
            }
            for one in found.links
        ],
        "candidates": [{"score": one.score, "dropped": one.dropped or None} for one in found.candidates],
        "predicted": [asdict(one) for one in found.predicted],
        "notes": list(found.notes),
        "pictures": [str(path) for path in pictures],
    }


def _show(found: Schedule, pictures: list[Path], rows: list[MeasuredJob], left: list[str]) -> None:
    links = [
        (one.link, ", ".join(one.jobs), f"{one.score:.4f}", "yes" if one.proven else "not proven")
        for one in found.links
    ]
    jobs = [
        (
            one.job,
            " ".join(found.placement[one.job]),
            found.starts_ms[one.job],
            one.solo_ms,
            one.fair_ms,
            one.shifted_ms,
        )
        for one in found.predicted
    ]
    dropped = sum(bool(one.dropped) for one in found.candidates)
    print_lines([f"{len(found.candidates)} candidate placements, {dropped} with a loop", *found.notes])
    print_table("Links that several jobs use", ("link", "jobs", "score", "proven"), links)
    columns = ("job", "hosts", "start (ms)", "alone (ms)", "fair (ms)", "shifted (ms)")
    print_table("Iteration times, predicted", columns, jobs)
    print_lines([str(path) for path in pictures])
    schedule_run.show(rows)
    print_lines(left)


def _draw(scheduler: Scheduler, found: Schedule, out: Path, ending: str) -> list[Path]:
    from testbed.design.sharing.schedule_pictures import draw_schedule

    return draw_schedule(scheduler, found, out, ending)
