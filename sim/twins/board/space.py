"""State of the board without its network: registers at their addresses, memory that clients allocate, files.

Registers in the programmable logic are a datapath's; the processor's are plain memory here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass

from fpga.bus import RegisterBus

DEFAULT_BASE = 0xA000_0000
"""Where the datapath is: the beginning of the first window that the processor has into the logic."""
SPAN_BYTES = 64 * 1024
PROCESSOR = range(0xF900_0000, 0x1_0000_0000)
"""Registers of the processor, which pynq sets when it loads a bitstream."""
_FIRST_BUFFER = 0x6000_0000
_PAGE = 4096
_LIMIT_BYTES = 256 * 1024 * 1024
FIRMWARE = "/lib/firmware/"
_MANAGER = "/sys/class/fpga_manager/fpga0/"


class NothingThere(Exception):
    """No register at an address. A real board stops answering then; this one says so."""


@dataclass(frozen=True)
class Slot:
    """Place of a datapath in the address space, and how one is made when the logic is loaded."""

    make: Callable[[], RegisterBus]
    base: int = DEFAULT_BASE
    span_bytes: int = SPAN_BYTES

    @property
    def addresses(self) -> range:
        """The bytes that it answers at."""
        return range(self.base, self.base + self.span_bytes)


class AddressSpace:
    """Words at physical addresses. Accesses come from many threads and happen one at a time."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._lock = threading.Lock()
        self._processor: dict[int, int] = {}
        self._bus = slot.make()

    def read32(self, address: int) -> int:
        """Return the word at `address`. Raises NothingThere and BusError."""
        with self._lock:
            if address in self.slot.addresses:
                return self._bus.read32(address - self.slot.base)
            if address in PROCESSOR:
                return self._processor.get(address, 0)
        raise self._nothing(address)

    def write32(self, address: int, value: int) -> None:
        """Put a word at `address`. Raises NothingThere and BusError."""
        with self._lock:
            if address in self.slot.addresses:
                self._bus.write32(address - self.slot.base, value)
                return
            if address in PROCESSOR:
                self._processor[address] = value
                return
        raise self._nothing(address)

    def reload(self) -> None:
        """Load the logic again: the datapath begins from power-on."""
        with self._lock:
            self._bus.close()
            self._bus = self.slot.make()

    def close(self) -> None:
        """Release the datapath."""
        with self._lock:
            self._bus.close()

    def _nothing(self, address: int) -> NothingThere:
        last = self.slot.addresses[-1]
        return NothingThere(
            f"no register at {address:#x}: the datapath is at {self.slot.base:#x} to {last:#x}"
        )


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
        self._next = _FIRST_BUFFER

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


class BoardFiles:
    """A file system in memory. Writing the name of a file in `/lib/firmware` to the manager loads it."""

    def __init__(self, board: str, loaded: Callable[[], None]) -> None:
        self._loaded = loaded
        self._files = {
            "/proc/version": b"Linux version 6.6.0-simulated (lightbed, SIMULATED) aarch64\n",
            "/proc/device-tree/chosen/pynq_board": board.encode() + b"\0",
            f"{_MANAGER}state": b"operating\n",
            f"{_MANAGER}flags": b"0\n",
            f"{_MANAGER}firmware": b"",
        }

    def exists(self, path: str) -> bool:
        """Return True if there is a file."""
        return path in self._files

    def read(self, path: str) -> bytes:
        """Return all of a file; nothing of one that is not there."""
        return self._files.get(path, b"")

    def write(self, path: str, content: bytes) -> None:
        """Replace a file, or make it."""
        self._files[path] = content
        if path == f"{_MANAGER}firmware":
            if self.read(FIRMWARE + content.decode(errors="replace").strip()):
                self._loaded()
                self._files[f"{_MANAGER}state"] = b"operating\n"
            else:
                self._files[f"{_MANAGER}state"] = b"firmware request error\n"
