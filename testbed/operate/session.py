"""A lab in hand: its switches open, its hosts reached, one topology after the other brought into force.

`open_lab` opens what the lab file names; `LabSession.bring_up` takes a design all the way: plan, apply with
journal, verify light, install routes, prove fibres by probe frames. Each step is also a method of its own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightbed.wording import counted
from ocs_drivers import OpticalSwitch
from testbed.design.model import Routes
from testbed.errors import JournalError
from testbed.lab.hosts.forwarding import forwarding_plan, read_macs
from testbed.lab.model import Lab
from testbed.operate.apply import apply_plan
from testbed.operate.change import APPLY, Change
from testbed.operate.design import (
    Design,
    check_fits,
    degree_of,
    design_for,
    design_of_intent,
    design_of_plan,
    lab_of_plan,
    lay_out,
)
from testbed.operate.engine.consent import EmergencyStop
from testbed.operate.host_steps import install_hosts
from testbed.operate.intent import Stated
from testbed.operate.intent_log import Applying, IntentLog, NotKept
from testbed.operate.model import ApplyResult, LabPlan, LinkFinding, VerifyReport
from testbed.operate.plan import circuits_of, plan_lab
from testbed.operate.switch_reader import reader_of
from testbed.operate.switches import check_up, open_switches

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet, SshFleet
    from testbed.operate.journal import Journal
    from testbed.operate.unfinished import Unfinished

__all__ = [
    "BringUpReport",
    "Design",
    "LabSession",
    "check_fits",
    "check_up",
    "degree_of",
    "design_for",
    "design_of_intent",
    "design_of_plan",
    "lab_of_plan",
    "lay_out",
    "open_lab",
]

Note = Callable[[str], None]
DEFAULT = Stated()


@dataclass(frozen=True, slots=True)
class BringUpReport:
    """Report of bringing a design into force; `routes_s` is the time from the first write until routes stood.

    `epoch` is its number in the journal, None where it is not kept.
    """

    design: Design
    plan: LabPlan
    apply: ApplyResult
    verified: VerifyReport
    routes_s: float
    epoch: int | None = None


@contextmanager
def open_lab(
    lab: Lab,
    journal: Journal | None,
    *,
    model_hosts: bool = False,
    partial: bool = False,
    keep_intent: bool = True,
) -> Iterator[LabSession]:
    """Open every switch and, unless hosts are only modelled, reach every host; close all on leaving.

    Without a journal the session only looks: its switches have no method that writes. A `partial` one goes on without
    switches and hosts that do not answer; `LabSession.off` says why. `keep_intent` is False where the lab goes when the
    session does: nothing is left that was meant to be so.
    Raises the transport errors of `ocs_drivers` and `HostError`.
    """
    check_up(lab)
    with ExitStack() as stack:
        switches, off = open_switches(lab, stack, partial=partial)
        fleet = None if model_hosts else stack.enter_context(_fleet(lab, partial=partial))
        off.update(fleet.off if fleet else {})
        if journal is None:
            switches = {name: reader_of(switch) for name, switch in switches.items()}
        yield LabSession(lab, switches, fleet, journal, off=off, keep_intent=keep_intent)


def _fleet(lab: Lab, *, partial: bool) -> SshFleet:
    from testbed.lab.hosts.fleet import SshFleet

    return SshFleet(lab, partial=partial)


class LabSession:
    """The lab's switches and hosts, and what may be done with them in which order.

    `fleet` is None when hosts are only modelled: then routes are computed but installed nowhere, and the
    proof by probe frames is left out.
    """

    def __init__(
        self,
        lab: Lab,
        switches: Mapping[str, OpticalSwitch],
        fleet: Fleet | None,
        journal: Journal | None,
        *,
        off: Mapping[str, str] | None = None,
        keep_intent: bool = True,
    ) -> None:
        self.lab = lab
        self.switches = switches
        self.fleet = fleet
        self.journal = journal
        self.off = off or {}
        self._intents = IntentLog(journal, lab) if journal and keep_intent else None
        self._macs: Mapping[str, Mapping[str, str]] | None = None

    @property
    def off_findings(self) -> tuple[LinkFinding, ...]:
        """Findings of the switches and hosts that do not answer."""
        switches = {switch.name for switch in self.lab.switches}
        return tuple(
            LinkFinding("switch_off" if name in switches else "host_off", name, reason)
            for name, reason in self.off.items()
        )

    def plan(self, design: Design, *, take_over: bool = False) -> LabPlan:
        """Read the switches and say what would change; `take_over` as in `plan_lab`."""
        return plan_lab(self.lab, design.wiring, self.switches, take_over=take_over)

    @property
    def writable(self) -> Journal:
        """The journal. Raises `JournalError` where this session only looks."""
        if self.journal is None:
            raise JournalError("this session only looks: open the lab with a journal to apply a plan")
        return self.journal

    def apply(
        self,
        plan: LabPlan,
        begun: Callable[[str], object] = lambda _operation: None,
        within: str | None = None,
    ) -> ApplyResult:
        """Carry a plan out, journal first; `begun` and `within` as in `apply_plan`.

        Raises `DriftError`, `ApplyFailed`, `Interrupted`, and switch errors.
        """
        return apply_plan(self.lab, plan, self.switches, self.writable, begun, within=within)

    def install_routes(self, design: Design, operation: str, *, again: bool = False) -> None:
        """Install addresses, routes and permanent neighbours of every host, over SSH; `again` as in `install_hosts`."""
        if self.fleet is None:
            return
        if self._macs is None:
            self._macs = read_macs(self.fleet)
        plan = forwarding_plan(self.lab, design.wiring, design.routes, self._macs, design.further)
        install_hosts(self.lab, self.fleet, plan, self.writable, operation, again=again)

    def verify(
        self,
        plan: LabPlan,
        routes: Routes | None = None,
        left: tuple[Unfinished, ...] = (),
        further: tuple[Routes, ...] = (),
    ) -> VerifyReport:
        """Compare switches, light and (with real hosts) fibres with the plan; with `routes` kernels and packets too.

        What operations that were `left` unfinished explain is told with them. `further` are the other sets of routes
        that the kernels are to hold.
        """
        from testbed.operate.verify import verify_lab  # the ways to the hosts: not for a plan

        epoch = self._next_epoch()
        return verify_lab(
            self.lab,
            plan,
            self.switches,
            self.fleet,
            epoch=epoch,
            routes=routes,
            further=further,
            off=self.off,
            left=left,
        )

    def prove(self, design: Design, left: tuple[Unfinished, ...] = ()) -> VerifyReport:
        """Compare the lab with a design, whatever of it answers. Raises `TopologyError` for one that does not fit."""
        circuits = circuits_of(self.lab, design.wiring)
        plan = LabPlan(design.wiring, circuits, ())
        return self.verify(plan, design.routes, left, design.further)

    def _next_epoch(self) -> int:
        """Return a number that no earlier probe of ours or of anybody else is likely to carry."""
        return secrets.randbits(31)

    def store_intent(self, design: Design, stated: Stated, operation: str) -> int | None:
        """Store a design that stands already as an epoch; return its number."""
        if self._intents is None:
            return None
        return self._intents.store(
            design.topology, design.wiring, design.name, stated, operation, state="applied"
        )

    def bring_up(
        self,
        design: Design,
        note: Note = lambda _text: None,
        *,
        take_over: bool = False,
        stated: Stated = DEFAULT,
    ) -> BringUpReport:
        """Plan, apply, route and verify one design; `note` is told what happens."""
        return self.carry_out(design, self.plan(design, take_over=take_over), note, stated=stated)

    def carry_out(
        self,
        design: Design,
        plan: LabPlan,
        note: Note = lambda _text: None,
        *,
        stated: Stated = DEFAULT,
        change: Change = APPLY,
    ) -> BringUpReport:
        """Apply a plan made for a design, route and verify; `stated` is stored with it as the lab's intent.

        Raises what `apply` raises, and `HostError`.
        """
        why = change.why or stated.words or design.name
        with (
            self.writable.operation(self.lab.name, change.kind, why=why, again=change.again) as operation,
            self._applying(design, stated, change.epoch) as intent,
        ):
            return self._carry_out(design, plan, note, operation, intent, change)

    def _carry_out(
        self,
        design: Design,
        plan: LabPlan,
        note: Note,
        operation: str,
        intent: Applying | NotKept,
        change: Change,
    ) -> BringUpReport:
        """Carry it out in an operation that is open."""
        note(
            f"{counted(len(plan.circuits), 'circuit')} planned, {'some' if plan.has_changes else 'nothing'} to change"
        )
        started = time.monotonic()
        applied = self.apply(plan, intent.begin, operation)
        self.writable.note(operation, stage="routes")
        EmergencyStop(self.writable.directory, self.lab.name).check_boundary("the hosts' routes")
        self.install_routes(design, operation, again=change.again is not None)
        routes_s = time.monotonic() - started
        intent.advance("applied")
        modelled = "hosts are modelled: no routes"
        routes = f"routes stand after {routes_s * 1000:.0f} ms" if self.fleet else modelled
        note(f"switches done in {applied.total_s * 1000:.0f} ms, {routes}")
        verified = self.verify(plan, design.routes, further=design.further)
        found = counted(len(verified.findings), "finding")
        self.writable.prove(operation, is_proven=verified.ok)
        intent.advance(*(("verified", "") if verified.ok else ("failed", found)))
        note(f"verified: {found} on {counted(verified.circuits, 'circuit')}")
        return BringUpReport(design, plan, applied, verified, routes_s, intent.epoch)

    def _applying(
        self, design: Design, stated: Stated, epoch: int | None
    ) -> AbstractContextManager[Applying | NotKept]:
        if self._intents is None:
            return nullcontext(NotKept())
        return self._intents.applying(design.topology, design.wiring, design.name, stated, epoch)
