"""Decoders of the data lines of Calient TL1 replies. Undocumented forms raise `ProtocolDesync`.

2.3.6-3.2.5:SRCPORT=2.3.6,DSTPORT=3.2.5,GRPNAME=DSTRAUB,CONNNAME=2.3.6-3.2.5,CONNTYPE=2WAY,AS=UMA,OS=RDY,OC=OK,...
6.1.1:WX,TRANSIT,TRANSIT:INAS=IS,INOS=IS,INOC=OK,INRS=NPR,OUTAS=IS,OUTOS=IS,OUTOC=OK,OUTRS=NPR
1.1.1:ALIAS=NONE,INPWR=NONE,OUTPWR=NONE,CONNNAME1=1.1.1>1.1.2,CONNSTATE1=ACT,CONNNAME2=NONE,CONNSTATE2=NONE
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Identity, PortState
from ocs_drivers.vendors.calient.circuits import decode_port_state, decode_power
from ocs_drivers.vendors.calient.driver import Port
from ocs_drivers.vendors.calient.ports import Circuit, decode_circuit_state, format_circuit_name

_T = TypeVar("_T")

Lines = tuple[str, ...]

_KEYWORD = re.compile(r"(?:^|[:,])(\w+)=([^,]*)", re.ASCII)
_PORT = re.compile(r"(\d+\.\d+\.\d+):", re.ASCII)


def decode_identity(lines: Lines) -> Identity:
    """Decode the reply to `RTRV-NE`.

    >>> decode_identity(
    ...     ("CAL01:SERIALNUMBER=C1,SWPACKAGE=6.0-3,STATUS=OK,CHASSISTYPE=S162,PLATFORM=VERSION2",)
    ... )
    Identity(vendor='Calient', model='S162', serial='C1', firmware='6.0-3')
    """
    fields = _parse_keywords(_get_single_line(lines))
    return Identity(
        "Calient", fields.get("CHASSISTYPE", ""), fields.get("SERIALNUMBER", ""), fields.get("SWPACKAGE", "")
    )


def decode_circuits(lines: Lines) -> list[Circuit]:
    """Decode the reply to `RTRV-CRS`."""
    return [_decode_circuit(line) for line in lines]


def _decode_circuit(line: str) -> Circuit:
    fields = _parse_keywords(line)
    try:
        source, target = fields["SRCPORT"], fields["DSTPORT"]
        kind, administrative_state = fields["CONNTYPE"], fields["AS"]
        operational_state, condition = fields["OS"], fields["OC"]
    except KeyError as missing:
        raise _make_desync(f"a circuit without {missing}", line) from None
    if kind not in {"1WAY", "2WAY"}:
        raise _make_desync(f"circuit type {kind[:20]!r} is neither 1WAY nor 2WAY", line)
    name = fields.get("CONNNAME") or format_circuit_name(source, target)
    return Circuit(
        name,
        source,
        target,
        kind == "2WAY",
        decode_circuit_state(administrative_state, operational_state),
        condition != "FAIL",
    )


def decode_ports(lines: Lines) -> dict[str, Port]:
    """Decode the reply to `RTRV-PORT`: the states of input and output fibre, by port."""
    return _decode_by_port(
        lines,
        lambda fields, line: Port(
            (_decode_side_state(fields, "IN", line), _decode_side_state(fields, "OUT", line))
        ),
    )


def decode_aliases(lines: Lines) -> dict[str, str]:
    """Decode the labels of ports in the reply to `RTRV-PORT-SUM`; `NONE` means no label."""
    return _decode_by_port(
        lines, lambda fields, _: "" if fields.get("ALIAS") == "NONE" else fields.get("ALIAS", "")
    )


def _decode_by_port(lines: Lines, decode: Callable[[Mapping[str, str], str], _T]) -> dict[str, _T]:
    ports = {_parse_port(line): decode(_parse_keywords(line), line) for line in lines}
    if len(ports) != len(lines):
        raise _make_desync("a port is listed twice", " | ".join(lines))
    return ports


def _decode_side_state(fields: Mapping[str, str], side: str, line: str) -> PortState:
    try:
        return decode_port_state(fields[f"{side}AS"], fields[f"{side}OS"])
    except KeyError as missing:
        raise _make_desync(f"a port without {missing}", line) from None


def decode_powers(lines: Lines) -> dict[str, tuple[float | None, float | None]]:
    """Decode the reply to `RTRV-PORT-SUM`: input and output power in dBm by port; `NONE` (no light) is None."""
    return _decode_by_port(
        lines,
        lambda fields, line: (
            _decode_power(fields.get("INPWR", ""), line),
            _decode_power(fields.get("OUTPWR", ""), line),
        ),
    )


def _decode_power(text: str, line: str) -> float | None:
    try:
        return decode_power(text)
    except ValueError:
        raise _make_desync(f"{text[:40]!r} is not a power in dBm", line) from None


def _parse_port(line: str) -> str:
    match = _PORT.match(line)
    if match is None:
        raise _make_desync("a line that does not begin with a port", line)
    return match[1]


def _parse_keywords(line: str) -> dict[str, str]:
    return {name.upper(): value.strip() for name, value in _KEYWORD.findall(line)}


def _get_single_line(lines: Lines) -> str:
    if len(lines) != 1:
        raise _make_desync(f"{len(lines)} lines instead of one", " | ".join(lines))
    return lines[0]


def _make_desync(problem: str, received: str) -> ProtocolDesync:
    return ProtocolDesync(f"the reply is not TL1 as Calient speaks it: {problem}", received=received[:200])
