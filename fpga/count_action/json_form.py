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
            inputs=tuple(_read_signal(signal) for signal in data["inputs"]),
            modules=tuple(_read_module(module) for module in data["modules"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a datapath: {error!r}. Write it with Datapath.to_json().") from error


def _read_signal(data: dict[str, Any]) -> Signal:
    return Signal(**{**data, "kind": SignalKind(data["kind"])})


def _read_module(data: dict[str, Any]) -> Module:
    return Module(
        name=data["name"],
        counts=tuple(_read_count(count) for count in data["counts"]),
        targets=tuple(Target(**target) for target in data["targets"]),
        actions=tuple(_read_action(action) for action in data["actions"]),
        values=tuple(_read_operand(value) for value in data.get("values", [])),
        claims=tuple(
            Claim(**{**claim, "holds": _read_operand(claim["holds"])}) for claim in data.get("claims", [])
        ),
    )


def _read_operand(data: Any) -> Operand:
    if isinstance(data, dict):
        return (
            Operation(data["operator"], tuple(map(_read_operand, data["operands"])))
            if "operator" in data
            else Ref(**data)
        )
    return int(data)


def _read_refs(data: list[dict[str, Any]]) -> tuple[Ref, ...]:
    return tuple(Ref(**ref) for ref in data)


def _read_count(data: dict[str, Any]) -> Count:
    gate = tuple(Condition(Ref(**condition["ref"]), condition["negated"]) for condition in data["gate"])
    aim = Ref(**data["aim"]) if data.get("aim") else None
    bound = Ref(**data["bound"]) if data.get("bound") else None
    fields = {
        "kind": CountKind(data["kind"]), "terms": _read_refs(data["terms"]), "gate": gate, "aim": aim, "bound": bound,
        "taken": _read_refs(data.get("taken", [])), "picks": _read_refs(data.get("picks", [])),
    }  # fmt: skip
    return Count(**{**data, **fields})


def _read_action(data: dict[str, Any]) -> Action:
    clears = tuple(data["clears"]) if data["clears"] else None
    return Action(
        **{**data, "kind": ActionKind(data["kind"]), "refs": _read_refs(data["refs"]), "clears": clears}
    )
