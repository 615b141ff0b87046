"""Change files: a plan that is made now and applied later, and only if the lab is still as it was.

A file holds the design, the state that was observed, the steps, what they touch and how long they are expected to take.
Steps are planned again from a new read when the file is applied; they must come out as they are written here.
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
from testbed.operate.intent import Intent, Stated, intent_of, topology_text
from testbed.operate.model import LabPlan
from testbed.operate.plan import in_scope


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not as it was when the plan was made."""

    field: str
    planned: object
    found: object

    def __str__(self) -> str:
        return f"{self.field}: planned {_word(self.planned)}, found {_word(self.found)}"

    def json(self) -> dict[str, object]:
        """Return the same for programs."""
        return {"field": self.field, "planned": self.planned, "found": self.found}


def _word(value: object) -> str:
    return "nothing" if value is None or value == [] else str(value)


@dataclass(frozen=True, slots=True)
class Observed:
    """State of a lab when a plan was made for it.

    `circuits` are those that the plan may touch, input to output by switch: what others have beside them may change
    meanwhile. `epochs` are those in force on the plan's hosts. `revision` is the lab file's. `token` is that of the
    lease under which the plan was made; None without a lease.
    """

    circuits: Mapping[str, Mapping[int, int]]
    epochs: tuple[int, ...] = ()
    revision: str = ""
    token: int | None = None

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the circuits and epochs: `--expect` compares them.

        >>> Observed({"ocs1": {1: 49}}, (3,)).fingerprint == Observed({"ocs1": {1: 49}}, (4,)).fingerprint
        False
        """
        held = {name: sorted(circuits.items()) for name, circuits in self.circuits.items()}
        text = json.dumps([sorted(held.items()), self.epochs])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, now: Observed) -> tuple[Difference, ...]:
        """Return every field in which the state of today is another, the lab file and the lease first."""
        return tuple(_differences(self, now))

    def json(self) -> dict[str, Any]:
        """Return the state as it is written into a file."""
        circuits = {name: sorted(held.items()) for name, held in self.circuits.items()}
        return {
            "circuits": circuits,
            "epochs": list(self.epochs),
            "revision": self.revision,
            "token": self.token,
        }


def parse_observed(kept: Mapping[str, Any]) -> Observed:
    """Return the state that `Observed.json` gave."""
    circuits = {name: {int(i): int(o) for i, o in held} for name, held in kept["circuits"].items()}
    return Observed(circuits, tuple(kept["epochs"]), kept["revision"], kept["token"])


def observe_plan(
    plan: LabPlan, *, epochs: Sequence[int] = (), revision: str = "", token: int | None = None
) -> Observed:
    """Return what a plan saw of the circuits that it may touch, with what else it was made for."""
    circuits = {part.switch: dict(sorted(in_scope(part))) for part in plan.switches}
    return Observed(circuits, tuple(epochs), revision, token)


def _differences(then: Observed, now: Observed) -> Iterator[Difference]:
    if then.revision != now.revision:
        yield Difference("lab file revision", then.revision, now.revision)
    if then.token != now.token:
        yield Difference("lease token", then.token, now.token)
    if then.epochs != now.epochs:
        yield Difference("epochs in force", list(then.epochs), list(now.epochs))
    for switch in sorted({*then.circuits, *now.circuits}):
        planned, found = then.circuits.get(switch, {}), now.circuits.get(switch, {})
        for port in sorted({*planned, *found}):
            if planned.get(port) != found.get(port):
                yield Difference(f"{switch} input {port}", planned.get(port), found.get(port))


FORMAT = "lightbed change 1"


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """Change of a lab, as a file holds it.

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
        raise PlanStale("the lab is not in the state that --expect names", differences=(difference,))


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


def write_change(path: str | Path, document: Mapping[str, Any]) -> None:
    """Write a change. Raises `OSError`."""
    write_output(path, json.dumps({**document, "digest": _digest(document)}, indent=1) + "\n")


def read_change(path: str | Path) -> ChangeFile:
    """Return the change in a file. Raises `PlanFileError` for a file that is not one or was edited; `OSError`."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{path} is not a change file: not JSON ({error}); {_AGAIN}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PlanFileError(f"{path} is not a change file of this release ({FORMAT!r}); {_AGAIN}")
    if document.pop("digest", None) != _digest(document):
        raise PlanFileError(f"{path} was modified after it was written (digest mismatch); {_AGAIN}")
    observed = parse_observed(document["observed"])
    kept = document["intent"]
    kept |= {"topology": json.dumps(kept["topology"]), "hosts": json.dumps(kept["hosts"])}
    kept |= {"epoch": 0, "state": "intended", "operation": "", "owner": "", "revision": observed.revision}
    kept |= {"intended_at": "", "applied_at": None, "error": ""}
    return ChangeFile(Path(path), intent_of(kept), observed, document["steps"], document["take_over"])


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
