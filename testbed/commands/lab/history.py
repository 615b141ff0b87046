"""`testbed history|journal`: the epochs of a lab, and its operations with their steps. They read no device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, argument, option
from testbed.commands.documents import OMIT_NONE, Document, UnfinishedOperation

if TYPE_CHECKING:
    from testbed.operate.recovery.records import OperationRecord


@dataclass(frozen=True, kw_only=True)
class Change:
    """Change of an epoch on one device: of `circuits`, listed as (input, output), or of the `routes` of a host."""

    device: str
    change: str
    made: tuple[tuple[int, int], ...] | None = field(default=None, metadata=OMIT_NONE)
    removed: tuple[tuple[int, int], ...] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A topology that was applied to a lab: when, by whom, why, and its changes."""

    id: int
    operation: str
    kind: str
    state: str
    verified: bool
    at: str
    who: str
    why: str
    changes: tuple[Change, ...]

    def format_line(self) -> str:
        """Return a line for people."""
        made_count = sum(len(change.made or ()) for change in self.changes)
        removed_count = sum(len(change.removed or ()) for change in self.changes)
        host_count = sum(change.change == "routes" for change in self.changes)
        summary = f"+{made_count} -{removed_count} circuits" + (f", {host_count} hosts" if host_count else "")
        author = f" by {self.who}" if self.who else ""
        time_text = self.at[:16].replace("T", " ")
        cause_text = f"{self.kind} {self.operation}: {self.why}"
        return f"epoch {self.id}: {self.state}, {time_text} UTC{author}, {cause_text}; {summary}"


@dataclass(frozen=True, kw_only=True)
class EpochList(Document):
    """The epochs of a lab, newest first."""

    lab: str
    epochs: tuple[Epoch, ...]
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of an operation in the journal."""

    device: str
    ordinal: int
    change: str
    state: str
    reason: str
    address: str
    kind: str
    before: str
    after: str
    intent_at: str | None
    outcome: str | None
    outcome_at: str | None
    read_back: str | None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation of a lab, with its steps by device."""

    id: str
    kind: str
    state: str
    who: str
    why: str
    stage: str
    reason: str
    owner: str
    started: str
    finished: str | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class OperationList(Document):
    """The operations of a lab, oldest first."""

    lab: str
    operations: tuple[Operation, ...]
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class History(Command[EpochList]):
    """`testbed history`."""

    lane = "reading"
    role = "viewer"

    def run(self, context: CommandContext) -> EpochList:
        """List the epochs. Raises `JournalError`."""
        from testbed.operate.recovery.records import load_history

        epochs = tuple(
            Epoch(**row, changes=tuple(Change(**change) for change in changes))
            for row in load_history(context.runs_dir, context.lab.name)
            for changes in [row.pop("changes")]
        )
        context.say(*(epoch.format_line() for epoch in epochs))
        unfinished = context.say_unfinished_operations()
        if not (epochs or unfinished):
            context.say(_describe_empty_list(f"no epoch of lab '{context.lab.name}'", context.runs_dir))
        return EpochList(lab=context.lab.name, epochs=epochs, unfinished=unfinished)


@dataclass(frozen=True, kw_only=True)
class Journal(Command[OperationList]):
    """`testbed journal`."""

    lane = "reading"
    role = "viewer"
    operation: Annotated[str | None, argument("Show only this operation.", "[OPERATION]")] = None
    last: Annotated[int | None, option("Show only the newest N operations.", metavar="N", least=1)] = None

    def run(self, context: CommandContext) -> OperationList:
        """List the operations. Raises `NoSuchOperation` and `JournalError`."""
        from testbed.operate.recovery.records import load_operations
        from testbed.operation_errors import NoSuchOperation

        records = load_operations(context.runs_dir, context.lab.name)
        if self.operation is not None:
            records = tuple(record for record in records if record.id == self.operation)
            if not records:
                raise NoSuchOperation(
                    f"lab '{context.lab.name}' has no operation {self.operation} in {context.runs_dir}"
                )
        records = records[-self.last :] if self.last else records
        context.say(*(line for record in records for line in _yield_operation_lines(record)))
        unfinished = context.say_unfinished_operations()
        if not (records or unfinished):
            context.say(_describe_empty_list(f"no operation of lab '{context.lab.name}'", context.runs_dir))
        operations = tuple(
            Operation(**row, steps=tuple(Step(**step) for step in steps))
            for row in (record.json() for record in records)
            for steps in [row.pop("steps")]
        )
        return OperationList(lab=context.lab.name, operations=operations, unfinished=unfinished)


def _describe_empty_list(subject: str, runs_dir: Path) -> str:
    """Return the line for an empty list. Without a database, it also says what to do."""
    from testbed.storage.address import get_database_address

    address = get_database_address(runs_dir)
    if not isinstance(address, Path) or address.exists():
        return f"{subject} is stored in {runs_dir}"
    return f"{subject} is stored: {runs_dir} has no database. Name another --runs-dir, or `testbed restore` a backup"


def _yield_operation_lines(record: OperationRecord) -> Iterator[str]:
    row = record.json()
    author = f" by {row['who']}" if row["who"] else ""
    reason_text = f": {row['why']}" if row["why"] else ""
    start_text = row["started"][:19].replace("T", " ")
    yield f"{record.id} {record.kind}, {record.state}, {start_text} UTC{author}{reason_text}"
    for step in record.steps:
        reason = step.row.get("reason") or ""
        circuit_count = (
            len(step.circuits_before.pairs ^ step.circuits_after.pairs)
            if step.change_kind == "circuits"
            else 0
        )
        summary = f"{circuit_count} circuits" if circuit_count else step.change_kind
        outcome = f"{step.state}: {reason}" if reason else step.state
        yield f"    {step.device} {step.ordinal} {step.row['kind']} ({summary}): {outcome}"
