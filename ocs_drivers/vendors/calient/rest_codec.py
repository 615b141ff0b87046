"""Decoders of the JSON of a Calient. Pure; undocumented forms raise `ProtocolDesync`.

Public clients show the format of circuits, results and the details of one port. The format of the summary of the ports
is not published: we require only a list of objects with `port`, and use other fields if they are present.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.vendors.calient.circuits import decode_port_state, decode_power
from ocs_drivers.vendors.calient.driver import Port
from ocs_drivers.vendors.calient.ports import Circuit, State, decode_circuit_state, parse_circuit_name

Item = Mapping[str, Any]

STATE_FIELDS = frozenset({"inas", "inos", "outas", "outos"})
POWER_FIELDS = frozenset({"inpower", "outpower"})

_STATES_BY_PROGRESS: tuple[State, ...] = ("provisioned", "moving", "made")


def decode_circuits(document: Any) -> list[Circuit]:
    """Decode the circuits of `GET /rest/crossconnects/?id=list`.

    >>> half = {"conn": "3.3.1>3.3.2", "as": "IS", "os": "IS", "oc": "FAIL"}
    >>> decode_circuits([{"name": "3.3.1>3.3.2", "dir": "uni", "half1": half, "half2": {}}])[0].is_lit
    False
    """
    return [_decode_circuit(item) for item in _check_objects(document)]


def _decode_circuit(item: Item) -> Circuit:
    """Return the circuit of an object; a two-way circuit has the state of its slower half."""
    is_two_way = _get_text(item, "dir") == "bi"
    halves = [_get_half(item, name) for name in ("half1", "half2")[: 2 if is_two_way else 1]]
    source, target, _ = parse_circuit_name(_get_text(halves[0], "conn"))
    if is_two_way and parse_circuit_name(_get_text(halves[1], "conn"))[:2] != (target, source):
        raise _make_desync("a two-way circuit without its return direction", item)
    states = [decode_circuit_state(_get_text(half, "as"), _get_text(half, "os")) for half in halves]
    is_lit = all(_get_text(half, "oc") != "FAIL" for half in halves)
    return Circuit(
        _get_text(item, "name"),
        source,
        target,
        is_two_way,
        min(states, key=_STATES_BY_PROGRESS.index),
        is_lit,
    )


def _get_half(item: Item, name: str) -> Item:
    half = item.get(name)
    if not isinstance(half, dict):
        raise _make_desync(f"a circuit without {name}", item)
    return half


def decode_summary(document: Any) -> dict[str, Item]:
    """Return the entries of `GET /rest/ports/?id=summary` by port name."""
    items = _check_objects(document)
    ports: dict[str, Item] = {_get_text(item, "port"): item for item in items}
    if len(ports) != len(items):
        raise _make_desync("a port is listed twice", document)
    return ports


def decode_detail(document: Any) -> Item:
    """Return the port object of `GET /rest/ports/?id=detail&port=...`, alone or in a list of one."""
    if isinstance(document, dict):
        return document
    items = _check_objects(document)
    if len(items) != 1:
        raise _make_desync(f"it has {len(items)} ports instead of one", document)
    return items[0]


def has_fields(item: Item, fields: Collection[str]) -> bool:
    """Return True if an object has all these fields.

    >>> has_fields({"port": "3.3.1", "inpower": "-3.4", "outpower": "-4.8"}, POWER_FIELDS)
    True
    """
    return item.keys() >= set(fields)


def decode_port(item: Item) -> Port:
    """Decode the states and the alias of a port."""
    states = (
        decode_port_state(_get_text(item, "inas"), _get_text(item, "inos")),
        decode_port_state(_get_text(item, "outas"), _get_text(item, "outos")),
    )
    return Port(states, str(item.get("inalias", "")))


def decode_powers(item: Item) -> tuple[float | None, float | None]:
    """Decode input and output power in dBm; None means no light."""
    return _decode_power(item, "inpower"), _decode_power(item, "outpower")


def _decode_power(item: Item, name: str) -> float | None:
    text = _get_text(item, name)
    try:
        return decode_power(text) if text else None
    except ValueError:
        raise _make_desync(f"{name} is not a power in dBm", item) from None


def decode_failures(document: Any, count: int) -> list[str]:
    """Return the failure reason of each item of a change, or "" for success, in the order of the items (an assumption).

    Other clients find the result of a single change at the top level, and the results of a bulk change in `response`.
    Both forms are accepted in both cases.

    >>> decode_failures([{"status": "1"}, {"status": "0", "msg": "Failed", "description": "no light"}], 2)
    ['', 'Failed: no light']
    >>> decode_failures([{"response": {"status": "1"}}], 1)
    ['']
    """
    items = _check_objects(document)
    if len(items) != count:
        raise _make_desync(f"it has {len(items)} results for {count} changes", document)
    return [_decode_result(item.get("response", item)) for item in items]


def _decode_result(item: Any) -> str:
    if not isinstance(item, dict):
        raise _make_desync("a response that is not an object", item)
    status = str(item.get("status", ""))
    if status == "1":
        return ""
    if status != "0":
        raise _make_desync(f"a result has status {status[:40]!r} instead of 1 (done) or 0 (failed)", item)
    return ": ".join(filter(None, (str(item.get("msg", "")), str(item.get("description", ""))))) or "Failed"


def decode_node(document: Any) -> dict[str, str]:
    """Return the text fields of an object, or {} for any other document, because the format is not published.

    >>> decode_node({"chassistype": "S320", "slots": 4}), decode_node("2.1")
    ({'chassistype': 'S320'}, {})
    """
    items = document.items() if isinstance(document, dict) else ()
    return {name: value for name, value in items if isinstance(value, str)}


def _check_objects(document: Any) -> list[dict[str, Any]]:
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise _make_desync("not a list of objects", document)
    return document


def _get_text(item: Item, name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise _make_desync(f"{name} is missing", item)
    return value


def _make_desync(problem: str, received: Any) -> ProtocolDesync:
    return ProtocolDesync(
        f"the reply is not REST as Calient speaks it: {problem}", received=str(received)[:200]
    )
