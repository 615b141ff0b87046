"""Follow one packet through the lab: which NICs, which switch ports, how much light at each; and as the kernels do.

`follow_path` is the planned way; `kernel_path` asks each host on the way where its kernel sends the packet next, and
the switches where that light goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.design.model import Link, Nic
from testbed.errors import TopologyError
from testbed.lab.hosts.forwarding import read_macs
from testbed.lab.model import Lab
from testbed.operate.light import held_circuits
from testbed.operate.plan import circuits_of
from testbed.operate.session import Design, LabSession


@dataclass(frozen=True, slots=True)
class Hop:
    """One link of a path; `patched` says whether the switch holds this cross-connect now.

    Powers are None where the switch has no monitor.
    """

    sender: str
    receiver: str
    switch: str
    input_port: int
    output_port: int
    patched: bool
    input_dbm: float | None
    output_dbm: float | None


def follow_path(session: LabSession, design: Design, source: int, target: int) -> tuple[Hop, ...]:
    """Return the hops from node `source` to node `target` under a design, with what the switches say now.

    Raises the switches' errors.
    """
    lab = session.lab
    circuits = {circuit.link: circuit for circuit in circuits_of(lab, design.wiring)}
    links = design.routes.path(source, target)
    hops = []
    for circuit in (circuits[link] for link in links):
        switch = session.switches[circuit.switch]
        ports = (circuit.input_port, circuit.output_port)
        power = switch.power(ports) if switch.capabilities.power_monitor else {}
        readings = [power.get(port) for port in ports]
        hops.append(
            Hop(
                sender=lab.nic_label(circuit.link.source),
                receiver=lab.nic_label(circuit.link.target),
                switch=circuit.switch,
                input_port=circuit.input_port,
                output_port=circuit.output_port,
                patched=switch.read().connections.get(circuit.input_port) == circuit.output_port,
                input_dbm=readings[0].dbm if readings[0] else None,
                output_dbm=readings[1].dbm if readings[1] else None,
            )
        )
    return tuple(hops)


@dataclass(frozen=True, slots=True)
class KernelHop:
    """One link that the kernel of a host chooses; `gateway` is the address of its next hop."""

    sender: str
    receiver: str
    gateway: str


@dataclass(frozen=True, slots=True)
class KernelPath:
    """The way of a packet by the kernels; `end` says why it does not arrive, and is empty if it does."""

    hops: tuple[KernelHop, ...]
    end: str
    differs: bool


def kernel_path(session: LabSession, design: Design, source: int, target: int) -> KernelPath | None:
    """Return the way that kernels and circuits give a packet now; None where hosts are only modelled.

    Raises the switches' errors and `HostError`.
    """
    if session.fleet is None:
        return None
    lab = session.lab
    snapshots = {name: switch.read() for name, switch in session.switches.items()}
    links = {circuit.link.source: circuit.link for circuit in held_circuits(lab, snapshots)}
    asking = _Asking(session, links, read_macs(session.fleet))
    hops, end = asking.follow(source, target)
    planned = [
        (lab.nic_label(link.source), lab.nic_label(link.target))
        for link in design.routes.path(source, target)
    ]
    differs = bool(end) or [(hop.sender, hop.receiver) for hop in hops] != planned
    return KernelPath(tuple(hops), end, differs)


@dataclass(frozen=True)
class _Asking:
    """The questions on the way: to hosts by the session, where light goes, and which NIC has which MAC address."""

    session: LabSession
    links: Mapping[Nic, Link]
    macs: Mapping[str, Mapping[str, str]]

    def follow(self, source: int, target: int) -> tuple[list[KernelHop], str]:
        """Return the hops as far as they lead, and why they end before the target."""
        lab = self.session.lab
        hops: list[KernelHop] = []
        here, arrived_at = source, ""
        while here != target:
            if len(hops) == len(lab.hosts):
                return hops, "the packet goes in a circle"
            hop, next_nic, end = self._next(source, target, here, arrived_at)
            hops += [hop] if hop else []
            if end or next_nic is None:
                return hops, end
            here, arrived_at = next_nic.node, lab.nic(next_nic).name
        return hops, ""

    def _next(
        self, source: int, target: int, here: int, arrived_at: str
    ) -> tuple[KernelHop | None, Nic | None, str]:
        """Return the link that a packet takes from a host, the NIC it arrives at, and why it goes no further."""
        lab, host = self.session.lab, self.session.lab.hosts[here]
        address = str(lab.hosts[target].address)
        how = f"from {lab.hosts[source].address} iif {arrived_at}" if arrived_at else ""
        answer, neighbours, error = self._ask(host.name, f"ip -j -4 route get {address} {how}")
        if not answer or "dev" not in answer:
            return None, None, f"{host.name} does not send it on: {error or 'the route drops'}"
        device = str(answer["dev"])
        out = next((Nic(here, k) for k, nic in enumerate(host.nics) if nic.name == device), None)
        if out is None:
            return None, None, f"{host.name} sends it out of {device}, which is no optical link"
        link = self.links.get(out)
        if link is None:
            return None, None, f"no circuit leads on from {lab.nic_label(out)}"
        gateway = str(answer.get("gateway", address))
        hop = KernelHop(lab.nic_label(out), lab.nic_label(link.target), gateway)
        mac = self.macs[lab.hosts[link.target.node].name][lab.nic(link.target).name]
        found = neighbours.get((device, gateway))
        if found != mac:
            return hop, None, f"{host.name} has neighbour {gateway} at {found}, and {hop.receiver} is {mac}"
        return hop, link.target, ""

    def _ask(self, host: str, command: str) -> tuple[dict[str, Any], dict[tuple[str, str], str], str]:
        """Return the route that a kernel chooses, its neighbours, and its error."""
        assert self.session.fleet is not None
        both = f"{command} || echo '[]'; echo; ip -j -4 neigh show"
        (done,) = self.session.fleet.run({host: both}).values()
        routes, _, neighbours = done.stdout.partition("\n\n")
        found = json.loads(routes or "[]")
        table = {
            (one["dev"], one["dst"]): str(one.get("lladdr", "")) for one in json.loads(neighbours or "[]")
        }
        return (found[0] if found else {}), table, done.stderr.strip()


def node_named(lab: Lab, name: str) -> int:
    """Return the number of a host. Raises `TopologyError` for one that the lab file does not name."""
    names = [host.name for host in lab.hosts]
    if name not in names:
        raise TopologyError(f"{lab.path}: no host {name!r}; hosts are {', '.join(names)}")
    return names.index(name)


def describe_kernel_path(path: KernelPath | None) -> list[str]:
    """Return as lines for people where the kernels' way differs from the planned one; one line if it does not."""
    if path is None:
        return []
    if not path.differs:
        return ["the kernels send it this way"]
    lines = ["the kernels send it ANOTHER WAY:"]
    lines += [f"{n}. {hop.sender} -> {hop.receiver}  via {hop.gateway}" for n, hop in enumerate(path.hops, 1)]
    return [*lines, *([path.end] if path.end else [])]


def describe_path(hops: Sequence[Hop]) -> list[str]:
    """Return the hops as lines for people."""
    lines = [f"{len(hops)} hop{'s' if len(hops) != 1 else ''}"]
    for number, hop in enumerate(hops, start=1):
        power = f"{_dbm(hop.input_dbm)} -> {_dbm(hop.output_dbm)}"
        patched = "" if hop.patched else "  NOT PATCHED"
        lines.append(
            f"{number}. {hop.sender} -> {hop.receiver}  {hop.switch} {hop.input_port} -> {hop.output_port}  "
            f"{power}{patched}"
        )
    return lines


def _dbm(power: float | None) -> str:
    return "no monitor" if power is None else f"{power:.1f} dBm"
