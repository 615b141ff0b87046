"""Address space of the board: registers in the programmable logic; the processor's are plain memory here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from fpga.bus import RegisterBus

DEFAULT_BASE = 0xA000_0000
"""Where the datapath is: the beginning of the first window that the processor has into the logic."""
SPAN_BYTES = 64 * 1024
PROCESSOR = range(0xF900_0000, 0x1_0000_0000)
"""Registers of the processor, which pynq sets when it loads a bitstream."""


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
