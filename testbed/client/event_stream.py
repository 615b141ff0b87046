"""Server-sent events, bytes in and events out, as the HTML standard has them; no socket and no clock."""

from __future__ import annotations

import json
from collections.abc import Iterator

from testbed.client.documents import Event


class EventParser:
    """A stream of events: `feed` takes bytes as they come. `last` is the number of the newest event."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self._rest = b""
        self._kind, self._number, self._data = "", "", list[str]()

    def feed(self, received: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                self.last = event.number
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._end()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id":
            self._number = value
        return None

    def _end(self) -> Event | None:
        kind, number, data = self._kind, self._number, self._data
        self._kind, self._number, self._data = "", "", []
        if not (data and number.isdigit()):
            return None
        return Event(int(number), kind or "message", json.loads("\n".join(data)))
