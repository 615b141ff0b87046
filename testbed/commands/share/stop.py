"""`testbed stop`: the emergency stop of a lab. It needs no lease, no role and no database lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, OMIT_NONE, Document, UnfinishedOperation
from testbed.errors import JournalError


@dataclass(frozen=True, kw_only=True)
class StopDocument(Document):
    """The lab, whether it is stopped, the reason and running operations; with --release also `was_stopped`."""

    lab: str
    stopped: bool
    was_stopped: bool | None = field(default=None, metadata=OMIT_NONE)
    reason: str | None = field(default=None, metadata=OMIT_NONE)
    running: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    unfinished: tuple[UnfinishedOperation, ...]

    @property
    def exit_code(self) -> int:
        """2 if an operation is still running."""
        return EXIT_CHANGES if self.running else EXIT_DONE

    def format_lines(self, lab_file: Path | None) -> list[str]:
        """Return the document as lines for people."""
        if not self.stopped:
            effect_text = "may be changed again: `testbed resume` completes what was stopped"
            return [f"lab '{self.lab}' {effect_text if self.was_stopped else 'was not stopped'}"]
        return [
            f"lab '{self.lab}' is stopped; `testbed stop {lab_file} --release` allows changes again",
            *(
                f"operation {operation} ends at its next write; a device completes a move that it has started"
                for operation in self.running or ()
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class Stop(Command[StopDocument]):
    """`testbed stop`."""

    has_service_route = True
    reason: Annotated[
        str,
        option(
            "Reason, which is shown to everyone who wants to move the lab.", metavar="TEXT", is_one_line=True
        ),
    ] = ""
    release: Annotated[bool, option("Allow moves again.", "--release")] = False

    def run(self, context: CommandContext) -> StopDocument:
        """Stop the lab, or let it move again."""
        from testbed.operate.engine.consent import EmergencyStop

        lab = context.lab
        emergency_stop = EmergencyStop(context.runs_dir, lab.name)
        if self.release:
            was_stopped, running_operations, reading_error = emergency_stop.release(), None, ""
        else:
            emergency_stop.activate(self.reason)
            was_stopped = None
            running_operations, reading_error = _find_running_operations(context)
        document = StopDocument(
            lab=lab.name,
            stopped=not self.release,
            was_stopped=was_stopped,
            reason=None if self.release else self.reason,
            running=running_operations,
            unfinished=context.find_unfinished_operations(),
        )
        context.say(*document.format_lines(context.lab_file), *([reading_error] if reading_error else []))
        context.say(*(operation.format_line() for operation in document.unfinished))
        return document


def _find_running_operations(context: CommandContext) -> tuple[tuple[str, ...], str]:
    """Return the ids of running operations and "", or no ids and the error if the journal cannot be read."""
    from testbed.operate.recovery.records import load_operations

    try:
        return tuple(
            record.id
            for record in load_operations(context.runs_dir, context.lab.name)
            if record.state == "running"
        ), ""
    except JournalError as error:
        return (), f"cannot read the running operations: {error}"
