"""Change files: a plan that is made now and applied later, and only if the lab is still as it was.

A file holds the design, the state that was observed, the steps, what they touch and how long they are expected to take.
Steps are planned again from a new read when the file is applied; they must come out as they are written here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbed.output_file import write_output
from testbed.errors import PlanFileError, PlanStale
from testbed.lab.model import Lab
from testbed.operate.changes.durations import Durations
from testbed.operate.changes.elements import Element
from testbed.operate.changes.observed import Difference, Observed, observed_from
from testbed.operate.design import Design
from testbed.operate.intent import Intent, Stated, intent_of
from testbed.operate.intent_log import topology_text
from testbed.operate.model import LabPlan

FORMAT = "lightbed change 1"


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a lab as a file holds it.

    `intent` is the epoch that it will be, with number 0 until it is applied. `steps` are those of each switch.
    """

    path: Path
    intent: Intent
    observed: Observed
    steps: Mapping[str, list[dict[str, Any]]]
    take_over: bool

    def check_current(self, plan: LabPlan, now: Observed) -> None:
        """Raise `PlanStale` unless the lab is as it was, and a plan made now has the very steps of the file."""
        differences = self.observed.differences(now)
        if not differences:
            differences = tuple(
                Difference(f"{name} steps", self.steps.get(name), steps)
                for name, steps in _steps(plan).items()
                if steps != self.steps.get(name)
            )
        if differences:
            raise PlanStale(f"{self.path} was made for another state", differences=differences)


def check_expected(revision: str, now: Observed) -> None:
    """Raise `PlanStale` unless the lab still has the revision that a plan printed."""
    if revision != now.fingerprint:
        difference = Difference("revision", revision, now.fingerprint)
        raise PlanStale("the lab is not as --expect says", differences=(difference,))


def change_document(
    lab: Lab,
    design: Design,
    stated: Stated,
    plan: LabPlan,
    observed: Observed,
    *,
    take_over: bool = False,
) -> dict[str, Any]:
    """Return a change in the form of a file, without what only informs."""
    intent = {
        "lab": lab.name,
        "lab_file": str(lab.path.absolute()),
        "name": design.name,
        "topology": json.loads(topology_text(design.topology, design.wiring, lab)),
        "hosts": [host.name for host in lab.hosts],
        "words": stated.words,
        "plan_text": stated.plan_text,
        "repairs": stated.repairs,
    }
    document = {"format": FORMAT, "intent": intent, "take_over": take_over}
    return document | {
        "observed": observed.json(),
        "fingerprint": observed.fingerprint,
        "steps": _steps(plan),
    }


def informing(plan: LabPlan, elements: tuple[Element, ...], durations: Durations) -> dict[str, Any]:
    """Return what a change touches and the seconds expected, per step, per switch and in total."""
    switches = {
        part.switch: {
            "steps": [durations.step(part.switch, step).json() for step in part.steps],
            "total": durations.switch(part.switch, part.steps).json(),
        }
        for part in plan.switches
    }
    expected = {"switches": switches, "total": durations.plan(plan).json()}
    return {"elements": [element.json() for element in elements], "expected": expected}


def write_change(path: str | Path, document: Mapping[str, Any]) -> None:
    """Write a change. Raises `OSError`."""
    write_output(path, json.dumps({**document, "digest": _digest(document)}, indent=1) + "\n")


def read_change(path: str | Path) -> Change:
    """Return the change in a file. Raises `PlanFileError` for a file that is not one or was edited; `OSError`."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{path} is no change file: not JSON ({error}); {_AGAIN}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PlanFileError(f"{path} is no change file of this release ({FORMAT!r}); {_AGAIN}")
    if document.pop("digest", None) != _digest(document):
        raise PlanFileError(f"{path} is not as it was written: a change is not edited; {_AGAIN}")
    observed = observed_from(document["observed"])
    kept = document["intent"]
    kept |= {"topology": json.dumps(kept["topology"]), "hosts": json.dumps(kept["hosts"])}
    kept |= {"epoch": 0, "state": "intended", "operation": "", "owner": "", "revision": observed.revision}
    kept |= {"intended_at": "", "applied_at": None, "error": ""}
    return Change(Path(path), intent_of(kept), observed, document["steps"], document["take_over"])


_AGAIN = "make it again with `testbed plan LAB --out FILE`"


def _steps(plan: LabPlan) -> dict[str, list[dict[str, Any]]]:
    """Return the steps by which a switch is changed, in the form of a file."""
    return {
        part.switch: [
            {"kind": step.kind, "pairs": [list(pair) for pair in step.pairs.items()]} for step in part.steps
        ]
        for part in plan.switches
    }


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
