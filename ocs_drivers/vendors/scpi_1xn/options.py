"""Options of an address that spell out a switch's commands, and presets of known makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ocs_drivers.address import Address
from ocs_drivers.errors import AddressError
from ocs_drivers.vendors.banks.codec import CommandSet


@dataclass(frozen=True, slots=True)
class Make:
    """Commands of a known make, and the rate of its serial line in baud."""

    commands: CommandSet
    baud: int = 9600


PRESETS: Mapping[str, Make] = {
    "scpi": Make(CommandSet(":ROUTe:CHANnel {channel}", ":ROUTe:CHANnel?")),
    # LEONI EOL manual, page 8
    "leoni-eol": Make(
        CommandSet(
            "ch{channel}", "ch?", identity="firmware?", terminator=b"\r\n", vendor="LEONI", model="EOL 1xN"
        ),
        57600,
    ),
    "thorlabs-osw": Make(
        CommandSet("S {channel}", "S?", identity="", terminator=b"\n", vendor="Thorlabs", model="OSW"), 115200
    ),
    "dicon-module": Make(
        CommandSet(
            "I1 {channel}", "I1?", identity="ID?", terminator=b"\r", vendor="DiCon", model="MEMS 1xN module"
        ),
        115200,
    ),
    "jds-sb": Make(CommandSet("CLOSE {channel}", "CLOSE?", identity="IDN?", vendor="JDSU", model="SB")),
    "santec-sx1": Make(CommandSet("CLOSe {channel}", "CLOSe?", vendor="Santec", model="SX1")),
}
"""Makes by name. `scpi` is the default; the others are what public clients of each send (see the evidence page)."""

_ENDS = {"lf": b"\n", "cr": b"\r", "crlf": b"\r\n"}
_FIELD_OF = {"set": "select", "query": "query", "idn": "identity", "errors": "errors", "monitor": "monitor"}
OPTIONS = ("banks", "channels", "preset", "end", *_FIELD_OF)


def commands_in(address: Address) -> CommandSet:
    """Return the commands that the options of an address spell out, over those of its preset. Raises `AddressError`."""
    options = address.options
    changed = {field: options[option] for option, field in _FIELD_OF.items() if option in options}
    commands = replace(make_in(address).commands, terminator=_end(address))
    try:
        return replace(commands, **changed)  # type: ignore[arg-type]
    except ValueError as error:
        raise AddressError(
            f"cannot use these commands: {error}",
            device=str(address),
            hint="Write them like set=:ROUTe:CHANnel {channel}&query=:ROUTe:CHANnel?.",
        ) from None


def make_in(address: Address) -> Make:
    """Return the preset that an address names. Raises `AddressError`."""
    name = address.options.get("preset", "scpi")
    if name not in PRESETS:
        raise AddressError(
            f"no preset {name!r}", device=str(address), hint=f"Known: {', '.join(sorted(PRESETS))}."
        )
    return PRESETS[name]


def _end(address: Address) -> bytes:
    name = address.options.get("end")
    if name is None:
        return make_in(address).commands.terminator
    if name not in _ENDS:
        raise AddressError(f"no line end {name!r}", device=str(address), hint="Known: lf, cr, crlf.")
    return _ENDS[name]
