"""Documents are the results of commands: frozen dataclasses with a JSON form and an exit code.

Field names are the keys of the JSON. The metadata of a field can change its key, or omit the field if it is None:

    source: str = field(metadata=make_key_metadata("from"))
    notes: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.operate.unfinished import IncompleteOperation

EXIT_DONE, EXIT_ERROR, EXIT_CHANGES, EXIT_INTERRUPTED = 0, 1, 2, 130
"""Exit codes. 0: done, or nothing to change. 1: an error. 2: changes or findings. 130: interrupted (Ctrl-C)."""

OMIT_NONE: Mapping[str, Any] = {"omit_none": True}
"""Metadata of a field that is omitted from the JSON if it is None."""


def make_key_metadata(name: str) -> Mapping[str, Any]:
    """Return the metadata of a field whose JSON key differs from its name."""
    return {"key": name}


class Document:
    """Base of the results of commands: subclasses are frozen dataclasses of plain values and other dataclasses."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command. The service returns the same code, because it follows from the document alone."""
        return EXIT_DONE

    def to_json(self) -> dict[str, Any]:
        """Return the document as a JSON object."""
        return dict(_yield_items(self))

    def _repr_html_(self) -> str:
        """Return the document as drawings and tables, for notebooks."""
        from testbed.measure.report.notebook import draw_document

        return draw_document(self, as_json)


class TableDocument(Document, ABC):
    """A document that `--csv` prints as a table."""

    @abstractmethod
    def to_table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return the columns and the rows."""


@dataclass(frozen=True, kw_only=True)
class UnfinishedOperation:
    """An operation that ended before it was complete: its state, and what to do about it."""

    operation: str
    detail: str
    hint: str

    def format_line(self) -> str:
        """Return a line for people."""
        return f"unfinished: {self.operation}: {self.detail}; {self.hint}"


def describe_unfinished_operations(
    operations: Iterable[IncompleteOperation],
) -> tuple[UnfinishedOperation, ...]:
    """Convert unfinished operations for a document."""
    return tuple(UnfinishedOperation(**operation.json()) for operation in operations)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A difference from the plan: its kind, the part that differs, details and a hint."""

    kind: str
    subject: str
    detail: str
    hint: str
    parts: tuple[str, ...] = ()


def yield_finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield findings as lines for people. A hint that the detail contains is left out."""
    for finding in findings:
        yield f"{finding.kind}: {finding.subject}: {finding.detail}"
        if finding.hint not in finding.detail:
            yield f"    {finding.hint}"


def as_json(value: Any) -> Any:
    """Convert a value of a document so that `json.dumps` accepts it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dict(_yield_items(value))
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value


def _yield_items(record: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value is not None or not field.metadata.get("omit_none"):
            yield field.metadata.get("key", field.name), as_json(value)
