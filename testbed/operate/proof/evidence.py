"""Evidence of a proof: what switches, kernels, receivers, probe frames and pings say of a lab at one time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import TransportError
from testbed.errors import HostError
from testbed.lab.hosts.fleet import PartOfFleet
from testbed.lab.hosts.kernel_state import KernelState, read_kernels
from testbed.lab.hosts.probe import ProbeReport, probe_links
from testbed.lab.hosts.reachability import Reachability, ping_sets
from testbed.lab.hosts.receivers import read_receivers
from testbed.lab.model import Lab
from testbed.operate.light import SwitchReading, read_light
from testbed.operate.model import Circuit, LabPlan
from testbed.operate.proof.reach_findings import Way
from testbed.operate.proof.receivers import Readings

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

T = TypeVar("T")

ATTEMPTS = 3
LINKS, KERNELS, RECEIVERS, PINGS = "link probe", "kernel state", "receivers", "pings"
"""Parts of a proof that hosts do."""
WINDOW_S = 0.25
"""Time that hosts listen on after the last one has spoken: frames need microseconds, busy hosts more."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a proof looks at; `off` says why a switch or a host, by its name, was not asked.

    `reached` is what pings tell of each set of routes.
    `changing` are switches whose circuits changed at every attempt to look at them. `failures` are the parts of the
    proof that a host which answers could not do, each with the reason.
    """

    switches: Mapping[str, SwitchReading]
    off: Mapping[str, str] = field(default_factory=dict)
    probe: ProbeReport | None = None
    kernels: Mapping[str, KernelState] = field(default_factory=dict)
    received: Readings = field(default_factory=dict)
    reached: tuple[Reachability, ...] = ()
    changing: tuple[str, ...] = ()
    failures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def unprobed(self) -> frozenset[str]:
        """Hosts that sent no probe frame and heard none."""
        return frozenset(host for host, parts in self.failures.items() if LINKS in parts)


def gather(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    fleet: Fleet | None,
    *,
    epoch: int,
    off: Mapping[str, str],
    pings: Mapping[Way, int] | None = None,
) -> Evidence:
    """Look at everything; at the kernels of hosts, and at packets, only with `pings`. Nothing is changed.

    So many `pings` of each way tell how many are lost. Where circuits changed between reading a switch and hearing the
    hosts, all is looked at again.
    A host that cannot do a part of it is left out of that part alone; one that can do none is off.
    """
    evidence = Evidence({})
    for _ in range(ATTEMPTS):
        readings, silent = _read_switches(plan.circuits, switches)
        off_now = {**off, **silent}
        if fleet is None:
            return Evidence(readings, off_now)
        evidence = _with_hosts(lab, plan, fleet, readings, off_now, epoch=epoch, pings=pings)
        changing = _find_changed(readings, switches)
        if not changing:
            return evidence
    return Evidence(readings, off_now, changing=changing)


def _read_switches(
    circuits: tuple[Circuit, ...], switches: Mapping[str, OpticalSwitch]
) -> tuple[dict[str, SwitchReading], dict[str, str]]:
    """Return the readings of the switches that answer, and why others do not."""
    readings: dict[str, SwitchReading] = {}
    silent: dict[str, str] = {}
    for name, switch in switches.items():
        own = [circuit for circuit in circuits if circuit.switch == name]
        try:
            readings |= read_light(own, {name: switch})
        except TransportError as error:
            silent[name] = str(error)
    return readings, silent


def _find_changed(
    readings: Mapping[str, SwitchReading], switches: Mapping[str, OpticalSwitch]
) -> tuple[str, ...]:
    """Return the switches that hold other circuits than when they were read."""
    return tuple(
        name
        for name, reading in readings.items()
        if switches[name].read().revision != reading.snapshot.revision
    )


def _with_hosts(
    lab: Lab,
    plan: LabPlan,
    fleet: Fleet,
    readings: Mapping[str, SwitchReading],
    off: Mapping[str, str],
    *,
    epoch: int,
    pings: Mapping[Way, int] | None,
) -> Evidence:
    names = [host.name for host in lab.hosts]
    joined = set(names[: plan.wiring.nodes])

    def ping(part: Fleet) -> tuple[Reachability, ...]:
        hosts = [host for host in part.hosts if host.name in joined]
        sets: list[dict[tuple[str, str], int]] = []
        for way, count in sorted((pings or {}).items()):
            sets += [{} for _ in range(way.set + 1 - len(sets))]
            sets[way.set][names[way.source], names[way.target]] = count
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
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        looks = {name: pool.submit(_look, look, fleet) for name, look in parts.items()}
        answers = {name: look.result()[0] for name, look in looks.items()}
    failures: dict[str, dict[str, str]] = {}
    for name, look in looks.items():
        for host, why in look.result()[1].items():
            failures.setdefault(host, {})[name] = why
    gone = {}
    for host, reasons in failures.items():
        own_parts = parts.keys() - (set() if host in joined else {PINGS})
        if len(own_parts) > 1 and reasons.keys() >= own_parts:
            gone[host] = reasons[LINKS]
    return Evidence(
        readings,
        {**off, **gone},
        answers[LINKS],
        answers.get(KERNELS, {}),
        answers.get(RECEIVERS, {}),
        answers.get(PINGS, ()),
        failures={host: failures[host] for host in sorted(failures.keys() - gone.keys())},
    )


def _look(look: Callable[[Fleet], T], fleet: Fleet) -> tuple[T, dict[str, str]]:
    """Return what a part of the proof says of the hosts that can do it, and why others cannot."""
    reasons: dict[str, str] = {}
    while True:
        able = tuple(host for host in fleet.hosts if host.name not in reasons)
        try:
            return look(PartOfFleet(fleet, able) if reasons else fleet), reasons
        except HostError as error:
            if reasons.keys() >= error.reasons.keys():
                raise
            reasons |= error.reasons
