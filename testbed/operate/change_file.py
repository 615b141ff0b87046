"""Change files: plans that are made now and applied later, if the lab has not changed since.

A file holds the design, the observed state, the steps, the elements that they touch and their expected duration. An
apply of the file plans the steps again from a new read, which must equal the steps in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbed.output_file import write_output
from testbed.errors import PlanFileError, PlanStale
from testbed.lab.model import Lab
from testbed.operate.design import Design
from testbed.operate.intent import Intent, TopologySource, parse_intent, render_topology
from testbed.operate.model import LabPlan
from testbed.operate.plan import select_in_scope


@dataclass(frozen=True, slots=True)
class Difference:
    """A field whose value has changed since the plan was made."""

    field_name: str
    planned_value: object
    current_value: object

    def __str__(self) -> str:
        return (
            f"{self.field_name}: planned {_render_value(self.planned_value)}, found"
            f" {_render_value(self.current_value)}"
        )

    def json(self) -> dict[str, object]:
        """Return the three fields for JSON documents."""
        return {"field": self.field_name, "planned": self.planned_value, "found": self.current_value}


def _render_value(value: object) -> str:
    return "nothing" if value is None or value == [] else str(value)


@dataclass(frozen=True, slots=True)
class ObservedState:
    """State of a lab when a plan was made for it.

    `circuits_by_switch` maps inputs to outputs by switch. It holds only circuits that the plan may change, because
    other users may change theirs. `epochs` are in force on the plan's hosts. `revision` identifies the text of the lab
    file. `lease_token` is the fencing token of the newest lease on the hosts, or None without a lease.
    """

    circuits_by_switch: Mapping[str, Mapping[int, int]]
    epochs: tuple[int, ...] = ()
    revision: str = ""
    lease_token: int | None = None

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the circuits and epochs: `--expect` compares them.

        >>> ObservedState({"ocs1": {1: 49}}, (3,)).fingerprint == ObservedState(
        ...     {"ocs1": {1: 49}}, (4,)
        ... ).fingerprint
        False
        """
        sorted_circuits = {
            name: sorted(circuits.items()) for name, circuits in self.circuits_by_switch.items()
        }
        text = json.dumps([sorted(sorted_circuits.items()), self.epochs])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def find_differences(self, current_state: ObservedState) -> tuple[Difference, ...]:
        """Return every field in which `current_state` differs, the lab file and the lease first."""
        return tuple(_find_differences(self, current_state))

    def json(self) -> dict[str, Any]:
        """Return the state for JSON documents and change files."""
        circuits = {name: sorted(pairs.items()) for name, pairs in self.circuits_by_switch.items()}
        return {
            "circuits": circuits,
            "epochs": list(self.epochs),
            "revision": self.revision,
            "token": self.lease_token,
        }


def parse_observed_state(document: Mapping[str, Any]) -> ObservedState:
    """Return the state in the output of `ObservedState.json`."""
    circuits = {
        name: {int(source): int(output) for source, output in pairs}
        for name, pairs in document["circuits"].items()
    }
    return ObservedState(circuits, tuple(document["epochs"]), document["revision"], document["token"])


def observe_plan(
    plan: LabPlan, *, epochs: Sequence[int] = (), revision: str = "", lease_token: int | None = None
) -> ObservedState:
    """Return the state for which a plan was made: the circuits that it may change, and the given other fields."""
    circuits = {
        switch_plan.switch: dict(sorted(select_in_scope(switch_plan))) for switch_plan in plan.switches
    }
    return ObservedState(circuits, tuple(epochs), revision, lease_token)


def _find_differences(planned_state: ObservedState, current_state: ObservedState) -> Iterator[Difference]:
    if planned_state.revision != current_state.revision:
        yield Difference("lab file revision", planned_state.revision, current_state.revision)
    if planned_state.lease_token != current_state.lease_token:
        yield Difference("lease token", planned_state.lease_token, current_state.lease_token)
    if planned_state.epochs != current_state.epochs:
        yield Difference("epochs in force", list(planned_state.epochs), list(current_state.epochs))
    for switch in sorted({*planned_state.circuits_by_switch, *current_state.circuits_by_switch}):
        planned_circuits, current_circuits = (
            planned_state.circuits_by_switch.get(switch, {}),
            current_state.circuits_by_switch.get(switch, {}),
        )
        for port in sorted({*planned_circuits, *current_circuits}):
            if planned_circuits.get(port) != current_circuits.get(port):
                yield Difference(
                    f"{switch} input {port}", planned_circuits.get(port), current_circuits.get(port)
                )


