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

PROBE_TITLE = "the link probe"
READY_TIMEOUT_S = 20.0
_POLL_INTERVAL_S = 0.25


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

    has_carrier: bool
    sent_count: int
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
    reached_hosts = {host.name for host in fleet.hosts}
    command_by_host = {
        host.name: _make_command(host, path, epoch) for host in lab.hosts if host.name in reached_hosts
    }
    with fleet.start(command_by_host) as launch:
        collect_messages(launch, "ready", set(command_by_host), PROBE_TITLE)
        launch.send("go\n")
        collect_messages(launch, "sent", set(command_by_host), PROBE_TITLE)
        for _ in launch.read_lines(window_s):
            pass  # no host prints a line here, and `collect_messages` reports a host whose program ends
        launch.close_input()
        message_by_host = collect_messages(launch, "heard", set(command_by_host), PROBE_TITLE)
    return ProbeReport(
        epoch,
        {
            (host, nic): NicReport(
                bool(entry["carrier"]),
                int(entry["sent"]),
                tuple(Frame(*frame) for frame in entry["frames"]),
                dict(entry["counters"]),
            )
            for host, message in message_by_host.items()
            for nic, entry in message["nics"].items()
        },
    )


def _make_command(host: LabHost, path: str, epoch: int) -> str:
    program_line = [host.python, "-IS", path, "--host", host.name, "--epoch", str(epoch)]
    return shlex.join([*program_line, *(nic.name for nic in host.nics)])


def collect_messages(launch: Launch, event: str, hosts: set[str], subject: str) -> dict[str, dict[str, Any]]:
    """Return the message with this `event` from every host.

    Raises `HostError` naming the hosts that did not send it in time; `subject` names the program in the error.
    """
    message_by_host: dict[str, dict[str, Any]] = {}
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    can_complete = True
    while can_complete and time.monotonic() < deadline_s:
        # Read this before the lines, so that the last lines of an ended command still arrive.
        running_hosts = set(launch.running)
        for host, line in launch.read_lines(_POLL_INTERVAL_S):
            message = _parse_message(line)
            if message.get("event") == event:
                message_by_host[host] = message
            if len(message_by_host) == len(hosts) or time.monotonic() > deadline_s:
                break
        can_complete = not running_hosts.isdisjoint(hosts - message_by_host.keys())
    if silent_hosts := sorted(hosts - message_by_host.keys()):
        raise _make_silence_error(launch, event, silent_hosts, subject)
    return message_by_host


def _parse_message(line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _make_silence_error(launch: Launch, event: str, silent_hosts: list[str], subject: str) -> HostError:
    """Return the error that names the silent hosts and the end of the stderr of each program that ended."""
    launch.close_input()
    try:
        result_by_host = launch.wait(2.0)
    except HostError:
        result_by_host = {}
    stderr_end_by_host = {
        host: result_by_host[host].stderr.strip()[-200:] if host in result_by_host else ""
        for host in silent_hosts
    }
    hosts_by_end: dict[str, list[str]] = {}
    for host, stderr_end in stderr_end_by_host.items():
        hosts_by_end.setdefault(f" ({stderr_end})" if stderr_end else "", []).append(host)
    silent_text = "; ".join(", ".join(hosts) + stderr_end for stderr_end, hosts in hosts_by_end.items())
    message = (
        f"{subject} is not '{event}' on {silent_text}; it needs root, Python 3 and the NICs of the lab file"
    )
    return HostError(
        message,
        reasons={
            host: stderr_end or f"not '{event}' in time" for host, stderr_end in stderr_end_by_host.items()
        },
    )
