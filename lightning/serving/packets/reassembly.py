"""Messages from fragments, within limits of time and memory, and a cache of requests seen lately."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

TIME_LIMIT_NS = 1_000_000_000
MEMORY_LIMIT = 16 << 20
"""Bytes of fragments that are kept."""
COST = 256
"""Bytes that a fragment takes besides its payload, about."""

PLACES_LOG2 = 16
SHIFT = 64 - PLACES_LOG2
PEER_FACTOR = 0xC2B2AE3D27D4EB4F
REQUEST_FACTOR = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: successive numbers get places far from each other (Knuth, TAOCP 3, 6.4)."""
_MASK = (1 << 64) - 1


@dataclass(slots=True)
class _Partial:
    began: int
    fragments: int
    parts: dict[int, bytes] = field(default_factory=dict)
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Whole:
    """A message that its last fragment made whole."""

    message: bytes
    began: int
    """When its first fragment came."""
    joined: int
    """Fragments before the last."""


class Reassembly:
    """Fragments that wait for others of their message. Times are nanoseconds of any clock.

    `waiting` fragments are kept, `dropped` were given up: their message took too long, or was the oldest when memory
    ran out.
    """

    def __init__(self, time_limit_ns: int = TIME_LIMIT_NS, memory_limit: int = MEMORY_LIMIT) -> None:
        self._time_limit = time_limit_ns
        self._memory_limit = memory_limit
        self._partial: dict[Hashable, _Partial] = {}  # oldest first: in the order of their first fragments
        self.memory = 0
        self.waiting = 0
        self.dropped = 0

    def add(self, key: Hashable, fragment: int, fragments: int, payload: bytes, now: int) -> Whole | bool:
        """Add a fragment, and return the message if this makes it whole, else whether the fragment is kept.

        It is not where it was there already, or states another number of fragments than those before.
        """
        partial = self._partial.get(key)
        if partial is None:
            partial = self._partial[key] = _Partial(now, fragments)
        elif fragment in partial.parts or fragments != partial.fragments:
            return False
        if len(partial.parts) + 1 == fragments:
            self._forget(key)
            partial.parts[fragment] = payload
            message = b"".join(partial.parts[number] for number in range(fragments))
            return Whole(message, partial.began, fragments - 1)
        partial.parts[fragment] = payload
        partial.memory += len(payload) + COST
        self.memory += len(payload) + COST
        self.waiting += 1
        while self.memory > self._memory_limit:
            self._give_up()
        return True

    def expire(self, now: int) -> None:
        """Give up what has waited for too long. The clock may have been set back: then it waits on."""
        while self._partial and now - next(iter(self._partial.values())).began > self._time_limit:
            self._give_up()

    def _give_up(self) -> None:
        self.dropped += self._forget(next(iter(self._partial)))

    def _forget(self, key: Hashable) -> int:
        partial = self._partial.pop(key)
        self.memory -= partial.memory
        self.waiting -= len(partial.parts)
        return len(partial.parts)


class ReplayCache:
    """Every pair of peer and request has one place among 65,536, and is remembered until another takes it."""

    def __init__(self) -> None:
        self.table = np.zeros((1 << PLACES_LOG2, 2), np.uint64)
        """(places, 2) peer and request. No peer is 0."""

    def check_replay(self, peer: int, request: int) -> bool:
        """Return whether this pair is remembered; from now on it is.

        >>> replay_cache = ReplayCache()
        >>> replay_cache.check_replay(1, 7), replay_cache.check_replay(1, 7), replay_cache.check_replay(2, 7)
        (False, True, False)
        """
        place = ((peer * PEER_FACTOR + request * REQUEST_FACTOR) & _MASK) >> SHIFT
        if self.table[place].tolist() == [peer, request]:
            return True
        self.table[place] = peer, request
        return False
