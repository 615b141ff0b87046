"""A lab in hand: its switches open, its hosts reached, one topology after the other brought into force.

`open_lab` opens what the lab file names; `LabSession.bring_up` takes a design all the way: plan, apply with
journal, verify light, install routes, prove fibres by probe frames. Each step is also a method of its own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocs_drivers import OpticalSwitch, open_switch
from testbed.design.model import Routes, Topology, Wiring
from testbed.design.patching.wiring import wire
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import AllReduceDemand, find_topology
from testbed.design.topology.strides import Method
from testbed.errors import JournalError, LabStartError, PlanFileError, TopologyError
from testbed.lab.hosts.forwarding import forwarding_plan, install, read_macs
from testbed.lab.model import Lab
from testbed.lab.shards import shard_of
from testbed.lab.simulated.lifecycle import is_up
from testbed.operate.apply import apply_plan
from testbed.operate.model import ApplyResult, LabPlan, VerifyReport
from testbed.operate.plan import plan_lab
from testbed.operate.verify import verify_lab

if TYPE_CHECKING:
    from testbed.design.plans.file import Plan
    from testbed.lab.hosts.fleet import Fleet, SshFleet
    from testbed.operate.journal import Journal

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Design:
    """A topology, laid onto the lab's NICs, with routes between all nodes."""

    name: str
    topology: Topology
    wiring: Wiring
    routes: Routes


@dataclass(frozen=True, slots=True)
class BringUpReport:
    """Report of bringing a design into force; `routes_s` is the time from the first write until routes stood."""

    design: Design
    plan: LabPlan
    apply: ApplyResult
    verified: VerifyReport
    routes_s: float


def design_for(
    lab: Lab,
    *,
    name: str = "default",
    simplex: bool = False,
    method: Method = "geometric",
    demands: tuple[AllReduceDemand, ...] = (),
) -> Design:
    """Return the topology for all hosts of a lab and all their NICs, wired and routed. Raises `TopologyError`."""
    degree = degree_of(lab)
    return lay_out(
        lab, name, find_topology(len(lab.hosts), degree, simplex=simplex, method=method, demands=demands)
    )


def degree_of(lab: Lab) -> int:
    """Return NICs of every host, of which some have unused ones: as many as all can use.

    Raises `TopologyError` when hosts have different numbers of NICs in the lab file.
    """
    degrees = {len(host.nics) + len(host.unused) for host in lab.hosts}
    if len(degrees) != 1:
        raise TopologyError(
            f"{lab.path}: hosts have {sorted(degrees)} NICs; a topology needs the same number on every host: "
            "list equally many `nics` for each"
        )
    return min(len(host.nics) for host in lab.hosts)


def lab_of_plan(lab: Lab, plan: Plan) -> Lab:
    """Return the hosts that a plan is for, in its order; the others of the lab beside them.

    Raises `PlanFileError` when the plan is for another lab, or does not fit this one.
    """
    if plan.lab not in ("", lab.name):
        raise PlanFileError(
            f"the plan is for lab '{plan.lab}', this is '{lab.name}': make one with --lab {lab.path}"
        )
    try:
        here = shard_of(lab, plan.hosts) if plan.hosts else lab
        degree = degree_of(here)
    except TopologyError as error:
        raise PlanFileError(f"the plan does not fit lab '{lab.name}': {error}") from error
    asked = (plan.topology.nodes, plan.topology.degree)
    if asked[0] != len(here.hosts) or asked[1] > degree:
        what = f"{asked[0]} hosts of {asked[1]} NICs, lab '{lab.name}' has {len(here.hosts)} of {degree}"
        raise PlanFileError(f"the plan is for {what}: make one with --lab {lab.path}")
    return here


def design_of_plan(lab: Lab, plan: Plan) -> Design:
    """Return the topology of a plan, laid onto the NICs of `lab_of_plan`. Raises `TopologyError`."""
    return lay_out(lab, plan.workload.name, plan.topology)


def lay_out(lab: Lab, name: str, topology: Topology) -> Design:
    """Return a topology laid onto the NICs of all hosts of a lab, with routes. Raises `TopologyError`."""
    wiring = wire(topology, planes=_planes(lab, topology.degree))
    return Design(name, topology, wiring, find_routes(wiring))


def check_fits(lab: Lab, degree: int, *, simplex: bool = False) -> None:
    """Raise `TopologyError` unless connected topologies of so many links a host can be patched in this lab."""
    nodes, nics = len(lab.hosts), degree_of(lab)
    if degree > nics:
        raise TopologyError(f"{lab.path}: hosts have {nics} NICs, not {degree}: lower --degree")
    if nodes > 1:
        # A connected circulant of an even number of nodes can be split over switches (Stong, 1985), whatever its
        # strides: if this one cannot be, no other can.
        wire(find_topology(nodes, degree, simplex=simplex), planes=_planes(lab, degree))


