"""Interface between a driver and a bus, however it is reached: 32-bit words at byte offsets of one datapath.

BusError
 +-- BusUnavailable   the other end cannot be reached, or a library for it is missing
 +-- BusFault         an access was refused, or never answered
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from fpga.errors import FpgaError

Access = tuple[int, int | None]
"""An offset and the value to put there, or None to read it."""
Transfer = Callable[[Sequence[Access]], list[int]]


class BusError(FpgaError, code="fpga.bus", who="device"):
    """Anything that goes wrong on the way to the registers."""


class BusUnavailable(BusError):
    """There is nothing at the other end, or a library is missing; the message says which."""


class BusFault(BusError):
    """An access was refused, or not answered."""


@runtime_checkable
class RegisterBus(Protocol):
    """Reads and writes registers; offsets are in bytes from the first register, and multiples of 4.

    An access has taken effect when it returns. At least one clock cycle of the datapath lies between two
    accesses. Both raise BusFault.
    """

    def read32(self, offset: int) -> int:
        """Return the word at `offset`, 0 to 2**32 - 1."""
        ...

    def write32(self, offset: int, value: int) -> None:
        """Put a word at `offset`."""
        ...

    def close(self) -> None:
        """Release the other end; a second time does nothing."""
        ...


@runtime_checkable
class BurstBus(RegisterBus, Protocol):
    """A bus that takes several accesses in one go faster than one by one."""

    def transfer(self, accesses: Sequence[Access]) -> list[int]:
        """Carry out accesses in their order; return the words that were read. Raises BusFault."""
        ...


def transfer_of(bus: RegisterBus) -> Transfer:
    """Return a function that carries out accesses and returns the words read: at once where the bus can."""
    return bus.transfer if isinstance(bus, BurstBus) else partial(_one_by_one, bus)


def _one_by_one(bus: RegisterBus, accesses: Sequence[Access]) -> list[int]:
    found = []
    for offset, value in accesses:
        if value is None:
            found.append(bus.read32(offset))
        else:
            bus.write32(offset, value)
    return found


def check_access(offset: int, value: int = 0) -> None:
    """Raise ValueError unless `offset` is that of a word and `value` fits into one."""
    if offset < 0 or offset % 4:
        raise ValueError(f"{offset:#x} is not a word offset: it must be a multiple of 4, 0 or more.")
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} does not fit in a register: it must be 0 to 2**32 - 1.")
