"""Plans: circuits from a wiring, and steps from the difference between the switches and these circuits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from lightbed.wording import format_count
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.model import CrossConnects, Snapshot, Step
from testbed.design.model import Link, Wiring
from testbed.errors import TopologyError
from testbed.lab.model import FibreEnd, Lab, LabHost, LabSwitch
from testbed.operate.boards import find_free_circuits
from testbed.operate.engine.order import order_steps
from testbed.operate.model import Circuit, LabPlan, SwitchPlan

Pair = tuple[int, int]
_CHANGE_BY_SIGN = {"-": "remove", "+": "make", "=": "keep"}


def list_circuits(lab: Lab, wiring: Wiring) -> tuple[Circuit, ...]:
    """Return the circuit of every link, in the order of the wiring. Node i of the wiring is host i of the lab.

    Raises `TopologyError` if the lab has too few hosts or NICs, or if the two fibres of a link end on different
    switches.
    """
    _check_size(lab, wiring)
    return tuple(_make_circuit(lab, link) for link in wiring.links)


def _check_size(lab: Lab, wiring: Wiring) -> None:
    if wiring.nodes > len(lab.hosts):
        problem = f"the topology has {wiring.nodes} nodes, lab '{lab.name}' has {len(lab.hosts)} hosts"
        raise TopologyError(f"{lab.path}: {problem}; add hosts to the lab file or lower --nodes")
    for host in lab.hosts[: wiring.nodes]:
        if wiring.degree > len(host.nics):
            problem = f"the topology has degree {wiring.degree}, host '{host.name}' has {len(host.nics)} NICs"
            raise TopologyError(f"{lab.path}: {problem}; add NICs to the lab file or lower --degree")


def _make_circuit(lab: Lab, link: Link) -> Circuit:
    transmit_end, receive_end = lab.get_nic(link.source).transmit, lab.get_nic(link.target).receive
    if transmit_end.switch != receive_end.switch:
        problem = (
            f"link {lab.link_label(link)} cannot be patched: its fibres end on two switches, "
            f"{transmit_end.switch}:{transmit_end.port} and {receive_end.switch}:{receive_end.port}"
        )
        raise TopologyError(f"{lab.path}: {problem}; wire the topology with one plane per switch")
    return Circuit(link, transmit_end.switch, transmit_end.port, receive_end.port)


def plan_lab(
    lab: Lab, wiring: Wiring, switches: Mapping[str, OpticalSwitch], *, take_over: bool = False
) -> LabPlan:
    """Read every switch of the lab and plan its steps. Nothing is changed.

    For a shard, circuits of other hosts are kept. If such a circuit lights a receiver of the shard, `take_over` allows
    its removal; otherwise `PortBusy` is raised. Raises `TopologyError` and the drivers' errors
    (`ocs_drivers.errors`).
    """
    circuits = list_circuits(lab, wiring)
    snapshots = {switch.name: switches[switch.name].read() for switch in lab.switches}
    circuits_by_switch = {name: snapshot.connections for name, snapshot in snapshots.items()}
    board_circuits = find_free_circuits(lab, circuits_by_switch, list_used_ports(circuits))
    plans = (
        _plan_switch(
            lab,
            switch,
            circuits,
            switches[switch.name],
            snapshots[switch.name],
            {circuit[1:] for circuit in board_circuits if circuit[0] == switch.name},
            take_over=take_over,
        )
        for switch in lab.switches
    )
    return LabPlan(wiring, circuits, tuple(plans))


def _plan_switch(
    lab: Lab,
    switch: LabSwitch,
    circuits: tuple[Circuit, ...],
    device: OpticalSwitch,
    snapshot: Snapshot,
    board_pairs: AbstractSet[tuple[int, int]],
    *,
    take_over: bool,
) -> SwitchPlan:
    """Plan one switch. `board_pairs` holds its circuits between boards and NICs that the topology leaves free."""
    target = CrossConnects(
        {circuit.input_port: circuit.output_port for circuit in circuits if circuit.switch == switch.name}
    )
    scope = _adjust_scope_to_boards(lab, switch, snapshot.connections, board_pairs)
    if take_over and scope is not None:
        scope |= _find_foreign_inputs(lab, switch, snapshot.connections)
    steps = _scale_estimates(lab, switch, device, order_steps(device.plan(target, snapshot, scope)))
    return SwitchPlan(switch.name, target, scope, snapshot, steps)


def _adjust_scope_to_boards(
    lab: Lab, switch: LabSwitch, circuits: CrossConnects, board_pairs: AbstractSet[tuple[int, int]]
) -> frozenset[int] | None:
    """Return `find_scope` minus inputs of attachments, plus inputs of other boards that light the lab's NICs."""
    scope = find_scope(lab, switch)
    board_inputs = {source for source, _ in board_pairs}
    if scope is None:
        return frozenset(range(1, switch.input_count + 1)) - board_inputs if board_inputs else None
    board_ports, lab_ports = list_board_ports(lab, switch.name), _find_ports(lab.hosts, switch)
    return (
        scope | {source for source, output in circuits.pairs if source in board_ports and output in lab_ports}
    ) - board_inputs


