"""Follow one packet through the lab: which NICs, which switch ports, how much light at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import TopologyError
from testbed.lab.model import Lab
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


def node_named(lab: Lab, name: str) -> int:
    """Return the number of a host. Raises `TopologyError` for one that the lab file does not name."""
    names = [host.name for host in lab.hosts]
    if name not in names:
        raise TopologyError(f"{lab.path}: no host {name!r}; hosts are {', '.join(names)}")
    return names.index(name)


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
