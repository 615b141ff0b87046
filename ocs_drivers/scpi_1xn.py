"""1xN switches whose commands the address spells out: one driver for the many makes that differ in a word.

    scpi-1xn://host?channels=8                                      `:ROUTe:CHANnel 3`, `:ROUTe:CHANnel?`
    scpi-1xn://host?channels=8&set=:SWITch {channel}&query=:SWITch?
    scpi-1xn://host?banks=2&channels=4&set=ROUT{bank}:SCAN {channel}&query=ROUT{bank}:SCAN?
    scpi-1xn+serial:/dev/ttyUSB0?channels=8&preset=leoni-eol        words and baud rate of a known make

`set` must be silent and `query` must answer with the channel; `idn=` (empty) is for devices that do not say
who they are, `errors=:SYSTem:ERRor?` for those with an error queue, `monitor=` for a query that answers
`direction, dBm`; `end` is `lf`, `cr` or `crlf`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.bank_driver import BankSwitch, require_banks_apart, size_in
from ocs_drivers.bank_words import Words
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.lines import serial_line, visa_line
from ocs_drivers.transport import Transport

PORT = 5025


@dataclass(frozen=True, slots=True)
class Make:
    """The words of a known make, and the rate of its serial line in baud."""

    words: Words
    baud: int = 9600


PRESETS: Mapping[str, Make] = {
    "scpi": Make(Words(":ROUTe:CHANnel {channel}", ":ROUTe:CHANnel?")),
    # LEONI EOL manual, page 8
    "leoni-eol": Make(
        Words(
            "ch{channel}", "ch?", identity="firmware?", terminator=b"\r\n", vendor="LEONI", model="EOL 1xN"
        ),
        57600,
    ),
    # Thorlabs OSW: an assumption
    "thorlabs-osw": Make(
        Words("S {channel}", "S?", identity="", terminator=b"\n", vendor="Thorlabs", model="OSW"), 115200
    ),
}
"""Makes by name. `scpi` is the default."""

_ENDS = {"lf": b"\n", "cr": b"\r", "crlf": b"\r\n"}
_FIELD_OF = {"set": "select", "query": "query", "idn": "identity", "errors": "errors", "monitor": "monitor"}
_OPTIONS = ("banks", "channels", "preset", "end", *_FIELD_OF)


def tcp_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """An unopened 1xN switch on PyVISA; there is no login."""
    del credentials
    address = address.only_options(*_OPTIONS).with_port(PORT)
    return _switch(address, visa_line(address, PORT), timeout_s)


def serial_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """An unopened 1xN switch on a serial line; `baud` goes before the rate of the preset."""
    del credentials
    address = address.only_options(*_OPTIONS, "baud")
    return _switch(address, serial_line(address, _make(address).baud), timeout_s)


def _switch(address: Address, line: Transport, timeout_s: float) -> BankSwitch:
    banks, channels = size_in(address)
    words = words_in(address)
    require_banks_apart(words, banks, address)
    return BankSwitch(str(address), line, words, banks=banks, channels=channels, timeout_s=timeout_s)


def words_in(address: Address) -> Words:
    """The words that the options of an address spell out, over those of its preset. Raises `AddressError`."""
    options = address.options
    changed = {field: options[option] for option, field in _FIELD_OF.items() if option in options}
    words = replace(_make(address).words, terminator=_end(address))
    try:
        return replace(words, **changed)  # type: ignore[arg-type]
    except ValueError as error:
        raise AddressError(
            f"cannot use these commands: {error}",
            device=str(address),
            hint="Write them like set=:ROUTe:CHANnel {channel}&query=:ROUTe:CHANnel?.",
        ) from None


def _make(address: Address) -> Make:
    name = address.options.get("preset", "scpi")
    if name not in PRESETS:
        raise AddressError(
            f"no preset {name!r}", device=str(address), hint=f"Known: {', '.join(sorted(PRESETS))}."
        )
    return PRESETS[name]


def _end(address: Address) -> bytes:
    name = address.options.get("end")
    if name is None:
        return _make(address).words.terminator
    if name not in _ENDS:
        raise AddressError(f"no line end {name!r}", device=str(address), hint="Known: lf, cr, crlf.")
    return _ENDS[name]
