"""Whether a request has been seen: the last so many are remembered, in constant memory."""

from __future__ import annotations

WINDOW = 1 << 15


class Replays:
    """Remembers at least the last `window` requests, and at most twice as many."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def seen(self, identity: bytes) -> bool:
        """Whether it is among those that are remembered; from now on it is.

        >>> replays = Replays()
        >>> replays.seen(b"peer 1, request 7"), replays.seen(b"peer 1, request 7")
        (False, True)
        """
        if identity in self._young or identity in self._old:
            return True
        self._young.add(identity)
        if len(self._young) >= self._window:
            self._young, self._old = set(), self._young
        return False
