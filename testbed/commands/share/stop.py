"""`testbed stop`: the emergency stop of a lab. No lease, no role and no lock of a database can hold it up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
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

    def lines(self, lab_file: Path | None) -> list[str]:
        """Return the same for people."""
        if not self.stopped:
            hint = "may move again: `testbed resume` goes on with what was stopped"
            return [f"lab '{self.lab}' {hint if self.was_stopped else 'was not stopped'}"]
        return [
            f"lab '{self.lab}' is stopped; `testbed stop {lab_file} --release` lets it move again",
            *(
                f"operation {each} ends at its next write; a move that a device has begun goes on"
                for each in self.running or ()
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class Stop(Command[StopDocument]):
    """`testbed stop`."""

    has_own_route = True
    reason: Annotated[
        str,
        option(
            "Reason, which is shown to everyone who wants to move the lab.", metavar="TEXT", is_one_line=True
        ),
    ] = ""
    release: Annotated[bool, option("Allow moves again.", "--release")] = False

    def run(self, at: Place) -> StopDocument:
        """Stop the lab, or let it move again."""
        from testbed.operate.engine.consent import EmergencyStop

        lab = at.lab
        latch = EmergencyStop(at.runs_dir, lab.name)
        if self.release:
            was_stopped, running, why_not = latch.release(), None, ""
        else:
            latch.pull(self.reason)
            was_stopped = None
            running, why_not = _operations_under_way(at)
        document = StopDocument(
            lab=lab.name,
            stopped=not self.release,
            was_stopped=was_stopped,
            reason=None if self.release else self.reason,
            running=running,
            unfinished=at.find_unfinished(),
        )
        at.say(*document.lines(at.lab_file), *([why_not] if why_not else []))
        at.say(*(each.line() for each in document.unfinished))
        return document


def _operations_under_way(at: Place) -> tuple[tuple[str, ...], str]:
    """Return the running operations, and why they are not known where the journal cannot be read."""
    from testbed.operate.recovery.records import operations_of

    try:
        return tuple(one.id for one in operations_of(at.runs_dir, at.lab.name) if one.state == "running"), ""
    except JournalError as error:
        return (), f"what is under way is not known: {error}"
