"""Effects of operations that were left unfinished: each is one finding, with all that it explains. Pure.

An apply that was killed, or failed, leaves circuits and hosts as they were before it, as planned, or in between. The
criterion is the topology that it was to replace, which is stored: circuits of that topology where planned ones are
missing, and on each host the most likely of the states that the batch of the apply passes through. What differs from
both the plan and that state is another fault, and is told as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lightbed.wording import list_some
from testbed.design.model import Routes
from testbed.design.routing.routes import find_routes
from testbed.errors import TestbedError
from testbed.lab.hosts.forwarding import HostForwarding, Macs, forwarding_plan
from testbed.lab.hosts.kernel_state import (
    NOTHING,
    KernelState,
    PlannedState,
    plan_state,
    states_while_installing,
)
from testbed.lab.model import Lab, LabHost, shard_of
from testbed.operate.design import load_design
from testbed.operate.intent import Intent
from testbed.operate.model import Circuit, FindingKind, LabPlan, LinkFinding
from testbed.operate.plan import circuits_of, own_ports, pair_label, port_owners
from testbed.operate.proof.evidence import Evidence
from testbed.operate.proof.host_findings import deviations, is_bare
from testbed.operate.unfinished import SwitchCircuit, Unfinished

UNFINISHED = FindingKind(
    "unfinished",
    "an operation ended before its work was complete",
    "run `testbed resume`",
    stops_packets=False,
)


@dataclass(frozen=True, slots=True)
class HalfWay:
    """State in which an unfinished apply has left a host; `words` say which that is."""

    state: PlannedState
    words: str


@dataclass(frozen=True)
class Effects:
    """Operations that were left unfinished, beside the evidence of one proof.

    Only the apply of the very topology that is proved explains anything; a discovery explains its circuits.
    """

    lab: Lab
    plan: LabPlan
    evidence: Evidence
    macs: Macs
    left: tuple[Unfinished, ...]

    @cached_property
    def apply(self) -> Unfinished | None:
        """The unfinished apply of the topology that is proved."""
        hosts, links = tuple(host.name for host in self.lab.hosts), set(self.plan.wiring.links)
        ours = (one for one in self.left if one.intent and one.intent.hosts == hosts and not one.lacks_proof)
        return next((one for one in ours if one.intent and set(one.intent.wiring.links) == links), None)

    @cached_property
    def before(self) -> tuple[tuple[Lab, Intent], ...]:
        """Epochs that the apply was to replace, with the hosts that they are for, as far as the lab file has them."""
        found = []
        for intent in self.apply.replaced if self.apply else ():
            try:
                intent.check_fits(self.lab)
                here = shard_of(self.lab, intent.hosts)
                circuits_of(here, intent.wiring)
            except TestbedError:
                continue
            found.append((here, intent))
        return tuple(found)

    @cached_property
    def held(self) -> frozenset[SwitchCircuit]:
        """Circuits that the switches hold."""
        return frozenset(
            (name, *pair)
            for name, reading in self.evidence.switches.items()
            for pair in reading.snapshot.connections.pairs
        )

    @cached_property
    def planned(self) -> frozenset[SwitchCircuit]:
        """Planned circuits."""
        return frozenset(map(_key, self.plan.circuits))

    @cached_property
    def epochs_before(self) -> tuple[tuple[Intent, frozenset[SwitchCircuit]], ...]:
        """Epochs before with their circuits; none where the switches were done when the apply ended."""
        if self.apply is None or self.apply.circuits_stood:
            return ()
        return tuple(
            (intent, frozenset(map(_key, circuits_of(here, intent.wiring)))) for here, intent in self.before
        )

    @cached_property
    def circuits_before(self) -> frozenset[SwitchCircuit]:
        """Circuits of all epochs before."""
        return frozenset().union(*(circuits for _, circuits in self.epochs_before))

    @cached_property
    def missing(self) -> frozenset[str]:
        """Names of planned circuits that are not made yet: their ports are free, or as they were before."""
        if self.apply is None or self.apply.circuits_stood:
            return frozenset()
        at_inputs = {held[:2]: held for held in self.held}
        at_outputs = {(held[0], held[2]): held for held in self.held}
        return frozenset(
            self.lab.link_label(circuit.link)
            for circuit in self.plan.circuits
            if circuit.switch in self.evidence.switches and not self._has_stood(circuit)
            if {at_inputs.get(_key(circuit)[:2]), at_outputs.get((circuit.switch, circuit.output_port))}
            <= {None, *self.circuits_before}
        )

    def _has_stood(self, circuit: Circuit) -> bool:
        """Return whether a circuit is there, or all epochs before had it: no apply has removed it then."""
        host, key = self.lab.hosts[circuit.link.source.node].name, _key(circuit)
        had = [key in circuits for intent, circuits in self.epochs_before if host in intent.hosts]
        return key in self.held or (bool(had) and all(had))

    @cached_property
    def extra(self) -> frozenset[str]:
        """Names of circuits that are not removed yet; an apply leaves those between other hosts alone."""
        ours, left = own_ports(self.lab), (self.held & self.circuits_before) - self.planned
        return self._names(one for one in left if not ours.isdisjoint({one[:2], (one[0], one[2])}))

    def of_discovery(self, one: Unfinished) -> frozenset[str]:
        """Return the names of circuits that a discovery has left."""
        return self._names((self.held & one.circuits) - self.planned)

    def _names(self, circuits: Iterable[SwitchCircuit]) -> frozenset[str]:
        owners = port_owners(self.lab)
        return frozenset(pair_label(owners, one[0], one[1:]) for one in circuits)

    @property
    def explained(self) -> dict[str, frozenset[str]]:
        """Circuits, by kind of finding, that are as these operations have left them."""
        extra = self.extra.union(*map(self.of_discovery, self.left))
        return {"missing_circuit": self.missing, "extra_circuit": extra}

    @cached_property
    def parts_before(self) -> tuple[tuple[Intent, Mapping[str, HostForwarding]], ...]:
        """Parts that each of the epochs before installed on its hosts."""
        return tuple(
            (intent, forwarding_plan(here, intent.wiring, routes, self.macs, further))
            for here, intent in self.before
            for routes, *further in [_routes_of(intent)]
        )

    def half_way(self, host: LabHost, part: HostForwarding, state: KernelState) -> HalfWay | None:
        """Return the most likely state that the apply has left on a host, None where it was done there."""
        if self.apply is None:
            return None
        planned = plan_state(part)
        least, likely = deviations(self.lab, host, planned, state), None
        for one in self._states(host, part) if least else ():
            differs = deviations(self.lab, host, one.state, state)
            if differs < least:
                least, likely = differs, one
            if not least:
                break
        return None if least and is_bare(self.lab, host, planned, state) else likely

    def _states(self, host: LabHost, part: HostForwarding) -> Iterator[HalfWay]:
        """Yield states before the apply, then those while it installed, without the last, which is as planned."""
        earlier = [
            (plan_state(parts[host.name]), f"as epoch {intent.epoch} left them")
            for intent, parts in self.parts_before
            if host.name in parts
        ]
        for state, words in earlier or [(NOTHING, "without anything of the plan")]:
            before, *between, _ = states_while_installing(state, part)
            yield HalfWay(before, words)
            yield from (HalfWay(one, "in between") for one in between)

    def findings(self, half_way: Mapping[str, HalfWay]) -> Iterator[LinkFinding]:
        """Yield each operation with what it explains; `half_way` are the hosts that its apply has not done."""
        for one in self.left:
            is_apply = one is self.apply
            effects = [*self._circuit_words(), *_host_words(half_way)] if is_apply else []
            stand = self.of_discovery(one)
            effects += [f"{len(stand)} of its circuits stand: {list_some(sorted(stand))}"] if stand else []
            detail = f"{one.detail}: {'; '.join(effects)}" if effects else one.detail
            circuits = stand | (self.missing | self.extra if is_apply else frozenset())
            yield UNFINISHED.report(one.operation, detail, one.hint, tuple(sorted(circuits)))

    def _circuit_words(self) -> Iterator[str]:
        if self.missing:
            yield f"{len(self.missing)} planned circuits are missing ({list_some(sorted(self.missing))})"
        if self.extra:
            yield f"{len(self.extra)} of the topology before are still there ({list_some(sorted(self.extra))})"


def _routes_of(intent: Intent) -> tuple[Routes, ...]:
    """Return the sets of routes of an epoch; shortest ones where its stored plan cannot be read any more."""
    try:
        design = load_design(intent)
    except TestbedError:
        return (find_routes(intent.wiring),)
    return (design.routes, *design.further)


def _key(circuit: Circuit) -> SwitchCircuit:
    return circuit.switch, circuit.input_port, circuit.output_port


def _host_words(half_way: Mapping[str, HalfWay]) -> Iterator[str]:
    for words in dict.fromkeys(one.words for one in half_way.values()):
        hosts = [host for host, one in half_way.items() if one.words == words]
        yield f"{len(hosts)} hosts are {words} ({', '.join(hosts)})"
