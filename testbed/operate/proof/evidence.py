"""Evidence of a proof: what switches, kernels, receivers, probe frames and pings say of a lab at one time."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import TransportError
from testbed.lab.hosts.kernel_state import KernelState, read_kernels
from testbed.lab.hosts.probe import ProbeReport, probe_links
from testbed.lab.hosts.reachability import Reachability, ping_all
from testbed.lab.hosts.receivers import read_receivers
from testbed.lab.model import Lab
from testbed.operate.light import SwitchReading, read_light
from testbed.operate.model import Circuit, LabPlan
from testbed.operate.proof.receivers import Readings

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

ATTEMPTS = 3
WINDOW_S = 0.25
"""Time that hosts listen on after the last one has spoken: frames need microseconds, busy hosts more."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a proof looks at; `off` says why a switch or a host, by its name, was not asked.

    `changing` are switches whose circuits changed at every attempt to look at them.
    """

    switches: Mapping[str, SwitchReading]
    off: Mapping[str, str] = field(default_factory=dict)
    probe: ProbeReport | None = None
    kernels: Mapping[str, KernelState] = field(default_factory=dict)
    received: Readings = field(default_factory=dict)
    reached: Reachability | None = None
    changing: tuple[str, ...] = ()


def gather(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    fleet: Fleet | None,
    *,
    epoch: int,
    off: Mapping[str, str],
    kernels: bool,
) -> Evidence:
    """Look at everything; of the hosts' kernels and pings only with `kernels`. Nothing is changed anywhere.

    Where circuits changed between reading a switch and hearing the hosts, all is looked at again.
    Raises `HostError` when a host that was reached does not answer any more.
    """
    evidence = Evidence({})
    for _ in range(ATTEMPTS):
        readings, silent = _read_switches(plan.circuits, switches)
        off_now = {**off, **silent}
        if fleet is None:
            return Evidence(readings, off_now)
        evidence = _with_hosts(lab, plan, fleet, readings, off_now, epoch=epoch, kernels=kernels)
        changing = _changed(readings, switches)
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


def _changed(readings: Mapping[str, SwitchReading], switches: Mapping[str, OpticalSwitch]) -> tuple[str, ...]:
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
    kernels: bool,
) -> Evidence:
    if not kernels:
        return Evidence(readings, off, probe_links(fleet, lab, epoch))
    joined = {host.name for host in lab.hosts[: plan.wiring.nodes]}
    asked = [host for host in fleet.hosts if host.name in joined]
    with ThreadPoolExecutor(max_workers=3) as pool:  # the probe mostly waits, and none disturbs another
        states = pool.submit(read_kernels, fleet, lab)
        light = pool.submit(read_receivers, fleet, lab)
        pings = pool.submit(ping_all, fleet, hosts=asked)
        probe = probe_links(fleet, lab, epoch, window_s=WINDOW_S)
        return Evidence(readings, off, probe, states.result(), light.result(), pings.result())
