"""`testbed resume`: go on with an operation that ended too early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.declare import argument
from testbed.commands.documents import CHANGES, DONE, Document, UnfinishedOperation
from testbed.commands.groups import AsksHosts, Moves
from testbed.commands.lab.history import Step
from testbed.commands.place import Place

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.operate.recovery.resume import ResumeResult
    from testbed.operate.unfinished import Unfinished


@dataclass(frozen=True, kw_only=True)
class ResumeDocument(Document):
    """Outcome of a resume: `verified`, `done` for what is no epoch, `failed`, `unknown`, or `none` to do."""

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
        """2 where it stops as unknown, or is not proven."""
        return DONE if self.state in ("verified", "done", "none") else CHANGES


@dataclass(frozen=True, kw_only=True)
class Resume(Moves, AsksHosts):
    """`testbed resume`."""

    operation: Annotated[str | None, argument("Operation to resume; default: the newest.", "[OPERATION]")] = (
        None
    )

    def run(self, at: Place) -> ResumeDocument:
        """Finish the operation and prove it, or say why not. Raises `NoSuchOperation` and the devices' errors."""
        from testbed.operate.apply import check_permission
        from testbed.operate.recovery.resume import ResumeResult, find_unfinished

        lab = at.running_lab
        left = find_unfinished(at.runs_dir, lab, self.operation)
        if left is None:
            resumed = ResumeResult(self.operation, "none", "nothing is unfinished")
        else:
            check_permission(lab, self.really_move)
            at.say(left.line())
            resumed = self._resume(at, lab, left)
        name = f"{resumed.operation}: " if resumed.operation else ""
        at.say(f"{name}{resumed.state}: {resumed.reason}")
        rows: tuple[dict[str, Any], ...] = resumed.steps
        return ResumeDocument(
            lab=lab.name,
            simulated=lab.simulated,
            operation=resumed.operation,
            state=resumed.state,
            reason=resumed.reason,
            epoch=resumed.epoch,
            steps=tuple(Step(**row) for row in rows),
            unfinished=at.say_unfinished(),
        )

    def _resume(self, at: Place, lab: Lab, left: Unfinished) -> ResumeResult:
        from testbed.commands.lab.repair import plan_repair
        from testbed.operate.choice import choose_design
        from testbed.operate.design import design_of_intent
        from testbed.operate.engine.consent import interruptible
        from testbed.operate.named_topology import NamedTopology
        from testbed.operate.recovery.resume import resume, resume_detours

        if left.intent is None and left.kind == "repair":
            meant = choose_design(lab, NamedTopology(), at.runs_dir, before_repair=True)
            with interruptible(at.tell), at.session(meant.lab, self.hosts, writes=True) as session:
                _, planned, _ = plan_repair(session, meant, at.runs_dir)
                return resume_detours(session, left, planned, at.say)
        here, design = design_of_intent(lab, left.intent) if left.intent else (lab, None)
        with interruptible(at.tell), at.session(here, self.hosts, writes=True) as session:
            return resume(session, left, design, at.say)
