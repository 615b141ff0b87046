"""Planned changes: the elements that a change touches, its duration, its file, and the state that it requires.

A plan also touches elements that no step names: both ends of its circuits, and hosts that forward packets over them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lightbed.wording import format_count
from testbed.errors import IntentError, JournalError, PlanFileError, TopologyError
from testbed.lab.inventory import load_lab
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import find_running_lab
from testbed.leases.listing import read_leases
from testbed.leases.model import find_parts
from testbed.operate.change_file import (
    ChangeFile,
    ObservedState,
    check_expected,
    make_change_document,
    observe_plan,
    read_change,
    write_change,
)
from testbed.operate.choice import DesignChoice, choose_apply_design
from testbed.operate.design import Design, build_intent_design
from testbed.operate.durations import Durations, format_seconds, learn_durations
from testbed.operate.intent import Intent, load_intents, select_in_force
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.named_topology import NamedTopology
from testbed.operate.plan import find_port_owners, label_pair, select_in_scope
from testbed.operate.session import LabSession
from testbed.storage.address import get_database_address

TouchKind = Literal["made", "removed", "disturbed", "transmits", "receives", "forwards"]
SwitchPair = tuple[str, int, int]

_END_TOUCHES: tuple[TouchKind, TouchKind] = ("transmits", "receives")
_LIGHT_EFFECTS = {
    "made": "gets light",
    "removed": "loses light",
    "disturbed": "may lose light for a moment",
}


@dataclass(frozen=True, slots=True)
class TouchedPart:
    """A circuit, NIC or host that a plan touches, and why. `is_direct` is True for the circuits that a step changes."""

    kind: Literal["circuit", "nic", "host"]
    name: str
    touch: TouchKind
    reason: str
    is_direct: bool = False

    def json(self) -> dict[str, object]:
        """Return the part for JSON documents."""
        return {
            "kind": self.kind,
            "name": self.name,
            "touch": self.touch,
            "reason": self.reason,
            "direct": self.is_direct,
        }


@dataclass(frozen=True, slots=True)
class HostedDesign:
    """A design with its lab or shard."""

    lab: Lab
    design: Design


def find_touched_elements(
    lab: Lab, plan: LabPlan, designs: Sequence[HostedDesign]
) -> tuple[TouchedPart, ...]:
    """Return every element that a plan touches: circuits, then the NICs at their ends, then hosts that forward.

    `designs` are the designs in force before and after, because packets of both cross the touched circuits.
    """
    touch_by_circuit: dict[SwitchPair, TouchKind] = {}
    for part in plan.switches:
        touch_by_circuit |= {
            (part.switch, *pair): touch for pair, touch in sorted(_find_touches(part).items())
        }
    return (
        *_list_touched_circuits(lab, touch_by_circuit),
        *_list_touched_nics(lab, touch_by_circuit),
        *_list_forwarding_hosts(touch_by_circuit, designs),
    )


def _find_touches(switch_plan: SwitchPlan) -> dict[tuple[int, int], TouchKind]:
    """Return what happens to each circuit of one switch, including circuits of other users that a step disturbs."""
    current_pairs, target_pairs = select_in_scope(switch_plan), switch_plan.target.pairs
    disturbed_pairs = frozenset().union(*(step.disturbed for step in switch_plan.steps))
    touch_by_pair: dict[tuple[int, int], TouchKind] = dict.fromkeys(
        disturbed_pairs & switch_plan.snapshot.connections.pairs, "disturbed"
    )
    touch_by_pair |= dict.fromkeys(current_pairs - target_pairs, "removed")
    return touch_by_pair | dict.fromkeys(target_pairs - current_pairs, "made")


def _list_touched_circuits(
    lab: Lab, touch_by_circuit: Mapping[SwitchPair, TouchKind]
) -> Iterator[TouchedPart]:
    owner_by_port = find_port_owners(lab)
    for (switch, source, output), touch in touch_by_circuit.items():
        reason = "kept; a step of its switch may interrupt its light"
        if touch != "disturbed":
            reason = "part of the topology" if touch == "made" else "not part of the topology"
        label = label_pair(owner_by_port, switch, (source, output))
        name = f"{switch}:{source}->{output}"
        yield TouchedPart("circuit", name, touch, f"{label}: {reason}", is_direct=touch != "disturbed")


def _list_touched_nics(lab: Lab, touch_by_circuit: Mapping[SwitchPair, TouchKind]) -> Iterator[TouchedPart]:
    """Yield both ends of every circuit. A NIC may be an end of several circuits."""
    owner_by_port = find_port_owners(lab)
    for (switch, *pair), touch in touch_by_circuit.items():
        reason = f"its circuit {switch}:{pair[0]}->{pair[1]} {_LIGHT_EFFECTS[touch]}"
        for port, end_touch in zip(pair, _END_TOUCHES, strict=True):
            if (switch, port) in owner_by_port:
                yield TouchedPart("nic", owner_by_port[switch, port], end_touch, reason)


def _list_forwarding_hosts(
    touch_by_circuit: Mapping[SwitchPair, TouchKind], designs: Sequence[HostedDesign]
) -> Iterator[TouchedPart]:
    flows_by_host: defaultdict[str, list[str]] = defaultdict(list)
    for hosted_design in designs:
        for host, flow in _find_forwarders(hosted_design, touch_by_circuit):
            flows_by_host[host].append(flow)
    for host in sorted(flows_by_host):
        flows = list(dict.fromkeys(flows_by_host[host]))
        reason = f"forwards packets of {format_count(len(flows), 'pair')} over circuits that change, such as {flows[0]}"
        yield TouchedPart("host", host, "forwards", reason)


def _find_forwarders(hosted_design: HostedDesign, touches: Iterable[SwitchPair]) -> Iterator[tuple[str, str]]:
    """Yield hosts with the pairs whose packets they forward on a path that has a touched circuit."""
    lab, touched_circuits = hosted_design.lab, frozenset(touches)
    changed_links = set()
    for link in hosted_design.design.wiring.links:
        transmit, receive = lab.get_nic(link.source).transmit, lab.get_nic(link.target).receive
        if (transmit.switch, transmit.port, receive.port) in touched_circuits:
            changed_links.add(link)
    for routes in (hosted_design.design.routes, *hosted_design.design.further_routes):
        for source, target in routes.first_link:
            path = routes.path(source, target)
            if changed_links.isdisjoint(path):
                continue
            for hop in path[:-1]:
                yield lab.hosts[hop.target.node].name, f"{lab.hosts[source].name} -> {lab.hosts[target].name}"


@dataclass
class PlannedChange:
    """A plan with the elements that it touches, its expected duration, and the state for which it was made."""

    design_choice: DesignChoice
    plan: LabPlan
    runs_dir: Path

    @cached_property
    def observed_state(self) -> ObservedState:
        """State for which the plan was made. It has no epochs if the journal cannot be read."""
        with suppress(JournalError):
            return observe_current_state(self.design_choice, self.plan, self.runs_dir)
        return observe_plan(self.plan, revision=self.design_choice.lab.revision)

    @cached_property
    def touched_elements(self) -> tuple[TouchedPart, ...]:
        """Elements that the plan touches, or none if nothing changes."""
        if not self.plan.has_changes:
            return ()
        hosted_design = HostedDesign(self.design_choice.lab, self.design_choice.design)
        current_designs: list[HostedDesign] = []
        with suppress(JournalError):
            current_designs = _load_designs(
                self.design_choice, _find_epochs_in_force(self.design_choice, self.runs_dir)
            )
        return find_touched_elements(self.design_choice.lab, self.plan, (hosted_design, *current_designs))

    @cached_property
    def durations(self) -> Durations:
        """Durations learned from the journal, or none if it cannot be read."""
        with suppress(JournalError):
            return learn_durations(self.runs_dir, self.design_choice.lab.name)
        return Durations()

    def json(self) -> dict[str, Any]:
        """Return the keys `revision`, `elements` and `expected` of the plan's JSON document."""
        effects = describe_effects(self.plan, self.touched_elements, self.durations)
        return {"revision": self.observed_state.fingerprint, **effects}

    def format_lines(self) -> list[str]:
        """Return hosts and duration as lines of text. `plan.describe_plan` lists the circuits and their NICs."""
        if not self.plan.has_changes:
            return []
        total_duration = self.durations.estimate_plan(self.plan)
        source_text = (
            f"learned from {format_count(total_duration.sample_count, 'step')}"
            if total_duration.sample_count
            else "by the drivers"
        )
        lines = [
            f"{element.name} {element.reason}" for element in self.touched_elements if element.kind == "host"
        ]
        median_text, limit_text = (
            format_seconds(total_duration.median_s),
            format_seconds(total_duration.p95_s),
        )
        duration_text = f"expected: {median_text}, at most {limit_text} in 95 of 100 ({source_text})"
        return [*lines, f"{duration_text}; revision {self.observed_state.fingerprint}"]

    def describe_next_command(self) -> list[str]:
        """Return the command that applies the chosen epoch again, by number: another epoch may be stored by then."""
        if not (self.plan.has_changes and self.design_choice.intent):
            return []
        return [
            f"to patch it again: testbed apply {self.design_choice.lab.path} --epoch {self.design_choice.intent.epoch}"
        ]

    def write(self, path: Path, *, take_over: bool) -> None:
        """Write the change file."""
        choice = self.design_choice
        document = make_change_document(
            choice.lab,
            choice.design,
            choice.topology_source,
            self.plan,
            self.observed_state,
            take_over=take_over,
        )
        write_change(path, document | self.json())


