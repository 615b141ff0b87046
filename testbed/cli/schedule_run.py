"""`testbed schedule --run`: jobs on the hosts of a lab under one policy after another, kept as a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.cli.options import ReallyMove
from testbed.cli.output import print_table
from testbed.commands.progress import narrate

if TYPE_CHECKING:
    from testbed.design.sharing.cassini.schedule import Schedule as CassiniSchedule
    from testbed.design.sharing.jobs import Placement, SharedJob
    from testbed.lab.model import Lab
    from testbed.measure.results.run import Run
    from testbed.measure.sharing.measurement import MeasuredJob
    from testbed.measure.sharing.policies import Conditions, Policy, Schedule
    from testbed.operate.journal import Journal
    from testbed.operate.session import Design, LabSession

Run_ = Annotated[bool, typer.Option("--run", help="Run the jobs on the hosts of the lab, and measure.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="With --run (repeatable): fair, weights, shifts, mltcp; default fair, then shifts.",
    ),
]
Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", min=1, max=10_000, help="With --run: of each job.")
]
Transport = Annotated[
    Literal["tcp", "udp"],
    typer.Option("--transport", help="With --run: the kernel's TCP, or ours over UDP; mltcp is over UDP."),
]
Control = Annotated[
    Literal["reno", "cubic"], typer.Option("--control", help="With --run: congestion control.")
]
Weight = Annotated[
    list[str] | None,
    typer.Option(
        "--weight", metavar="JOB=W", help="With --policy weights (repeatable); default the first 3."
    ),
]
Slope = Annotated[float, typer.Option("--slope", min=0, help="Of MLTCP's function of the bytes sent.")]
Intercept = Annotated[float, typer.Option("--intercept", min=0.001, help="Of the same.")]
MostAlignments = Annotated[
    int,
    typer.Option(
        "--most-alignments", metavar="N", min=0, help="With --run: a job waits for a later slot so often."
    ),
]
StaggerMs = Annotated[
    float,
    typer.Option(
        "--stagger-ms",
        metavar="MS",
        help="With --run: between starts without shifts; default 0, of mltcp 1 %.",
    ),
]
QueuePackets = Annotated[
    int,
    typer.Option("--queue", metavar="PACKETS", min=0, help="With --run: of a link; default 16, of HTB 50."),
]


@dataclass(frozen=True, slots=True)
class HostRun:
    """Jobs, their places and shifts, and the conditions under which they run on the hosts of a lab."""

    jobs: Sequence[SharedJob]
    placement: Placement
    shifted: Schedule
    policies: Sequence[Policy]
    conditions: Conditions
    spread: bool = False


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `--run`: policies and weights as they were written, `conditions` by name."""

    is_run: bool = False
    policies: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    really_move: str | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        is_run: Run_ = False,
        policies: Policies = None,
        iterations: Iterations = 100,
        transport: Transport = "tcp",
        control: Control = "reno",
        weights: Weight = None,
        slope: Slope = 1.75,
        intercept: Intercept = 0.25,
        most_alignments: MostAlignments = 100,
        stagger_ms: StaggerMs = -1.0,
        queue: QueuePackets = 0,
        really_move: ReallyMove = None,
    ) -> RunOptions:
        """Return the options of a command."""
        conditions = {
            "iterations": iterations,
            "transport": transport,
            "control": control,
            "slope": slope,
            "intercept": intercept,
            "most_alignments": most_alignments,
            "stagger_ms": stagger_ms,
            "queue": queue,
        }
        return cls(is_run, tuple(policies or ()), tuple(weights or ()), really_move, conditions)


NOT_RUN = RunOptions()


def run_schedule(
    lab_file: Path,
    jobs: Sequence[SharedJob],
    found: CassiniSchedule,
    asked: RunOptions,
    runs_dir: Path,
    *,
    spread: bool,
) -> tuple[str, list[MeasuredJob]]:
    """Run a schedule on the hosts of its lab; return the id of the run and its rows. Raises `WorkloadError`."""
    from testbed.measure.sharing.policies import Conditions, shifted_schedule

    conditions = Conditions(weights=parse_weights(asked.weights, jobs), **asked.conditions)
    shifted = shifted_schedule(found)
    host_run = HostRun(jobs, found.placement, shifted, parse_policies(asked.policies), conditions, spread)
    with narrate() as narrator:
        return run_on_hosts(lab_file, host_run, runs_dir, asked.really_move, narrator.note)


def parse_policies(names: Sequence[str] | None) -> list[Policy]:
    """Return the policies that are named, or the default ones. Raises `WorkloadError` for others."""
    from testbed.errors import WorkloadError
    from testbed.measure.sharing.policies import POLICIES

    found = [policy for name in names or ("fair", "shifts") for policy in POLICIES if policy == name]
    if len(found) < len(names or found):
        raise WorkloadError(f"--policy {' '.join(names or ())}: choose of {', '.join(POLICIES)}")
    return found


