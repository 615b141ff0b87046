"""1xN switches whose commands the address spells out: one driver for the many makes that differ in a word.

    scpi-1xn://host?channels=8                                      `:ROUTe:CHANnel 3`, `:ROUTe:CHANnel?`
    scpi-1xn://host?channels=8&set=:SWITch {channel}&query=:SWITch?
    scpi-1xn://host?banks=2&channels=4&set=ROUT{bank}:SCAN {channel}&query=ROUT{bank}:SCAN?
    scpi-1xn+serial:/dev/ttyUSB0?channels=8&preset=leoni-eol        commands and baud rate of a known make

`set` must be silent and `query` must answer with the channel; `idn=` (empty) is for devices that do not say
who they are, `errors=:SYSTem:ERRor?` for those with an error queue, `monitor=` for a query that answers
`direction, dBm`; `end` is `lf`, `cr` or `crlf`.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials
from ocs_drivers.transports.lines import serial_line, visa_line
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.banks.driver import BankSwitch, check_banks_apart, size_in
from ocs_drivers.vendors.scpi_1xn.options import OPTIONS, commands_in, make_in

__all__ = ["serial_switch", "tcp_switch"]

PORT = 5025


def tcp_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """Return an unopened 1xN switch on PyVISA; there is no login."""
    del credentials
    address = address.only_options(*OPTIONS).with_port(PORT)
    return _switch(address, visa_line(address, PORT), timeout_s)


def serial_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """Return an unopened 1xN switch on a serial line; `baud` goes before the rate of the preset."""
    del credentials
    address = address.only_options(*OPTIONS, "baud")
    return _switch(address, serial_line(address, make_in(address).baud), timeout_s)


def _switch(address: Address, line: Transport, timeout_s: float) -> BankSwitch:
    banks, channels = size_in(address)
    commands = commands_in(address)
    check_banks_apart(commands, banks, address)
    return BankSwitch(str(address), line, commands, banks=banks, channels=channels, timeout_s=timeout_s)
