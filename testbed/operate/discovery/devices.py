"""The devices of a lab while its fibres are sought: circuits are made, NICs are switched, light is read, all is undone.

Only free ports are touched, and only NICs that had no carrier before: what others use is left as it is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.model import CrossConnects, PortState, Side
from testbed.design.model import Wiring
from testbed.errors import DriftError, HostError
from testbed.lab.hosts.forwarding import read_macs
from testbed.lab.hosts.probe import ProbeReport, probe_links
from testbed.lab.model import UNKNOWN_FIBRE, Lab
from testbed.operate.apply import apply_plan
from testbed.operate.discovery.model import NicName, Observation, Port, Round
from testbed.operate.model import LabPlan, SwitchPlan

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet
    from testbed.operate.journal import Journal

_NOTHING = Wiring(0, 0, simplex=True, links=())


class Devices:
    """Switches and hosts of a lab whose rows may lack fibres.

    `settle_s` is the time that a NIC needs to find or lose its carrier after a change.
    """

    def __init__(
        self,
        lab: Lab,
        switches: Mapping[str, OpticalSwitch],
        fleet: Fleet,
        journal: Journal,
        *,
        settle_s: float = 0.0,
    ) -> None:
        self.lab = lab
        self._switches = switches
        self._fleet = fleet
        self._journal = journal
        self._settle_s = settle_s
        self._ours: set[tuple[Port, Port]] = set()
        self._off: frozenset[NicName] = frozenset()
        self.circuit_changes = 0

    def read_held(self) -> dict[Port, Port]:
        """Return all circuits that the switches hold now."""
        return {
            (name, source): (name, target)
            for name, switch in self._switches.items()
            for source, target in switch.read().connections.items()
        }

    def free_ports(self, held: Mapping[Port, Port]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return inputs and outputs that carry no circuit, are fit for one, and end no fibre that is known."""
        used = set(held) | set(held.values()) | _find_wired_ports(self.lab)
        sides: dict[Side, list[Port]] = {Side.IN: [], Side.OUT: []}
        for name, switch in self._switches.items():
            for number, port in switch.ports().items():
                if port.state is PortState.ENABLED and (name, number) not in used:
                    sides[port.side].append((name, number))
        return tuple(sides[Side.IN]), tuple(sides[Side.OUT])

    def remove(self, circuits: Iterable[tuple[Port, Port]]) -> None:
        """Remove circuits of an earlier discovery that a crash has left."""
        self._ours = set(circuits)
        self._patch({})

    def interfaces_down(self) -> frozenset[NicName]:
        """Return NICs that are set down administratively.

        Raises `HostError` for an interface that is not there, and for one that carries the management address.
        """
        read_macs(self._fleet)
        commands = {
            host.name: " && ".join(f"cat /sys/class/net/{nic.name}/flags" for nic in host.nics)
            for host in self.lab.hosts
        }
        done = self._fleet.run(commands)
        down = set()
        for host in self.lab.hosts:
            words = done[host.name].stdout.split()
            if len(words) != len(host.nics):
                said = done[host.name].stderr.strip() or "no answer"
                raise HostError(f"the interfaces of {host.name} cannot be read: {said}", host=host.name)
            down |= {
                (host.name, nic.name)
                for nic, word in zip(host.nics, words, strict=True)
                if not int(word, 16) & 1
            }
        return frozenset(down)

    def set_interfaces(self, nics: Collection[NicName], *, up: bool) -> None:
        """Set NICs up or down, all hosts at once. Raises `HostError`."""
        by_host: dict[str, list[str]] = {}
        for host, nic in sorted(nics):
            by_host.setdefault(host, []).append(f"link set dev {nic} {'up' if up else 'down'}")
        if not by_host:
            return
        done = self._fleet.run(
            dict.fromkeys(by_host, "ip -batch -"),
            stdin={h: "\n".join((*lines, "")) for h, lines in by_host.items()},
        )
        failed = [result for result in done.values() if result.exit_status]
        if failed:
            what = f"interfaces of {failed[0].host} cannot be switched: {failed[0].stderr.strip()}"
            raise HostError(f"{what}; discovery needs root there", host=failed[0].host)
        self._off = self._off - set(nics) if up else self._off | set(nics)

    def probe(self) -> ProbeReport:
        """Send and hear probe frames on all NICs, after they had time to settle."""
        if self._settle_s:
            time.sleep(self._settle_s)
        return probe_links(self._fleet, self.lab, secrets.randbits(31))

    def show(self, round_: Round, monitored: Collection[Port]) -> Observation:
        """Carry out one round and return what it shows."""
        self._patch(round_.circuits)
        self.set_interfaces(self._off - round_.off, up=True)
        self.set_interfaces(round_.off - self._off, up=False)
        report = self.probe()
        lit = self._read_light(monitored)
        lost = self._ours - self.read_held().items()
        if lost:  # what was seen may be of other circuits
            (switch, source), (_, target) = min(lost)
            raise _interference(f"somebody else removed {switch}:{source} -> {target}")
        heard = {
            nic: tuple((frame.host, frame.nic) for frame in found.frames if frame.epoch == report.epoch)
            for nic, found in report.nics.items()
        }
        on = {nic: found for nic, found in report.nics.items() if nic not in round_.off}
        return Observation(
            lit=lit,
            carriers={nic: found.carrier for nic, found in on.items()},
            heard={nic: speakers for nic, speakers in heard.items() if speakers},
            spoke=frozenset(nic for nic, found in on.items() if found.carrier and found.sent),
        )

    def put_back(self, down: Collection[NicName]) -> None:
        """Remove our circuits and set interfaces as they were found."""
        try:
            self._patch({})
        finally:
            self.set_interfaces(self._off - set(down), up=True)
            self.set_interfaces(set(down) - self._off, up=False)

    def _read_light(self, ports: Collection[Port]) -> dict[Port, bool]:
        lit: dict[Port, bool] = {}
        for name, switch in self._switches.items():
            numbers = sorted(port for of, port in ports if of == name)
            if numbers and switch.capabilities.power_monitor:
                for number, power in switch.power(numbers).items():
                    if power is not None:
                        lit[name, number] = not power.below_floor
        return lit

    def _patch(self, circuits: Mapping[Port, Port]) -> None:
        """Take the switches from the circuits of the last round to these, journal first."""
        wanted = set(circuits.items())
        if wanted == self._ours:
            return
        with ThreadPoolExecutor(max_workers=max(1, len(self._switches))) as pool:
            parts = tuple(pool.map(lambda name: self._part(name, circuits), self._switches))
        moved = LabPlan(_NOTHING, (), tuple(part for part in parts if part.steps))
        self._ours |= wanted  # an apply that fails may leave some of both
        if moved.switches:
            apply_plan(self.lab, moved, self._switches, self._journal)
            self.circuit_changes += 1
        self._ours = wanted

    def _part(self, name: str, circuits: Mapping[Port, Port]) -> SwitchPlan:
        """Return the steps of one switch; the scope is what we have made and are to make, and nothing else."""
        switch = self._switches[name]
        target = {source[1]: output[1] for source, output in circuits.items() if source[0] == name}
        ours = {(source[1], output[1]) for source, output in self._ours if source[0] == name}
        seen = switch.read()
        foreign = seen.connections.pairs - ours
        taken = [f"{name}:{pair[0]} -> {pair[1]}" for pair in sorted(foreign) if pair[0] in target]
        if taken:
            raise _interference(f"somebody else connected {taken[0]}")
        scope = frozenset(target) | {source for source, _ in seen.connections.pairs & ours}
        return SwitchPlan(
            name, CrossConnects(target), scope, seen, switch.plan(CrossConnects(target), seen, scope)
        )


def _interference(what: str) -> DriftError:
    hint = "circuits of others are left alone. Find out who patches, then run discover again"
    return DriftError(f"{what} during discovery; {hint}")


def _find_wired_ports(lab: Lab) -> set[Port]:
    """Return ports of NICs whose two fibres are known."""
    ends = [(nic.transmit, nic.receive) for host in lab.hosts for nic in host.nics]
    return {(end.switch, end.port) for pair in ends if UNKNOWN_FIBRE not in pair for end in pair}