def parse_weights(texts: Sequence[str] | None, jobs: Sequence[SharedJob]) -> Mapping[str, float]:
    """Return `["x=3"]` as weights by job. Raises `WorkloadError` that shows the form."""
    from testbed.errors import WorkloadError

    found = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = 0.0
        if name not in {job.name for job in jobs} or not found[name] > 0:
            names = ", ".join(job.name for job in jobs)
            raise WorkloadError(f"--weight {text!r} is not JOB=W with a weight above 0; jobs are {names}")
    return found


@contextmanager
def lab_in_hand(
    lab_file: Path, placement: Placement, runs_dir: Path, note: Callable[[str], object]
) -> Iterator[tuple[LabSession, Design, Journal, str]]:
    """Provide the lab as it runs, with the topology in force; a simulated one that is down is started meanwhile.

    Then it has those hosts alone that jobs run on, and a topology of theirs. Raises what opening a lab raises, and
    `VerifyFailed` when the topology is not in force.
    """
    from testbed.cli.options import NOTHING_NAMED
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import hosts_of, lab_status, start_lab
    from testbed.measure.current_topology import check_in_force
    from testbed.operate.choice import running_design
    from testbed.operate.design import design_for
    from testbed.operate.journal import journal_in
    from testbed.operate.session import open_lab

    lab = load_lab(lab_file)
    is_up = any(entry["live"] and entry["lab"] == lab.name for entry in lab_status())
    if is_up or not lab.simulated:
        meant = running_design(lab_file, NOTHING_NAMED, runs_dir)
        mode = hosts_of(meant.lab)
        with (
            journal_in(runs_dir) as journal,
            open_lab(meant.lab, None, model_hosts=mode == "model") as session,
        ):
            check_in_force(session, meant.design)
            yield session, meant.design, journal, mode
        return
    with start_lab(_part(lab, placement), hosts="auto", move=True) as up:
        note(f"SIMULATED lab {up.lab_id} at {up.lab.management}, hosts: {up.hosts}")
        with (
            journal_in(runs_dir) as journal,
            open_lab(up.lab, journal, model_hosts=up.hosts == "model", keep_intent=False) as session,
        ):
            design = design_for(up.lab)
            session.bring_up(design)
            yield session, design, journal, up.hosts


def _part(lab: Lab, placement: Placement) -> Lab:
    """Return the hosts of a lab that jobs run on, under a name of their own: the lab itself may be started meanwhile.

    Their links keep the rate of the file, since few carry anything.
    """
    from testbed.lab.inventory import with_rate

    used = {host for hosts in placement.values() for host in hosts}
    hosts = tuple(host for host in lab.hosts if host.name in used)
    return with_rate(replace(lab, name=f"{lab.name}-{os.getpid()}", hosts=hosts), lab.link.rate_mbps)


def run_on_hosts(
    lab_file: Path, asked: HostRun, runs_dir: Path, really_move: str | None, note: Callable[[str], object]
) -> tuple[str, list[MeasuredJob]]:
    """Return the id of the run and its rows, which are on record as soon as they are measured."""
    from testbed.lab.inventory import load_lab
    from testbed.measure.results.store import RunStore
    from testbed.measure.sharing.measurement import measure
    from testbed.operate.apply import check_permission

    check_permission(load_lab(lab_file), really_move)
    with lab_in_hand(lab_file, asked.placement, runs_dir, note) as (session, design, journal, mode):
        lab = session.lab
        with RunStore(runs_dir).begin(lab, lab.simulated, mode, seeds={}) as run:
            rows = measure(
                session,
                journal,
                design,
                asked.jobs,
                asked.placement,
                asked.shifted,
                asked.policies,
                asked.conditions,
                spread=asked.spread,
                note=note,
                done=lambda found: keep(run, lab, found),
            )
    return run.run_id, rows


def keep(run: Run, lab: Lab, rows: Sequence[MeasuredJob]) -> None:
    """Put rows on record as soon as they are measured."""
    from testbed.measure.sharing.record import PHASE, to_json

    run.add_phase(PHASE, to_json(rows, lab.link.represents_gbps))


def document_of(run_id: str, rows: Sequence[MeasuredJob]) -> dict[str, Any]:
    """Return a measurement as programs get it."""
    measured = [
        asdict(row) | {"iterations_ms": list(row.iterations_ms), "difference": row.difference} for row in rows
    ]
    return {"run_id": run_id, "measured": measured}


def show(rows: Sequence[MeasuredJob]) -> None:
    """Print what was measured, as a table; nothing where nothing was."""
    if rows:
        print_table("Iteration times, measured on hosts", COLUMNS, table_of(rows))


COLUMNS = ("job", "policy", "mean (ms)", "predicted (ms)", "p99 (ms)", "alignments", "sent again")


def table_of(rows: Sequence[MeasuredJob]) -> list[tuple[object, ...]]:
    """Return the rows of a table for people."""
    return [
        (
            row.job,
            row.policy,
            f"{row.mean_ms:.1f}",
            f"{row.predicted_ms:.1f} ({row.difference:+.1%})",
            f"{row.p99_ms:.1f}",
            row.alignments,
            row.retransmits,
        )
        for row in rows
    ]
