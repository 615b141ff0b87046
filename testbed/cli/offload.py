"""`testbed offload profile|explain`: measure an input pipeline, and say what to run elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import DEFAULT_RUNS, AsJson, RunsDirectory
from testbed.cli.output import print_answer
from testbed.commands.documents import DONE
from testbed.commands.progress import narrate

if TYPE_CHECKING:
    from testbed.offload.store import Profile


Script = Annotated[
    str,
    typer.Argument(
        metavar="SCRIPT",
        help="File of Python with `dataset` and `step`, or a workload: digits, images, speech, text.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Dask scheduler that runs, e.g. tcp://10.0.0.1:8786."
    ),
]
WorkersOfLab = Annotated[
    Path | None,
    typer.Option(
        "--lab", metavar="LAB", help="Start workers on the hosts of a lab, on its management network."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", min=1, help="Workers to start: here, or on the first N hosts of --lab."
    ),
]
InThisProcess = Annotated[
    bool, typer.Option("--in-process", help="Workers as threads of this process: for trying a script.")
]
SettingsFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings in YAML, see the documentation.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where profile.json, report.html and rates.png go."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Run a trainer's input pipeline partly on other hosts: measure it, and say which part and how much.",
    )
    group.command("profile")(profile)
    group.command("explain")(explain)
    app.add_typer(group, name="offload")


def profile(
    script: Script,
    scheduler: Scheduler = None,
    lab: WorkersOfLab = None,
    workers: Workers = None,
    in_process: InThisProcess = False,
    config: SettingsFile = None,
    out: Out = None,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Measure a pipeline and its candidates, decide, and say how long the trainer waits before and after."""
    from testbed.offload.configuration import Choice, read_configuration
    from testbed.offload.session import profile_script

    chosen = Choice(scheduler, lab, workers, in_process=in_process, runs=runs_dir)
    with narrate() as narrator:
        found, is_simulated = profile_script(script, read_configuration(config), chosen, narrator)
    document = found.document() | {"simulated": is_simulated}
    if out is not None:
        from testbed.offload.report import write_report

        document["report"] = str(write_report(out, found, script, is_simulated=is_simulated))
    print_answer(document, list(_lines(found, is_simulated=is_simulated)), as_json=as_json)
    return DONE


def explain(
    file: Annotated[
        Path, typer.Argument(metavar="PROFILE", help="profile.json of `testbed offload profile`.")
    ],
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", min=1, help="Decide again with another least speed-up than 1.1."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Say why a profile led to its decision: every candidate with what it promises."""
    from testbed.offload.policy import THRESHOLD, decide
    from testbed.offload.store import read_profile

    found = read_profile(file)
    decision = decide(found.metrics, THRESHOLD if threshold is None else threshold)
    document: dict[str, Any] = decision.document()
    head = f"run {decision.candidate} at ratio {decision.ratio:.2f}" if decision.candidate else "run all here"
    print_answer(document, [head, *(f"  {reason}" for reason in decision.reasons)], as_json=as_json)
    return DONE


def _lines(found: Profile, *, is_simulated: bool) -> Iterator[str]:
    decision = found.decision
    mark = "  SIMULATED: the step is a timed wait" if is_simulated else ""
    if decision.candidate is None:
        yield f"run all here{mark}"
    else:
        yield (
            f"run {decision.candidate} at ratio {decision.ratio:.2f}; workers needed: {decision.workers}{mark}"
        )
    yield from (f"  {reason}" for reason in decision.reasons)
    yield (
        f"the trainer waits {found.stall_before:.0%} of the time before and {found.stall_after:.0%} after,"
        f" {found.metrics.lthp:,.0f} and {found.rate_after:,.0f} samples a second"
    )
    yield f"profiling took {found.profiling_s:.1f} s, {found.profiling_share:.1%} of the training"
