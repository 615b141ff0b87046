"""Decoders of the data lines of Polatis TL1 replies. Pure; invalid lines raise `ProtocolDesync`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Attenuation, AttenuationMode, CrossConnects, Identity, PortState

Lines = tuple[str, ...]

_SIZE = re.compile(r"SYSTEM:SIZE=(\d{1,4})x(\d{1,4})", re.IGNORECASE)
_PAIR = re.compile(r"(\d+)\s*,\s*(\d+)")
_PORT_VALUE = re.compile(r"(\d{1,9}):(.*)")
_CONFIGURED_PORT = re.compile(r"\w+::(?:.*,)?PORT=(\d{1,9})(?:,.*)?")
_KEYWORD = re.compile(r"(?:^|[:,])(\w+)=([^,]*)")
_STATES = {
    "OPEN": PortState.ENABLED,
    "CLOSED": PortState.DISABLED,
    "FAILED": PortState.FAILED,
}
_MODES = frozenset({"none", "absolute", "relative", "converged"})


def decode_identity(network_element: Lines, inventory: Lines) -> Identity:
    """Decode the replies to `RTRV-NETYPE` (vendor,model,type,version) and `RTRV-INV` (SN=...).

    >>> decode_identity(("POLATIS,I-OST-16x16,OCS,6.5",), ("OCS:SN=002414",)).serial
    '002414'
    """
    fields = [field.strip() for field in _get_single_line(network_element).split(",")]
    if len(fields) != 4:
        raise _make_desync("not an identity of the form vendor,model,type,version", network_element)
    serial = _parse_keywords(inventory).get("SN", "")
    return Identity(fields[0], fields[1], serial, fields[3])


def decode_size(lines: Lines) -> tuple[int, int]:
    """Decode inputs and outputs.

    >>> decode_size(("SYSTEM:SIZE=16x16",))
    (16, 16)
    """
    match = _SIZE.fullmatch(_get_single_line(lines))
    inputs, outputs = map(int, match.groups()) if match else (0, 0)
    if not (inputs and outputs):
        raise _make_desync("not a matrix size like SYSTEM:SIZE=16x16", lines)
    return inputs, outputs


def decode_pairs(lines: Lines) -> CrossConnects:
    """Decode the configuration: one pair per line.

    >>> decode_pairs(("11,28", "4,17"))
    CrossConnects({4: 17, 11: 28})
    """
    matches = [_PAIR.fullmatch(line.strip()) for line in lines]
    if None in matches:
        raise _make_desync("not one pair per line", lines)
    try:
        return CrossConnects((int(match[1]), int(match[2])) for match in matches if match)
    except ValueError as error:
        raise _make_desync(f"the circuits are not one-to-one ({error})", lines) from error


def decode_port_values(lines: Lines) -> dict[int, str]:
    """Return the value of each line by port.

    >>> decode_port_values(("1:OPEN", "2:"))
    {1: 'OPEN', 2: ''}
    """
    matches = [_PORT_VALUE.fullmatch(line) for line in lines]
    if None in matches:
        raise _make_desync("not one port:value per line", lines)
    return {int(match[1]): match[2].strip() for match in matches if match}


def decode_powers(lines: Lines) -> dict[int, float | None]:
    """Decode power in dBm by port; `NONE` becomes None.

    >>> decode_powers(("1:-29.55", "2:NONE"))
    {1: -29.55, 2: None}
    """
    try:
        return {
            port: None if text.upper() == "NONE" else float(text)
            for port, text in decode_port_values(lines).items()
        }
    except ValueError:
        raise _make_desync("a value is neither a power in dBm nor NONE", lines) from None


def decode_shutters(lines: Lines) -> dict[int, PortState]:
    """Decode the state of each port from the state of its shutter."""
    try:
        return {port: _STATES[text.upper()] for port, text in decode_port_values(lines).items()}
    except KeyError as error:
        raise _make_desync(f"shutter state {error} is not one of {', '.join(_STATES)}", lines) from None


def decode_configured_ports(lines: Lines) -> frozenset[int]:
    """Return the ports that a `PARAMETER=CONFIG` reply lists.

    >>> sorted(decode_configured_ports(("PMON::PORT=1,MODE=INPUT", "PMON::PORT=2,MODE=INPUT")))
    [1, 2]
    """
    matches = [_CONFIGURED_PORT.fullmatch(line) for line in lines]
    if None in matches:
        raise _make_desync("not one configured port per line, like PMON::PORT=1", lines)
    return frozenset(int(match[1]) for match in matches if match)


def decode_attenuation(lines: Lines) -> Attenuation:
    """Decode the setting of one attenuator.

    No public text shows this line, so both likely forms are accepted: the values mode, level and reference in this
    order, or the fields `MODE=`, `LEVEL=` and `REFS=`.

    >>> decode_attenuation(("33:ABSOLUTE,-10.0,0",))
    Attenuation(mode='absolute', level_db=-10.0, reference=None)
    >>> decode_attenuation(("33:MODE=RELATIVE,LEVEL=-3.0,REFS=2",))
    Attenuation(mode='relative', level_db=-3.0, reference=2)
    """
    (text,) = decode_port_values((_get_single_line(lines),)).values()
    fields = _parse_keywords((text,)) or dict(zip(("MODE", "LEVEL", "REFS"), text.split(","), strict=False))
    mode = fields.get("MODE", "").strip().lower()
    if mode not in _MODES:
        raise _make_desync(f"attenuation mode {mode[:40]!r} is not one of {', '.join(sorted(_MODES))}", lines)
    if mode == "none":
        return Attenuation("none")
    try:
        level_db, reference = float(fields["LEVEL"]), int(fields.get("REFS", "0"))
    except (KeyError, ValueError):
        raise _make_desync(
            "the attenuation has no valid level, or an invalid reference port", lines
        ) from None
    return Attenuation(cast("AttenuationMode", mode), level_db, reference or None)


def encode_attenuation(attenuation: Attenuation) -> str:
    """Return the keywords of `SET-PORT-ATTEN`.

    >>> encode_attenuation(Attenuation("absolute", -10.0))
    'MODE=ABSOLUTE,LEVEL=-10.0'
    """
    fields = [f"MODE={attenuation.mode.upper()}"]
    fields += [f"LEVEL={attenuation.level_db:.1f}"] if attenuation.level_db is not None else []
    fields += [f"REFS={attenuation.reference}"] if attenuation.reference is not None else []
    return ",".join(fields)


def _parse_keywords(lines: Iterable[str]) -> Mapping[str, str]:
    return {name.upper(): value.strip() for line in lines for name, value in _KEYWORD.findall(line)}


def _get_single_line(lines: Lines) -> str:
    if len(lines) != 1:
        raise _make_desync(f"{len(lines)} lines instead of one", lines)
    return lines[0]


def _make_desync(problem: str, lines: Iterable[str]) -> ProtocolDesync:
    text = " | ".join(lines)
    return ProtocolDesync(
        f"the reply is not TL1 as Polatis speaks it: {problem}",
        received=text[:200],
        hint="Check the firmware version; the form of this reply may have changed.",
    )
