"""Codec of the resources and documents of a Polatis over RESTCONF. Pure; invalid documents raise `ProtocolDesync`.

The resources are known from public clients. Bodies follow RFC 7951, in which a decimal number may be a string. No
public text says whether a unit supports `If-Match`, which prevents that a write of another client is lost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Attenuation, AttenuationMode, CrossConnects, Identity, PortState
from ocs_drivers.protocols.http import HttpReply

Encoding = Literal["json", "xml"]

MEDIA_TYPES: Mapping[Encoding, str] = {
    "json": "application/yang-data+json",
    "xml": "application/yang-data+xml",
}
"""The media types of RESTCONF; a unit accepts both."""

_DATA = "/api/data"
_PAIRS = "optical-switch:cross-connects"
_PORTS = "optical-switch:port-config"
_POWERS = "optical-switch:opm-power"
_ATTENUATORS = "optical-switch:voa"
_PRODUCT = "optical-switch:product-information"

CROSS_CONNECTS = f"{_DATA}/{_PAIRS}"
PORTS = f"{_DATA}/{_PORTS}"
POWERS = f"{_DATA}/{_POWERS}"
ATTENUATORS = f"{_DATA}/{_ATTENUATORS}"
PRODUCT = f"{_DATA}/{_PRODUCT}"

_MODE = "VOA_MODE_"

# FAILED is an assumption: public clients show only the other two states.
_STATES = {
    "ENABLED": PortState.ENABLED,
    "DISABLED": PortState.DISABLED,
    "FAILED": PortState.FAILED,
}


@dataclass(frozen=True, slots=True)
class RestPort:
    """One entry of the port list."""

    state: PortState
    label: str


def encode_document(document: Mapping[str, Any], encoding: Encoding) -> bytes:
    """Return a document encoded as JSON or XML."""
    if encoding == "xml":
        from ocs_drivers.vendors.polatis import rest_xml  # only XML sessions need it

        return rest_xml.encode(document)
    return json.dumps(document, separators=(",", ":")).encode()


def decode_document(reply: HttpReply) -> Any:
    """Return the document of a reply, decoded by the media type of the reply."""
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not media_type.endswith("xml"):
        return reply.json()
    from ocs_drivers.vendors.polatis import rest_xml

    return rest_xml.decode(reply.body)


def format_pair_path(source: int) -> str:
    """Return the resource of the pair of one input.

    >>> format_pair_path(1)
    '/api/data/optical-switch:cross-connects/pair=1'
    """
    return f"{CROSS_CONNECTS}/pair={source}"


def format_port_path(port: int) -> str:
    """Return the resource of the settings of one port.

    >>> format_port_path(2)
    '/api/data/optical-switch:port-config/port=2'
    """
    return f"{PORTS}/port={port}"


def encode_pairs(connections: CrossConnects) -> dict[str, Any]:
    """Encode the whole configuration.

    >>> encode_pairs(CrossConnects({1: 13}))
    {'optical-switch:cross-connects': {'pair': [{'ingress': 1, 'egress': 13}]}}
    """
    return {_PAIRS: {"pair": [_encode_entry(source, output) for source, output in connections.items()]}}


def encode_pair(source: int, output: int) -> dict[str, Any]:
    """Encode one pair.

    >>> encode_pair(1, 13)
    {'optical-switch:pair': [{'ingress': 1, 'egress': 13}]}
    """
    return {"optical-switch:pair": [_encode_entry(source, output)]}


def encode_port(port: int, *, is_open: bool, label: str) -> dict[str, Any]:
    """Encode the settings of one port, including the label, because a PUT replaces all settings.

    >>> encode_port(2, is_open=False, label="to rack 4")
    {'optical-switch:port': [{'port-id': 2, 'status': 'DISABLED', 'label': 'to rack 4'}]}
    """
    status = "ENABLED" if is_open else "DISABLED"
    return {"optical-switch:port": [{"port-id": port, "status": status, "label": label}]}


def decode_pairs(document: Any) -> CrossConnects:
    """Decode the whole configuration; a missing list means no pairs.

    >>> decode_pairs({"optical-switch:cross-connects": {"pair": [{"ingress": 1, "egress": 13}]}})
    CrossConnects({1: 13})
    >>> decode_pairs({"optical-switch:cross-connects": {}})
    CrossConnects({})
    """
    entries = _get_entries(_get_content(document, _PAIRS), "pair")
    pairs = [(_parse_integer(entry, "ingress"), _parse_integer(entry, "egress")) for entry in entries]
    try:
        return CrossConnects(pairs)
    except ValueError as error:
        raise _make_desync(f"the circuits are not one-to-one ({error})", document) from error


def encode_attenuation(port: int, attenuation: Attenuation) -> dict[str, Any]:
    """Encode the attenuator setting of one output, with the mode names of public clients and the level as a number.

    >>> encode_attenuation(9, Attenuation("absolute", -10.0))["optical-switch:voa"]["port"]
    [{'port-id': 9, 'atten-mode': 'VOA_MODE_ABSOLUTE', 'atten-level': -10.0}]
    """
    entry: dict[str, Any] = {"port-id": port, "atten-mode": f"{_MODE}{attenuation.mode.upper()}"}
    if attenuation.level_db is not None:
        entry["atten-level"] = attenuation.level_db
    if attenuation.reference is not None:
        entry["reference-port"] = attenuation.reference
    return {_ATTENUATORS: {"port": [entry]}}


def decode_attenuators(document: Any) -> dict[int, Attenuation | None]:
    """Decode the settings of attenuators by port; None for a mode that this library does not support.

    >>> entry = {"port-id": 9, "atten-mode": "VOA_MODE_NONE"}
    >>> decode_attenuators({"optical-switch:voa": {"port": [entry]}})
    {9: Attenuation(mode='none', level_db=None, reference=None)}
    """
    entries = _get_entries(_get_content(document, _ATTENUATORS), "port")
    return {_parse_integer(entry, "port-id"): _decode_attenuation(entry) for entry in entries}


def _decode_attenuation(entry: Mapping[str, Any]) -> Attenuation | None:
    mode = str(entry.get("atten-mode", "")).removeprefix(_MODE).lower()
    if mode == "none":
        return Attenuation("none")
    if mode not in {"absolute", "relative", "converged"}:
        return None
    level = _parse_decimal(entry, "atten-level", "dB")
    if level is None:
        raise _make_desync("an attenuator without a level", entry)
    reference = _parse_integer(entry, "reference-port") if entry.get("reference-port") else None
    return Attenuation(cast("AttenuationMode", mode), level, reference)


def decode_ports(document: Any) -> dict[int, RestPort]:
    """Decode state and label by port.

    >>> entry = {"port-id": 2, "status": "DISABLED", "label": "x", "peer-port": 13}
    >>> decode_ports({"optical-switch:port-config": {"port": [entry]}})[2].state.value
    'disabled'
    """
    return {
        _parse_integer(entry, "port-id"): RestPort(_decode_state(entry), str(entry.get("label", "")))
        for entry in _get_entries(_get_content(document, _PORTS), "port")
    }


def decode_powers(document: Any) -> dict[int, float | None]:
    """Decode power in dBm by port, for the ports with a monitor; None if a port has no reading.

    >>> decode_powers({"optical-switch:opm-power": {"port": [{"port-id": 1, "power": "-29.55"}]}})
    {1: -29.55}
    """
    return {
        _parse_integer(entry, "port-id"): _decode_power(entry)
        for entry in _get_entries(_get_content(document, _POWERS), "port")
    }


def decode_product(document: Any) -> Identity:
    """Decode the identity of the device.

    >>> names = ("manufacturer", "model-name", "serial-number", "software-version")
    >>> decode_product({"optical-switch:product-information": dict(zip(names, "abcd"))})
    Identity(vendor='a', model='b', serial='c', firmware='d')
    """
    product = _get_content(document, _PRODUCT)
    names = ("manufacturer", "model-name", "serial-number", "software-version")
    if not all(isinstance(product.get(name), str) for name in names):
        raise _make_desync(f"{_PRODUCT} does not have all of {', '.join(names)}", document)
    return Identity(*(product[name].strip() for name in names))


def _encode_entry(source: int, output: int) -> dict[str, int]:
    return {"ingress": source, "egress": output}


def _get_content(document: Any, name: str) -> Mapping[str, Any]:
    content = document.get(name, document.get(name.partition(":")[2])) if isinstance(document, dict) else None
    if not isinstance(content, dict):
        raise _make_desync(f"{name} is missing", document)
    return content


def _get_entries(content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    entries = content.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _make_desync(f"{name} is not a list of objects", content)
    return entries


def _parse_integer(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _make_desync(f"{name} is {str(value)[:40]!r}, not a port number", entry)
    return value


def _decode_state(entry: Mapping[str, Any]) -> PortState:
    status = str(entry.get("status", "ENABLED")).upper()
    if status not in _STATES:
        raise _make_desync(f"port status {status[:40]!r} is not one of {', '.join(_STATES)}", entry)
    return _STATES[status]


def _decode_power(entry: Mapping[str, Any]) -> float | None:
    return _parse_decimal(entry, "power", "dBm")


def _parse_decimal(entry: Mapping[str, Any], name: str, unit: str) -> float | None:
    value = entry.get(name)
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _make_desync(f"the {name} is not a number (in {unit})", entry)
    return number


def _make_desync(problem: str, document: Any) -> ProtocolDesync:
    return ProtocolDesync(
        f"the document is not RESTCONF as Polatis speaks it: {problem}",
        received=str(document)[:200],
        hint="Check the firmware version; the model of the switch may have changed.",
    )
