"""State of the simulated board: registers by address, buffers that clients allocate, and files.

The programmable logic has the registers of a datapath. Registers of the processor are plain memory.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass

from fpga.bus import RegisterBus

DEFAULT_BASE = 0xA000_0000
"""Address of the datapath: the start of the processor's first window into the programmable logic."""
SPAN_BYTES = 64 * 1024
PROCESSOR_ADDRESSES = range(0xF900_0000, 0x1_0000_0000)
"""Registers of the processor, which pynq sets when it loads a bitstream."""
_FIRST_BUFFER_ADDRESS = 0x6000_0000
_PAGE_BYTES = 4096
_LIMIT_BYTES = 256 * 1024 * 1024
FIRMWARE_FOLDER = "/lib/firmware/"
_FPGA_MANAGER_FOLDER = "/sys/class/fpga_manager/fpga0/"


class NoRegisterError(Exception):
    """An access to an address without a register. A real board would stop responding; the twin reports the error."""


@dataclass(frozen=True)
class Slot:
    """Address range of a datapath, and the factory that makes the datapath each time the logic is loaded."""

    make_bus: Callable[[], RegisterBus]
    base: int = DEFAULT_BASE
    span_bytes: int = SPAN_BYTES

    @property
    def addresses(self) -> range:
        """Byte addresses of the datapath."""
        return range(self.base, self.base + self.span_bytes)


class AddressSpace:
    """Words by physical address. Threads may share an instance; a lock serializes their accesses."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._lock = threading.Lock()
        self._processor_words: dict[int, int] = {}
        self._bus = slot.make_bus()

    def read32(self, address: int) -> int:
        """Return the word at `address`.

        Raise `NoRegisterError` if there is none, or `BusError` if the datapath fails.
        """
        with self._lock:
            if address in self.slot.addresses:
                return self._bus.read32(address - self.slot.base)
            if address in PROCESSOR_ADDRESSES:
                return self._processor_words.get(address, 0)
        raise self._make_error(address)

    def write32(self, address: int, value: int) -> None:
        """Write a word at `address`. Raise `NoRegisterError` if there is none, or `BusError` if the datapath fails."""
        with self._lock:
            if address in self.slot.addresses:
                self._bus.write32(address - self.slot.base, value)
                return
            if address in PROCESSOR_ADDRESSES:
                self._processor_words[address] = value
                return
        raise self._make_error(address)

    def reload(self) -> None:
        """Reload the logic: the datapath restarts in its power-on state."""
        with self._lock:
            self._bus.close()
            self._bus = self.slot.make_bus()

    def close(self) -> None:
        """Release the datapath."""
        with self._lock:
            self._bus.close()

    def _make_error(self, address: int) -> NoRegisterError:
        last = self.slot.addresses[-1]
        return NoRegisterError(
            f"no register at {address:#x}: the datapath is at {self.slot.base:#x} to {last:#x}"
        )


class BufferRequestError(Exception):
    """The buffer is unknown, an access exceeds it, or an allocation exceeds the available memory."""


@dataclass(slots=True)
class _Buffer:
    address: int
    is_cacheable: bool
    data: bytearray


class Buffers:
    """Buffers by identifier. Freed addresses are not reused, so a stale address never belongs to another buffer."""

    def __init__(self) -> None:
        self._buffers: dict[str, _Buffer] = {}
        self._numbers = itertools.count(1)
        self._next_address = _FIRST_BUFFER_ADDRESS

    def allocate(self, size: int, *, cacheable: bool) -> str:
        """Allocate a buffer of `size` zero bytes, and return its identifier.

        Raise `BufferRequestError` if `size` exceeds the available memory.
        """
        allocated_bytes = sum(len(buffer.data) for buffer in self._buffers.values())
        if allocated_bytes + size > _LIMIT_BYTES:
            raise BufferRequestError(
                f"cannot allocate {size} bytes: {allocated_bytes} of {_LIMIT_BYTES} bytes are allocated already"
            )
        name = f"buffer-{next(self._numbers)}"
        self._buffers[name] = _Buffer(self._next_address, cacheable, bytearray(size))
        self._next_address += -(-size // _PAGE_BYTES) * _PAGE_BYTES or _PAGE_BYTES
        return name

    def write(self, name: str, start: int, data: bytes) -> None:
        """Write bytes into a buffer from offset `start`.

        Raise `BufferRequestError` if the buffer does not exist or the bytes do not fit.
        """
        buffer = self._find_buffer(name)
        if start + len(data) > len(buffer.data):
            raise BufferRequestError(
                f"{name} has {len(buffer.data)} bytes; a write of {len(data)} bytes at offset {start} does not fit"
            )
        buffer.data[start : start + len(data)] = data

    def read(self, name: str) -> bytes:
        """Return all bytes of a buffer. Raise `BufferRequestError` if it does not exist."""
        return bytes(self._find_buffer(name).data)

    def get_address(self, name: str) -> int:
        """Return the physical address of a buffer. Raise `BufferRequestError` if it does not exist."""
        return self._find_buffer(name).address

    def is_cacheable(self, name: str) -> bool:
        """Return whether a buffer was allocated as cacheable. Raise `BufferRequestError` if it does not exist."""
        return self._find_buffer(name).is_cacheable

    def free(self, name: str) -> None:
        """Free a buffer. Raise `BufferRequestError` if it does not exist."""
        self._find_buffer(name)
        del self._buffers[name]

    def _find_buffer(self, name: str) -> _Buffer:
        if name not in self._buffers:
            raise BufferRequestError(f"no buffer {name!r}: it was freed, or belongs to another board")
        return self._buffers[name]


class BoardFiles:
    """A file system in memory.

    To load a bitstream, write its file to `/lib/firmware`, then its name to the file `firmware` of the FPGA manager.
    """

    def __init__(self, board_name: str, on_load: Callable[[], None]) -> None:
        self._on_load = on_load
        self._files = {
            "/proc/version": b"Linux version 6.6.0-simulated (lightbed, SIMULATED) aarch64\n",
            "/proc/device-tree/chosen/pynq_board": board_name.encode() + b"\0",
            f"{_FPGA_MANAGER_FOLDER}state": b"operating\n",
            f"{_FPGA_MANAGER_FOLDER}flags": b"0\n",
            f"{_FPGA_MANAGER_FOLDER}firmware": b"",
        }

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""
        return path in self._files

    def read(self, path: str) -> bytes:
        """Return the content of a file, or empty bytes if it does not exist."""
        return self._files.get(path, b"")

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file. A write to the manager's file `firmware` loads the bitstream that it names."""
        self._files[path] = content
        if path == f"{_FPGA_MANAGER_FOLDER}firmware":
            if self.read(FIRMWARE_FOLDER + content.decode(errors="replace").strip()):
                self._on_load()
                self._files[f"{_FPGA_MANAGER_FOLDER}state"] = b"operating\n"
            else:
                self._files[f"{_FPGA_MANAGER_FOLDER}state"] = b"firmware request error\n"
