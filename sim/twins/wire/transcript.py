"""Every byte that went in or out of a simulated switch, with its time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sim.models.clock import Clock

_KEPT_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """Some bytes of one session. `seconds` are of the device's clock."""

    seconds: float
    front: str
    session: int
    direction: Literal["in", "out"]
    data: bytes

    def as_json(self) -> Mapping[str, Any]:
        """Return the same as JSON values; bytes become characters of the same number."""
        return {
            "seconds": round(self.seconds, 6),
            "front": self.front,
            "session": self.session,
            "direction": self.direction,
            "data": self.data.decode("latin-1"),
        }


class Transcript:
    """The latest entries of all sessions, in the order of events."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=_KEPT_ENTRIES)

    def record(self, front: str, session: int, direction: Literal["in", "out"], data: bytes) -> None:
        """Note what was read or written."""
        self._entries.append(Entry(self._clock.now(), front, session, direction, data))

    def entries(self) -> tuple[Entry, ...]:
        """Return all that is kept, oldest first."""
        return tuple(self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