def _scale_estimates(
    lab: Lab, switch: LabSwitch, device: OpticalSwitch, steps: tuple[Step, ...]
) -> tuple[Step, ...]:
    """Return the steps with estimates scaled to the `switch_time_s` and `speed` of the lab file, if it has any.

    A driver's estimate is a multiple of the typical switching time of its model, so one factor fits all steps.
    """
    typical_s = device.capabilities.switch_time_s[0]
    twin = lab.twins.get(switch.name)
    if twin is None or not typical_s:
        return steps
    twin_time_s = typical_s if twin.switch_time_s is None else twin.switch_time_s
    time_scale = twin_time_s / typical_s / twin.speed
    return tuple(replace(step, estimated_s=step.estimated_s * time_scale) for step in steps)


def _find_foreign_inputs(lab: Lab, switch: LabSwitch, connections: CrossConnects) -> frozenset[int]:
    """Return inputs of hosts outside the shard that light receivers of the shard."""
    other_ports, lab_ports = (_find_ports(hosts, switch) for hosts in (lab.other_hosts, lab.hosts))
    return frozenset(
        source for source, output in connections.pairs if source in other_ports and output in lab_ports
    )


def find_scope(lab: Lab, switch: LabSwitch) -> frozenset[int] | None:
    """Return the inputs of a switch that the lab may change, or None (all) if its NICs feed every input."""
    lab_ports = frozenset(port for port in _find_ports(lab.hosts, switch) if port <= switch.input_count)
    return None if len(lab_ports) == switch.input_count else lab_ports


def _find_ports(hosts: tuple[LabHost, ...], switch: LabSwitch) -> frozenset[int]:
    return frozenset(
        fibre_end.port for fibre_end, _ in _list_fibre_ends(hosts) if fibre_end.switch == switch.name
    )


def list_board_ports(lab: Lab, switch: str) -> frozenset[int]:
    """Return the ports of a switch at which fibres of boards end."""
    return frozenset(fibre_end.port for fibre_end, _ in _list_board_ends(lab) if fibre_end.switch == switch)


def list_used_ports(circuits: Iterable[Circuit]) -> frozenset[tuple[str, int]]:
    """Return the switch ports that circuits use."""
    return frozenset(
        (circuit.switch, port) for circuit in circuits for port in (circuit.input_port, circuit.output_port)
    )


def list_lab_ports(lab: Lab) -> frozenset[tuple[str, int]]:
    """Return the switch ports of the lab's hosts. Hosts outside a shard do not count."""
    return frozenset((fibre_end.switch, fibre_end.port) for fibre_end, _ in _list_fibre_ends(lab.hosts))


def find_port_owners(lab: Lab) -> dict[tuple[str, int], str]:
    """Return the NIC (`a/nic1`) or board port at every switch port of the lab, including hosts outside a shard."""
    labelled_ends = (*_list_fibre_ends((*lab.hosts, *lab.other_hosts)), *_list_board_ends(lab))
    return {(fibre_end.switch, fibre_end.port): label for fibre_end, label in labelled_ends}


def _list_board_ends(lab: Lab) -> Iterator[tuple[FibreEnd, str]]:
    for board in lab.boards:
        for port in board.ports:
            for fibre_end in (port.transmit, port.receive):
                yield fibre_end, f"{board.name}/{port.name}"


