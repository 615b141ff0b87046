"""Codec of the port numbers and data lines of Glimmerglass TL1. Pure; undocumented forms raise `ProtocolDesync`.

The device calls input n 10000+n and output n 20000+n. `rtrv-crs-fiber::all` lists every port. A circuit has a row for
its input and a row for its output; the row of a free port has 0 for the other end. Shortened rows:

    GGN:IPORTID=10001,IPORTNAME=IN1,INPWR=-12.05,OPORTID=20008,OPORTNAME=OUT8,OUTPWR=-13.63,CONNSTATE=steady
    GGN:IPORTID=10002,IPORTNAME=IN2,INPWR=-12.50,OPORTID=0,OPORTNAME=,OUTPWR=NA,CONNSTATE=single
    GGN:IPORTID=0,IPORTNAME=,INPWR=NA,OPORTID=20001,OPORTNAME=OUT1,OUTPWR=-51.85,CONNSTATE=single
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
"""Power of a reading `NONE`, as in another project's script."""
DARK_FLOOR_DBM = -45.0
"""Highest power at which a port counts as dark. In captures of three units, dark ports read -47.9 to -52.8 dBm."""

_ROW_NAME = re.compile(r"\A[^:=,]*:(?=\w+=)")
_KEYWORD = re.compile(r"\s*(\w+)\s*=(.*)", re.DOTALL)
_SIZE = re.compile(r"\s*(\d{1,4})\s*x\s*(\d{1,4})\s*", re.ASCII)
_IDENTIFIER = re.compile(r"\s*(\d{5})\s*", re.ASCII)
_FREE_TEXT_FIELDS = ("NAME", "COMMENT", "GROUP")
_FREE_PORT_NUMBER = re.compile(r"\s*0+\s*", re.ASCII)
_CONNECTED_STATES = frozenset({"steady", "fault"})


@dataclass(frozen=True, slots=True)
class CircuitRow:
    """A row of `rtrv-crs-fiber`, with ports counted from 1 on each side; a free port has None for the other end.

    `is_settled` is True for `steady` and `fault` (connected, but without light). In other states the ports are
    occupied and the mirrors still move.
    """

    source: int | None
    output: int | None
    is_settled: bool
    input_power: Power | None
    output_power: Power | None


@dataclass(frozen=True, slots=True)
class PortRow:
    """A row of `RTRV-CFG-FIBER`; `number` counts from 1 on its side."""

    is_input: bool
    number: int
    label: str
    is_healthy: bool


def format_input(number: int) -> str:
    """Return the device's name for input `number`, counted from 1.

    >>> format_input(1), format_output(17)
    ('10001', '20017')
    """
    return str(INPUT_BASE + number)


def format_output(number: int) -> str:
    """Return the device's name for output `number`, counted from 1."""
    return str(OUTPUT_BASE + number)


def format_fibre_pairs(pairs: Iterable[tuple[int, int]]) -> str:
    """Format pairs of numbers counted from 1 as one access identifier.

    >>> format_fibre_pairs([(1, 2), (2, 1)])
    '10001&10002,20002&20001'
    """
    pairs = list(pairs)
    sources = "&".join(format_input(source) for source, _ in pairs)
    return f"{sources},{'&'.join(format_output(output) for _, output in pairs)}"


def decode_system(lines: Lines) -> tuple[Identity, int, int]:
    """Decode identity, inputs and outputs from `rtrv-system-info`.

    >>> rows = ("GGN:SerialNumber=GG7", "GGN:SystemType=System100", "GGN:LicensedPortMatrix=64x64")
    >>> decode_system(rows)[1:]
    (64, 64)
    """
    fields = {name: value for line in lines for name, value in _parse_fields(line).items()}
    match = _SIZE.fullmatch(fields.get("LICENSEDPORTMATRIX", ""))
    if match is None or "0" in {text.lstrip("0") or "0" for text in match.groups()}:
        raise _make_desync("LicensedPortMatrix is missing, or not a size like 64x64", lines)
    model = fields.get("SYSTEMTYPE") or fields.get("CHASSISTYPE") or "unknown"
    firmware = fields.get("SOFTWAREACTIVEVERSION", "")
    identity = Identity("Glimmerglass", model, fields.get("SERIALNUMBER", ""), firmware)
    return identity, int(match[1]), int(match[2])


