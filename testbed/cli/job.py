"""`testbed job`: run an iteration of the plan in force on the hosts, as it was planned and simulated."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import options
from testbed.cli.output import print_answer
from testbed.commands.documents import DONE
from testbed.measure.plan_job_record import link_lines

if TYPE_CHECKING:
    from testbed.measure.plan_job import PlanRun
    from testbed.operate.choice import MeantDesign

Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", min=1, max=1000, help="After one to warm up.")
]
Lasts = Annotated[
    float,
    typer.Option(
        "--lasts", metavar="SECONDS", min=0.01, help="Scale bytes and computing so that one takes this."
    ),
]
Factor = Annotated[
    float | None,
    typer.Option("--factor", metavar="F", min=0, help="Scale bytes by this instead, computing too."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("job")(job)


@options.names_topology
def job(
    lab_file: options.LabFile,
    named: options.Named,
    iterations: Iterations = 3,
    lasts_s: Lasts = 1.0,
    factor: Factor = None,
    hosts: options.HostsMode = "auto",
    deadline_s: options.Deadline = 120.0,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Run the plan in force as a job: computing as a wait, tensors on its routes; compare with its prediction."""
    from testbed.lab.simulated.lifecycle import hosts_of
    from testbed.measure.plan_job import run_plan
    from testbed.measure.plan_job_record import PHASE, to_json
    from testbed.measure.results.store import RunStore
    from testbed.operate.choice import running_design
    from testbed.operate.session import open_lab

    meant = running_design(lab_file, named, runs_dir)
    mode = hosts_of(meant.lab, hosts)
    with (
        open_lab(meant.lab, None, model_hosts=mode == "model") as session,
        RunStore(runs_dir).begin(meant.lab, meant.lab.simulated, mode, seeds={}) as run,
    ):
        done = run_plan(
            session,
            meant.design,
            meant.plan(),
            iterations=iterations,
            lasts_s=lasts_s,
            factor=factor,
            deadline_s=deadline_s,
        )
        link = meant.lab.link
        rates = {"rate_mbps": link.rate_mbps, "rate_gbps": link.represents_gbps}
        run.add_phase(PHASE, to_json(done, meant.intent.epoch if meant.intent else None) | rates)
    about = {"run_id": run.run_id, "lab": meant.lab.name, "simulated": meant.lab.simulated, "hosts": mode}
    print_answer(about | meant.json() | _document(done), _lines(meant, done), as_json=as_json)
    return DONE


def _document(done: PlanRun) -> dict[str, Any]:
    return {
        "factor": done.factor,
        "predicted_ms": done.predicted_s * 1e3,
        "measured_ms": done.measured_s * 1e3,
        "iterations_ms": [time_s * 1e3 for time_s in done.times_s],
        "difference": done.difference,
        "busy": done.busy,
        "links": [asdict(link) for link in done.links],
    }


def _lines(meant: MeantDesign, done: PlanRun) -> list[str]:
    mark = "SIMULATED " if meant.lab.simulated else ""
    took = f"iteration of {done.measured_s * 1e3:.1f} ms (median of {len(done.times_s)})"
    return [
        f"{mark}lab {meant.lab.name}; {meant.heading()}",
        *meant.lines(),
        *meant.unfinished_lines(),
        f"{took}, predicted {done.predicted_s * 1e3:.1f} ms: {done.difference * 100:+.1f} %",
        f"scale: {done.factor:g} of the bytes, computing alike; processors {done.busy * 100:.0f} % busy",
        *link_lines(done.links),
    ]
