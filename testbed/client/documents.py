"""Documents of the service as frozen records; `document` holds all that was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ENDED = frozenset({"done", "failed", "interrupted", "cancelled"})
"""States of a run that nothing follows."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run: a command that the service carries out. `result` is the document that the command printed."""

    id: str
    lab: str
    command: str
    state: str
    who: str
    exit_code: int | None
    result: Mapping[str, Any] | None
    output: str
    messages: str
    document: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def has_ended(self) -> bool:
        """True when nothing more becomes of it."""
        return self.state in ENDED

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Run:
        """Return the run of a document."""
        given: dict[str, Any] = {name: document[name] for name in ("id", "lab", "command", "state", "who")}
        given |= {name: document.get(name) or "" for name in ("output", "messages")}
        return cls(**given, exit_code=document["exit_code"], result=document.get("result"), document=document)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the journal; `kind` is `snapshot`, `run` or `step`, `number` its place in the journal."""

    number: int
    kind: str
    document: Mapping[str, Any]

    @property
    def lab(self) -> str:
        """The lab that it is of; empty for a snapshot."""
        return str(self.document.get("lab", ""))

    @property
    def run(self) -> str:
        """The run that it is of; empty for a snapshot and for what was done without the service."""
        return str(self.document.get("run", ""))

    @property
    def event(self) -> str:
        """Name of what happened."""
        return str(self.document.get("event", ""))
