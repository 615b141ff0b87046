"""`testbed stop`: the emergency stop of a lab. No lease, no role and no lock of a database can hold it up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from testbed.commands.declare import Command, option
from testbed.commands.documents import CHANGES, DONE, OMIT_NONE, Document, UnfinishedOperation
from testbed.commands.place import Place
from testbed.errors import JournalError


@dataclass(frozen=True, kw_only=True)
class StopDocument(Document):
    """The lab and whether it is stopped: why, and the operations under way; of a release, whether it `was_stopped`."""

    lab: str
    stopped: bool
    was_stopped: bool | None = field(default=None, metadata=OMIT_NONE)
    reason: str | None = field(default=None, metadata=OMIT_NONE)
    running: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    unfinished: tuple[UnfinishedOperation, ...]

    @property
    def exit_code(self) -> int:
        """2 while an operation is under way."""
        return CHANGES if self.running else DONE


@dataclass(frozen=True, kw_only=True)
class Stop(Command[StopDocument]):
    """`testbed stop`."""

    has_own_route = True
    reason: Annotated[str, option("Told to whoever wants to move it.", metavar="TEXT")] = ""
    release: Annotated[bool, option("Let the lab move again.", "--release")] = False

    def run(self, at: Place) -> StopDocument:
        """Stop the lab, or let it move again."""
        from testbed.operate.engine.consent import EmergencyStop

        lab = at.lab
        latch = EmergencyStop(at.runs_dir, lab.name)
        if self.release:
            was_stopped = latch.release()
            hint = "may move again: `testbed resume` goes on with what was stopped"
            at.say(f"lab '{lab.name}' {hint if was_stopped else 'was not stopped'}")
            return StopDocument(
                lab=lab.name, stopped=False, was_stopped=was_stopped, unfinished=at.say_unfinished()
            )
        latch.pull(self.reason)
        running, lines = _operations_under_way(at)
        at.say(f"lab '{lab.name}' is stopped; `testbed stop {lab.path} --release` lets it move again", *lines)
        return StopDocument(
            lab=lab.name, stopped=True, reason=self.reason, running=running, unfinished=at.say_unfinished()
        )


def _operations_under_way(at: Place) -> tuple[tuple[str, ...], list[str]]:
    """Return the running operations and a line for each, or a line that says why they are not known."""
    from testbed.operate.recovery.records import operations_of

    try:
        running = tuple(one.id for one in operations_of(at.runs_dir, at.lab.name) if one.state == "running")
    except JournalError as error:
        return (), [f"what is under way is not known: {error}"]
    return running, [
        f"operation {one} ends at its next write; a move that a device has begun goes on" for one in running
    ]
