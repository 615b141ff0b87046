"""Make it so: circuits, plans for switches, and what became of them. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

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
class LinkFinding:
    """One fact about one link that is not as planned.

    `kind` is one of `missing_circuit`, `extra_circuit`, `excess_loss`, `no_light`, `no_carrier`, `swapped`,
    `not_heard`, `foreign` (a probe frame of another run or lab), `unfinished` (an operation; `subject` is its id).
    """

    kind: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of verify: what it looked at and what it found; empty findings mean as planned."""

    circuits: int
    links_received: int
    findings: tuple[LinkFinding, ...]

    @property
    def ok(self) -> bool:
        """True if everything is as planned."""
        return not self.findings