def _list_fibre_ends(hosts: tuple[LabHost, ...]) -> Iterator[tuple[FibreEnd, str]]:
    for host in hosts:
        for nic in host.nics:
            for fibre_end in (nic.transmit, nic.receive):
                yield fibre_end, f"{host.name}/{nic.name}"


def label_pair(owner_by_port: Mapping[tuple[str, int], str], switch: str, pair: Pair) -> str:
    """Return a cross-connect by its NICs, `a/nic1 -> b/nic1`. A port without a NIC of the lab is `port N`."""
    source_label, target_label = (owner_by_port.get((switch, port), f"port {port}") for port in pair)
    return f"{source_label} -> {target_label}"


def describe_plan(lab: Lab, plan: LabPlan) -> tuple[str, ...]:
    """Return the plan as lines of text: `+` to make, `-` to remove, `=` kept, and a summary of each switch."""
    owner_by_port = find_port_owners(lab)
    lines = []
    for part in plan.switches:
        lines += [
            f"{sign} {part.switch} {pair[0]:>4} -> {pair[1]:<4}  {label_pair(owner_by_port, part.switch, pair)}"
            for sign, pair in _sign_pairs(part)
        ]
        lines.append(_summarise_switch(part, select_in_scope(part)))
    return tuple(lines)


def make_plan_json(lab: Lab, plan: LabPlan) -> dict[str, Any]:
    """Return the plan for JSON documents: `has_changes`, and the circuits and steps of every switch."""
    owner_by_port = find_port_owners(lab)
    return {
        "has_changes": plan.has_changes,
        "switches": [_render_switch(owner_by_port, part) for part in plan.switches],
    }


def _render_switch(owner_by_port: Mapping[tuple[str, int], str], plan: SwitchPlan) -> dict[str, Any]:
    return {
        "switch": plan.switch,
        "revision": plan.snapshot.revision,
        "circuits": [
            {
                "change": _CHANGE_BY_SIGN[sign],
                "input_port": pair[0],
                "output_port": pair[1],
                "link": label_pair(owner_by_port, plan.switch, pair),
            }
            for sign, pair in _sign_pairs(plan)
        ],
        "steps": [
            {"kind": step.kind, "pairs": len(step.pairs), "estimated_s": step.estimated_s}
            for step in plan.steps
        ],
    }


def _sign_pairs(plan: SwitchPlan) -> list[tuple[str, Pair]]:
    """Return the signed pairs by input port. A removal comes before the pair that replaces it."""
    current_pairs, target_pairs = select_in_scope(plan), plan.target.pairs
    signed_pairs = [("-", pair) for pair in current_pairs - target_pairs]
    signed_pairs += [("+", pair) for pair in target_pairs - current_pairs]
    signed_pairs += [("=", pair) for pair in target_pairs & current_pairs]
    return sorted(signed_pairs, key=lambda signed_pair: (signed_pair[1][0], "-+=".index(signed_pair[0])))


def select_in_scope(plan: SwitchPlan) -> frozenset[Pair]:
    """Return the cross-connects that the switch held when read, at inputs that the lab may change."""
    pairs = plan.snapshot.connections.pairs
    return pairs if plan.scope is None else frozenset(pair for pair in pairs if pair[0] in plan.scope)


def _summarise_switch(plan: SwitchPlan, current_pairs: frozenset[Pair]) -> str:
    target_pairs = plan.target.pairs
    text = (
        f"{plan.switch}: {len(target_pairs - current_pairs)} to make, "
        f"{len(current_pairs - target_pairs)} to remove, {len(target_pairs & current_pairs)} kept"
    )
    foreign_count = len(plan.snapshot.connections) - len(current_pairs)
    if foreign_count:
        text += f", {foreign_count} of others untouched"
    if not plan.steps:
        return f"{text}; nothing to do"
    duration_s = sum(step.estimated_s for step in plan.steps)
    text += f"; {format_count(len(plan.steps), 'step')}, about {duration_s:.2g} s of device time"
    disturbed_count = len(
        (target_pairs & current_pairs) & frozenset().union(*(step.disturbed for step in plan.steps))
    )
    return text + (f"; the {disturbed_count} kept may lose light meanwhile" if disturbed_count else "")
