"""Reader of the canonical JSON of a datapath."""

from __future__ import annotations

import json
from typing import Any

from fpga.count_action.model import (
    Action,
    ActionKind,
    Claim,
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


def datapath_from_json(text: str) -> Datapath:
    """Return the datapath that `Datapath.to_json` has written. Raise ValueError if the text is not valid."""
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
        claims=tuple(Claim(**{**each, "holds": _operand(each["holds"])}) for each in data.get("claims", [])),
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
    bound = Ref(**data["bound"]) if data.get("bound") else None
    fields = {
        "kind": CountKind(data["kind"]), "terms": _refs(data["terms"]), "gate": gate, "aim": aim, "bound": bound,
        "taken": _refs(data.get("taken", [])), "picks": _refs(data.get("picks", [])),
    }  # fmt: skip
    return Count(**{**data, **fields})


def _action(data: dict[str, Any]) -> Action:
    clears = tuple(data["clears"]) if data["clears"] else None
    return Action(**{**data, "kind": ActionKind(data["kind"]), "refs": _refs(data["refs"]), "clears": clears})
