"""`testbed resume`: go on with an operation that ended too early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import options
from testbed.cli.output import CHANGES, DONE, print_answer, print_lines, tell

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.lab.model import Lab
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.recovery.resume import Resumed
    from testbed.operate.unfinished import Unfinished


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("resume")(resume)


def resume(
    lab_file: options.LabFile,
    operation: Annotated[
        str | None, typer.Argument(metavar="[OPERATION]", help="Which one; the newest if none is named.")
    ] = None,
    hosts: options.HostsMode = "auto",
    really_move: options.ReallyMove = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Go on with an operation that ended too early. Exit code 2 when it stops as unknown, or is not proven."""
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import find_running
    from testbed.operate.apply import check_permission
    from testbed.operate.recovery.resume import Resumed, find_unfinished
    from testbed.operate.unfinished import unfinished_or_why_not

    lab = find_running(load_lab(lab_file))
    left = find_unfinished(runs_dir, lab, operation)
    if left is None:
        resumed = Resumed(operation, "none", "nothing is unfinished")
    else:
        check_permission(lab, really_move)
        if not as_json:
            print_lines([left.line()])
        resumed = _resume(lab, left, hosts, runs_dir, as_json=as_json)
    further = unfinished_or_why_not(runs_dir, lab)
    document = {"lab": lab.name, "simulated": lab.simulated, "operation": resumed.operation}
    document |= {"state": resumed.state, "reason": resumed.reason, "epoch": resumed.epoch}
    document |= {"steps": list(resumed.steps), "unfinished": [one.json() for one in further]}
    name = f"{resumed.operation}: " if resumed.operation else ""
    lines = [f"{name}{resumed.state}: {resumed.reason}", *(one.line() for one in further)]
    print_answer(document, lines, as_json=as_json)
    return DONE if resumed.ok else CHANGES


def _resume(lab: Lab, left: Unfinished, hosts: HostsChoice, runs_dir: Path, *, as_json: bool) -> Resumed:
    from testbed.cli.circuits import session_of
    from testbed.operate.design import design_of_intent
    from testbed.operate.engine.consent import interruptible
    from testbed.operate.recovery.resume import resume

    here, design = design_of_intent(lab, left.intent) if left.intent else (lab, None)
    note = (lambda _text: None) if as_json else (lambda text: print_lines([text]))
    with interruptible(tell), session_of(here, hosts, journal_dir=runs_dir) as session:
        return resume(session, left, design, note)
