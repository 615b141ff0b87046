"""`testbed resume`: complete an unfinished operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.context import CommandContext
from testbed.commands.declare import argument
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, Document, UnfinishedOperation
from testbed.commands.groups import HostsCommand, MovingCommand
from testbed.commands.lab.history import Step

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.operate.recovery.resume import ResumeResult
    from testbed.operate.unfinished import IncompleteOperation


@dataclass(frozen=True, kw_only=True)
class ResumeDocument(Document):
    """Outcome of a resume: `verified`, `done` (without an epoch), `failed`, `unknown` or `none` (nothing to resume)."""

    lab: str
    simulated: bool
    operation: str | None
    state: str
    reason: str
    epoch: int | None
    steps: tuple[Step, ...]
    unfinished: tuple[UnfinishedOperation, ...]

    @property
    def exit_code(self) -> int:
        """2 if the outcome is unknown or not verified."""
        return EXIT_DONE if self.state in ("verified", "done", "none") else EXIT_CHANGES


@dataclass(frozen=True, kw_only=True)
class Resume(MovingCommand, HostsCommand):
    """`testbed resume`."""

    operation: Annotated[str | None, argument("Operation to resume; default: the newest.", "[OPERATION]")] = (
        None
    )

    def run(self, context: CommandContext) -> ResumeDocument:
        """Complete the operation and prove it, or return why not. Raises `NoSuchOperation` and the devices' errors."""
        from testbed.operate.apply import check_permission
        from testbed.operate.recovery.resume import ResumeResult, find_unfinished

        lab = context.running_lab
        unfinished = find_unfinished(context.runs_dir, lab, self.operation)
        if unfinished is None:
            result = ResumeResult(self.operation, "none", "nothing is unfinished")
        else:
            check_permission(lab, self.really_move)
            context.say(unfinished.format_line())
            result = self._resume(context, lab, unfinished)
        prefix = f"{result.operation}: " if result.operation else ""
        context.say(f"{prefix}{result.state}: {result.reason}")
        rows: tuple[dict[str, Any], ...] = result.steps
        return ResumeDocument(
            lab=lab.name,
            simulated=lab.simulated,
            operation=result.operation,
            state=result.state,
            reason=result.reason,
            epoch=result.epoch,
            steps=tuple(Step(**row) for row in rows),
            unfinished=context.say_unfinished_operations(),
        )

    def _resume(self, context: CommandContext, lab: Lab, unfinished: IncompleteOperation) -> ResumeResult:
        from testbed.commands.lab.repair import plan_repair
        from testbed.operate.choice import choose_design
        from testbed.operate.design import build_intent_design
        from testbed.operate.engine.consent import stop_on_interrupt
        from testbed.operate.named_topology import NamedTopology
        from testbed.operate.recovery.resume import resume, resume_detours

        if unfinished.intent is None and unfinished.operation_kind == "repair":
            choice = choose_design(lab, NamedTopology(), context.runs_dir, ignores_repair=True)
            with (
                stop_on_interrupt(context.print_note),
                context.open_session(choice.lab, self.hosts, writes_journal=True) as session,
            ):
                _, lab_repair, _ = plan_repair(session, choice, context.runs_dir)
                return resume_detours(session, unfinished, lab_repair, context.say)
        epoch_lab, design = build_intent_design(lab, unfinished.intent) if unfinished.intent else (lab, None)
        with (
            stop_on_interrupt(context.print_note),
            context.open_session(epoch_lab, self.hosts, writes_journal=True) as session,
        ):
            return resume(session, unfinished, design, context.say)
