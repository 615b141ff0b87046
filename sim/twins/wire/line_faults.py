"""Faults of the line between a client and a simulated device."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto


class Delivery(Enum):
    """Effect of a broken connection on the command that was just received."""

    ANSWERED = auto()
    NOT_RECEIVED = auto()
    NOT_ANSWERED = auto()


@dataclass(slots=True)
class LineFaults:
    """Faults of all lines of a device. Each `take_...` uses one up.

    The counts say how many of the next commands or replies are hit, over all clients. A connection that
    closes after so many commands has executed the last of them, without answering, or not even received it.
    A `half_open` line receives and sends nothing. `fired` counts how often each fault took effect.
    """

    garbage_replies: int = 0
    reply_delay_s: float = 0.0
    close_after_commands: int | None = None
    close_executes: bool = True
    close_after_bytes: int | None = None
    max_sessions: int | None = None
    half_open: bool = False
    fired: Counter[str] = field(default_factory=Counter)
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def take_delivery(self) -> Delivery:
        """Return the delivery of the command just received."""
        if self.close_after_commands is None:
            return Delivery.ANSWERED
        self.close_after_commands -= 1
        if self.close_after_commands > 0:
            return Delivery.ANSWERED
        self.close_after_commands = None
        self.fired["close_connection"] += 1
        return Delivery.NOT_ANSWERED if self.close_executes else Delivery.NOT_RECEIVED

    def take_reply(self, reply: bytes) -> tuple[bytes, bool]:
        """Return the bytes that go out for `reply`, and True if the connection breaks after them."""
        if self.garbage_replies:
            self.garbage_replies -= 1
            self.fired["garbage"] += 1
            reply = self._garbage(reply)
        if self.close_after_bytes is None:
            return reply, False
        kept, self.close_after_bytes = self.close_after_bytes, None
        self.fired["close_connection"] += 1
        return reply[:kept], True

    def _garbage(self, reply: bytes) -> bytes:
        """Return noise with the ending of `reply`, so that a reader who waits for an ending gets one."""
        noise = bytes(self.rng.choice(b"#%~^{}\x15\x7f\xfe") for _ in range(max(4, len(reply) - 2)))
        return noise + reply[-2:]
