"""`testbed rollback|confirm`: return to an earlier verified epoch, or keep an epoch that awaits confirmation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.commands.about import describe_findings
from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, argument
from testbed.commands.documents import (
    EXIT_CHANGES,
    EXIT_DONE,
    Document,
    Finding,
    UnfinishedOperation,
    yield_finding_lines,
)
from testbed.commands.groups import TAKE_OVER_OPTION, HostsCommand, MovingCommand


@dataclass(frozen=True, kw_only=True)
class RollbackDocument(Document):
    """Outcome of a rollback from `from_epoch`. The topology of `to_epoch` is in force again, as the epoch `epoch`."""

    lab: str
    simulated: bool
    operation: str
    from_epoch: int
    to_epoch: int
    epoch: int | None
    worked: bool
    verified: bool
    findings: tuple[Finding, ...]
    outage_s: float
    unfinished: tuple[UnfinishedOperation, ...]

    @property
    def exit_code(self) -> int:
        """2 if the proof has findings."""
        return EXIT_DONE if self.verified else EXIT_CHANGES


@dataclass(frozen=True, kw_only=True)
class Rollback(MovingCommand, HostsCommand):
    """`testbed rollback`."""

    epoch: Annotated[
        int | None,
        argument(
            "Epoch to go back to; default: the verified epoch before the current one.", "[EPOCH]", least=1
        ),
    ] = None
    take_over: Annotated[bool, TAKE_OVER_OPTION] = False

    def run(self, context: CommandContext) -> RollbackDocument:
        """Apply the earlier epoch and prove it. Raises `NoEarlierEpoch`, `RefusedToMove` and the devices' errors."""
        from testbed.operate.apply import check_permission
        from testbed.operate.confirmation import ConfirmationLog
        from testbed.operate.design import build_intent_design
        from testbed.operate.engine.consent import stop_on_interrupt
        from testbed.operate.recovery.rollback import find_rollback_target, roll_back

        lab = context.running_lab
        current_intent, target_intent = find_rollback_target(context.runs_dir, lab, self.epoch)
        target_lab, design = build_intent_design(lab, target_intent)
        check_permission(lab, self.really_move)
        context.say(f"rolling back from {current_intent.describe()} to {target_intent.describe()}")
        with (
            stop_on_interrupt(context.print_note),
            context.open_session(target_lab, self.hosts, writes_journal=True) as session,
        ):
            report = roll_back(
                session, target_intent, current_intent, design, context.say, take_over=self.take_over
            )
            if report.verify_report.ok:
                ConfirmationLog(session.writable_journal, lab.name).end_pending("rolled back by hand")
        is_proven, findings = report.verify_report.ok, describe_findings(report.verify_report.findings)
        if is_proven:
            outcome = (
                f"the rollback worked: epoch {target_intent.epoch} is in force again, as epoch {report.epoch}"
            )
        else:
            outcome = "the rollback did not work: its verification has findings"
        context.say(outcome, *yield_finding_lines(findings))
        return RollbackDocument(
            lab=lab.name,
            simulated=lab.simulated,
            operation=report.apply_result.operation,
            from_epoch=current_intent.epoch,
            to_epoch=target_intent.epoch,
            epoch=report.epoch,
            worked=is_proven,
            verified=is_proven,
            findings=findings,
            outage_s=report.apply_result.outage_s,
            unfinished=context.say_unfinished_operations(),
        )


@dataclass(frozen=True, kw_only=True)
class ConfirmDocument(Document):
    """The epoch that is kept, and the epoch that the lab would have been rolled back to."""

    lab: str
    epoch: int
    confirmed: bool
    back_to: int | None
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class Confirm(Command[ConfirmDocument]):
    """`testbed confirm`."""

    lane = "prompt"  # the time to confirm is short, so it must not queue behind commands that change the lab

    def run(self, context: CommandContext) -> ConfirmDocument:
        """Keep the epoch that awaits confirmation. Raises `NoPendingConfirmation`."""
        from testbed.operate.confirmation import ConfirmationLog
        from testbed.operate.journal import open_journal

        name = context.lab.name
        with open_journal(context.runs_dir) as journal:
            confirmation = ConfirmationLog(journal, name).confirm()
        context.say(f"epoch {confirmation.epoch} of lab '{name}' is confirmed")
        return ConfirmDocument(
            lab=name,
            epoch=confirmation.epoch,
            confirmed=True,
            back_to=confirmation.back_to,
            unfinished=context.say_unfinished_operations(),
        )
