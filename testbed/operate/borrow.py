"""Borrowing of hosts: choose free hosts of a lab, lease them, and restore their earlier state.

The test fixture `testbed_lab` and the command `testbed run` borrow hosts. Circuits join hosts to groups. Only a whole
group is leased, so that no other user loses light.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocs_drivers.model import CrossConnects
from testbed.design.model import Wiring
from testbed.errors import HostError, LeaseDenied, LeaseImpossible, UnderMaintenance, VerifyFailed
from testbed.lab.model import Lab, make_shard
from testbed.leases.listing import read_leases, read_maintenance
from testbed.leases.model import Lease, find_parts
from testbed.leases.store import LeaseStore
from testbed.operate.design import build_intent_design
from testbed.operate.engine.planned import format_now, parse_circuits, render_circuits, render_goal
from testbed.operate.engine.transitions import StepEvent, StepState
from testbed.operate.intent import Intent, load_intents, select_in_force
from testbed.operate.light import find_held_circuits
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.plan import find_scope
from testbed.operate.recovery.records import load_operations
from testbed.operate.session import Change, LabSession, open_lab
from testbed.storage.reading import read_rows

POLL_PAUSES_S = (0.5, 5.0)
"""First and longest pause between two reads of the switches and leases, in seconds."""
_APPLIED_STATUSES = frozenset({"applied", "verified"})
OpenSession = Callable[[Lab], AbstractContextManager[LabSession]]
"""Function that opens a lab, or a shard of it, for changes under the borrower's lease."""


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """Needs of a borrower: the number of hosts or their names, and the NICs (`degree`) and GPUs of each host.

    None means all hosts, or any number of NICs.
    """

    host_count: int | None = None
    degree: int | None = None
    gpu_count_per_host: int = 0
    host_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostCandidates:
    """Hosts of a running lab, with NICs, faults and GPUs of each.

    Circuits join the hosts of a group, so only whole `groups` can be changed without taking light from other hosts.
    """

    groups: tuple[tuple[str, ...], ...]
    nic_count_by_host: Mapping[str, int]
    fault_by_host: Mapping[str, str]
    gpu_count_by_host: Mapping[str, int]

    def explain_unmet_needs(self, needs: HostNeeds) -> str:
        """Return why the lab can never meet the needs, or "" if it can."""
        unknown_names = [name for name in needs.host_names if name not in self.nic_count_by_host]
        if unknown_names:
            return f"it has no host {', '.join(unknown_names)}: its hosts are {', '.join(self.nic_count_by_host)}"
        host_count = self._count_required_hosts(needs)
        suitable_hosts = [host for host in self.nic_count_by_host if self._meets_needs(host, needs)]
        if len(suitable_hosts) < host_count or not set(needs.host_names) <= set(suitable_hosts):
            description = (
                f"{host_count} hosts with {needs.degree or 1} NICs and {needs.gpu_count_per_host} GPUs"
            )
            return f"it does not have {description}: {len(suitable_hosts)} of {len(self.nic_count_by_host)} hosts fit"
        usable_hosts = {host for group in self._find_usable_groups(needs) for host in group}
        if usable_hosts.issuperset(needs.host_names) and len(usable_hosts) >= host_count:
            return ""
        faults_text = ", ".join(f"{host}: {fault}" for host, fault in sorted(self.fault_by_host.items()))
        if faults_text:
            return f"it is marked broken ({faults_text}); `testbed apply` proves it again"
        return f"no {host_count} hosts that fit can be moved without taking light from others"

    def choose_hosts(self, needs: HostNeeds, held_hosts: Collection[str]) -> tuple[str, ...]:
        """Return free hosts that meet the needs, in whole groups, or () if the borrower must wait.

        Small groups come first, so that a borrower takes few hosts that it does not need.
        """
        usable_groups = self._find_usable_groups(needs)
        if needs.host_names:
            required_groups = [
                group for group in usable_groups if not set(group).isdisjoint(needs.host_names)
            ]
            hosts = tuple(host for group in required_groups for host in group)
            is_free = set(hosts).isdisjoint(held_hosts) and set(hosts).issuperset(needs.host_names)
            return hosts if is_free else ()
        selection: list[str] = []
        for group in usable_groups:
            if set(group).isdisjoint(held_hosts):
                selection += group
                if len(selection) >= self._count_required_hosts(needs):
                    return tuple(selection)
        return ()

    def is_whole_group(self, hosts: Collection[str]) -> bool:
        """Return whether no circuit joins these hosts to others."""
        return all(set(group) <= set(hosts) or set(group).isdisjoint(hosts) for group in self.groups)

    def _count_required_hosts(self, needs: HostNeeds) -> int:
        return len(needs.host_names) or needs.host_count or len(self.nic_count_by_host)

    def _find_usable_groups(self, needs: HostNeeds) -> Sequence[tuple[str, ...]]:
        return [
            group
            for group in sorted(self.groups, key=len)
            if all(host not in self.fault_by_host and self._meets_needs(host, needs) for host in group)
        ]

    def _meets_needs(self, host: str, needs: HostNeeds) -> bool:
        return (
            self.nic_count_by_host[host] >= (needs.degree or 1)
            and self.gpu_count_by_host.get(host, 0) >= needs.gpu_count_per_host
        )


