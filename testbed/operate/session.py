"""An open lab: connections to its switches and hosts, through which topologies are brought into force.

`open_lab` opens the switches and hosts of a lab file. `LabSession.bring_up` brings a design into force: plan, apply
with journal, install routes, verify light, fibres and packets. Each stage also has its own method. Faults of hosts and
NICs that a proof finds are stored with the leases, so that no lease grants faulty parts.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal, cast

from lightbed.wording import format_count
from ocs_drivers import open_switch
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import TransportError
from testbed.design.model import Routes
from testbed.errors import JournalError, LabStartError
from testbed.lab.hosts.forwarding import plan_forwarding, read_macs
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import is_up
from testbed.leases.model import find_parts, list_lab_parts
from testbed.operate.apply import apply_plan, find_plan_parts, install_hosts
from testbed.operate.boards import find_board_links, find_free_links, set_board_routes
from testbed.operate.confirmation import ConfirmationLog, check_none_pending
from testbed.operate.design import (
    Design,
)
from testbed.operate.engine.consent import EmergencyStop
from testbed.operate.intent import ApplyRecord, Intent, IntentLog, NoRecord, TopologySource
from testbed.operate.model import ApplyResult, LabPlan, LinkFinding, VerifyReport
from testbed.operate.plan import list_circuits, list_used_ports, plan_lab

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.design.model import Wiring
    from testbed.lab.hosts.fleet import Fleet
    from testbed.operate.journal import Journal
    from testbed.operate.unfinished import IncompleteOperation


AddNote = Callable[[str], None]
ChangeKind = Literal["apply", "repair", "rollback", "trial"]


@dataclass(frozen=True, slots=True)
class Change:
    """Kind of a change and its reason.

    `resumed_operation` and `epoch` name the operation and the epoch to resume. The routes of a `detour_design` are
    installed before any circuit changes. `confirmation_terms` holds the seconds after which the change is rolled back,
    and the epoch to go back to.
    """

    kind: ChangeKind = "apply"
    reason: str = ""
    resumed_operation: str | None = None
    epoch: int | None = None
    detour_design: Design | None = None
    confirmation_terms: tuple[float, int] | None = None


APPLY_CHANGE = Change()
DEFAULT_SOURCE = TopologySource()
_NO_ROUTES_MESSAGE = "hosts are modelled: no routes"
LAB_FAULT_KINDS = frozenset(
    {"host_off", "switch_off", "no_light", "no_carrier", "dark_cable", "missing_interface"}
)
"""Kinds of findings that blame a part of the lab, not the topology that was applied."""
_NIC_PATTERN = re.compile(r"[^\s/]+/[^\s/]+")


@dataclass(frozen=True, slots=True)
class BringUpReport:
    """Report of bringing a design into force.

    `routes_s` is the time from the start of the apply until routes were set. `epoch` is the number in the journal, or
    None if the epoch is not stored. `detour_s` is the time to install detours.
    """

    design: Design
    plan: LabPlan
    apply_result: ApplyResult
    verify_report: VerifyReport
    routes_s: float
    epoch: int | None = None
    detour_s: float = 0.0


def check_is_up(lab: Lab) -> None:
    """Raise `LabStartError` if the lab file says `simulated` but no lightbed simulator runs there.

    This protects real devices from a lab file that calls them simulated by mistake.
    """
    if lab.simulated and not is_up(lab):
        raise LabStartError(
            f"simulated lab '{lab.name}' is not up at {lab.management}: start it with `testbed sim up {lab.path}`, "
            "or, if these are real devices, write `simulated: false`"
        )


def open_switches(
    lab: Lab, stack: ExitStack, *, skip_unreachable: bool
) -> tuple[dict[str, OpticalSwitch], dict[str, str]]:
    """Return the switches that answer, and the errors of the other switches.

    Raises `TransportError` for the first switch that does not answer, unless `skip_unreachable`.
    """
    switches: dict[str, OpticalSwitch] = {}
    error_by_switch: dict[str, str] = {}
    for switch in lab.switches:
        try:
            switches[switch.name] = stack.enter_context(open_switch(switch.address))
        except TransportError as error:
            if not skip_unreachable:
                raise
            error_by_switch[switch.name] = str(error)
    return switches, error_by_switch


READING_METHODS = (
    "address",
    "capabilities",
    "identity",
    "ports",
    "read",
    "plan",
    "power",
    "attenuation",
    "events",
)
"""Attributes of `OpticalSwitch` that do not change the switch."""


def make_read_only(switch: OpticalSwitch) -> OpticalSwitch:
    """Return an open switch without the methods that change it, so that a read-only session cannot call them."""
    return cast("OpticalSwitch", SimpleNamespace(**{name: getattr(switch, name) for name in READING_METHODS}))


@contextmanager
def open_lab(
    lab: Lab,
    journal: Journal | None,
    *,
    model_hosts: bool = False,
    skip_unreachable: bool = False,
    keep_intent: bool = True,
) -> Iterator[LabSession]:
    """Open every switch and, unless hosts are only modelled, connect to every host; close all on leaving.

    Without a journal the session is read-only: its switches have no method that writes. With
    `skip_unreachable`, the session leaves out switches and hosts that do not answer; `LabSession.unreachable` says why.
    Pass `keep_intent=False` for a lab that ends with the session, so that no epochs are stored. Raises the transport
    errors of `ocs_drivers` and `HostError`.
    """
    check_is_up(lab)
    with ExitStack() as stack:
        switches, unreachable_reasons = open_switches(lab, stack, skip_unreachable=skip_unreachable)
        fleet: Fleet | None = None
        if not model_hosts:
            from testbed.lab.hosts.fleet import SshFleet  # imported late: a plan needs no hosts

            fleet = stack.enter_context(SshFleet(lab, skip_unreachable=skip_unreachable))
            unreachable_reasons.update(fleet.unreachable)
        if journal is None:
            switches = {name: make_read_only(switch) for name, switch in switches.items()}
        yield LabSession(
            lab, switches, fleet, journal, unreachable_reasons=unreachable_reasons, keep_intent=keep_intent
        )


class LabSession:
    """Switches and hosts of an open lab, and the operations on them.

    `fleet` is None if hosts are modelled. Routes are then computed but not installed, and no probe frames are sent.
    `unreachable` maps switches and hosts that do not answer to the reason. `on_step` is called with the name
    of a switch after each of its steps.
    """

    def __init__(
        self,
        lab: Lab,
        switches: Mapping[str, OpticalSwitch],
        fleet: Fleet | None,
        journal: Journal | None,
        *,
        unreachable_reasons: Mapping[str, str] | None = None,
        keep_intent: bool = True,
    ) -> None:
        self.lab = lab
        self.switches = switches
        self.fleet = fleet
        self.journal = journal
        self.unreachable = unreachable_reasons or {}
        self.on_step: Callable[[str], object] = lambda _switch: None
        self._intents = IntentLog(journal, lab) if journal and keep_intent else None
        self._macs: Mapping[str, Mapping[str, str]] | None = None
        self._operation: str | None = None
        self._is_resumed = False

    @property
    def unreachable_findings(self) -> tuple[LinkFinding, ...]:
        """Findings of the switches and hosts that do not answer."""
        if not self.unreachable:
            return ()
        from testbed.operate.proof.judge import HOST_OFF, SWITCH_OFF

        switches = {switch.name for switch in self.lab.switches}
        return tuple(
            (SWITCH_OFF if name in switches else HOST_OFF).report(name, reason)
            for name, reason in self.unreachable.items()
        )

    def plan(self, design: Design, *, take_over: bool = False) -> LabPlan:
        """Read the switches and return the plan for a design. `take_over` is passed to `plan_lab`."""
        return plan_lab(self.lab, design.wiring, self.switches, take_over=take_over)

    @property
    def writable_journal(self) -> Journal:
        """The journal. Raises `JournalError` if the session is read-only."""
        if self.journal is None:
            raise JournalError("this session is read-only: pass a journal to `open_lab`")
        return self.journal

    @contextmanager
    def operation(
        self, kind: str, reason: str, *, goal: str = "", resumed_operation: str | None = None
    ) -> Iterator[str]:
        """Open an operation and provide its id. Everything that the session applies within the block belongs to it.

        Pass `resumed_operation` (an operation id) to resume an unfinished operation. Hosts that are already configured
        are skipped.
        """
        operation_context = self.writable_journal.open_operation(
            self.lab.name, kind, reason=reason, goal=goal, resumed_operation=resumed_operation
        )
        with operation_context as operation:
            self._operation, self._is_resumed = operation, resumed_operation is not None
            try:
                yield operation
            finally:
                self._operation, self._is_resumed = None, False

    def apply(
        self,
        plan: LabPlan,
        on_begin: Callable[[str], object] = lambda _operation: None,
        *,
        lab: Lab | None = None,
    ) -> ApplyResult:
        """Execute a plan in the open operation or in a new one. `on_begin` is passed to `apply_plan`.

        `lab` is the shard for which the plan was made, by default the whole lab. Raises the errors of `apply_plan`, and
        `JournalError` if the session is read-only.
        """
        return apply_plan(
            lab or self.lab,
            plan,
            self.switches,
            self.writable_journal,
            on_begin,
            open_operation=self._operation,
            on_step_done=self.on_step,
        )

    def install_routes(self, design: Design) -> None:
        """Install addresses, routes and permanent neighbours on every host, over SSH, as steps of an operation.

        With modelled hosts, nothing is installed. Raises the errors of `install_hosts`.
        """
        if self.fleet is None:
            return
        if self._operation is None:
            with self.operation("routes", design.name):
                self.install_routes(design)
            return
        if self._macs is None:
            self._macs = read_macs(self.fleet)
        forwarding = plan_forwarding(
            self.lab, design.wiring, design.routes, self._macs, design.further_routes
        )
        install_hosts(
            self.lab,
            self.fleet,
            forwarding,
            self.writable_journal,
            self._operation,
            is_resumed=self._is_resumed,
        )
        if self.lab.boards:
            self._restore_board_routes(self.fleet, design)

    def _restore_board_routes(self, fleet: Fleet, design: Design) -> None:
        """Set the routes to boards at NICs that the design leaves free, because installing routes has flushed them."""
        circuits_by_switch = {name: switch.read().connections for name, switch in self.switches.items()}
        circuits = list_circuits(self.lab, design.wiring)
        links = find_free_links(find_board_links(self.lab, circuits_by_switch), list_used_ports(circuits))
        set_board_routes(fleet, self.lab.link.mtu, links)

    def verify(
        self,
        plan: LabPlan,
        routes: Routes | None = None,
        unfinished_operations: tuple[IncompleteOperation, ...] = (),
        further_routes: tuple[Routes, ...] = (),
    ) -> VerifyReport:
        """Compare switches, light and (with real hosts) fibres with the plan; with `routes`, also kernels and packets.

        Findings that unfinished operations (`unfinished_operations`) explain are reported with them. `further_routes`
        holds the other sets of routes that the kernels should hold.
        """
        from testbed.operate.proof.judge import verify_lab  # imported late: a plan needs no hosts

        return verify_lab(
            self.lab,
            plan,
            self.switches,
            self.fleet,
            epoch=secrets.randbits(31),  # random, so that it differs from the epoch of every other probe
            routes=routes,
            further_routes=further_routes,
            unreachable=self.unreachable,
            unfinished=unfinished_operations,
        )

    def prove(
        self, design: Design, unfinished_operations: tuple[IncompleteOperation, ...] = ()
    ) -> VerifyReport:
        """Verify that the lab holds a design, without planning changes. Raises `TopologyError` if it does not fit."""
        circuits = list_circuits(self.lab, design.wiring)
        plan = LabPlan(design.wiring, circuits, ())
        return self.verify(plan, design.routes, unfinished_operations, design.further_routes)

    def store_intent(self, design: Design, topology_source: TopologySource, operation: str) -> int | None:
        """Store a design that is already in force as an epoch. Return its number, or None if epochs are not stored."""
        if self._intents is None:
            return None
        return self._intents.store(
            design.topology, design.wiring, design.name, topology_source, operation, state="applied"
        )

    def bring_up(
        self,
        design: Design,
        add_note: AddNote = lambda _text: None,
        *,
        take_over: bool = False,
        topology_source: TopologySource = DEFAULT_SOURCE,
    ) -> BringUpReport:
        """Plan, apply, route and verify a design. `add_note` is called with a line on the result of each stage."""
        return self.carry_out(
            design, self.plan(design, take_over=take_over), add_note, topology_source=topology_source
        )

    def carry_out(
        self,
        design: Design,
        plan: LabPlan,
        add_note: AddNote = lambda _text: None,
        *,
        topology_source: TopologySource = DEFAULT_SOURCE,
        change: Change = APPLY_CHANGE,
    ) -> BringUpReport:
        """Apply a plan that was made for a design, route and verify. Store the design and its source as an epoch.

        Raises the errors of `apply`, `HostError`, and `ConfirmPending`.
        """
        from testbed.leases.fence import hold_fence  # imported late: a plan needs no SQLAlchemy

        journal = self.writable_journal
        if change.kind != "rollback":
            check_none_pending(journal.directory, self.lab.name)
        changes_text = "some" if plan.has_changes else "nothing"
        add_note(f"{format_count(len(plan.circuits), 'circuit')} planned, {changes_text} to change")
        reason = change.reason or topology_source.options_text or design.name
        host_parts = {f"host:{host.name}" for host in self.lab.hosts[: design.wiring.nodes]}
        leased_parts = find_plan_parts(self.lab, plan) | find_parts(self.lab, host_parts)
        with (
            hold_fence(journal.database, self.lab.name, leased_parts),
            self.operation(change.kind, reason, resumed_operation=change.resumed_operation) as operation,
            self.record_apply(design, topology_source, change.epoch) as record,
        ):
            store_intent = partial(self._store_intent, record, change)
            detour_s = 0.0
            if change.detour_design is not None:  # after the epoch is stored, and before circuits move
                store_intent(operation)
                detour_s = self.install_detours(change.detour_design, add_note)
            apply_start_s = time.monotonic()
            apply_result = self.apply(plan, store_intent)
            journal.update_operation(operation, stage="routes")
            EmergencyStop(journal.directory, self.lab.name).check_before("the hosts' routes")
            self.install_routes(design)
            routes_s = time.monotonic() - apply_start_s
            record.store_state("applied")
            routes_text = (
                f"routes in place after {routes_s * 1000:.0f} ms" if self.fleet else _NO_ROUTES_MESSAGE
            )
            add_note(f"switches done in {apply_result.total_s * 1000:.0f} ms, {routes_text}")
            report = self.verify(plan, design.routes, further_routes=design.further_routes)
            findings_text = format_count(len(report.findings), "finding")
            journal.record_proof(operation, is_proven=report.ok)
            record_checks(journal, self.lab, design.wiring, report)
            record.store_state(*(("verified", "") if report.ok else ("failed", findings_text)))
        add_note(f"verified: {findings_text} on {format_count(report.circuits, 'circuit')}")
        return BringUpReport(design, plan, apply_result, report, routes_s, record.epoch, detour_s)

    def _store_intent(self, record: ApplyRecord | NoRecord, change: Change, operation: str) -> None:
        """Store the new epoch, and the confirmation that it requires, before anything is sent."""
        is_new = record.epoch is None
        record.begin(operation)
        if change.confirmation_terms and is_new and record.epoch is not None:
            within_s, back_to = change.confirmation_terms
            ConfirmationLog(self.writable_journal, self.lab.name).request(record.epoch, back_to, within_s)

    def install_detours(self, detour_design: Design, add_note: AddNote) -> float:
        """Install the routes of a detour around lost fibres; return the seconds that this took."""
        start_s = time.monotonic()
        self.install_routes(detour_design)
        duration_s = time.monotonic() - start_s
        add_note(
            f"detours are in force after {duration_s * 1e3:.0f} ms" if self.fleet else _NO_ROUTES_MESSAGE
        )
        return duration_s

    def record_apply(
        self, design: Design, topology_source: TopologySource, epoch: int | None
    ) -> AbstractContextManager[ApplyRecord | NoRecord]:
        """Provide the record of an apply of a new epoch, or of the `epoch` to resume."""
        if self._intents is None:
            return nullcontext(NoRecord())
        return self._intents.record_apply(design.topology, design.wiring, design.name, topology_source, epoch)


def record_proof(journal: Journal, lab: Lab, intent: Intent, report: VerifyReport) -> None:
    """Store a later proof without findings as the proof of an epoch whose own proof did not end.

    Raises `OperationRunning`, and `JournalError`, for example if another process has changed the epoch.
    """
    IntentLog(journal, lab).mark_verified(intent.epoch)
    with journal.open_operation(lab.name, resumed_operation=intent.operation) as operation:
        journal.record_proof(operation, is_proven=True)
        record_checks(journal, lab, intent.wiring, report)


def list_part_checks(lab: Lab, wiring: Wiring, findings: Iterable[LinkFinding]) -> dict[str, str]:
    """Return the hosts and NICs that a proof has checked, each with the kind of its finding, or "".

    A switch that does not answer adds its ports.
    """
    host_names = {lab.hosts[nic.node].name for link in wiring.links for nic in link}
    checked_parts = {
        part
        for host_name in host_names
        for part in find_parts(lab, [f"host:{host_name}"])
        if not part.startswith("port:")
    }
    fault_by_part = dict.fromkeys(sorted(checked_parts), "")
    lab_parts = list_lab_parts(lab)
    for finding in findings:
        if finding.kind not in LAB_FAULT_KINDS:
            continue
        blamed_parts = [
            f"host:{finding.subject}",
            *(f"nic:{nic}" for nic in _NIC_PATTERN.findall(finding.subject)),
        ]
        if finding.kind == "switch_off":
            blamed_parts = [part for part in lab_parts if part.startswith(f"port:{finding.subject}/")]
        fault_by_part |= {part: finding.kind for part in blamed_parts if part in lab_parts}
    return fault_by_part


def open_and_record_checks(runs_dir: Path, lab: Lab, wiring: Wiring, report: VerifyReport) -> None:
    """Open the journal and store the checks of hosts and NICs, see `record_checks`."""
    from testbed.operate.journal import open_journal

    with open_journal(runs_dir) as journal:
        record_checks(journal, lab, wiring, report)


def record_checks(journal: Journal, lab: Lab, wiring: Wiring, report: VerifyReport) -> None:
    """Store the checks of hosts and NICs that a proof made. Raises `JournalError`."""
    from testbed.leases.fence import convert_database_errors
    from testbed.leases.store import LeaseStore

    with convert_database_errors(journal.database):
        LeaseStore(journal.database, lab.name).write_checks(list_part_checks(lab, wiring, report.findings))
