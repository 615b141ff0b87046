"""The devices of a lab during a discovery: make circuits, set NICs up or down, read light, and restore the lab.

Only free ports and NICs that had no carrier are changed. Circuits and NICs in use are not touched.
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
from testbed.operate.discovery.model import NicKey, Observation, Port, Round
from testbed.operate.model import LabPlan, SwitchPlan

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet
    from testbed.operate.journal import Journal

_NO_WIRING = Wiring(0, 0, simplex=True, links=())


class Devices:
    """Switches and hosts of a lab whose rows may lack fibres.

    `settle_s` is the time in seconds that a NIC needs to gain or lose its carrier after a change. `circuit_changes`
    counts the applies that have changed circuits.
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
        self._discovery_circuits: set[tuple[Port, Port]] = set()
        self._down_nics: frozenset[NicKey] = frozenset()
        self.circuit_changes = 0

    def read_circuits(self) -> dict[Port, Port]:
        """Read all circuits that the switches hold, from input to output."""
        return {
            (name, source): (name, target)
            for name, switch in self._switches.items()
            for source, target in switch.read().connections.items()
        }

    def find_free_ports(self, circuits: Mapping[Port, Port]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return the inputs and outputs that are enabled, hold no circuit, and end no known fibre."""
        used_ports = set(circuits) | set(circuits.values()) | _find_wired_ports(self.lab)
        ports_by_side: dict[Side, list[Port]] = {Side.IN: [], Side.OUT: []}
        for name, switch in self._switches.items():
            for port, port_info in switch.ports().items():
                if port_info.state is PortState.ENABLED and (name, port) not in used_ports:
                    ports_by_side[port_info.side].append((name, port))
        return tuple(ports_by_side[Side.IN]), tuple(ports_by_side[Side.OUT])

    def remove_circuits(self, circuits: Iterable[tuple[Port, Port]]) -> None:
        """Remove circuits of an earlier discovery that was killed."""
        self._discovery_circuits = set(circuits)
        self._patch({})

    def find_down_interfaces(self) -> frozenset[NicKey]:
        """Return the NICs that are administratively down.

        Raises `HostError` if an interface does not exist or carries the management address.
        """
        read_macs(self._fleet)
        commands = {
            host.name: " && ".join(f"cat /sys/class/net/{nic.name}/flags" for nic in host.nics)
            for host in self.lab.hosts
        }
        results = self._fleet.run(commands)
        down_nics = set()
        for host in self.lab.hosts:
            flag_words = results[host.name].stdout.split()
            if len(flag_words) != len(host.nics):
                reason = results[host.name].stderr.strip() or "no answer"
                raise HostError(f"the interfaces of {host.name} cannot be read: {reason}", host=host.name)
            down_nics |= {
                (host.name, nic.name)
                for nic, flags in zip(host.nics, flag_words, strict=True)
                if not int(flags, 16) & 1
            }
        return frozenset(down_nics)

    def set_interfaces(self, nics: Collection[NicKey], *, is_up: bool) -> None:
        """Set NICs up or down, on all hosts in parallel. Raises `HostError`."""
        lines_by_host: dict[str, list[str]] = {}
        for host, nic in sorted(nics):
            lines_by_host.setdefault(host, []).append(f"link set dev {nic} {'up' if is_up else 'down'}")
        if not lines_by_host:
            return
        results = self._fleet.run(
            dict.fromkeys(lines_by_host, "ip -batch -"),
            stdin={host_name: "\n".join((*lines, "")) for host_name, lines in lines_by_host.items()},
        )
        failed_results = [result for result in results.values() if result.exit_status]
        if failed_results:
            problem = f"interfaces of {failed_results[0].host} cannot be switched: {failed_results[0].stderr.strip()}"
            raise HostError(f"{problem}; discovery needs root there", host=failed_results[0].host)
        self._down_nics = self._down_nics - set(nics) if is_up else self._down_nics | set(nics)

    def probe(self) -> ProbeReport:
        """Wait `settle_s`, then send and receive probe frames on all NICs, and return the report."""
        if self._settle_s:
            time.sleep(self._settle_s)
        return probe_links(self._fleet, self.lab, secrets.randbits(31))

    def run_round(self, round_: Round, monitored_ports: Collection[Port]) -> Observation:
        """Set the circuits and NICs of one round, and return the readings of monitors and NICs.

        Raises `DriftError` if somebody else changes circuits during the round, `HostError`, and the errors of
        `apply_plan`.
        """
        self._patch(round_.circuits)
        self.set_interfaces(self._down_nics - round_.down_nics, is_up=True)
        self.set_interfaces(round_.down_nics - self._down_nics, is_up=False)
        report = self.probe()
        is_lit_by_port = self._read_light(monitored_ports)
        lost_circuits = self._discovery_circuits - self.read_circuits().items()
        if lost_circuits:  # the observation may belong to other circuits
            (switch, source), (_, target) = min(lost_circuits)
            raise _make_drift_error(f"somebody else removed {switch}:{source} -> {target}")
        senders_by_nic = {
            nic: tuple((frame.host, frame.nic) for frame in nic_report.frames if frame.epoch == report.epoch)
            for nic, nic_report in report.nics.items()
        }
        active_reports = {
            nic: nic_report for nic, nic_report in report.nics.items() if nic not in round_.down_nics
        }
        return Observation(
            is_lit_by_port=is_lit_by_port,
            has_carrier_by_nic={nic: nic_report.has_carrier for nic, nic_report in active_reports.items()},
            senders_by_receiver={nic: senders for nic, senders in senders_by_nic.items() if senders},
            active_senders=frozenset(
                nic
                for nic, nic_report in active_reports.items()
                if nic_report.has_carrier and nic_report.sent_count
            ),
        )

    def restore(self, down_nics: Collection[NicKey]) -> None:
        """Remove the circuits of the discovery, set the NICs in `down_nics` down and all others up."""
        try:
            self._patch({})
        finally:
            self.set_interfaces(self._down_nics - set(down_nics), is_up=True)
            self.set_interfaces(set(down_nics) - self._down_nics, is_up=False)

    def _read_light(self, ports: Collection[Port]) -> dict[Port, bool]:
        is_lit_by_port: dict[Port, bool] = {}
        for name, switch in self._switches.items():
            switch_ports = sorted(port for switch_name, port in ports if switch_name == name)
            if switch_ports and switch.capabilities.power_monitor:
                for number, power in switch.power(switch_ports).items():
                    if power is not None:
                        is_lit_by_port[name, number] = not power.below_floor
        return is_lit_by_port

    def _patch(self, circuits: Mapping[Port, Port]) -> None:
        """Replace the circuits of the last round by `circuits` on all switches."""
        target_circuits = set(circuits.items())
        if target_circuits == self._discovery_circuits:
            return
        with ThreadPoolExecutor(max_workers=max(1, len(self._switches))) as pool:
            switch_plans = tuple(pool.map(lambda name: self._plan_switch(name, circuits), self._switches))
        plan = LabPlan(
            _NO_WIRING, (), tuple(switch_plan for switch_plan in switch_plans if switch_plan.steps)
        )
        self._discovery_circuits |= target_circuits  # a failed apply may leave circuits of both rounds
        if plan.switches:
            apply_plan(self.lab, plan, self._switches, self._journal)
            self.circuit_changes += 1
        self._discovery_circuits = target_circuits

    def _plan_switch(self, name: str, circuits: Mapping[Port, Port]) -> SwitchPlan:
        """Return the plan of one switch. Its scope holds only circuits of the last and of the next round."""
        switch = self._switches[name]
        target_outputs = {source[1]: output[1] for source, output in circuits.items() if source[0] == name}
        discovery_pairs = {
            (source[1], output[1]) for source, output in self._discovery_circuits if source[0] == name
        }
        snapshot = switch.read()
        foreign_pairs = snapshot.connections.pairs - discovery_pairs
        conflicts = [
            f"{name}:{pair[0]} -> {pair[1]}" for pair in sorted(foreign_pairs) if pair[0] in target_outputs
        ]
        if conflicts:
            raise _make_drift_error(f"somebody else connected {conflicts[0]}")
        scope = frozenset(target_outputs) | {
            source for source, _ in snapshot.connections.pairs & discovery_pairs
        }
        return SwitchPlan(
            name,
            CrossConnects(target_outputs),
            scope,
            snapshot,
            switch.plan(CrossConnects(target_outputs), snapshot, scope),
        )


def _make_drift_error(problem: str) -> DriftError:
    hint = "circuits of others are not touched. Find out who patches, then run `testbed discover` again"
    return DriftError(f"{problem} during discovery; {hint}")


def _find_wired_ports(lab: Lab) -> set[Port]:
    """Return the switch ports of the NICs whose two fibres are known."""
    fibre_ends = [(nic.transmit, nic.receive) for host in lab.hosts for nic in host.nics]
    return {(end.switch, end.port) for pair in fibre_ends if UNKNOWN_FIBRE not in pair for end in pair}
