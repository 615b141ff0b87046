"""`testbed rollback`: back to an earlier verified epoch."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import options
from testbed.cli.output import finding_lines, print_answer, print_lines, tell
from testbed.cli.unfinished import with_unfinished
from testbed.commands.documents import CHANGES, DONE

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.lab.model import Lab
    from testbed.operate.intent import Intent
    from testbed.operate.session import BringUpReport, Note


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rollback")(rollback)


def rollback(
    lab_file: options.LabFile,
    epoch: Annotated[
        int | None,
        typer.Argument(metavar="[EPOCH]", min=1, help="By default the verified epoch before the current."),
    ] = None,
    take_over: options.TakeOver = False,
    hosts: options.HostsMode = "auto",
    really_move: options.ReallyMove = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Go back to an earlier verified epoch, by default the one before the current. Exit code 2 when not proven."""
    from testbed.cli.circuits import session_of
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import find_running
    from testbed.operate.apply import check_permission
    from testbed.operate.confirmation import Confirmations
    from testbed.operate.design import design_of_intent
    from testbed.operate.engine.consent import interruptible
    from testbed.operate.recovery.rollback import roll_back, target_of

    lab = find_running(load_lab(lab_file))
    current, target = target_of(runs_dir, lab, epoch)
    here, design = design_of_intent(lab, target)
    check_permission(lab, really_move)
    first = f"from {current.describe()} back to {target.describe()}"
    note: Note = (lambda _text: None) if as_json else (lambda text: print_lines([text]))
    note(first)
    with interruptible(tell), session_of(here, hosts, journal_dir=runs_dir) as session:
        brought = roll_back(session, target, current, design, note, take_over=take_over)
        if brought.verified.ok:
            Confirmations(session.writable, lab.name).end("gone back by hand")
    document, lines = _told(lab, runs_dir, current, target, brought)
    print_answer(document, lines, as_json=as_json)
    return DONE if brought.verified.ok else CHANGES


def _told(
    lab: Lab, runs_dir: Path, current: Intent, target: Intent, brought: BringUpReport
) -> tuple[dict[str, object], list[str]]:
    """Return the document and the lines: whether it worked, and what is unfinished after it."""
    worked, findings = brought.verified.ok, [asdict(finding) for finding in brought.verified.findings]
    document: dict[str, object] = {"lab": lab.name, "simulated": lab.simulated}
    document |= {"operation": brought.apply.operation, "from_epoch": current.epoch, "to_epoch": target.epoch}
    document |= {"epoch": brought.epoch, "worked": worked, "verified": worked, "findings": findings}
    document |= {"outage_s": brought.apply.outage_s}
    said = f"the rollback worked: epoch {target.epoch} is in force again, as epoch {brought.epoch}"
    if not worked:
        said = "the rollback did not work: its proof found what follows"
    return with_unfinished(document, [said, *finding_lines(findings)], runs_dir, lab)
