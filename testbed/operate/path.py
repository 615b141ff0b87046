"""The path of a packet through the lab, as planned and as the kernels forward it.

`follow_path` returns the planned path with switch ports and optical powers. `trace_kernel_path` asks the kernel of each
host on the way for its next hop, and the switches where the light goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightbed.wording import format_count
from ocs_drivers.contract import OpticalSwitch
from testbed.design.model import Link, Nic
from testbed.errors import TopologyError
from testbed.lab.hosts.forwarding import read_macs
from testbed.lab.model import Lab
from testbed.operate.design import Design
from testbed.operate.light import find_held_circuits
from testbed.operate.model import Circuit
from testbed.operate.plan import list_circuits
from testbed.operate.session import LabSession


@dataclass(frozen=True, slots=True)
class Hop:
    """One link of a path, with the circuit that carries it.

    `patched` says whether the switch holds the circuit now, or is None if the switch does not answer. Powers are None
    if the switch has no monitor.
    """

    sender: str
    receiver: str
    switch: str
    input_port: int
    output_port: int
    patched: bool | None
    input_dbm: float | None
    output_dbm: float | None


def follow_path(session: LabSession, design: Design, source: int, target: int) -> tuple[Hop, ...]:
    """Return the hops from node `source` to node `target` of a design, with the current readings of the switches.

    Raises the switches' errors.
    """
    lab = session.lab
    circuits = {circuit.link: circuit for circuit in list_circuits(lab, design.wiring)}
    links = design.routes.path(source, target)
    hops = []
    for circuit in (circuits[link] for link in links):
        is_held, input_dbm, output_dbm = _read_circuit(session.switches.get(circuit.switch), circuit)
        hops.append(
            Hop(
                sender=lab.nic_label(circuit.link.source),
                receiver=lab.nic_label(circuit.link.target),
                switch=circuit.switch,
                input_port=circuit.input_port,
                output_port=circuit.output_port,
                patched=is_held,
                input_dbm=input_dbm,
                output_dbm=output_dbm,
            )
        )
    return tuple(hops)


def _read_circuit(
    switch: OpticalSwitch | None, circuit: Circuit
) -> tuple[bool | None, float | None, float | None]:
    """Return whether the switch holds a circuit, and the power in dBm at its input and output.

    Without a switch, all three are None. Without a monitor, the powers are None.
    """
    if switch is None:
        return None, None, None
    ports = (circuit.input_port, circuit.output_port)
    power = switch.power(ports) if switch.capabilities.power_monitor else {}
    input_power, output_power = (power.get(port) for port in ports)
    is_held = switch.read().connections.get(circuit.input_port) == circuit.output_port
    return is_held, input_power.dbm if input_power else None, output_power.dbm if output_power else None


@dataclass(frozen=True, slots=True)
class KernelHop:
    """One link that the kernel of a host chooses. `gateway` is the address of the next hop."""

    sender: str
    receiver: str
    gateway: str


@dataclass(frozen=True, slots=True)
class KernelPath:
    """The path by which the kernels forward a packet.

    `stop_reason` says why the packet does not arrive, or is empty. `differs_from_plan` is True if the path is not the
    planned path.
    """

    hops: tuple[KernelHop, ...]
    stop_reason: str
    differs_from_plan: bool


def trace_kernel_path(session: LabSession, design: Design, source: int, target: int) -> KernelPath | None:
    """Return the current path of a packet through kernels and circuits, or None if hosts are modelled.

    Raises the switches' errors and `HostError`.
    """
    if session.fleet is None:
        return None
    lab = session.lab
    snapshots = {name: switch.read() for name, switch in session.switches.items()}
    link_by_source = {circuit.link.source: circuit.link for circuit in find_held_circuits(lab, snapshots)}
    tracer = _KernelTracer(session, link_by_source, read_macs(session.fleet))
    hops, stop_reason = tracer.trace(source, target)
    planned_hops = [
        (lab.nic_label(link.source), lab.nic_label(link.target))
        for link in design.routes.path(source, target)
    ]
    differs = bool(stop_reason) or [(hop.sender, hop.receiver) for hop in hops] != planned_hops
    return KernelPath(tuple(hops), stop_reason, differs)


@dataclass(frozen=True)
class _KernelTracer:
    """Tracer of a packet from host to host.

    `link_by_source` is keyed by the sending NIC, `macs_by_host` by host and NIC.
    """

    session: LabSession
    link_by_source: Mapping[Nic, Link]
    macs_by_host: Mapping[str, Mapping[str, str]]

    def trace(self, source: int, target: int) -> tuple[list[KernelHop], str]:
        """Return the hops, and why they end before the target, or "" if they reach it."""
        lab = self.session.lab
        hops: list[KernelHop] = []
        current_node, input_nic = source, ""
        while current_node != target:
            if len(hops) == len(lab.hosts):
                return hops, "the packet runs in a loop"
            hop, next_nic, stop_reason = self._find_next_hop(source, target, current_node, input_nic)
            hops += [hop] if hop else []
            if stop_reason or next_nic is None:
                return hops, stop_reason
            current_node, input_nic = next_nic.node, lab.get_nic(next_nic).name
        return hops, ""

    def _find_next_hop(
        self, source: int, target: int, current_node: int, input_nic: str
    ) -> tuple[KernelHop | None, Nic | None, str]:
        """Return the link that a packet takes from a host, the NIC at its end, and why the packet goes no further."""
        lab, host = self.session.lab, self.session.lab.hosts[current_node]
        if host.name in self.session.unreachable:
            return None, None, f"{host.name} does not answer: its next hop is unknown"
        address = str(lab.hosts[target].address)
        options = f"from {lab.hosts[source].address} iif {input_nic}" if input_nic else ""
        route, mac_by_neighbour, error = self._query_host(
            host.name, f"ip -j -4 route get {address} {options}"
        )
        if not route or "dev" not in route:
            return None, None, f"{host.name} does not forward the packet: {error or 'its route drops it'}"
        device = str(route["dev"])
        output_nic = next(
            (Nic(current_node, index) for index, nic in enumerate(host.nics) if nic.name == device), None
        )
        if output_nic is None:
            return None, None, f"{host.name} sends the packet out of {device}, which is not an optical link"
        link = self.link_by_source.get(output_nic)
        if link is None:
            switch = lab.get_nic(output_nic).transmit.switch
            silent_note = f": {switch} does not answer" if switch in self.session.unreachable else ""
            return None, None, f"no circuit leads on from {lab.nic_label(output_nic)}{silent_note}"
        gateway = str(route.get("gateway", address))
        hop = KernelHop(lab.nic_label(output_nic), lab.nic_label(link.target), gateway)
        stop_reason = self._explain_refusal(
            link.target, gateway, mac_by_neighbour.get((device, gateway)), host.name
        )
        return hop, None if stop_reason else link.target, stop_reason

    def _explain_refusal(self, target: Nic, gateway: str, neighbour_mac: str | None, sender: str) -> str:
        """Return "" if a NIC accepts a frame for a neighbour, else why it drops the frame or why that is unknown."""
        lab, target_label = self.session.lab, self.session.lab.nic_label(target)
        host = lab.hosts[target.node].name
        if host in self.session.unreachable:
            return f"{host} does not answer: it is unknown whether the packet arrives"
        mac = self.macs_by_host[host][lab.get_nic(target).name]
        if neighbour_mac == mac:
            return ""
        return f"{sender} has neighbour {gateway} at {neighbour_mac}, but {target_label} has {mac}"

    def _query_host(self, host: str, command: str) -> tuple[dict[str, Any], dict[tuple[str, str], str], str]:
        """Return the route that the kernel of a host chooses, its neighbours by device and address, and its error."""
        assert self.session.fleet is not None
        full_command = f"{command} || echo '[]'; echo; ip -j -4 neigh show"
        (result,) = self.session.fleet.run({host: full_command}).values()
        routes_text, _, neighbours_text = result.stdout.partition("\n\n")
        routes = json.loads(routes_text or "[]")
        mac_by_neighbour = {
            (entry["dev"], entry["dst"]): str(entry.get("lladdr", ""))
            for entry in json.loads(neighbours_text or "[]")
        }
        return (routes[0] if routes else {}), mac_by_neighbour, result.stderr.strip()


def find_node(lab: Lab, name: str) -> int:
    """Return the node of a host. Raises `TopologyError` for a host that the lab file does not name."""
    names = [host.name for host in lab.hosts]
    if name not in names:
        raise TopologyError(f"{lab.path}: no host {name!r}; hosts are {', '.join(names)}")
    return names.index(name)


def describe_kernel_path(path: KernelPath | None) -> list[str]:
    """Return the kernels' path as lines of text: one line if it is as planned, no line without a path."""
    if path is None:
        return []
    if not path.differs_from_plan:
        return ["the kernels forward packets on this path"]
    lines = ["the kernels forward packets on ANOTHER PATH:"]
    lines += [
        f"{hop_number}. {hop.sender} -> {hop.receiver}  via {hop.gateway}"
        for hop_number, hop in enumerate(path.hops, 1)
    ]
    return [*lines, *([path.stop_reason] if path.stop_reason else [])]


def describe_path(hops: Sequence[Hop]) -> list[str]:
    """Return the hops as lines of text."""
    lines = [format_count(len(hops), "hop")]
    for hop_number, hop in enumerate(hops, start=1):
        power = f"{_format_dbm(hop.input_dbm)} -> {_format_dbm(hop.output_dbm)}"
        patched_text = {True: "", False: "  NOT PATCHED", None: f"  {hop.switch} DOES NOT ANSWER"}[
            hop.patched
        ]
        lines.append(
            f"{hop_number}. {hop.sender} -> {hop.receiver}  {hop.switch} {hop.input_port} -> {hop.output_port}  "
            f"{power}{patched_text}"
        )
    return lines


def _format_dbm(power: float | None) -> str:
    return "no monitor" if power is None else f"{power:.1f} dBm"
