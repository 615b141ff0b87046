"""Documents of the service as frozen records, and a parser of its server-sent events.

The `document` of a record is the complete JSON. The parser follows the HTML standard, and needs no socket or clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ENDED_STATES = frozenset({"done", "failed", "interrupted", "cancelled"})
"""Final states of a run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run: a command that the service executes. `result` is the document that the command printed."""

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
        """True if the state is final."""
        return self.state in ENDED_STATES

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Run:
        """Return the run that a document describes."""
        texts: dict[str, Any] = {name: document[name] for name in ("id", "lab", "command", "state", "who")}
        texts |= {name: document.get(name) or "" for name in ("output", "messages")}
        return cls(**texts, exit_code=document["exit_code"], result=document.get("result"), document=document)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the journal. `kind` is `snapshot`, `run` or `step`, and `number` counts the journal's events."""

    number: int
    kind: str
    document: Mapping[str, Any]

    @property
    def lab(self) -> str:
        """Lab of the event, or "" for a snapshot."""
        return str(self.document.get("lab", ""))

    @property
    def run(self) -> str:
        """Run of the event, or "" for a snapshot and for operations outside the service."""
        return str(self.document.get("run", ""))

    @property
    def event(self) -> str:
        """Name of the event."""
        return str(self.document.get("event", ""))


class EventParser:
    """A parser of a stream of events. Pass received bytes to `feed`. `last_number` is the newest event's number."""

    def __init__(self, last_number: int | None = None) -> None:
        self.last_number = last_number
        self._partial_line = b""
        self._kind, self._number, self._data = "", "", list[str]()

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete."""
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            event = self._parse_line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                self.last_number = event.number
                yield event

    def _parse_line(self, line: str) -> Event | None:
        if not line:
            return self._end_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id":
            self._number = value
        return None

    def _end_event(self) -> Event | None:
        kind, number, data = self._kind, self._number, self._data
        self._kind, self._number, self._data = "", "", []
        if not (data and number.isdigit()):
            return None
        return Event(int(number), kind or "message", json.loads("\n".join(data)))
