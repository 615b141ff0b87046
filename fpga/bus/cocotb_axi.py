"""Access to the registers of a datapath in a running cocotb simulation, through cocotbext-axi.

Drivers are ordinary functions, and simulations consist of coroutines; `cocotb.task.bridge` connects them:

    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, reset_active_level=False)
    datapath = Datapath(CocotbBus(master))
    await bridge(datapath.load)(program)
"""

from __future__ import annotations

from typing import Any, Protocol

from fpga.bus.protocol import BusFault, BusUnavailable, check_access
from lightbed.wording import describe_extra


class AxiLiteMaster(Protocol):
    """The methods of `cocotbext.axi.AxiLiteMaster` that `CocotbBus` calls."""

    async def read(self, address: int, length: int) -> Any:
        """Return a response with `data` and `resp`."""
        ...

    async def write(self, address: int, data: bytes) -> Any:
        """Return a response with `resp`."""
        ...


class CocotbBus:
    """`RegisterBus` for functions that run under `cocotb.task.bridge`."""

    def __init__(self, master: AxiLiteMaster) -> None:
        try:
            from cocotb.task import resume
        except ImportError as error:
            raise BusUnavailable(f"{error.name} is not installed. Hint: {describe_extra('hdl')}.") from error
        self._read_blocking = resume(master.read)
        self._write_blocking = resume(master.write)

    def read32(self, offset: int) -> int:
        """Return the word at `offset`."""
        check_access(offset)
        response = self._read_blocking(offset, 4)
        _check_response(response, offset)
        return int.from_bytes(response.data, "little")

    def write32(self, offset: int, value: int) -> None:
        """Write a word at `offset`."""
        check_access(offset, value)
        _check_response(self._write_blocking(offset, value.to_bytes(4, "little")), offset)

    def close(self) -> None:
        """Do nothing, because cocotb ends the simulation."""


def _check_response(response: Any, offset: int) -> None:
    if int(response.resp):
        raise BusFault(f"the register file answered {response.resp!r} at {offset:#x}")