def group_hosts(hosts: Iterable[str], host_pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of hosts that pairs connect, in the order of the hosts.

    >>> group_hosts("abcd", [("c", "a")])
    (('a', 'c'), ('b',), ('d',))
    """
    group_by_host = {host: [host] for host in hosts}
    ordered_hosts = list(group_by_host)
    for host_name, peer_name in host_pairs:
        host_group, peer_group = group_by_host[host_name], group_by_host[peer_name]
        if host_group is not peer_group:
            host_group += peer_group
            group_by_host.update(dict.fromkeys(peer_group, host_group))
    group_by_id = {id(group): group for group in (group_by_host[host] for host in ordered_hosts)}
    return tuple(tuple(sorted(group, key=ordered_hosts.index)) for group in group_by_id.values())


@dataclass(frozen=True, slots=True)
class HostRequest:
    """A request for hosts and boards of a lab that waits at most `wait_s`."""

    lab: Lab
    needs: HostNeeds
    store: LeaseStore
    wait_s: float
    reason: str
    ttl_s: float
    boards: tuple[str, ...] = ()
    reads_gpus: bool = False
    """Count the GPUs of each host, over SSH."""

    def acquire(
        self, on_wait: Callable[[str], object] = lambda _hosts: None
    ) -> tuple[Lease, tuple[str, ...]]:
        """Wait for a lease; return it with its hosts in the lab's order. Hosts that are free earlier are preferred.

        `on_wait` is called with the hosts that the request waits for, once for each choice. Raises `LeaseImpossible` if
        the lab can never meet the needs, `UnderMaintenance`, and `LeaseDenied` after `wait_s`.
        """
        deadline_s = time.monotonic() + self.wait_s
        requested_lease: Lease | None = None
        chosen_hosts: tuple[str, ...] = ()
        pause_s = POLL_PAUSES_S[0]
        try:
            while True:
                candidates = self._read_candidates()
                unmet_needs_text = candidates.explain_unmet_needs(self.needs)
                if unmet_needs_text:
                    raise LeaseImpossible(f"lab '{self.lab.name}': {unmet_needs_text}")
                self._check_maintenance()
                preferred_hosts = (
                    candidates.choose_hosts(self.needs, self._find_held_hosts(requested_lease))
                    or chosen_hosts
                )
                preferred_hosts = preferred_hosts or candidates.choose_hosts(self.needs, ())
                # A request keeps its place in the queue as long as it names the same hosts.
                if requested_lease is not None and preferred_hosts != chosen_hosts:
                    self.store.release(requested_lease.id)
                    requested_lease = None
                is_new = requested_lease is None
                requested_lease = (
                    self.store.extend(requested_lease.id)
                    if requested_lease
                    else self._request_lease(preferred_hosts)
                )
                chosen_hosts = preferred_hosts
                # A host may have failed while the request waited.
                if requested_lease.is_held and self._read_candidates().is_whole_group(chosen_hosts):
                    granted_lease, requested_lease = requested_lease, None
                    return granted_lease, tuple(
                        host.name for host in self.lab.hosts if host.name in chosen_hosts
                    )
                if time.monotonic() > deadline_s:
                    problem = f"hosts {', '.join(chosen_hosts)} of lab '{self.lab.name}' were not granted"
                    raise LeaseDenied(f"{problem} within {self.wait_s:g} s; see `testbed lease list`")
                if is_new:
                    on_wait(", ".join(chosen_hosts))
                time.sleep(min(pause_s, max(0.0, deadline_s - time.monotonic())))
                pause_s = min(1.5 * pause_s, POLL_PAUSES_S[1])
        finally:
            if requested_lease is not None:
                with suppress(LeaseDenied):
                    self.store.release(requested_lease.id)

    def _request_lease(self, hosts: tuple[str, ...]) -> Lease:
        resources = (*(f"host:{name}" for name in hosts), *self.boards)
        parts = find_parts(self.lab, resources)
        return self.store.request(resources, parts, ttl_s=self.ttl_s, reason=self.reason)

    def _check_maintenance(self) -> None:
        row = read_maintenance(self.store.database.address, self.lab.name)
        if row:
            raise UnderMaintenance(
                f"lab '{self.lab.name}' is under maintenance by {row['owner']}: {row['reason']}; wait for "
                "`testbed maintenance off`"
            )

    def _find_held_hosts(self, own_request: Lease | None) -> frozenset[str]:
        """Return the hosts of which another lease holds a part, or for a part of which it waits."""
        other_leases = [
            lease
            for lease in read_leases(self.store.database.address, self.lab.name)
            if own_request is None or lease.id != own_request.id
        ]
        parts = frozenset[str]().union(*(lease.parts for lease in other_leases))
        return frozenset(
            host.name
            for host in self.lab.hosts
            if not parts.isdisjoint(find_parts(self.lab, [f"host:{host.name}"]))
        )

    def _read_candidates(self) -> HostCandidates:
        """Read the switches, the last checks and, if needed, the GPUs. Raises what drivers raise."""
        lab = self.lab
        with open_lab(
            lab, None, model_hosts=not self.reads_gpus, skip_unreachable=self.reads_gpus
        ) as session:
            snapshots = {name: switch.read() for name, switch in session.switches.items()}
            gpu_count_by_host = _count_gpus(session) if session.fleet else {}
        host_names = [host.name for host in lab.hosts]
        host_pairs = [
            (host_names[circuit.link.source.node], host_names[circuit.link.target.node])
            for circuit in find_held_circuits(lab, snapshots)
        ]
        return HostCandidates(
            groups=group_hosts(host_names, host_pairs),
            nic_count_by_host={host.name: len(host.nics) for host in lab.hosts},
            fault_by_host=self._read_faults(),
            gpu_count_by_host=gpu_count_by_host,
        )

    def _read_faults(self) -> dict[str, str]:
        """Return the fault of each host that has a part whose last check failed."""
        query = "select part, fault from part_checks where lab = ? and fault != '' order by part"
        rows = read_rows(self.store.database.address, query, (self.lab.name,))
        fault_by_part = {row["part"]: row["fault"] for row in rows}
        fault_by_host = {}
        for host in self.lab.hosts:
            parts = find_parts(self.lab, [f"host:{host.name}"]) & fault_by_part.keys()
            if parts:
                fault_by_host[host.name] = fault_by_part[min(parts)]
        return fault_by_host


def _count_gpus(session: LabSession) -> dict[str, int]:
    """Return the number of GPUs of each host that answers, which is 0 without NVIDIA's driver."""
    assert session.fleet is not None
    hosts = [host.name for host in session.lab.hosts if host.name not in session.unreachable]
    results = session.fleet.run(dict.fromkeys(hosts, "nvidia-smi --list-gpus 2>/dev/null; true"))
    return {
        host: sum(line.startswith("GPU ") for line in result.stdout.splitlines())
        for host, result in results.items()
    }


@dataclass(frozen=True, slots=True)
class LabState:
    """Circuits of some hosts by switch, and the epochs in force on these hosts alone, the newest first."""

    circuits_by_switch: Mapping[str, CrossConnects]
    intents: tuple[Intent, ...]

    @classmethod
    def read(cls, session: LabSession) -> LabState:
        """Return the state of the hosts of a session. Raises what drivers raise, and `JournalError`."""
        lab, runs_dir = session.lab, session.writable_journal.directory
        circuits_by_switch = {name: switch.read().connections for name, switch in session.switches.items()}
        host_names = {host.name for host in lab.hosts}
        intents = select_in_force(load_intents(runs_dir, lab.name))
        epochs = (
            intent
            for intent in intents
            if host_names.issuperset(intent.hosts) and intent.state in _APPLIED_STATUSES
        )
        return cls(
            {name: _select_in_scope(lab, name, circuits) for name, circuits in circuits_by_switch.items()},
            tuple(epochs),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the state as a JSON object, which holds the numbers of the epochs."""
        circuits = {
            switch: render_circuits(connections) for switch, connections in self.circuits_by_switch.items()
        }
        return {"circuits": circuits, "epochs": [intent.epoch for intent in self.intents]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], runs_dir: Path, lab: str) -> LabState:
        """Return the state of a JSON object. Raises `JournalError`."""
        circuits = {switch: parse_circuits(text) for switch, text in document["circuits"].items()}
        intents = {intent.epoch: intent for intent in load_intents(runs_dir, lab)}
        return cls(circuits, tuple(intents[epoch] for epoch in document["epochs"]))

    def restore(
        self, session: LabSession, open_session: OpenSession, reason: str, *, owner: str = ""
    ) -> None:
        """Restore the circuits through `session`, and apply the epochs again that are no longer in force.

        `owner` names a process that stored no epochs. The earlier epochs are then still in force, but the hosts hold
        other routes. So these epochs are applied again, through sessions that store none. Raises `VerifyFailed` if a
        verified epoch does not verify again, and the errors of an apply.
        """
        lab = session.lab
        if owner:
            _conclude_operations(session, owner, reason)
        switch_plans = (
            _plan_restore(session, name, circuits)
            for name, circuits in self.circuits_by_switch.items()
            if name in session.switches
        )
        empty_wiring = Wiring(
            len(lab.hosts), 1, simplex=False, links=()
        )  # the plan has circuits, but no links
        plan = LabPlan(empty_wiring, (), tuple(switch_plans))
        if plan.has_changes:
            address_by_switch = {name: switch.address for name, switch in session.switches.items()}
            goal = render_goal(
                {
                    switch_plan.switch: (address_by_switch[switch_plan.switch], switch_plan)
                    for switch_plan in plan.switches
                }
            )
            with session.operation("trial", reason, goal=goal):
                session.apply(plan)
        current_epochs = {
            intent.epoch
            for intent in select_in_force(load_intents(session.writable_journal.directory, lab.name))
        }
        for intent in reversed(self.intents):
            if (intent.epoch in current_epochs) == bool(owner):
                _reapply_epoch(intent, lab, open_session, reason)


def _reapply_epoch(intent: Intent, lab: Lab, open_session: OpenSession, reason: str) -> None:
    whole_lab = make_shard(lab, [host.name for host in (*lab.hosts, *lab.other_hosts)])
    epoch_lab, design = build_intent_design(whole_lab, intent)
    change = Change("rollback", f"back to epoch {intent.epoch}: {reason}")
    with open_session(epoch_lab) as session:
        if session.unreachable:
            problem = "; ".join(f"{name}: {reason}" for name, reason in session.unreachable.items())
            raise HostError(f"epoch {intent.epoch} of lab '{lab.name}' is not installed again: {problem}")
        result = session.carry_out(
            design, session.plan(design), topology_source=intent.topology_source, change=change
        )
    if intent.state == "verified" and not result.verify_report.ok:
        details = "; ".join(finding.detail for finding in result.verify_report.findings)
        raise VerifyFailed(
            f"epoch {intent.epoch} of lab '{lab.name}' is restored, but not verified: {details}"
        )


def _conclude_operations(session: LabSession, owner: str, reason: str) -> None:
    """Conclude the incomplete operations of a process that stored no epoch. `restore` undoes what they sent.

    A read decides the open steps of switches. Open steps of hosts count as unknown.
    """
    journal, lab = session.writable_journal, session.lab
    operations_with_epoch = {intent.operation for intent in load_intents(journal.directory, lab.name)}
    for record in load_operations(journal.directory, lab.name):
        if (
            record.row["owner"] != owner
            or record.state in ("running", "done")
            or record.id in operations_with_epoch
        ):
            continue
        for switch in session.switches.values():
            journal.settle(lab.name, switch.address, switch.read())
        journal.step_log.apply_event(record.id, StepEvent.WITHDRAW, [StepState.PLANNED], reason)
        journal.step_log.mark_unknown(record.id, reason)
        if record.state == "killed":
            journal.update_operation(
                record.id, state="failed", finished=format_now(), reason=f"killed; undone: {reason}"
            )


def _select_in_scope(lab: Lab, switch: str, circuits: CrossConnects) -> CrossConnects:
    scope = find_scope(lab, lab.get_switch(switch))
    return (
        circuits
        if scope is None
        else CrossConnects({source: output for source, output in circuits.pairs if source in scope})
    )


def _plan_restore(session: LabSession, name: str, target: CrossConnects) -> SwitchPlan:
    """Return the steps that restore earlier circuits of a switch."""
    switch, scope = session.switches[name], find_scope(session.lab, session.lab.get_switch(name))
    snapshot = switch.read()
    return SwitchPlan(name, target, scope, snapshot, switch.plan(target, snapshot, scope))
