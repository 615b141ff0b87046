"""Make it so: circuits, plans for switches, and what became of them. Frozen."""

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
    """The target of one switch, what it held when read, and the steps between.

    `scope` are the input ports the lab may touch; None means the whole switch.
    """

    switch: str
    target: CrossConnects
    scope: frozenset[int] | None
    seen: Snapshot
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class LabPlan:
    """A wiring turned into circuits and steps for every switch of the lab."""

    wiring: Wiring
    circuits: tuple[Circuit, ...]
    switches: tuple[SwitchPlan, ...]

    @property
    def has_changes(self) -> bool:
        """True if any switch has to move."""
        return any(switch.steps for switch in self.switches)


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """One apply of a `LabPlan`: a report a switch, and where the time went.

    `outage_s` is the longest time a switch took from the first byte of a write to its own "complete";
    `journal_s` is the disk sync of the journal, `total_s` everything.
    """

    operation: str
    reports: dict[str, ApplyReport]
    outage_s: float
    journal_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One kind of finding: its meaning, a hint, whether packets are lost by it, and whether it only informs.

    It stands beside the check that reports it. Pairs of hosts that do not reach one another are told only where no
    finding that `stops_packets` explains it. A lab with no findings but those that inform is as planned.
    """

    name: str
    meaning: str
    hint: str
    stops_packets: bool = True
    only_informs: bool = False

    def report(self, subject: str, detail: str, hint: str = "", parts: tuple[str, ...] = ()) -> LinkFinding:
        """Return a finding of this kind, with the hint of its kind unless it has its own."""
        return LinkFinding(
            self.name, subject, detail, hint or self.hint, parts, self.stops_packets, self.only_informs
        )


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """One fact about one link, host or switch that is not as planned, see `FindingKind.report`.

    `kind` is the name of its kind. A finding that stands for several things, of which its detail names a few, lists
    them all in `parts`.
    """

    kind: str
    subject: str
    detail: str
    hint: str = ""
    parts: tuple[str, ...] = ()
    stops_packets: bool = True
    only_informs: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the finding as documents have it."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "detail": self.detail,
            "hint": self.hint,
            "parts": self.parts,
        }


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of verify: what it looked at and what it found; no findings, or only such that inform: as planned.

    `pairs` are those of hosts that the plan joins, `pairs_reached` those that answered; 0 where no host was asked.
    `loss_floor` is the smallest loss rate that was found, with 99 % confidence, on any link that routes use; None where
    none was looked for. `held` are the circuits that each switch which answered holds, as pairs of input and output.
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
        """True if everything is as planned."""
        return all(finding.only_informs for finding in self.findings)
