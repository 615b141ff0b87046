"""Effects of unfinished operations: each operation is one finding, with everything that it explains.

An apply that was killed, or failed, leaves circuits and hosts as they were before it, as planned, or in between. The
earlier state is known, because the replaced topology is stored. A missing circuit is explained if its ports hold
circuits of that topology, or none. The commands of the apply take a host through a series of states, and the most
likely of these explains the host. A difference from both the plan and that state is a separate fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lightbed.wording import list_some
from testbed.design.model import Routes
from testbed.design.routing.routes import find_routes
from testbed.errors import TestbedError
from testbed.lab.hosts.forwarding import HostForwarding, MacsByHost, plan_forwarding
from testbed.lab.hosts.kernel_state import (
    EMPTY_STATE,
    KernelState,
    PlannedState,
    list_installation_states,
    plan_state,
)
from testbed.lab.model import Lab, LabHost, make_shard
from testbed.operate.design import load_design
from testbed.operate.intent import Intent
from testbed.operate.model import Circuit, FindingKind, LabPlan, LinkFinding
from testbed.operate.plan import find_port_owners, label_pair, list_circuits, list_lab_ports
from testbed.operate.proof.evidence import Evidence
from testbed.operate.proof.host_findings import count_deviations, is_unconfigured
from testbed.operate.unfinished import IncompleteOperation, SwitchCircuit

UNFINISHED = FindingKind(
    "unfinished",
    "an operation ended before its work was complete",
    "run `testbed resume`",
    stops_packets=False,
)


@dataclass(frozen=True, slots=True)
class InterruptedState:
    """State in which an unfinished apply has left a host, and its description."""

    state: PlannedState
    description: str


@dataclass(frozen=True)
class OperationEffects:
    """Unfinished operations, compared with the evidence of one proof.

    An apply explains differences only if its topology is being verified. A discovery explains its circuits.
    """

    lab: Lab
    plan: LabPlan
    evidence: Evidence
    macs_by_host: MacsByHost
    unfinished_operations: tuple[IncompleteOperation, ...]

    @cached_property
    def unfinished_apply(self) -> IncompleteOperation | None:
        """The unfinished apply of the topology that is being verified, or None."""
        hosts, links = tuple(host.name for host in self.lab.hosts), set(self.plan.wiring.links)
        matching_applies = (
            unfinished
            for unfinished in self.unfinished_operations
            if unfinished.intent and unfinished.intent.hosts == hosts and not unfinished.lacks_proof
        )
        return next(
            (
                unfinished
                for unfinished in matching_applies
                if unfinished.intent and set(unfinished.intent.wiring.links) == links
            ),
            None,
        )

    @cached_property
    def replaced_intents(self) -> tuple[tuple[Lab, Intent], ...]:
        """Epochs that the apply replaces, each with its shard. Epochs that no longer fit the lab file are left out."""
        intents = []
        for intent in self.unfinished_apply.replaced if self.unfinished_apply else ():
            try:
                intent.check_fits(self.lab)
                job_lab = make_shard(self.lab, intent.hosts)
                list_circuits(job_lab, intent.wiring)
            except TestbedError:
                continue
            intents.append((job_lab, intent))
        return tuple(intents)

    @cached_property
    def current_circuits(self) -> frozenset[SwitchCircuit]:
        """Circuits that the switches hold."""
        return frozenset(
            (name, *pair)
            for name, reading in self.evidence.reading_by_switch.items()
            for pair in reading.snapshot.connections.pairs
        )

    @cached_property
    def planned_circuits(self) -> frozenset[SwitchCircuit]:
        """Circuits of the plan, as triples of switch, input and output."""
        return frozenset(map(_make_switch_circuit, self.plan.circuits))

    @cached_property
    def replaced_epoch_circuits(self) -> tuple[tuple[Intent, frozenset[SwitchCircuit]], ...]:
        """Replaced epochs with their circuits, or none if the switches were done when the apply ended."""
        if self.unfinished_apply is None or self.unfinished_apply.were_circuits_in_place:
            return ()
        return tuple(
            (intent, frozenset(map(_make_switch_circuit, list_circuits(job_lab, intent.wiring))))
            for job_lab, intent in self.replaced_intents
        )

    @cached_property
    def replaced_circuits(self) -> frozenset[SwitchCircuit]:
        """Circuits of all replaced epochs."""
        return frozenset().union(*(circuits for _, circuits in self.replaced_epoch_circuits))

    @cached_property
    def missing_labels(self) -> frozenset[str]:
        """Labels of planned circuits that the apply has not made yet: their ports are free or hold earlier circuits."""
        if self.unfinished_apply is None or self.unfinished_apply.were_circuits_in_place:
            return frozenset()
        circuits_by_input = {circuit[:2]: circuit for circuit in self.current_circuits}
        circuits_by_output = {(circuit[0], circuit[2]): circuit for circuit in self.current_circuits}
        return frozenset(
            self.lab.link_label(circuit.link)
            for circuit in self.plan.circuits
            if circuit.switch in self.evidence.reading_by_switch and not self._was_never_missing(circuit)
            if {
                circuits_by_input.get(_make_switch_circuit(circuit)[:2]),
                circuits_by_output.get((circuit.switch, circuit.output_port)),
            }
            <= {None, *self.replaced_circuits}
        )

    def _was_never_missing(self, circuit: Circuit) -> bool:
        """Return whether a circuit exists, or is in all replaced epochs of its host. Then no apply has removed it."""
        host, switch_circuit = self.lab.hosts[circuit.link.source.node].name, _make_switch_circuit(circuit)
        was_in_epoch = [
            switch_circuit in circuits
            for intent, circuits in self.replaced_epoch_circuits
            if host in intent.hosts
        ]
        return switch_circuit in self.current_circuits or (bool(was_in_epoch) and all(was_in_epoch))

    @cached_property
    def extra_labels(self) -> frozenset[str]:
        """Labels of circuits at the lab's ports that the apply has not removed yet."""
        lab_ports, old_circuits = (
            list_lab_ports(self.lab),
            (self.current_circuits & self.replaced_circuits) - self.planned_circuits,
        )
        return self._label_circuits(
            circuit
            for circuit in old_circuits
            if not lab_ports.isdisjoint({circuit[:2], (circuit[0], circuit[2])})
        )

    def label_discovery_circuits(self, discovery: IncompleteOperation) -> frozenset[str]:
        """Return the labels of circuits that a discovery has left."""
        return self._label_circuits((self.current_circuits & discovery.circuits) - self.planned_circuits)

    def _label_circuits(self, circuits: Iterable[SwitchCircuit]) -> frozenset[str]:
        owner_by_port = find_port_owners(self.lab)
        return frozenset(label_pair(owner_by_port, circuit[0], circuit[1:]) for circuit in circuits)

    @property
    def explained_labels(self) -> dict[str, frozenset[str]]:
        """Labels of circuits that these operations explain, by kind of finding."""
        extra_labels = self.extra_labels.union(
            *map(self.label_discovery_circuits, self.unfinished_operations)
        )
        return {"missing_circuit": self.missing_labels, "extra_circuit": extra_labels}

    @cached_property
    def replaced_forwardings(self) -> tuple[tuple[Intent, Mapping[str, HostForwarding]], ...]:
        """Host configurations of each replaced epoch."""
        return tuple(
            (intent, plan_forwarding(job_lab, intent.wiring, routes, self.macs_by_host, further_routes))
            for job_lab, intent in self.replaced_intents
            for routes, *further_routes in [_load_routes(intent)]
        )

    def find_interrupted_state(
        self, host: LabHost, forwarding: HostForwarding, state: KernelState
    ) -> InterruptedState | None:
        """Return the most likely state in which the apply has left a host.

        This is the state with the fewest deviations from the kernel. Return None if no state has fewer than the plan,
        or if the kernel holds nothing of any plan and no state fits exactly.
        """
        if self.unfinished_apply is None:
            return None
        planned_state = plan_state(forwarding)
        min_deviations, best_match = count_deviations(self.lab, host, planned_state, state), None
        for candidate in self._list_states(host, forwarding) if min_deviations else ():
            deviation_count = count_deviations(self.lab, host, candidate.state, state)
            if deviation_count < min_deviations:
                min_deviations, best_match = deviation_count, candidate
            if not min_deviations:
                break
        return (
            None if min_deviations and is_unconfigured(self.lab, host, planned_state, state) else best_match
        )

    def _list_states(self, host: LabHost, forwarding: HostForwarding) -> Iterator[InterruptedState]:
        """Yield the states before the apply and during its installation. The last state, the plan, is left out."""
        earlier_states = [
            (plan_state(forwarding_by_host[host.name]), f"as epoch {intent.epoch} left them")
            for intent, forwarding_by_host in self.replaced_forwardings
            if host.name in forwarding_by_host
        ]
        for state, description in earlier_states or [(EMPTY_STATE, "not configured")]:
            first_state, *partial_states, _ = list_installation_states(state, forwarding)
            yield InterruptedState(first_state, description)
            yield from (
                InterruptedState(partial_state, "partly configured") for partial_state in partial_states
            )

    def report_findings(self, interrupted_states: Mapping[str, InterruptedState]) -> Iterator[LinkFinding]:
        """Yield a finding for each operation with what it explains. `interrupted_states` are states by host."""
        for unfinished in self.unfinished_operations:
            is_apply = unfinished is self.unfinished_apply
            effects = [*self._describe_circuits(), *_describe_hosts(interrupted_states)] if is_apply else []
            existing_circuits = self.label_discovery_circuits(unfinished)
            effects += (
                [
                    f"{len(existing_circuits)} of its circuits still exist: {list_some(sorted(existing_circuits))}"
                ]
                if existing_circuits
                else []
            )
            detail = f"{unfinished.detail}: {'; '.join(effects)}" if effects else unfinished.detail
            circuits = existing_circuits | (
                self.missing_labels | self.extra_labels if is_apply else frozenset()
            )
            yield UNFINISHED.report(unfinished.operation, detail, unfinished.hint, tuple(sorted(circuits)))

    def _describe_circuits(self) -> Iterator[str]:
        if self.missing_labels:
            labels = list_some(sorted(self.missing_labels))
            yield f"{len(self.missing_labels)} planned circuits are missing ({labels})"
        if self.extra_labels:
            labels = list_some(sorted(self.extra_labels))
            yield f"{len(self.extra_labels)} circuits of the earlier topology remain ({labels})"


def _load_routes(intent: Intent) -> tuple[Routes, ...]:
    """Return the sets of routes of an epoch, or one set of shortest paths if its stored plan cannot be read."""
    try:
        design = load_design(intent)
    except TestbedError:
        return (find_routes(intent.wiring),)
    return (design.routes, *design.further_routes)


def _make_switch_circuit(circuit: Circuit) -> SwitchCircuit:
    return circuit.switch, circuit.input_port, circuit.output_port


def _describe_hosts(interrupted_states: Mapping[str, InterruptedState]) -> Iterator[str]:
    for description in dict.fromkeys(host_state.description for host_state in interrupted_states.values()):
        hosts = [
            host for host, host_state in interrupted_states.items() if host_state.description == description
        ]
        yield f"{len(hosts)} hosts are {description} ({', '.join(hosts)})"
