"""DiCon MXS-9100 and GP700 banks of 1xN MEMS switches: over TCP, and over a serial line.

    ROUT6:SCAN 2               bank 6 to channel 2; silent
    ROUT6:SCAN?                `2`
    ROUTE2:OPEN:STATE?         only with the option `open_state=1`: we read 1 as "no channel is connected",
                               which no public text confirms; omit the option if that is wrong

CR ends commands and replies (manual of the MXS-9100, page 17). One query is sent at a time, with its full header,
because the device remembers the path of the last header. TCP port, baud rate and `*IDN?` are assumptions; the option
`identity=0` omits `*IDN?`. Tested against a simulated switch only, on no real unit yet.
"""

from __future__ import annotations

from dataclasses import replace

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials
from ocs_drivers.transports.lines import make_serial_line, make_visa_line
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.banks.codec import CommandSet
from ocs_drivers.vendors.banks.driver import BankSwitch, read_flag, read_size

__all__ = ["serial_switch", "tcp_switch"]

DEFAULT_PORT = 5025
DEFAULT_BAUD = 9600

COMMANDS = CommandSet(
    select_command="ROUT{bank}:SCAN {channel}",
    channel_query="ROUT{bank}:SCAN?",
    terminator=b"\r",
    vendor="DiCon",
    model="MXS-9100",
    switch_time_s=(0.02, 0.2),
)
OPEN_STATE = "ROUTE{bank}:OPEN:STATE?"

_OPTIONS = ("banks", "channels", "open_state", "identity")


def tcp_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """Return an unopened `dicon+scpi://host?banks=2&channels=8` on PyVISA; there is no login."""
    del credentials
    address = address.check_options(*_OPTIONS).with_port(DEFAULT_PORT)
    return _make_switch(address, make_visa_line(address, DEFAULT_PORT), timeout_s)


def serial_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """Return an unopened `dicon+serial:/dev/ttyUSB0?baud=9600&banks=2&channels=8`; there is no login."""
    del credentials
    address = address.check_options(*_OPTIONS, "baud")
    return _make_switch(address, make_serial_line(address, DEFAULT_BAUD), timeout_s)


def _make_switch(address: Address, transport: Transport, timeout_s: float) -> BankSwitch:
    bank_count, channel_count = read_size(address)
    command_set = COMMANDS
    if read_flag(address, "open_state", default=False):
        command_set = replace(command_set, open_state=OPEN_STATE)
    if not read_flag(address, "identity", default=True):
        command_set = replace(command_set, identity="")
    return BankSwitch(
        str(address),
        transport,
        command_set,
        bank_count=bank_count,
        channel_count=channel_count,
        timeout_s=timeout_s,
    )
