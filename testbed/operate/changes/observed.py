"""State that a plan was made for, as far as it touches it, and the fields in which the state of today differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.operate.model import LabPlan
from testbed.operate.plan import in_scope


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not as it was when the plan was made."""

    field: str
    planned: object
    found: object

    def __str__(self) -> str:
        return f"{self.field}: planned {_worded(self.planned)}, found {_worded(self.found)}"

    def json(self) -> dict[str, object]:
        """Return the same for programs."""
        return {"field": self.field, "planned": self.planned, "found": self.found}


def _worded(value: object) -> str:
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


def observed_from(kept: Mapping[str, Any]) -> Observed:
    """Return the state that `Observed.json` gave."""
    circuits = {name: {int(i): int(o) for i, o in held} for name, held in kept["circuits"].items()}
    return Observed(circuits, tuple(kept["epochs"]), kept["revision"], kept["token"])


def observed_by(
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
