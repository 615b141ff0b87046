"""`testbed resume`: go on with an operation that ended too early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import options
from testbed.cli.output import print_answer, print_lines, tell
from testbed.cli.unfinished import with_unfinished
from testbed.commands.documents import CHANGES, DONE

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.lab.model import Lab
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.recovery.resume import Resumed
    from testbed.operate.session import Note
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

    lab = find_running(load_lab(lab_file))
    left = find_unfinished(runs_dir, lab, operation)
    if left is None:
        resumed = Resumed(operation, "none", "nothing is unfinished")
    else:
        check_permission(lab, really_move)
        if not as_json:
            print_lines([left.line()])
        resumed = _resume(lab, left, hosts, runs_dir, as_json=as_json)
    document = {"lab": lab.name, "simulated": lab.simulated, "operation": resumed.operation}
    document |= {"state": resumed.state, "reason": resumed.reason, "epoch": resumed.epoch}
    document |= {"steps": list(resumed.steps)}
    name = f"{resumed.operation}: " if resumed.operation else ""
    lines = [f"{name}{resumed.state}: {resumed.reason}"]
    print_answer(*with_unfinished(document, lines, runs_dir, lab), as_json=as_json)
    return DONE if resumed.ok else CHANGES


def _resume(lab: Lab, left: Unfinished, hosts: HostsChoice, runs_dir: Path, *, as_json: bool) -> Resumed:
    from testbed.cli.circuits import session_of
    from testbed.operate.design import design_of_intent
    from testbed.operate.engine.consent import interruptible
    from testbed.operate.recovery.resume import resume

    here, design = design_of_intent(lab, left.intent) if left.intent else (lab, None)
    note: Note = (lambda _text: None) if as_json else (lambda text: print_lines([text]))
    if left.intent is None and left.kind == "repair":
        return _resume_detours(lab, left, hosts, runs_dir, note)
    with interruptible(tell), session_of(here, hosts, journal_dir=runs_dir) as session:
        return resume(session, left, design, note)


def _resume_detours(lab: Lab, left: Unfinished, hosts: HostsChoice, runs_dir: Path, note: Note) -> Resumed:
    from testbed.cli.circuits import session_of
    from testbed.cli.repair import plan_repair
    from testbed.operate.choice import meant_design
    from testbed.operate.engine.consent import interruptible
    from testbed.operate.recovery.detours import resume_detours

    meant = meant_design(lab, options.NOTHING_NAMED, runs_dir, before_repair=True)
    with interruptible(tell), session_of(meant.lab, hosts, journal_dir=runs_dir) as session:
        _, planned, _ = plan_repair(session, meant, runs_dir)
        return resume_detours(session, left, planned, note)
