"""Interface between a driver and a bus, which reads and writes the 32-bit registers of one datapath by byte offset.

BusError
 +-- BusUnavailable   the registers cannot be reached, or a library is missing
 +-- BusFault         an access failed, or was not answered
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from fpga.errors import FpgaError

Access = tuple[int, int | None]
"""An offset, and the value to write, or None to read."""
Transfer = Callable[[Sequence[Access]], list[int]]


class BusError(FpgaError, code="fpga.bus", who="device"):
    """Base class of errors of register buses."""


class BusUnavailable(BusError):
    """The registers cannot be reached, or a library is missing; the message says which."""


class BusFault(BusError):
    """An access failed, or was not answered."""


@runtime_checkable
class RegisterBus(Protocol):
    """Access to registers. Offsets are in bytes from the first register, and multiples of 4.

    An access has taken effect when it returns. At least one clock cycle of the datapath separates two accesses.
    `read32` and `write32` raise BusFault if the access fails.
    """

    def read32(self, offset: int) -> int:
        """Return the word at `offset`, an integer from 0 to 2**32 - 1."""
        ...

    def write32(self, offset: int, value: int) -> None:
        """Write a word at `offset`."""
        ...

    def close(self) -> None:
        """Release the bus. Closing it again does nothing."""
        ...


@runtime_checkable
class BurstBus(RegisterBus, Protocol):
    """A bus that executes several accesses together faster than one after the other."""

    def transfer(self, accesses: Sequence[Access]) -> list[int]:
        """Execute accesses in order; return the words that were read. Raise BusFault."""
        ...


def choose_transfer(bus: RegisterBus) -> Transfer:
    """Return a function that executes accesses and returns the words read, in one burst if the bus supports it."""
    return bus.transfer if isinstance(bus, BurstBus) else partial(_transfer_singly, bus)


def _transfer_singly(bus: RegisterBus, accesses: Sequence[Access]) -> list[int]:
    words = []
    for offset, value in accesses:
        if value is None:
            words.append(bus.read32(offset))
        else:
            bus.write32(offset, value)
    return words


def check_access(offset: int, value: int = 0) -> None:
    """Raise ValueError unless `offset` is a word offset and `value` fits in a word."""
    if offset < 0 or offset % 4:
        raise ValueError(f"{offset:#x} is not a word offset: it must be a multiple of 4, 0 or more.")
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} does not fit in a register: it must be 0 to 2**32 - 1.")