def decode_circuits(lines: Lines) -> tuple[CircuitRow, ...]:
    """Decode the rows of `rtrv-crs-fiber`.

    >>> steady, free = decode_circuits(
    ...     (
    ...         "GGN:IPORTID=10046,INPWR=-5.873,OPORTID=20047,CONNSTATE=steady",
    ...         "GGN:IPORTID=10047,INPWR=-50.66,OPORTID=0,OUTPWR=NA,CONNSTATE=single",
    ...     )
    ... )
    >>> steady.source, steady.output, steady.is_settled, steady.input_power
    (46, 47, True, Power(dbm=-5.873, below_floor=False))
    >>> free.source, free.output, free.input_power, free.output_power
    (47, None, Power(dbm=-50.66, below_floor=True), None)
    """
    return tuple(_decode_circuit(_parse_fields(line), line) for line in lines)


def _decode_circuit(fields: Mapping[str, str], line: str) -> CircuitRow:
    state = fields.get("CONNSTATE", "").lower()
    if not state:
        raise _make_desync("a row without CONNSTATE", (line,))
    source = _decode_end(fields.get("IPORTID", ""), line, is_input=True)
    output = _decode_end(fields.get("OPORTID", ""), line, is_input=False)
    if source is None and output is None:
        raise _make_desync("a row without a port", (line,))
    return CircuitRow(
        source,
        output,
        state in _CONNECTED_STATES,
        None if source is None else _decode_power(fields.get("INPWR"), line),
        None if output is None else _decode_power(fields.get("OUTPWR"), line),
    )


def _decode_end(text: str, line: str, *, is_input: bool) -> int | None:
    """Return the number of an end of a circuit, or None if it is free."""
    return None if _FREE_PORT_NUMBER.fullmatch(text) else _parse_number(text, line, is_input=is_input)


def _parse_number(text: str, line: str, *, is_input: bool) -> int:
    port = _parse_side_and_number(text, line)
    if port[0] != is_input:
        raise _make_desync(
            f"{text!r} is {'an output where an input' if is_input else 'an input where an output'} belongs",
            (line,),
        )
    return port[1]


def _parse_side_and_number(text: str, line: str) -> tuple[bool, int]:
    match = _IDENTIFIER.fullmatch(text)
    base = int(match[1]) // INPUT_BASE * INPUT_BASE if match else 0
    if match is None or base not in {INPUT_BASE, OUTPUT_BASE} or int(match[1]) == base:
        raise _make_desync(f"{text!r} is not a port", (line,))
    return base == INPUT_BASE, int(match[1]) - base


def _decode_power(text: str | None, line: str) -> Power | None:
    if text is None or text.strip().upper() in {"", "NA"}:
        return None
    if text.strip().upper() == "NONE":
        return Power(DARK_DBM, below_floor=True)
    try:
        dbm = float(text)
    except ValueError:
        raise _make_desync(f"{text!r} is not a power in dBm", (line,)) from None
    return Power(dbm, below_floor=dbm <= DARK_FLOOR_DBM)


def decode_ports(lines: Lines) -> tuple[PortRow, ...]:
    """Decode the rows of `RTRV-CFG-FIBER`.

    >>> decode_ports(("GGN:PORTID=10001,PORTNAME=IN1,PORTHEALTH=good,PORTCAT=nor",))[0].label
    'IN1'
    """
    return tuple(_decode_port(_parse_fields(line), line) for line in lines)


def _decode_port(fields: Mapping[str, str], line: str) -> PortRow:
    is_input, number = _parse_side_and_number(fields.get("PORTID", ""), line)
    health = fields.get("PORTHEALTH", "").lower()
    if health not in {"good", "bad"}:
        raise _make_desync(f"PORTHEALTH {health!r} is neither good nor bad", (line,))
    return PortRow(is_input, number, fields.get("PORTNAME", ""), health == "good")


def _parse_fields(line: str) -> dict[str, str]:
    """Return the fields `NAME=value` of a row by name, in capitals. The fields follow an optional row name.

    Commas separate fields, except in free text (a name, group or comment).
    """
    fields: dict[str, str] = {}
    last_name = ""
    for part in _ROW_NAME.sub("", line, count=1).split(",") if line.strip() else []:
        match = _KEYWORD.fullmatch(part)
        if match and ("=" not in match[2] or match[1].upper().endswith(_FREE_TEXT_FIELDS)):
            last_name = match[1].upper()
            fields[last_name] = match[2].strip()
        elif last_name.endswith(_FREE_TEXT_FIELDS):
            fields[last_name] += f",{part}"
        else:
            raise _make_desync("a row is not a list of NAME=value", (line,))
    return fields


def _make_desync(problem: str, lines: Iterable[str]) -> ProtocolDesync:
    return ProtocolDesync(
        f"the reply is not TL1 as Glimmerglass speaks it: {problem}",
        received=" | ".join(lines)[:200],
        hint="Check the address and the software version; the form of this reply may have changed.",
    )
