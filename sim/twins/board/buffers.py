"""Memory of the board that clients allocate: bytes with a physical address."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

_FIRST = 0x6000_0000
_PAGE = 4096
_LIMIT_BYTES = 256 * 1024 * 1024


class NoBuffer(Exception):
    """A buffer that is not there, does not fit, or is too large."""


@dataclass(slots=True)
class _Buffer:
    address: int
    cacheable: bool
    data: bytearray


class Buffers:
    """Buffers by their identifier. Freed memory is not given out again, so that a stale address is nobody's."""

    def __init__(self) -> None:
        self._buffers: dict[str, _Buffer] = {}
        self._numbers = itertools.count(1)
        self._next = _FIRST

    def allocate(self, size: int, *, cacheable: bool) -> str:
        """Return the identifier of new memory, all 0. Raises NoBuffer."""
        held = sum(len(each.data) for each in self._buffers.values())
        if held + size > _LIMIT_BYTES:
            raise NoBuffer(f"{size} bytes are not free: {held} of {_LIMIT_BYTES} are taken")
        name = f"buffer-{next(self._numbers)}"
        self._buffers[name] = _Buffer(self._next, cacheable, bytearray(size))
        self._next += -(-size // _PAGE) * _PAGE or _PAGE
        return name

    def write(self, name: str, start: int, data: bytes) -> None:
        """Put bytes into a buffer from `start` on. Raises NoBuffer."""
        buffer = self._find(name)
        if start + len(data) > len(buffer.data):
            raise NoBuffer(f"{name} has {len(buffer.data)} bytes, and {start + len(data)} were written")
        buffer.data[start : start + len(data)] = data

    def read(self, name: str) -> bytes:
        """Return all bytes of a buffer. Raises NoBuffer."""
        return bytes(self._find(name).data)

    def address(self, name: str) -> int:
        """Return the physical address. Raises NoBuffer."""
        return self._find(name).address

    def cacheable(self, name: str) -> bool:
        """Return True if it was asked for as cacheable. Raises NoBuffer."""
        return self._find(name).cacheable

    def free(self, name: str) -> None:
        """Give memory back. Raises NoBuffer."""
        self._find(name)
        del self._buffers[name]

    def _find(self, name: str) -> _Buffer:
        if name not in self._buffers:
            raise NoBuffer(f"no buffer {name!r}: it was freed, or belongs to another board")
        return self._buffers[name]
