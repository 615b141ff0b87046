"""The goal of an operation as the journal holds it: the circuits that each switch is to have within a scope."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ocs_drivers.model import CrossConnects
from testbed.operate.model import SwitchPlan


@dataclass(frozen=True, slots=True)
class SwitchGoal:
    """Circuits of one switch, and the inputs that may be touched for them (None: all)."""

    address: str
    target: CrossConnects
    scope: frozenset[int] | None


def goal_text(parts: Mapping[str, tuple[str, SwitchPlan]]) -> str:
    """Return the goal of a plan: of each switch its address and its part."""
    return json.dumps(
        {
            name: {
                "address": address,
                "target": dict(part.target),
                "scope": None if part.scope is None else sorted(part.scope),
            }
            for name, (address, part) in parts.items()
        }
    )


def parse_goal(text: str) -> dict[str, SwitchGoal]:
    """Return a goal that `goal_text` wrote; nothing for an empty text."""
    return {
        name: SwitchGoal(
            one["address"],
            CrossConnects({int(source): output for source, output in one["target"].items()}),
            None if one["scope"] is None else frozenset(one["scope"]),
        )
        for name, one in (json.loads(text) if text else {}).items()
    }
