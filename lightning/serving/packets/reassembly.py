"""Reassembly of fragments within limits of time and memory, and a cache of recent requests."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

FRAGMENT_TIME_LIMIT_NS = 1_000_000_000
"""Longest time that the fragments of a message are kept after the first fragment."""
MEMORY_LIMIT_BYTES = 16 << 20
"""Maximum memory for waiting fragments, in bytes."""
FRAGMENT_OVERHEAD_BYTES = 256
"""Approximate memory of a fragment besides its payload, in bytes."""

SLOTS_LOG2 = 16
HASH_SHIFT = 64 - SLOTS_LOG2
PEER_FACTOR = 0xC2B2AE3D27D4EB4F
REQUEST_FACTOR = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, so that successive numbers are far apart in the table (Knuth, TAOCP 3, 6.4)."""
_UINT64_MASK = (1 << 64) - 1


@dataclass(slots=True)
class _PartialMessage:
    arrival_ns: int
    fragment_count: int
    payload_by_fragment: dict[int, bytes] = field(default_factory=dict)
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CompleteMessage:
    """A complete message."""

    message: bytes
    arrival_ns: int
    """Arrival of the first fragment, on the caller's clock."""
    fragments_before_last: int
    """Number of fragments that arrived before the last."""


class FragmentReassembler:
    """Fragments that wait for the other fragments of their message. Times are nanoseconds of any clock.

    `waiting_count` is the number of stored fragments. `dropped_count` is the number of discarded fragments, whose
    message took too long or was the oldest when memory ran out.
    """

    def __init__(
        self, time_limit_ns: int = FRAGMENT_TIME_LIMIT_NS, memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    ) -> None:
        self._time_limit_ns = time_limit_ns
        self._memory_limit_bytes = memory_limit_bytes
        self._partial_messages: dict[
            Hashable, _PartialMessage
        ] = {}  # oldest first: in the order of their first fragments
        self.memory_bytes = 0
        self.waiting_count = 0
        self.dropped_count = 0

    def add_fragment(
        self, key: Hashable, fragment_index: int, fragment_count: int, payload: bytes, now_ns: int
    ) -> CompleteMessage | bool:
        """Add a fragment. Return the message if it is now complete, otherwise whether the fragment was stored.

        A duplicate is not stored. If `fragment_count` differs from an earlier call for the message, nothing is stored.
        """
        partial = self._partial_messages.get(key)
        if partial is None:
            partial = self._partial_messages[key] = _PartialMessage(now_ns, fragment_count)
        elif fragment_index in partial.payload_by_fragment or fragment_count != partial.fragment_count:
            return False
        if len(partial.payload_by_fragment) + 1 == fragment_count:
            self._remove(key)
            partial.payload_by_fragment[fragment_index] = payload
            message = b"".join(partial.payload_by_fragment[number] for number in range(fragment_count))
            return CompleteMessage(message, partial.arrival_ns, fragment_count - 1)
        partial.payload_by_fragment[fragment_index] = payload
        partial.memory_bytes += len(payload) + FRAGMENT_OVERHEAD_BYTES
        self.memory_bytes += len(payload) + FRAGMENT_OVERHEAD_BYTES
        self.waiting_count += 1
        while self.memory_bytes > self._memory_limit_bytes:
            self._drop_oldest()
        return True

    def expire(self, now_ns: int) -> None:
        """Discard messages older than the time limit. If the clock was set back, they stay longer."""
        while (
            self._partial_messages
            and now_ns - next(iter(self._partial_messages.values())).arrival_ns > self._time_limit_ns
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.dropped_count += self._remove(next(iter(self._partial_messages)))

    def _remove(self, key: Hashable) -> int:
        partial = self._partial_messages.pop(key)
        self.memory_bytes -= partial.memory_bytes
        self.waiting_count -= len(partial.payload_by_fragment)
        return len(partial.payload_by_fragment)


class ReplayCache:
    """A cache of recent requests. Each pair of peer and request is hashed to one of 65,536 slots.

    A pair stays until another pair with the same slot replaces it.
    """

    def __init__(self) -> None:
        self.table = np.zeros((1 << SLOTS_LOG2, 2), np.uint64)
        """(slots, 2) peer and request. 0 is not a valid peer, so it marks an empty slot."""

    def record_request(self, peer: int, request: int) -> bool:
        """Return whether the pair is in the cache, and store it.

        >>> replay_cache = ReplayCache()
        >>> (
        ...     replay_cache.record_request(1, 7),
        ...     replay_cache.record_request(1, 7),
        ...     replay_cache.record_request(2, 7),
        ... )
        (False, True, False)
        """
        slot = ((peer * PEER_FACTOR + request * REQUEST_FACTOR) & _UINT64_MASK) >> HASH_SHIFT
        if self.table[slot].tolist() == [peer, request]:
            return True
        self.table[slot] = peer, request
        return False