def describe_effects(
    plan: LabPlan, elements: tuple[TouchedPart, ...], durations: Durations
) -> dict[str, Any]:
    """Return the elements that a change touches and the expected seconds, per step, per switch and in total."""
    switches = {
        part.switch: {
            "steps": [durations.estimate_step(part.switch, step).json() for step in part.steps],
            "total": durations.estimate_switch(part.switch, part.steps).json(),
        }
        for part in plan.switches
    }
    expected_durations = {"switches": switches, "total": durations.estimate_plan(plan).json()}
    return {"elements": [element.json() for element in elements], "expected": expected_durations}


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Request of `testbed apply`: a design, and the state that the lab must be in (`--change`, `--expect`)."""

    design_choice: DesignChoice
    runs_dir: Path
    takes_over: bool
    change_file: ChangeFile | None = None
    expected_revision: str | None = None

    @classmethod
    def from_options(
        cls,
        lab_file: Path,
        named_topology: NamedTopology,
        runs_dir: Path,
        change_file: Path | None,
        expect: str | None,
        *,
        take_over: bool,
    ) -> ChangeRequest:
        """Return the request of the options. Raises `PlanFileError` and what `choose_apply_design` raises."""
        if change_file is None:
            return cls(
                choose_apply_design(lab_file, named_topology, runs_dir), runs_dir, take_over, None, expect
            )
        if named_topology != NamedTopology() or take_over:
            raise PlanFileError(
                f"--change {change_file} already sets the change: leave out --simplex, --method, --demand, "
                "--hosts-of, --plan, --epoch and --take-over"
            )
        change = read_change(change_file)
        lab = find_running_lab(load_lab(lab_file))
        if change.intent.lab != lab.name:
            raise PlanFileError(f"{change_file} is for lab '{change.intent.lab}', not for '{lab.name}'")
        job_lab, design = build_intent_design(lab, change.intent)
        choice = DesignChoice(job_lab, design, change.intent.topology_source)
        return cls(choice, runs_dir, change.takes_over, change, expect)

    def plan(self, session: LabSession) -> LabPlan:
        """Read the switches and return the plan. Raises `PlanStale`, and what `LabSession.plan` raises."""
        lab_plan = session.plan(self.design_choice.design, take_over=self.takes_over)
        self.check_current(lab_plan)
        return lab_plan

    def check_current(self, lab_plan: LabPlan) -> None:
        """Raise `PlanStale` unless the lab is in the required state. Without an option, every state is accepted."""
        if self.change_file is None and self.expected_revision is None:
            return
        current_state = observe_current_state(self.design_choice, lab_plan, self.runs_dir)
        if self.expected_revision is not None:
            check_expected(self.expected_revision, current_state)
        if self.change_file is not None:
            self.change_file.check_current(lab_plan, current_state)


def observe_current_state(choice: DesignChoice, lab_plan: LabPlan, runs_dir: Path) -> ObservedState:
    """Return the current state of the lab for a plan. Raises `JournalError`."""
    epochs = sorted(intent.epoch for intent in _find_epochs_in_force(choice, runs_dir))
    token = _find_token(choice, runs_dir)
    return observe_plan(lab_plan, epochs=epochs, revision=choice.lab.revision, lease_token=token)


def _find_token(choice: DesignChoice, runs_dir: Path) -> int | None:
    """Return the newest fencing token of an explicit lease on any of the plan's hosts, or None without a lease."""
    hosts = find_parts(choice.lab, [f"host:{host.name}" for host in choice.lab.hosts])
    leases = read_leases(get_database_address(runs_dir), choice.lab.name)
    tokens = [
        lease.token
        for lease in leases
        if lease.is_held and not (lease.is_implicit or hosts.isdisjoint(lease.parts))
    ]
    return max(filter(None, tokens), default=None)


def _find_epochs_in_force(choice: DesignChoice, runs_dir: Path) -> tuple[Intent, ...]:
    """Return the epochs in force on any of the plan's hosts. Raises `JournalError`."""
    hosts = {host.name for host in choice.lab.hosts}
    current_intents = select_in_force(load_intents(runs_dir, choice.lab.name))
    return tuple(intent for intent in current_intents if not hosts.isdisjoint(intent.hosts))


def _load_designs(choice: DesignChoice, intents: Iterable[Intent]) -> list[HostedDesign]:
    """Return the designs of these epochs. Designs that no longer fit the lab file are left out."""
    designs = []
    for intent in intents:
        with suppress(IntentError, TopologyError):
            designs.append(HostedDesign(*build_intent_design(choice.lab, intent)))
    return designs
