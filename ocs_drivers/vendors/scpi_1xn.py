"""1xN switches with their commands in the address: one driver for many makes with almost the same commands.

    scpi-1xn://host?channels=8                                      `:ROUTe:CHANnel 3`, `:ROUTe:CHANnel?`
    scpi-1xn://host?channels=8&set=:SWITch {channel}&query=:SWITch?
    scpi-1xn://host?banks=2&channels=4&set=ROUT{bank}:SCAN {channel}&query=ROUT{bank}:SCAN?
    scpi-1xn+serial:/dev/ttyUSB0?channels=8&preset=leoni-eol        commands and baud rate of a known make

The command `set` has no reply; the answer to `query` is the channel. Use an empty `idn=` for a device without an
identity query, `errors=:SYSTem:ERRor?` for a device with an error queue, and `monitor=` for a query with the answer
`direction, dBm`. `end` is `lf`, `cr` or `crlf`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.lines import make_serial_line, make_visa_line
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.banks.codec import CommandSet
from ocs_drivers.vendors.banks.driver import BankSwitch, check_banks_addressable, read_size

__all__ = ["serial_switch", "tcp_switch"]

DEFAULT_PORT = 5025


@dataclass(frozen=True, slots=True)
class Preset:
    """Commands of a known make, and the rate of its serial line in baud."""

    commands: CommandSet
    baud_rate: int = 9600


PRESETS: Mapping[str, Preset] = {
    "scpi": Preset(CommandSet(":ROUTe:CHANnel {channel}", ":ROUTe:CHANnel?")),
    # LEONI EOL manual, page 8
    "leoni-eol": Preset(
        CommandSet(
            "ch{channel}", "ch?", identity="firmware?", terminator=b"\r\n", vendor="LEONI", model="EOL 1xN"
        ),
        57600,
    ),
    "thorlabs-osw": Preset(
        CommandSet("S {channel}", "S?", identity="", terminator=b"\n", vendor="Thorlabs", model="OSW"), 115200
    ),
    "dicon-module": Preset(
        CommandSet(
            "I1 {channel}", "I1?", identity="ID?", terminator=b"\r", vendor="DiCon", model="MEMS 1xN module"
        ),
        115200,
    ),
    "jds-sb": Preset(CommandSet("CLOSE {channel}", "CLOSE?", identity="IDN?", vendor="JDSU", model="SB")),
    "santec-sx1": Preset(CommandSet("CLOSe {channel}", "CLOSe?", vendor="Santec", model="SX1")),
}
"""Makes by name. `scpi` is the default; public clients use the commands of the others (see the evidence page)."""

_LINE_ENDS = {"lf": b"\n", "cr": b"\r", "crlf": b"\r\n"}
_FIELDS_BY_OPTION = {
    "set": "select_command",
    "query": "channel_query",
    "idn": "identity",
    "errors": "error_query",
    "monitor": "power_query",
}
OPTIONS = ("banks", "channels", "preset", "end", *_FIELDS_BY_OPTION)


def tcp_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """Return an unopened 1xN switch on PyVISA; there is no login."""
    del credentials
    address = address.check_options(*OPTIONS).with_port(DEFAULT_PORT)
    return _make_switch(address, make_visa_line(address, DEFAULT_PORT), timeout_s)


def serial_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """Return an unopened 1xN switch on a serial line; the option `baud` overrides the rate of the preset."""
    del credentials
    address = address.check_options(*OPTIONS, "baud")
    return _make_switch(address, make_serial_line(address, find_preset(address).baud_rate), timeout_s)


def _make_switch(address: Address, transport: Transport, timeout_s: float) -> BankSwitch:
    bank_count, channel_count = read_size(address)
    command_set = read_commands(address)
    check_banks_addressable(command_set, bank_count, address)
    return BankSwitch(
        str(address),
        transport,
        command_set,
        bank_count=bank_count,
        channel_count=channel_count,
        timeout_s=timeout_s,
    )


def read_commands(address: Address) -> CommandSet:
    """Return the commands of the address's preset, overridden by its options. Raise `AddressError`."""
    options = address.options
    overrides = {field: options[option] for option, field in _FIELDS_BY_OPTION.items() if option in options}
    command_set = replace(find_preset(address).commands, terminator=_find_line_end(address))
    try:
        return replace(command_set, **overrides)  # type: ignore[arg-type]
    except ValueError as error:
        raise AddressError(
            f"cannot use these commands: {error}",
            device=str(address),
            hint="Write them like set=:ROUTe:CHANnel {channel}&query=:ROUTe:CHANnel?.",
        ) from None


def find_preset(address: Address) -> Preset:
    """Return the preset of an address. Raise `AddressError` for an unknown preset."""
    name = address.options.get("preset", "scpi")
    if name not in PRESETS:
        raise AddressError(
            f"unknown preset {name!r}", device=str(address), hint=f"Known: {', '.join(sorted(PRESETS))}."
        )
    return PRESETS[name]


def _find_line_end(address: Address) -> bytes:
    name = address.options.get("end")
    if name is None:
        return find_preset(address).commands.terminator
    if name not in _LINE_ENDS:
        raise AddressError(f"unknown line end {name!r}", device=str(address), hint="Known: lf, cr, crlf.")
    return _LINE_ENDS[name]
