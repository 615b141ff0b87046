"""Access to the registers of a datapath on a PYNQ board, from the board itself or over the network.

`pynq` requires numpy below 2, so it needs a separate environment (the extra `[pynq]`); it is imported when a bus is
opened.
"""

from __future__ import annotations

from typing import Any, Protocol

from fpga.bus.protocol import BusFault, BusUnavailable, check_access
from lightbed.wording import describe_extra

_HINT = f"Hint: {describe_extra('pynq')}, in a separate environment; boards have it already."
SPAN_BYTES = 64 * 1024
"""Default size of a mapping."""
REMOTE_PORT = 7967
"""Default TCP port of the PYNQ.remote server."""


class Registers(Protocol):
    """The common methods of `pynq.MMIO`, `pynq.DefaultIP` and the MMIO of a remote board."""

    def read(self, offset: int = 0) -> int:
        """Return the word at a byte offset."""
        ...

    def write(self, offset: int, value: int) -> None:
        """Write a word at a byte offset."""
        ...


class PynqBus:
    """`RegisterBus` on a `pynq.MMIO`, or on an IP of an overlay (`overlay.my_datapath`)."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers

    def read32(self, offset: int) -> int:
        """Return the word at `offset`."""
        check_access(offset)
        try:
            return int(self._registers.read(offset))
        except (IndexError, MemoryError, OSError, RuntimeError) as error:
            raise BusFault(f"reading register {offset:#x} failed: {error}") from error

    def write32(self, offset: int, value: int) -> None:
        """Write a word at `offset`."""
        check_access(offset, value)
        try:
            self._registers.write(offset, value)
        except (IndexError, MemoryError, OSError, RuntimeError) as error:
            raise BusFault(f"writing register {offset:#x} failed: {error}") from error

    def close(self) -> None:
        """Do nothing, because pynq unmaps the registers when its object is deleted."""


def open_local(base_address: int, span_bytes: int = SPAN_BYTES) -> PynqBus:
    """Return a bus to a physical address of pynq's active device. Raise BusUnavailable."""
    pynq = _import_pynq()
    try:
        return PynqBus(pynq.MMIO(base_address, span_bytes))
    except (OSError, RuntimeError, ValueError) as error:
        raise BusUnavailable(f"pynq cannot map {base_address:#x}: {error}") from error


def open_remote(
    host: str, base_address: int, *, port: int = REMOTE_PORT, span_bytes: int = SPAN_BYTES
) -> PynqBus:
    """Return a bus to a physical address of a board with the PYNQ.remote server. Raise BusUnavailable."""
    pynq = _import_pynq()
    try:
        from pynq.pl_server.remote_device import RemoteDevice

        return PynqBus(pynq.MMIO(base_address, span_bytes, device=RemoteDevice(0, host, port)))
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise BusUnavailable(
            f"no PYNQ.remote server answers at {host}:{port}: {error}. Check the address and the board's "
            "image."
        ) from error


def _import_pynq() -> Any:
    try:
        import pynq
    except ImportError as error:
        raise BusUnavailable(f"pynq is not installed ({error}). {_HINT}") from error
    return pynq
