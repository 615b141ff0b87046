"""Fibres that are lost now: what the switches' monitors see, and whether the hosts' NICs have carrier.

Both are asked in one round trip each, without probe frames: somebody waits for the traffic to come back.

    no light at the switch's input               the transmit fibre, or the laser, of the source
    light leaves the switch, no carrier there    the receive fibre of the target
    no monitor, no carrier                       either of the two; neither NIC is to be trusted
    lit input, nothing leaves, or no circuit     not a fibre: `testbed apply` first
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.model import Power, Snapshot
from testbed.design.model import Link, Nic
from testbed.errors import HostError
from testbed.lab.model import Lab, LabHost
from testbed.operate.light import SwitchReading, held_circuits, read_ports
from testbed.operate.model import Circuit
from testbed.operate.plan import own_ports

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

Fibre = Literal["transmit", "receive"]
Verdict = Literal["lit", "transmit", "receive", "either", "unpatched"]
Carriers = Mapping[Nic, bool]
"""Whether each NIC of the lab receives light, by its own word."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A lost fibre: the NIC at its end, which fibre of it, and the link it was to carry.

    Where no monitor can tell, both fibres of a link are named, neither of them `sure`.
    """

    nic: Nic
    fibre: Fibre
    link: Link
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at a lab: lost fibres, links that carry data, circuits that are not there or shut.

    `held` are the links that the switches hold between the lab's NICs, of the topology or not; `seen` is all that
    the switches held.
    """

    losses: tuple[Loss, ...]
    carrying: frozenset[Link]
    held: frozenset[Link]
    unpatched: tuple[Circuit, ...]
    seen: Mapping[str, Snapshot]


def look(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch], fleet: Fleet | None
) -> Sight:
    """Ask hosts and switches, and judge. Without a fleet (hosts only modelled) receive fibres are not judged.

    Links of hosts that a partial fleet does not reach, and circuits of switches that are not given, are not judged.
    Raises the drivers' errors and `HostError`.
    """
    carriers = read_carriers(fleet, lab) if fleet else {}
    # Light last: of a transmit fibre cut in between, the switch tells which it is, and an old carrier does no harm.
    readings = read_ports(own_ports(lab), switches)
    held = held_circuits(lab, {name: reading.snapshot for name, reading in readings.items()})
    judged = [_judged(lab, some, readings, fleet) for some in (circuits, held)]
    return judge_losses(judged[0], judged[1], readings, carriers)


def _judged(
    lab: Lab, circuits: Iterable[Circuit], readings: Mapping[str, SwitchReading], fleet: Fleet | None
) -> tuple[Circuit, ...]:
    """Return the circuits whose switch was read and of whose hosts none is off: their lasers may be dark."""
    reached = {host.name for host in fleet.hosts} if fleet else {host.name for host in lab.hosts}
    return tuple(
        circuit
        for circuit in circuits
        if circuit.switch in readings and reached.issuperset(lab.hosts[nic.node].name for nic in circuit.link)
    )


def read_carriers(fleet: Fleet, lab: Lab) -> dict[Nic, bool]:
    """Return whether each NIC of the hosts reached has carrier, as the kernel says now. Raises `HostError`."""
    done = fleet.run({host.name: _carrier_command(host) for host in fleet.hosts})
    carriers: dict[Nic, bool] = {}
    for node, host in enumerate(lab.hosts):
        if host.name not in done:
            continue
        words = done[host.name].stdout.split()
        if len(words) != len(host.nics):
            said = done[host.name].stderr.strip() or "no answer"
            what = f"the carriers of {host.name} cannot be read ({said})"
            raise HostError(f"{what}; does it have the NICs of the lab file?", host=host.name)
        carriers |= {Nic(node, index): word == "1" for index, word in enumerate(words)}
    return carriers


def _carrier_command(host: LabHost) -> str:
    """Return a command that prints one word a NIC; one that is down cannot be read and counts as dark."""
    paths = shlex.join(f"/sys/class/net/{nic.name}" for nic in host.nics)
    return f"for nic in {paths}; do test -d $nic && {{ cat $nic/carrier 2>/dev/null || echo 0; }}; done; true"


def judge_losses(
    planned: tuple[Circuit, ...],
    held: tuple[Circuit, ...],
    readings: Mapping[str, SwitchReading],
    carriers: Carriers,
) -> Sight:
    """Return what is lost, by what was read, of circuits that are planned and of others that are held. Pure.

    A NIC whose receiver is dark does not send either, so its own link carries nothing, but is not lost.
    """
    circuits = tuple(dict.fromkeys((*planned, *held)))
    verdicts = {circuit: _verdict(circuit, readings[circuit.switch], carriers) for circuit in circuits}
    lit = {circuit.link.target for circuit in held if verdicts[circuit] == "lit"}
    deaf = {circuit.link.target for circuit in circuits} - lit
    return Sight(
        losses=tuple(
            loss for circuit, verdict in verdicts.items() for loss in _losses(circuit.link, verdict)
        ),
        carrying=frozenset(
            circuit.link for circuit in held if verdicts[circuit] == "lit" and circuit.link.source not in deaf
        ),
        held=frozenset(circuit.link for circuit in held),
        unpatched=tuple(circuit for circuit in planned if verdicts[circuit] == "unpatched"),
        seen={name: reading.snapshot for name, reading in readings.items()},
    )


def _losses(link: Link, verdict: Verdict) -> tuple[Loss, ...]:
    transmit, receive = Loss(link.source, "transmit", link), Loss(link.target, "receive", link)
    if verdict == "either":
        return replace(transmit, sure=False), replace(receive, sure=False)
    return {"transmit": (transmit,), "receive": (receive,)}.get(verdict, ())


def _verdict(circuit: Circuit, reading: SwitchReading, carriers: Carriers) -> Verdict:
    entering, leaving = (reading.power.get(port) for port in (circuit.input_port, circuit.output_port))
    if _is_dark(entering):
        return "transmit"
    if reading.snapshot.connections.get(circuit.input_port) != circuit.output_port:
        return "unpatched"
    if _is_dark(leaving):
        return "unpatched" if entering else "transmit"
    if carriers.get(circuit.link.target, True):
        return "lit"
    return "receive" if entering or leaving else "either"


def _is_dark(power: Power | None) -> bool:
    return power is not None and power.below_floor
