"""Viavi MAP-200 optical switches (mOSW): a bank of 1xN switches over SCPI on TCP, with a monitor per bank.

    :ROUTe:CLOSe 1,1,5         bank 1, common port 1, channel 5; silent              (assumption)
    :ROUTe:CLOSe? 1            the channel; alone, or after bank and common port     (assumption)
    :ROUTe:MONitor? 1          `0, -8.000`: direction, dBm                           (manual, page 91)
    :SYSTem:ERRor?             `0,"No error"`                                        (assumption)

Tested against a simulated switch only, on no real unit yet.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials
from ocs_drivers.transports.lines import make_visa_line
from ocs_drivers.vendors.banks.codec import CommandSet
from ocs_drivers.vendors.banks.driver import BankSwitch, read_size

__all__ = ["tcp_switch"]

SCPI_PORT = 8100
"""Default SCPI port of a MAP chassis (an assumption)."""

COMMANDS = CommandSet(
    select_command=":ROUTe:CLOSe {bank},1,{channel}",
    channel_query=":ROUTe:CLOSe? {bank}",
    error_query=":SYSTem:ERRor?",
    power_query=":ROUTe:MONitor? {bank}",
    vendor="Viavi",
    model="mOSW",
)


def tcp_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """Return an unopened `mosw+scpi://host?banks=2&channels=8` on PyVISA; there is no login."""
    del credentials
    bank_count, channel_count = read_size(address.check_options("banks", "channels"))
    address = address.with_port(SCPI_PORT)
    transport = make_visa_line(address, SCPI_PORT)
    return BankSwitch(
        str(address),
        transport,
        COMMANDS,
        bank_count=bank_count,
        channel_count=channel_count,
        timeout_s=timeout_s,
    )
