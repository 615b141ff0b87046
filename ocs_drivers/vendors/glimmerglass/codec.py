"""The numbers and data lines of Glimmerglass TL1. Pure; whatever is not as documented raises `ProtocolDesync`.

The device calls input n 10000+n and output n 20000+n. A row of `rtrv-crs-fiber`:

    GGN:IPORTID=10046,IPORTNAME=,OPORTID=20047,OPORTNAME=,CONNID=0,CONNSTATE=steady,CONNCAUSE=none,
    INPWR=-5.873,OUTPWR=-6.762,PWRLOSS=0.889
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Identity, Power

Lines = tuple[str, ...]

INPUT_BASE = 10_000
OUTPUT_BASE = 20_000

DARK_DBM = -90.0
"""What `NONE` stands for: another project's script reads it so."""
DARK_FLOOR_DBM = -55.0
"""At and below this a monitor sees no light; not confirmed on a unit."""

_ROW_NAME = re.compile(r"\A[^:=,]*:(?=\w+=)")
_KEYWORD = re.compile(r"\s*(\w+)\s*=([^=]*)")
_SIZE = re.compile(r"\s*(\d{1,4})\s*x\s*(\d{1,4})\s*", re.ASCII)
_IDENTIFIER = re.compile(r"\s*(\d{5})\s*", re.ASCII)
_PORT_POWER = ("PORTPWR", "INPWR", "OUTPWR")
_MADE = frozenset({"steady", "fault"})


@dataclass(frozen=True, slots=True)
class Circuit:
    """A row of `rtrv-crs-fiber`, with the device's numbers counted from 1 on each side.

    `made` is whether its state is steady, or fault (made, but no light gets through); before that the ports
    are taken, and the mirrors still on their way.
    """

    source: int
    output: int
    made: bool
    input_power: Power | None
    output_power: Power | None


@dataclass(frozen=True, slots=True)
class Port:
    """A row of `RTRV-CFG-FIBER`; `number` counts from 1 on its side. `power` is None where it is not reported."""

    is_input: bool
    number: int
    label: str
    healthy: bool
    power: Power | None


def input_name(number: int) -> str:
    """Return the device's name for input `number`, counted from 1.

    >>> input_name(1), output_name(17)
    ('10001', '20017')
    """
    return str(INPUT_BASE + number)


def output_name(number: int) -> str:
    """Return the device's name for output `number`, counted from 1."""
    return str(OUTPUT_BASE + number)


def fibre_pairs(pairs: Iterable[tuple[int, int]]) -> str:
    """Format pairs of numbers counted from 1 as one access identifier.

    >>> fibre_pairs([(1, 2), (2, 1)])
    '10001&10002,20002&20001'
    """
    pairs = list(pairs)
    sources = "&".join(input_name(source) for source, _ in pairs)
    return f"{sources},{'&'.join(output_name(output) for _, output in pairs)}"


def decode_system(lines: Lines) -> tuple[Identity, int, int]:
    """Decode identity, inputs and outputs from `rtrv-system-info`.

    >>> decode_system(("SystemType=System100,SerialNumber=GG7,LicensedPortMatrix=64x64",))[1:]
    (64, 64)
    """
    fields = {name: value for line in lines for name, value in _keywords(line).items()}
    match = _SIZE.fullmatch(fields.get("LICENSEDPORTMATRIX", ""))
    if match is None or "0" in {text.lstrip("0") or "0" for text in match.groups()}:
        raise _desync("no LicensedPortMatrix", lines)
    model = fields.get("SYSTEMTYPE") or fields.get("CHASSISTYPE") or "unknown"
    firmware = fields.get("SOFTWAREACTIVEVERSION", "")
    identity = Identity("Glimmerglass", model, fields.get("SERIALNUMBER", ""), firmware)
    return identity, int(match[1]), int(match[2])


def decode_circuits(lines: Lines) -> tuple[Circuit, ...]:
    """Decode the rows of `rtrv-crs-fiber`.

    >>> (row,) = decode_circuits(("GGN:IPORTID=10046,OPORTID=20047,CONNSTATE=steady,INPWR=-5.873",))
    >>> row.source, row.output, row.made, row.input_power
    (46, 47, True, Power(dbm=-5.873, below_floor=False))
    """
    return tuple(_circuit(_keywords(line), line) for line in lines)


def _circuit(fields: Mapping[str, str], line: str) -> Circuit:
    state = fields.get("CONNSTATE", "").lower()
    if not state:
        raise _desync("a row without CONNSTATE", (line,))
    return Circuit(
        _number(fields.get("IPORTID", ""), line, is_input=True),
        _number(fields.get("OPORTID", ""), line, is_input=False),
        state in _MADE,
        _power(fields.get("INPWR"), line),
        _power(fields.get("OUTPWR"), line),
    )


def _number(text: str, line: str, *, is_input: bool) -> int:
    found = _side_and_number(text, line)
    if found[0] != is_input:
        raise _desync("a port on the wrong side", (line,))
    return found[1]


def _side_and_number(text: str, line: str) -> tuple[bool, int]:
    match = _IDENTIFIER.fullmatch(text)
    base = int(match[1]) // INPUT_BASE * INPUT_BASE if match else 0
    if match is None or base not in {INPUT_BASE, OUTPUT_BASE} or int(match[1]) == base:
        raise _desync(f"{text!r} is not a port", (line,))
    return base == INPUT_BASE, int(match[1]) - base


def _power(text: str | None, line: str) -> Power | None:
    if text is None or not text.strip():
        return None
    if text.strip().upper() == "NONE":
        return Power(DARK_DBM, below_floor=True)
    try:
        dbm = float(text)
    except ValueError:
        raise _desync(f"{text!r} is not a power in dBm", (line,)) from None
    return Power(dbm, below_floor=dbm <= DARK_FLOOR_DBM)


def decode_ports(lines: Lines) -> tuple[Port, ...]:
    """Decode the rows of `RTRV-CFG-FIBER`.

    The published rows leave fields out; that one of them is the power at the port (`PORTPWR`, `INPWR` or
    `OUTPWR`) is an assumption, and where it is absent only connected ports have a reading.

    >>> decode_ports(("PORTID=10001,PORTNAME=IN1,PORTHEALTH=good",))[0].label
    'IN1'
    """
    return tuple(_port(_keywords(line), line) for line in lines)


def _port(fields: Mapping[str, str], line: str) -> Port:
    is_input, number = _side_and_number(fields.get("PORTID", ""), line)
    health = fields.get("PORTHEALTH", "").lower()
    if health not in {"good", "bad"}:
        raise _desync(f"PORTHEALTH {health!r} is neither good nor bad", (line,))
    power = next((fields[name] for name in _PORT_POWER if name in fields), None)
    return Port(is_input, number, fields.get("PORTNAME", ""), health == "good", _power(power, line))


def _keywords(line: str) -> dict[str, str]:
    """Split `NAME=value` by comma, behind an optional name of the row; names in capitals."""
    parts = _ROW_NAME.sub("", line, count=1).split(",") if line.strip() else []
    matches = [_KEYWORD.fullmatch(part) for part in parts]
    if None in matches:
        raise _desync("not a list of NAME=value", (line,))
    return {match[1].upper(): match[2].strip() for match in matches if match}


def _desync(why: str, lines: Iterable[str]) -> ProtocolDesync:
    return ProtocolDesync(
        f"the reply is not TL1 as Glimmerglass speaks it: {why}",
        received=" | ".join(lines)[:200],
        hint="Check the address and the software version; the form of this reply may have changed.",
    )