def _planes(lab: Lab, degree: int) -> int:
    """Return switches that the links of a topology are spread over. Of fewer links than NICs, the first interfaces."""
    return min(len(lab.switches), degree)


@contextmanager
def open_lab(lab: Lab, journal: Journal | None, *, model_hosts: bool = False) -> Iterator[LabSession]:
    """Open every switch and, unless hosts are only modelled, reach every host; close all on leaving.

    Without a journal the session only looks: nothing can be applied.
    Raises the transport errors of `ocs_drivers` and `HostError`.
    """
    check_up(lab)
    with ExitStack() as stack:
        switches = {switch.name: stack.enter_context(open_switch(switch.address)) for switch in lab.switches}
        yield LabSession(lab, switches, None if model_hosts else stack.enter_context(_fleet(lab)), journal)


def _fleet(lab: Lab) -> SshFleet:
    from testbed.lab.hosts.fleet import SshFleet

    return SshFleet(lab)


def check_up(lab: Lab) -> None:
    """Raise `LabStartError` unless a lab that says `simulated` is one that we started: no real light by a slip."""
    if lab.simulated and not is_up(lab):
        raise LabStartError(
            f"simulated lab '{lab.name}' is not up at {lab.management}: start it with `testbed sim up {lab.path}`, "
            "or, if these are real devices, write `simulated: false`"
        )


class LabSession:
    """The lab's switches and hosts, and what may be done with them in which order.

    `fleet` is None when hosts are only modelled: then routes are computed but installed nowhere, and the
    proof by probe frames is left out.
    """

    def __init__(
        self, lab: Lab, switches: Mapping[str, OpticalSwitch], fleet: Fleet | None, journal: Journal | None
    ) -> None:
        self.lab = lab
        self.switches = switches
        self.fleet = fleet
        self.journal = journal
        self._macs: Mapping[str, Mapping[str, str]] | None = None

    def plan(self, design: Design, *, take_over: bool = False) -> LabPlan:
        """Read the switches and say what would change; `take_over` as in `plan_lab`."""
        return plan_lab(self.lab, design.wiring, self.switches, take_over=take_over)

    def apply(self, plan: LabPlan) -> ApplyResult:
        """Carry a plan out, journal first. Raises `DriftError`, `ApplyFailed`, and switch errors."""
        if self.journal is None:
            raise JournalError("this session only looks: open the lab with a journal to apply a plan")
        return apply_plan(self.lab, plan, self.switches, self.journal)

    def install_routes(self, design: Design) -> None:
        """Install addresses, routes and permanent neighbours of every host, over SSH."""
        if self.fleet is None:
            return
        if self._macs is None:
            self._macs = read_macs(self.fleet)
        install(self.fleet, forwarding_plan(self.lab, design.wiring, design.routes, self._macs))

    def verify(self, plan: LabPlan) -> VerifyReport:
        """Compare switches, light and (with real hosts) fibres with the plan."""
        return verify_lab(self.lab, plan, self.switches, self.fleet, epoch=self._next_epoch())

    def _next_epoch(self) -> int:
        """Return a number that no earlier probe of ours or of anybody else is likely to carry."""
        return secrets.randbits(31)

    def bring_up(
        self, design: Design, note: Note = lambda _text: None, *, take_over: bool = False
    ) -> BringUpReport:
        """Plan, apply, route and verify one design; `note` is told what happens."""
        return self.carry_out(design, self.plan(design, take_over=take_over), note)

    def carry_out(self, design: Design, plan: LabPlan, note: Note = lambda _text: None) -> BringUpReport:
        """Apply a plan made for a design, route and verify. Raises what `apply` raises, and `HostError`."""
        note(f"{len(plan.circuits)} circuits planned, {'some' if plan.has_changes else 'nothing'} to change")
        started = time.monotonic()
        applied = self.apply(plan)
        self.install_routes(design)
        routes_s = time.monotonic() - started
        routes = (
            f"routes stand after {routes_s * 1000:.0f} ms" if self.fleet else "hosts are modelled: no routes"
        )
        note(f"switches done in {applied.total_s * 1000:.0f} ms, {routes}")
        verified = self.verify(plan)
        note(f"verified: {len(verified.findings)} findings on {verified.circuits} circuits")
        return BringUpReport(design, plan, applied, verified, routes_s)
