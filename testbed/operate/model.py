"""Frozen records of an operation: circuits, plans of switches, results of an apply, findings and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ocs_drivers.model import ApplyReport, CrossConnects, Snapshot, Step
from testbed.design.model import Link, Wiring


@dataclass(frozen=True, slots=True)
class Circuit:
    """One link through one switch: `input_port` is lit by the link's source, `output_port` lights its target."""

    link: Link
    switch: str
    input_port: int
    output_port: int


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """Target of one switch, the snapshot from which the plan was made (`snapshot`), and the steps between them.

    `scope` holds the input ports that the lab may change; None means every port.
    """

    switch: str
    target: CrossConnects
    scope: frozenset[int] | None
    snapshot: Snapshot
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class LabPlan:
    """Circuits of a wiring, and a plan for every switch of the lab."""

    wiring: Wiring
    circuits: tuple[Circuit, ...]
    switches: tuple[SwitchPlan, ...]

    @property
    def has_changes(self) -> bool:
        """True if any switch has a step to execute."""
        return any(switch.steps for switch in self.switches)


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """Result of applying a `LabPlan`: a report for each switch, and durations.

    `outage_s` is the largest sum of device times of one switch. A device time runs from the first byte of a write to
    the device's own "complete". `journal_s` is the time spent in commits of the journal. `total_s` is the time of the
    whole apply.
    """

    operation: str
    reports: dict[str, ApplyReport]
    outage_s: float
    journal_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Kind of a finding: its meaning, a default hint, and its effect on the verdict.

    The module of a check defines the kinds that it reports. A finding with `stops_packets` explains why hosts do not
    reach each other, so no finding of reachability repeats it. A lab with only `is_informational` findings is as
    planned.
    """

    name: str
    meaning: str
    hint: str
    stops_packets: bool = True
    is_informational: bool = False

    def report(self, subject: str, detail: str, hint: str = "", parts: tuple[str, ...] = ()) -> LinkFinding:
        """Return a finding of this kind. The default `hint` is the hint of the kind."""
        return LinkFinding(
            self.name, subject, detail, hint or self.hint, parts, self.stops_packets, self.is_informational
        )


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """Difference between a link, host or switch and the plan, made by `FindingKind.report`.

    `kind` is the name of its kind. A finding about several subjects lists them all in `parts`; its detail names a few.
    """

    kind: str
    subject: str
    detail: str
    hint: str = ""
    parts: tuple[str, ...] = ()
    stops_packets: bool = True
    is_informational: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return kind, subject, detail, hint and parts for a JSON document."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "detail": self.detail,
            "hint": self.hint,
            "parts": self.parts,
        }


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of verify: how much was checked, and the findings.

    `pairs` counts the pairs of hosts that the plan connects, and `pairs_reached` the pairs that answered a ping. Both
    are 0 without pings. `loss_floor` is the smallest loss rate that the pings detect with 99 % confidence on every link
    that routes use, or None without pings. `held` maps each switch that answered to its circuits, as pairs of input
    and output port.
    """

    circuits: int
    links_received: int
    findings: tuple[LinkFinding, ...]
    pairs: int = 0
    pairs_reached: int = 0
    loss_floor: float | None = None
    held: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if all findings only inform."""
        return all(finding.is_informational for finding in self.findings)
