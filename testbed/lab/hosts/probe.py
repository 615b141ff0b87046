"""The link probe: every NIC sends frames with its name, and reports whose frames it receives."""

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
_POLL_S = 0.25


class Frame(NamedTuple):
    """The content of a probe frame: its sender, and the epoch of the probe."""

    host: str
    nic: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NicReport:
    """Report of one NIC: its carrier, the number of frames that it sent, and the frames that it received.

    `counters` holds the interface's counts during the probe, by Linux name (`rx_packets`).
    """

    carrier: bool
    sent: int
    frames: tuple[Frame, ...]
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The reports of one probe of a lab, by (host, NIC)."""

    epoch: int
    nics: Mapping[tuple[str, str], NicReport]


def probe_links(fleet: Fleet, lab: Lab, epoch: int, *, window_s: float = 0.4) -> ProbeReport:
    """Run the probe on all hosts of the fleet. Hosts send once all listen, and stop once all have sent.

    Hosts listen for another `window_s` after the last host has sent. Raises `HostError` naming the hosts on which the
    probe does not run.
    """
    program = resources.files("testbed.node").joinpath("probe.py").read_bytes()
    path = f"{fleet.put({'probe.py': program})}/probe.py"
    reached = {host.name for host in fleet.hosts}
    commands = {host.name: _make_command(host, path, epoch) for host in lab.hosts if host.name in reached}
    with fleet.start(commands) as launch:
        collect(launch, "ready", set(commands), PROBE)
        launch.send("go\n")
        collect(launch, "sent", set(commands), PROBE)
        for _ in launch.lines(window_s):
            pass  # no line is expected here, and `collect` reports a host that ends
        launch.close_input()
        reports = collect(launch, "heard", set(commands), PROBE)
    return ProbeReport(
        epoch,
        {
            (host, nic): NicReport(
                bool(entry["carrier"]),
                int(entry["sent"]),
                tuple(Frame(*frame) for frame in entry["frames"]),
                dict(entry["counters"]),
            )
            for host, report in reports.items()
            for nic, entry in report["nics"].items()
        },
    )


def _make_command(host: LabHost, path: str, epoch: int) -> str:
    stderr_ends = [host.python, "-IS", path, "--host", host.name, "--epoch", str(epoch)]
    return shlex.join([*stderr_ends, *(nic.name for nic in host.nics)])


def collect(launch: Launch, event: str, hosts: set[str], subject: str) -> dict[str, dict[str, Any]]:
    """Return the message with this `event` from every host.

    Raises `HostError` naming the hosts that did not send it in time; `subject` names the program in the error.
    """
    messages: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + READY_TIMEOUT_S
    can_complete = True
    while can_complete and time.monotonic() < deadline:
        running = set(launch.running)  # read first, so that the last lines of an ended command still arrive
        for host, line in launch.lines(_POLL_S):
            message = _parse_message(line)
            if message.get("event") == event:
                messages[host] = message
            if len(messages) == len(hosts) or time.monotonic() > deadline:
                break
        can_complete = not running.isdisjoint(hosts - messages.keys())
    if silent := sorted(hosts - messages.keys()):
        raise _make_silence_error(launch, event, silent, subject)
    return messages


def _parse_message(line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _make_silence_error(launch: Launch, event: str, silent: list[str], subject: str) -> HostError:
    """Return the error that names the silent hosts and the end of the stderr of each program that ended."""
    launch.close_input()
    try:
        results = launch.wait(2.0)
    except HostError:
        results = {}
    stderr_ends = {host: results[host].stderr.strip()[-200:] if host in results else "" for host in silent}
    hosts_by_end: dict[str, list[str]] = {}
    for host, last_line in stderr_ends.items():
        hosts_by_end.setdefault(f" ({last_line})" if last_line else "", []).append(host)
    silent_text = "; ".join(", ".join(hosts) + last_line for last_line, hosts in hosts_by_end.items())
    message = (
        f"{subject} is not '{event}' on {silent_text}; it needs root, Python 3 and the NICs of the lab file"
    )
    return HostError(
        message,
        reasons={host: last_line or f"not '{event}' in time" for host, last_line in stderr_ends.items()},
    )
