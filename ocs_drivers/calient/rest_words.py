"""The JSON of a Calient, decoded. Pure; whatever is not as documented raises `ProtocolDesync`."""

from __future__ import annotations

from typing import Any

from ocs_drivers.calient.names import Circuit, parse_circuit_name, state_of
from ocs_drivers.calient.tl1_words import port_state
from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import PortState


def decode_circuits(document: Any) -> list[Circuit]:
    """From `GET /rest/crossconnects/?id=list`."""
    return [_circuit(item) for item in _objects(document)]


def _circuit(item: dict[str, Any]) -> Circuit:
    half = item.get("half1")
    if not isinstance(half, dict):
        raise _desync("a circuit without its first half", item)
    source, target, _ = parse_circuit_name(_text(half, "conn"))
    state = state_of(_text(half, "as"), _text(half, "os"))
    return Circuit(source, target, item.get("dir") == "bi", state, _text(half, "oc") != "FAIL")


def decode_ports(document: Any) -> dict[str, tuple[PortState, PortState]]:
    """States of the fibres in and out by port, from `GET /rest/ports/?id=summary`."""
    return {
        _text(item, "port"): (
            port_state(_text(item, "inas"), _text(item, "inoc")),
            port_state(_text(item, "outas"), _text(item, "outoc")),
        )
        for item in _objects(document)
    }


def decode_powers(document: Any) -> dict[str, tuple[float | None, float | None]]:
    """Power in and out in dBm by port."""
    return {
        _text(item, "port"): (_power(item, "inpower"), _power(item, "outpower"))
        for item in _objects(document)
    }


def _power(item: dict[str, Any], name: str) -> float | None:
    text = _text(item, name)
    if text.upper() in {"", "NONE"}:
        return None
    try:
        return float(text)
    except ValueError:
        raise _desync(f"{name} is not a power in dBm", item) from None


def decode_results(document: Any, count: int) -> list[str]:
    """For each item of a change: why it failed, or nothing.

    >>> decode_results([{"status": "1"}, {"status": "0", "msg": "Failed", "description": "no light"}], 2)
    ['', 'Failed: no light']
    """
    items = _objects(document)
    if len(items) != count:
        raise ProtocolDesync(f"{len(items)} results for {count} items", received=str(document)[:200])
    return [_result(item) for item in items]


def _result(item: dict[str, Any]) -> str:
    status = str(item.get("status", ""))
    if status == "1":
        return ""
    if status != "0":
        raise _desync("a result that is neither done nor failed", item)
    return ": ".join(filter(None, (str(item.get("msg", "")), str(item.get("description", ""))))) or "Failed"


def _objects(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise _desync("not a list of objects", document)
    return document


def _text(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise _desync(f"no {name}", item)
    return value


def _desync(why: str, received: Any) -> ProtocolDesync:
    return ProtocolDesync(f"the reply is not as Calient's REST: {why}", received=str(received)[:200])
