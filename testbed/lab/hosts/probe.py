"""Probe the fibres: every NIC says who it is, every NIC reports whom it hears, in one direction at a time."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from testbed.errors import HostError
from testbed.lab.model import Lab, LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet, Launch

PROBE = "the link probe"
READY_TIMEOUT_S = 20.0
_TURN_S = 0.25


class Frame(NamedTuple):
    """Sender that a probe frame names, and in which epoch it was sent."""

    host: str
    nic: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NicReport:
    """Report of one NIC: whether it has carrier, how many frames it could send, whom it heard.

    `counters` are its own counters while the probe ran, by their names in Linux (`rx_packets`), as far as it has them.
    """

    carrier: bool
    sent: int
    frames: tuple[Frame, ...]
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """One probe of a whole lab: by (host, NIC), what was heard in `epoch`."""

    epoch: int
    nics: Mapping[tuple[str, str], NicReport]


def probe_links(fleet: Fleet, lab: Lab, epoch: int, *, window_s: float = 0.4) -> ProbeReport:
    """Run the probe on all hosts that the fleet reaches: none speaks before all listen, none stops before all spoke.

    `window_s` is how long hosts listen on after the last one has spoken. Raises `HostError` naming the hosts
    where the probe does not run.
    """
    program = resources.files("testbed.node").joinpath("probe.py").read_bytes()
    path = f"{fleet.put({'probe.py': program})}/probe.py"
    reached = {host.name for host in fleet.hosts}
    commands = {host.name: _command(host, path, epoch) for host in lab.hosts if host.name in reached}
    with fleet.start(commands) as launch:
        collect(launch, "ready", set(commands), PROBE)
        launch.send("go\n")
        collect(launch, "sent", set(commands), PROBE)
        for _ in launch.lines(window_s):
            pass  # nobody says anything now; a host that ends is missed below
        launch.close_input()
        reports = collect(launch, "heard", set(commands), PROBE)
    return ProbeReport(
        epoch,
        {
            (host, nic): NicReport(
                bool(found["carrier"]),
                int(found["sent"]),
                tuple(Frame(*frame) for frame in found["frames"]),
                dict(found["counters"]),
            )
            for host, report in reports.items()
            for nic, found in report["nics"].items()
        },
    )


def _command(host: LabHost, path: str, epoch: int) -> str:
    words = [host.python, "-IS", path, "--host", host.name, "--epoch", str(epoch)]
    return shlex.join([*words, *(nic.name for nic in host.nics)])


def collect(launch: Launch, event: str, hosts: set[str], what: str) -> dict[str, dict[str, Any]]:
    """Return one `event` of every host, or `HostError` naming those where `what` was started did not say it."""
    said: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + READY_TIMEOUT_S
    is_hopeful = True
    while is_hopeful and time.monotonic() < deadline:
        running = set(launch.running)  # the last lines of the others come in this turn, if any do
        for host, line in launch.lines(_TURN_S):
            message = _message(line)
            if message.get("event") == event:
                said[host] = message
            if len(said) == len(hosts) or time.monotonic() > deadline:
                break
        is_hopeful = not running.isdisjoint(hosts - said.keys())
    if silent := sorted(hosts - said.keys()):
        raise _silence(launch, event, silent, what)
    return said


def _message(line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _silence(launch: Launch, event: str, silent: list[str], what: str) -> HostError:
    """Return the error that names the hosts and, for those whose program ended, its last words."""
    launch.close_input()
    try:
        done = launch.wait(2.0)
    except HostError:
        done = {}
    words = {host: done[host].stderr.strip()[-200:] if host in done else "" for host in silent}
    hosts_by_words: dict[str, list[str]] = {}
    for host, last in words.items():
        hosts_by_words.setdefault(f" ({last})" if last else "", []).append(host)
    where = "; ".join(", ".join(hosts) + last for last, hosts in hosts_by_words.items())
    message = f"{what} is not '{event}' on {where}; it needs root, Python 3 and the NICs of the lab file"
    return HostError(
        message, reasons={host: last or f"not '{event}' in time" for host, last in words.items()}
    )
