"""Planned steps and goals in the form of the journal. This module needs no database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ocs_drivers.model import CrossConnects, Step
from testbed.operate.model import SwitchPlan

ROUTES_CHANGE = "routes"
"""Kind of change whose steps configure hosts: `before` and `after` are digests of configurations, not circuits."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A planned step; `state_before` and `state_after` are the state of the device as text."""

    device: str
    ordinal: int
    address: str
    step_kind: str
    state_before: str
    state_after: str
    change_kind: str = "circuits"

    @classmethod
    def from_step(cls, device: str, ordinal: int, address: str, step: Step) -> PlannedStep:
        """Return the planned form of a step of a switch."""
        return cls(
            device, ordinal, address, step.kind, render_circuits(step.before), render_circuits(step.after)
        )


def format_now() -> str:
    """Return the current time in the form of the journal: ISO 8601 in UTC, with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def render_circuits(connections: CrossConnects) -> str:
    """Return circuits in the form of the journal: a JSON object from input to output."""
    return json.dumps(dict(connections))


def parse_circuits(text: str) -> CrossConnects:
    """Return circuits that `render_circuits` wrote."""
    return CrossConnects({int(source): output for source, output in json.loads(text).items()})


@dataclass(frozen=True, slots=True)
class SwitchGoal:
    """Target circuits of one switch, and the inputs that may be changed (None: all)."""

    address: str
    target: CrossConnects
    scope: frozenset[int] | None


def render_goal(parts: Mapping[str, tuple[str, SwitchPlan]]) -> str:
    """Return the goal of a plan as text, from the address and the plan of each switch."""
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
    """Return the goals in the output of `render_goal`, or {} for an empty text."""
    return {
        name: SwitchGoal(
            entry["address"],
            CrossConnects({int(source): output for source, output in entry["target"].items()}),
            None if entry["scope"] is None else frozenset(entry["scope"]),
        )
        for name, entry in (json.loads(text) if text else {}).items()
    }
