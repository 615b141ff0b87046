"""The canonical text of a datapath, by which hardware and driver know each other, and the way back."""

from __future__ import annotations

import enum
import json
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from fpga.count_action.model import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Module,
    Operand,
    Operation,
    Ref,
    Signal,
    SignalKind,
    Target,
)


def json_of(datapath: Datapath) -> str:
    """Return the canonical text: sorted keys, no spaces, no locations."""
    return json.dumps(_plain(datapath), sort_keys=True, separators=(",", ":"))


def _plain(thing: Any) -> Any:
    if isinstance(thing, enum.Enum):
        return thing.value
    if is_dataclass(thing):
        kept = (each for each in fields(thing) if each.compare and not _left_out(thing, each))
        return {each.name: _plain(getattr(thing, each.name)) for each in kept}
    if isinstance(thing, tuple):
        return [_plain(each) for each in thing]
    return thing


def _left_out(thing: Any, each: Any) -> bool:
    """Return whether a field came after the first release and has its default: old texts keep their digest."""
    if "added" not in each.metadata:
        return False
    assert each.default is not MISSING
    return bool(getattr(thing, each.name) == each.default)


def datapath_from_json(text: str) -> Datapath:
    """Read what `Datapath.to_json` has written. Raises ValueError when it is not that."""
    try:
        data = json.loads(text)
        return Datapath(
            name=data["name"],
            inputs=tuple(_signal(each) for each in data["inputs"]),
            modules=tuple(_module(each) for each in data["modules"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a datapath: {error!r}. Write it with Datapath.to_json().") from error


def _signal(data: dict[str, Any]) -> Signal:
    return Signal(**{**data, "kind": SignalKind(data["kind"])})


def _module(data: dict[str, Any]) -> Module:
    return Module(
        name=data["name"],
        counts=tuple(_count(each) for each in data["counts"]),
        targets=tuple(Target(**each) for each in data["targets"]),
        actions=tuple(_action(each) for each in data["actions"]),
        values=tuple(_operand(each) for each in data.get("values", [])),
    )


def _operand(data: Any) -> Operand:
    if isinstance(data, dict):
        return (
            Operation(data["operator"], tuple(map(_operand, data["operands"])))
            if "operator" in data
            else Ref(**data)
        )
    return int(data)


def _refs(data: list[dict[str, Any]]) -> tuple[Ref, ...]:
    return tuple(Ref(**each) for each in data)


def _count(data: dict[str, Any]) -> Count:
    gate = tuple(Condition(Ref(**each["ref"]), each["negated"]) for each in data["gate"])
    aim = Ref(**data["aim"]) if data.get("aim") else None
    kind = CountKind(data["kind"])
    return Count(**{**data, "kind": kind, "terms": _refs(data["terms"]), "gate": gate, "aim": aim})


def _action(data: dict[str, Any]) -> Action:
    clears = tuple(data["clears"]) if data["clears"] else None
    return Action(**{**data, "kind": ActionKind(data["kind"]), "refs": _refs(data["refs"]), "clears": clears})
