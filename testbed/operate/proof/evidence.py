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
LINKS_PART, KERNELS_PART, RECEIVERS_PART, PINGS_PART = "link probe", "kernel state", "receivers", "pings"
"""Parts of a proof that run on hosts."""
LISTEN_WINDOW_S = 0.25
"""Time for which hosts listen after the last probe frame. Frames need microseconds, but busy hosts need more."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a proof judges.

    `unreachable_reasons` maps switches and hosts that do not answer to the reason. `reached` holds the results of
    pings for each set of routes. `changing` names switches whose circuits changed during every attempt to read the
    lab. `failures_by_host` maps hosts that answer to the parts of the proof that they could not run, each with the
    reason. `has_answer_by_label` says for each port of a board, by label, whether it answers its host.
    """

    reading_by_switch: Mapping[str, SwitchReading]
    unreachable_reasons: Mapping[str, str] = field(default_factory=dict)
    probe_report: ProbeReport | None = None
    kernel_by_host: Mapping[str, KernelState] = field(default_factory=dict)
    received: ReadingByReceiver = field(default_factory=dict)
    reached: tuple[Reachability, ...] = ()
    changing: tuple[str, ...] = ()
    failures_by_host: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    has_answer_by_label: Mapping[str, bool] = field(default_factory=dict)

    @property
    def unprobed_hosts(self) -> frozenset[str]:
        """Hosts that answer but could not run the link probe."""
        return frozenset(host for host, parts in self.failures_by_host.items() if LINKS_PART in parts)


def gather_evidence(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    fleet: Fleet | None,
    *,
    epoch: int,
    unreachable_reasons: Mapping[str, str],
    ping_count_by_trip: Mapping[RoundTrip, int] | None = None,
) -> Evidence:
    """Read switches and hosts and return the evidence. Nothing is changed.

    `ping_count_by_trip` is the number of pings for each round trip. Without it, kernels, receivers and packets are
    left out. If circuits change between the read of a switch and the end of the hosts' parts, everything is read
    again, up to `MAX_ATTEMPTS` times in all. A host that cannot run a part is left out of that part alone. A host that
    can run none of several parts counts as off.
    """
    evidence = Evidence({})
    for _ in range(MAX_ATTEMPTS):
        readings, silent_switches = _read_switches(lab, plan.circuits, switches)
        all_unreachable = {**unreachable_reasons, **silent_switches}
        if fleet is None:
            return Evidence(readings, all_unreachable)
        evidence = _gather_from_hosts(
            lab, plan, fleet, readings, all_unreachable, epoch=epoch, ping_count_by_trip=ping_count_by_trip
        )
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
        board_ports = {(name, port) for port in list_board_ports(lab, name)}
        try:
            readings |= read_ports(circuit_ports | board_ports, {name: switch})
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
    unreachable_reasons: Mapping[str, str],
    *,
    epoch: int,
    ping_count_by_trip: Mapping[RoundTrip, int] | None,
) -> Evidence:
    host_names = [host.name for host in lab.hosts]
    connected_hosts = set(host_names[: plan.wiring.nodes])

    def ping(hosts_of_part: Fleet) -> tuple[Reachability, ...]:
        hosts = [host for host in hosts_of_part.hosts if host.name in connected_hosts]
        counts_by_set: list[dict[tuple[str, str], int]] = []
        for round_trip, ping_count in sorted((ping_count_by_trip or {}).items()):
            counts_by_set += [{} for _ in range(round_trip.set_number + 1 - len(counts_by_set))]
            counts_by_set[round_trip.set_number][
                host_names[round_trip.source], host_names[round_trip.target]
            ] = ping_count
        return ping_sets(hosts_of_part, counts_by_set, hosts=hosts, mtu=lab.link.mtu)

    task_by_part: dict[str, Callable[[Fleet], Any]] = {
        LINKS_PART: lambda hosts_of_part: probe_links(hosts_of_part, lab, epoch, window_s=LISTEN_WINDOW_S)
    }
    if ping_count_by_trip is not None:
        task_by_part |= {
            KERNELS_PART: lambda hosts_of_part: read_kernels(hosts_of_part, lab),
            RECEIVERS_PART: lambda hosts_of_part: read_receivers(hosts_of_part, lab),
            PINGS_PART: ping,
        }
    # The probe mostly waits, and no part disturbs another.
    board_links = find_board_links(
        lab, {name: reading.snapshot.connections for name, reading in readings.items()}
    )
    with ThreadPoolExecutor(max_workers=len(task_by_part) + 1) as pool:
        future_by_part = {
            name: pool.submit(run_where_possible, task, fleet) for name, task in task_by_part.items()
        }
        boards_future = pool.submit(
            run_where_possible, lambda hosts_of_part: ping_boards(hosts_of_part, board_links), fleet
        )
        result_by_part = {name: future.result()[0] for name, future in future_by_part.items()}
    failures_by_host: dict[str, dict[str, str]] = {}
    for name, future in future_by_part.items():
        for host, reason in future.result()[1].items():
            failures_by_host.setdefault(host, {})[name] = reason
    reason_by_off_host = {}
    for host, reason_by_part in failures_by_host.items():
        host_parts = task_by_part.keys() - (set() if host in connected_hosts else {PINGS_PART})
        if len(host_parts) > 1 and reason_by_part.keys() >= host_parts:
            reason_by_off_host[host] = reason_by_part[LINKS_PART]
    return Evidence(
        readings,
        {**unreachable_reasons, **reason_by_off_host},
        result_by_part[LINKS_PART],
        result_by_part.get(KERNELS_PART, {}),
        result_by_part.get(RECEIVERS_PART, {}),
        result_by_part.get(PINGS_PART, ()),
        failures_by_host={
            host: failures_by_host[host]
            for host in sorted(failures_by_host.keys() - reason_by_off_host.keys())
        },
        has_answer_by_label=boards_future.result()[0],
    )