FORMAT_NAME = "lightbed change 1"


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """The content of a change file.

    `intent` is the future epoch, with number 0 until it is applied. `steps_by_switch` lists the steps of each switch.
    """

    path: Path
    intent: Intent
    observed_state: ObservedState
    steps_by_switch: Mapping[str, list[dict[str, Any]]]
    takes_over: bool

    def check_current(self, plan: LabPlan, current_state: ObservedState) -> None:
        """Raise `PlanStale` if the lab has changed, or if `plan`, made now, has other steps than the file."""
        differences = self.observed_state.find_differences(current_state)
        if not differences:
            differences = tuple(
                Difference(f"{name} steps", self.steps_by_switch.get(name), steps)
                for name, steps in _render_steps(plan).items()
                if steps != self.steps_by_switch.get(name)
            )
        if differences:
            raise PlanStale(f"{self.path} was made for another state of the lab", differences=differences)


def check_expected(expected_fingerprint: str, current_state: ObservedState) -> None:
    """Raise `PlanStale` unless the state of the lab still has the revision that `testbed plan` printed."""
    if expected_fingerprint != current_state.fingerprint:
        difference = Difference("revision", expected_fingerprint, current_state.fingerprint)
        raise PlanStale("the lab is not in the state that --expect names", differences=(difference,))


def make_change_document(
    lab: Lab,
    design: Design,
    topology_source: TopologySource,
    plan: LabPlan,
    observed_state: ObservedState,
    *,
    take_over: bool = False,
) -> dict[str, Any]:
    """Return the content of a change file, without digest, elements and durations."""
    intent_document = {
        "lab": lab.name,
        "lab_file": str(lab.path.absolute()),
        "name": design.name,
        "topology": json.loads(render_topology(design.topology, design.wiring, lab)),
        "hosts": [host.name for host in lab.hosts],
        "words": topology_source.options_text,
        "plan_text": topology_source.plan_text,
        "repairs": topology_source.repaired_epoch,
    }
    document = {"format": FORMAT_NAME, "intent": intent_document, "take_over": take_over}
    return document | {
        "observed": observed_state.json(),
        "fingerprint": observed_state.fingerprint,
        "steps": _render_steps(plan),
    }


def write_change(path: str | Path, document: Mapping[str, Any]) -> None:
    """Write a change file, with a digest of its content. Raises `OSError`."""
    write_output(path, json.dumps({**document, "digest": _compute_digest(document)}, indent=1) + "\n")


def read_change(path: str | Path) -> ChangeFile:
    """Read a change file. Raises `PlanFileError` if it is not a change file or was modified, and `OSError`."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{path} is not a change file: not JSON ({error}); {_PLAN_AGAIN_HINT}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT_NAME:
        raise PlanFileError(
            f"{path} is not a change file of this release ({FORMAT_NAME!r}); {_PLAN_AGAIN_HINT}"
        )
    if document.pop("digest", None) != _compute_digest(document):
        raise PlanFileError(f"{path} was modified after it was written (digest mismatch); {_PLAN_AGAIN_HINT}")
    observed_state = parse_observed_state(document["observed"])
    intent_document = document["intent"]
    intent_document |= {
        "topology": json.dumps(intent_document["topology"]),
        "hosts": json.dumps(intent_document["hosts"]),
    }
    intent_document |= {
        "epoch": 0,
        "state": "intended",
        "operation": "",
        "owner": "",
        "revision": observed_state.revision,
    }
    intent_document |= {"intended_at": "", "applied_at": None, "error": ""}
    return ChangeFile(
        Path(path), parse_intent(intent_document), observed_state, document["steps"], document["take_over"]
    )


_PLAN_AGAIN_HINT = "make it again with `testbed plan LAB --out FILE`"


def _render_steps(plan: LabPlan) -> dict[str, list[dict[str, Any]]]:
    """Return the steps of each switch in the form of a change file."""
    return {
        switch_plan.switch: [
            {"kind": step.kind, "pairs": [list(pair) for pair in step.pairs.items()]}
            for step in switch_plan.steps
        ]
        for switch_plan in plan.switches
    }


def _compute_digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
