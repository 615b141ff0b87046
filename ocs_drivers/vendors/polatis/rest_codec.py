"""The resources and documents of a Polatis over RESTCONF. Pure; what is not as documented raises `ProtocolDesync`.

Resources are those that public clients use; bodies follow RFC 7951, in which a number with a point may be a
string. Nobody has published what a unit does with `If-Match`; where it heeds it, no other write is lost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import CrossConnects, Identity, PortState

YANG_JSON = "application/yang-data+json"

_DATA = "/api/data"
_PAIRS = "optical-switch:cross-connects"
_PORTS = "optical-switch:port-config"
_POWERS = "optical-switch:opm-power"
_PRODUCT = "optical-switch:product-information"

CROSS_CONNECTS = f"{_DATA}/{_PAIRS}"
PORTS = f"{_DATA}/{_PORTS}"
POWERS = f"{_DATA}/{_POWERS}"
PRODUCT = f"{_DATA}/{_PRODUCT}"

# FAILED is an assumption: public clients show the other two only.
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


def pair_resource(source: int) -> str:
    """Return the resource of the pair of one input.

    >>> pair_resource(1)
    '/api/data/optical-switch:cross-connects/pair=1'
    """
    return f"{CROSS_CONNECTS}/pair={source}"


def port_resource(port: int) -> str:
    """Return the resource of the settings of one port.

    >>> port_resource(2)
    '/api/data/optical-switch:port-config/port=2'
    """
    return f"{PORTS}/port={port}"


def encode_pairs(connections: CrossConnects) -> dict[str, Any]:
    """Encode the whole configuration.

    >>> encode_pairs(CrossConnects({1: 13}))
    {'optical-switch:cross-connects': {'pair': [{'ingress': 1, 'egress': 13}]}}
    """
    return {_PAIRS: {"pair": [_entry(source, output) for source, output in connections.items()]}}


def encode_pair(source: int, output: int) -> dict[str, Any]:
    """Encode one pair.

    >>> encode_pair(1, 13)
    {'optical-switch:pair': [{'ingress': 1, 'egress': 13}]}
    """
    return {"optical-switch:pair": [_entry(source, output)]}


def encode_port(port: int, *, is_open: bool, label: str) -> dict[str, Any]:
    """Encode the settings of one port; a PUT replaces them all, so the label goes along.

    >>> encode_port(2, is_open=False, label="to rack 4")
    {'optical-switch:port': [{'port-id': 2, 'status': 'DISABLED', 'label': 'to rack 4'}]}
    """
    status = "ENABLED" if is_open else "DISABLED"
    return {"optical-switch:port": [{"port-id": port, "status": status, "label": label}]}


def decode_pairs(document: Any) -> CrossConnects:
    """Decode the whole configuration; without a list there is no pair.

    >>> decode_pairs({"optical-switch:cross-connects": {"pair": [{"ingress": 1, "egress": 13}]}})
    CrossConnects({1: 13})
    >>> decode_pairs({"optical-switch:cross-connects": {}})
    CrossConnects({})
    """
    entries = _entries(_content(document, _PAIRS), "pair")
    pairs = [(_whole(entry, "ingress"), _whole(entry, "egress")) for entry in entries]
    try:
        return CrossConnects(pairs)
    except ValueError as error:
        raise _desync(f"not one-to-one ({error})", document) from error


def decode_ports(document: Any) -> dict[int, RestPort]:
    """Decode state and label by port.

    >>> entry = {"port-id": 2, "status": "DISABLED", "label": "x", "peer-port": 13}
    >>> decode_ports({"optical-switch:port-config": {"port": [entry]}})[2].state.value
    'disabled'
    """
    return {
        _whole(entry, "port-id"): RestPort(_state(entry), str(entry.get("label", "")))
        for entry in _entries(_content(document, _PORTS), "port")
    }


def decode_powers(document: Any) -> dict[int, float | None]:
    """Decode power in dBm by port, for the ports that have a monitor; None where it says nothing.

    >>> decode_powers({"optical-switch:opm-power": {"port": [{"port-id": 1, "power": "-29.55"}]}})
    {1: -29.55}
    """
    return {
        _whole(entry, "port-id"): _power(entry) for entry in _entries(_content(document, _POWERS), "port")
    }


def decode_product(document: Any) -> Identity:
    """Decode the identity of the device.

    >>> names = ("manufacturer", "model-name", "serial-number", "software-version")
    >>> decode_product({"optical-switch:product-information": dict(zip(names, "abcd"))})
    Identity(vendor='a', model='b', serial='c', firmware='d')
    """
    product = _content(document, _PRODUCT)
    names = ("manufacturer", "model-name", "serial-number", "software-version")
    if not all(isinstance(product.get(name), str) for name in names):
        raise _desync("no product information", document)
    return Identity(*(product[name].strip() for name in names))


def _entry(source: int, output: int) -> dict[str, int]:
    return {"ingress": source, "egress": output}


def _content(document: Any, name: str) -> Mapping[str, Any]:
    content = document.get(name, document.get(name.partition(":")[2])) if isinstance(document, dict) else None
    if not isinstance(content, dict):
        raise _desync(f"no {name}", document)
    return content


def _entries(content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    entries = content.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _desync(f"{name} is not a list", content)
    return entries


def _whole(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _desync(f"{name} is not a port number", entry)
    return value


def _state(entry: Mapping[str, Any]) -> PortState:
    word = str(entry.get("status", "ENABLED")).upper()
    if word not in _STATES:
        raise _desync(f"unknown port status {word}", entry)
    return _STATES[word]


def _power(entry: Mapping[str, Any]) -> float | None:
    value = entry.get("power")
    if value is None or value == "":
        return None
    try:
        power_dbm = float(value)
    except (TypeError, ValueError, OverflowError):
        power_dbm = math.nan
    if not math.isfinite(power_dbm):
        raise _desync("not a power in dBm", entry)
    return power_dbm


def _desync(why: str, document: Any) -> ProtocolDesync:
    return ProtocolDesync(
        f"the document is not RESTCONF as Polatis speaks it: {why}",
        received=str(document)[:200],
        hint="Check the firmware version; the model of the switch may have changed.",
    )
