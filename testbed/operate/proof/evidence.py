"""Evidence of a proof: readings of switches, kernels and receivers, probe frames and pings of one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import TransportError
from testbed.lab.hosts.fleet import run_where_possible
from testbed.lab.hosts.kernel_state import KernelState, read_kernels
from testbed.lab.hosts.probe import ProbeReport, probe_links
from testbed.lab.hosts.reachability import Reachability, ping_sets
from testbed.lab.hosts.receivers import read_receivers
from testbed.lab.model import Lab
from testbed.operate.boards import find_board_links, ping_boards
from testbed.operate.light import SwitchReading, read_ports
from testbed.operate.model import Circuit, LabPlan
from testbed.operate.plan import list_board_ports, list_used_ports
from testbed.operate.proof.reach_findings import RoundTrip
from testbed.operate.proof.receivers import ReadingByReceiver

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet


MAX_ATTEMPTS = 3
LINKS, KERNELS, RECEIVERS, PINGS = "link probe", "kernel state", "receivers", "pings"
"""Parts of a proof that run on hosts."""
WINDOW_S = 0.25
"""Time for which hosts listen after the last probe frame. Frames need microseconds, but busy hosts need more."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a proof judges.

    `unreachable` maps switches and hosts that do not answer to the reason. `reached` holds the results of pings for
    each set of routes. `changing` names switches whose circuits changed during every attempt to read the lab.
    `failures` maps hosts that answer to the parts of the proof that they could not run, each with the reason. `boards`
    says for each port of a board, by label, whether it answers its host.
    """

    switches: Mapping[str, SwitchReading]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    probe: ProbeReport | None = None
    kernels: Mapping[str, KernelState] = field(default_factory=dict)
    received: ReadingByReceiver = field(default_factory=dict)
    reached: tuple[Reachability, ...] = ()
    changing: tuple[str, ...] = ()
    failures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    boards: Mapping[str, bool] = field(default_factory=dict)

    @property
    def unprobed(self) -> frozenset[str]:
        """Hosts that answer but could not run the link probe."""
        return frozenset(host for host, parts in self.failures.items() if LINKS in parts)


def gather(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    fleet: Fleet | None,
    *,
    epoch: int,
    unreachable: Mapping[str, str],
    pings: Mapping[RoundTrip, int] | None = None,
) -> Evidence:
    """Read switches and hosts and return the evidence. Nothing is changed.

    `pings` is the number of pings for each way. Without it, kernels, receivers and packets are left out. If circuits
    change between the read of a switch and the end of the hosts' parts, everything is read again, up to `MAX_ATTEMPTS`
    times in all. A host that cannot run a part is left out of that part alone. A host that can run none of several
    parts counts as off.
    """
    evidence = Evidence({})
    for _ in range(MAX_ATTEMPTS):
        readings, silent_switches = _read_switches(lab, plan.circuits, switches)
        all_unreachable = {**unreachable, **silent_switches}
        if fleet is None:
            return Evidence(readings, all_unreachable)
        evidence = _gather_from_hosts(lab, plan, fleet, readings, all_unreachable, epoch=epoch, pings=pings)
        changed_switches = _find_changed_switches(readings, switches)
        if not changed_switches:
            return evidence
    return Evidence(readings, all_unreachable, changing=changed_switches)


def _read_switches(
    lab: Lab, circuits: tuple[Circuit, ...], switches: Mapping[str, OpticalSwitch]
) -> tuple[dict[str, SwitchReading], dict[str, str]]:
    """Return the readings of the switches that answer, and the errors of the others."""
    readings: dict[str, SwitchReading] = {}
    silent_switches: dict[str, str] = {}
    for name, switch in switches.items():
        circuit_ports = list_used_ports(circuit for circuit in circuits if circuit.switch == name)
        boards = {(name, port) for port in list_board_ports(lab, name)}
        try:
            readings |= read_ports(circuit_ports | boards, {name: switch})
        except TransportError as error:
            silent_switches[name] = str(error)
    return readings, silent_switches


def _find_changed_switches(
    readings: Mapping[str, SwitchReading], switches: Mapping[str, OpticalSwitch]
) -> tuple[str, ...]:
    """Return the switches whose circuits have changed since they were read."""
    return tuple(
        name
        for name, reading in readings.items()
        if switches[name].read().revision != reading.snapshot.revision
    )


def _gather_from_hosts(
    lab: Lab,
    plan: LabPlan,
    fleet: Fleet,
    readings: Mapping[str, SwitchReading],
    unreachable: Mapping[str, str],
    *,
    epoch: int,
    pings: Mapping[RoundTrip, int] | None,
) -> Evidence:
    names = [host.name for host in lab.hosts]
    connected_hosts = set(names[: plan.wiring.nodes])

    def ping(part: Fleet) -> tuple[Reachability, ...]:
        hosts = [host for host in part.hosts if host.name in connected_hosts]
        sets: list[dict[tuple[str, str], int]] = []
        for host_pair, count in sorted((pings or {}).items()):
            sets += [{} for _ in range(host_pair.set + 1 - len(sets))]
            sets[host_pair.set][names[host_pair.source], names[host_pair.target]] = count
        return ping_sets(part, sets, hosts=hosts, mtu=lab.link.mtu)

    parts: dict[str, Callable[[Fleet], Any]] = {
        LINKS: lambda part: probe_links(part, lab, epoch, window_s=WINDOW_S)
    }
    if pings is not None:
        parts |= {
            KERNELS: lambda part: read_kernels(part, lab),
            RECEIVERS: lambda part: read_receivers(part, lab),
            PINGS: ping,
        }
    # The probe mostly waits, and no part disturbs another.
    links = find_board_links(lab, {name: reading.snapshot.connections for name, reading in readings.items()})
    with ThreadPoolExecutor(max_workers=len(parts) + 1) as pool:
        futures = {name: pool.submit(run_where_possible, run, fleet) for name, run in parts.items()}
        boards = pool.submit(run_where_possible, lambda part: ping_boards(part, links), fleet)
        answers = {name: future.result()[0] for name, future in futures.items()}
    failures: dict[str, dict[str, str]] = {}
    for name, future in futures.items():
        for host, reason in future.result()[1].items():
            failures.setdefault(host, {})[name] = reason
    off_hosts = {}
    for host, reasons in failures.items():
        own_parts = parts.keys() - (set() if host in connected_hosts else {PINGS})
        if len(own_parts) > 1 and reasons.keys() >= own_parts:
            off_hosts[host] = reasons[LINKS]
    return Evidence(
        readings,
        {**unreachable, **off_hosts},
        answers[LINKS],
        answers.get(KERNELS, {}),
        answers.get(RECEIVERS, {}),
        answers.get(PINGS, ()),
        failures={host: failures[host] for host in sorted(failures.keys() - off_hosts.keys())},
        boards=boards.result()[0],
    )
