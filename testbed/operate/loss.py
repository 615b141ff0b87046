"""Which fibres are lost now: what the switches' monitors see, and whether the hosts' NICs have carrier.

Both are asked in one round trip each, without probe frames: somebody waits for the traffic to come back.

    no light at the switch's input               the transmit fibre, or the laser, of the source
    light leaves the switch, no carrier there    the receive fibre of the target
    lit input, nothing leaves, or no circuit     not a fibre: `testbed apply` first
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ocs_drivers.contract import OpticalSwitch
from testbed.design.model import Link, Nic
from testbed.errors import HostError
from testbed.lab.fleet import Fleet
from testbed.lab.model import Lab, LabHost
from testbed.operate.light import SwitchReading, read_light
from testbed.operate.model import Circuit

Fibre = Literal["transmit", "receive"]
Verdict = Literal["lit", "transmit", "receive", "unpatched"]
Carriers = Mapping[Nic, bool]
"""Whether each NIC of the lab receives light, by its own word."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A lost fibre: the NIC at its end, which fibre of it, and the link it was to carry."""

    nic: Nic
    fibre: Fibre
    link: Link


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at a lab: lost fibres, links that carry nothing for their sake, circuits that are not there or shut."""

    losses: tuple[Loss, ...]
    dark: tuple[Link, ...]
    unpatched: tuple[Circuit, ...]


def look(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch], fleet: Fleet | None
) -> Sight:
    """Ask hosts and switches, and judge. Without a fleet (hosts only modelled) receive fibres are not judged.

    Raises the drivers' errors and `HostError`.
    """
    planned = tuple(circuits)
    carriers = read_carriers(fleet, lab) if fleet else {}
    # Light last: of a transmit fibre cut in between, the switch tells which it is, and an old carrier does no harm.
    return judge_losses(planned, read_light(planned, switches), carriers)


def read_carriers(fleet: Fleet, lab: Lab) -> dict[Nic, bool]:
    """Whether each NIC has carrier, as the kernel says at this moment. Raises `HostError`."""
    done = fleet.run({host.name: _carrier_command(host) for host in lab.hosts})
    carriers: dict[Nic, bool] = {}
    for node, host in enumerate(lab.hosts):
        words = done[host.name].stdout.split()
        if len(words) != len(host.nics):
            said = done[host.name].stderr.strip() or "no answer"
            what = f"the carriers of {host.name} cannot be read ({said})"
            raise HostError(f"{what}; does it have the NICs of the lab file?", host=host.name)
        carriers |= {Nic(node, index): word == "1" for index, word in enumerate(words)}
    return carriers


def _carrier_command(host: LabHost) -> str:
    """Prints one word a NIC; one that is down cannot be read and counts as dark."""
    paths = shlex.join(f"/sys/class/net/{nic.name}" for nic in host.nics)
    return f"for nic in {paths}; do test -d $nic && {{ cat $nic/carrier 2>/dev/null || echo 0; }}; done; true"


def judge_losses(
    circuits: tuple[Circuit, ...], readings: Mapping[str, SwitchReading], carriers: Carriers
) -> Sight:
    """What is lost, by what was read. Pure.

    A NIC whose receiver is dark does not send either, so its own link counts as dark, and not as lost.
    """
    verdicts = {circuit: _verdict(circuit, readings[circuit.switch], carriers) for circuit in circuits}
    losses = tuple(
        Loss(circuit.link.source if verdict == "transmit" else circuit.link.target, verdict, circuit.link)
        for circuit, verdict in verdicts.items()
        if verdict in ("transmit", "receive")
    )
    deaf = {loss.link.target for loss in losses}
    dark = (circuit.link for circuit in circuits if deaf.intersection(circuit.link))
    unpatched = (circuit for circuit, verdict in verdicts.items() if verdict == "unpatched")
    return Sight(losses, tuple(sorted(dark)), tuple(unpatched))


def _verdict(circuit: Circuit, reading: SwitchReading, carriers: Carriers) -> Verdict:
    entering, leaving = (reading.power.get(port) for port in (circuit.input_port, circuit.output_port))
    if entering and entering.below_floor:
        return "transmit"
    passes = reading.snapshot.connections.get(circuit.input_port) == circuit.output_port
    if not passes or (leaving and leaving.below_floor):
        return "unpatched"
    return "lit" if carriers.get(circuit.link.target, True) else "receive"
