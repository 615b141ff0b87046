"""A cache of requests seen lately: a table of constant size, in which a newer request may push out an older."""

from __future__ import annotations

import numpy as np

PLACES_LOG2 = 16
SHIFT = 64 - PLACES_LOG2
PEER_FACTOR = 0xC2B2AE3D27D4EB4F
REQUEST_FACTOR = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: successive numbers get places far from each other (Knuth, TAOCP 3, 6.4)."""
_MASK = (1 << 64) - 1


class ReplayCache:
    """Every pair of peer and request has one place among 65,536, and is remembered until another takes it."""

    def __init__(self) -> None:
        self.table = np.zeros((1 << PLACES_LOG2, 2), np.uint64)
        """(places, 2) peer and request. No peer is 0."""

    def seen(self, peer: int, request: int) -> bool:
        """Return whether this pair is remembered; from now on it is.

        >>> replay_cache = ReplayCache()
        >>> replay_cache.seen(1, 7), replay_cache.seen(1, 7), replay_cache.seen(2, 7)
        (False, True, False)
        """
        place = ((peer * PEER_FACTOR + request * REQUEST_FACTOR) & _MASK) >> SHIFT
        if self.table[place].tolist() == [peer, request]:
            return True
        self.table[place] = peer, request
        return False
