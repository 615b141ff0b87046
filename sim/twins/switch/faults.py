"""What a test or a demonstration may do to a simulated switch."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto

from sim.twins.switch.matrix import Pair


class Fate(Enum):
    """What a broken connection does to the command that was just received."""

    ANSWERED = auto()
    UNHEARD = auto()
    UNANSWERED = auto()


@dataclass(slots=True)
class Faults:
    """Faults that lie in wait. Each `take_...` uses one up.

    The counts say how many of the next commands or replies are hit, over all clients. A connection that
    closes after so many commands has executed the last of them, without answering, or not even heard it.
    `stuck` pairs are never made, `lossy_db` pairs lose that much more light, no light comes in at
    `dark_inputs`, and `swapped` inputs have one another's fibre. A `half_open` line hears and says nothing.
    `fired` counts how often each fault really bit.
    """

    dropped_commands: int = 0
    garbage_replies: int = 0
    reply_delay_s: float = 0.0
    close_after_commands: int | None = None
    close_executes: bool = True
    close_after_bytes: int | None = None
    max_sessions: int | None = None
    stuck: set[Pair] = field(default_factory=set)
    lossy_db: dict[Pair, float] = field(default_factory=dict)
    dark_inputs: set[int] = field(default_factory=set)
    swapped: dict[int, int] = field(default_factory=dict)
    half_open: bool = False
    fired: Counter[str] = field(default_factory=Counter)
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def take_dropped_command(self) -> bool:
        """Whether this set command is to be ignored without a word."""
        if not self.dropped_commands:
            return False
        self.dropped_commands -= 1
        self.fired["drop_command"] += 1
        return True

    def take_fate(self) -> Fate:
        """What becomes of the command just received."""
        if self.close_after_commands is None:
            return Fate.ANSWERED
        self.close_after_commands -= 1
        if self.close_after_commands > 0:
            return Fate.ANSWERED
        self.close_after_commands = None
        self.fired["close_connection"] += 1
        return Fate.UNANSWERED if self.close_executes else Fate.UNHEARD

    def take_reply(self, reply: bytes) -> tuple[bytes, bool]:
        """What really goes out for `reply`, and whether the connection breaks after it."""
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
        """Noise with the ending of `reply`, so that a reader who waits for an ending gets one."""
        noise = bytes(self.rng.choice(b"#%~^{}\x15\x7f\xfe") for _ in range(max(4, len(reply) - 2)))
        return noise + reply[-2:]
