"""Queues of NICs, held while jobs run: a process on each host puts back what was there when its input ends.

The input ends with the session, however that ends: our exit, an interrupt, a kill, a lost connection. After that
hosts that did not report are asked to restore, which does nothing where nothing is left.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from typing import Any

from testbed.errors import HostError
from testbed.lab.hosts.fleet import Fleet, Launch
from testbed.lab.model import Lab

SETTINGS = {
    "ipv4/tcp_slow_start_after_idle": 0,
    "ipv4/tcp_no_metrics_save": 1,
    "ipv4/tcp_rto_min_us": 20_000,
}
"""Kernel settings of hosts while jobs run; a kernel without one keeps its own."""
SET_S, RESTORE_S = 20.0, 10.0

Queues = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Rate, limit and shares by host and NIC."""


@contextmanager
def held_queues(fleet: Fleet, lab: Lab, queues: Queues) -> Iterator[None]:
    """Provide queues on NICs, and the kernel settings of their hosts; put back what was there before.

    Raises `HostError` naming hosts where they cannot be set, or could not be put back.
    """
    name = "queues.py"
    folder = fleet.put({name: resources.files("testbed.node").joinpath(name).read_bytes()})
    python = {host.name: host.python for host in lab.hosts}
    program = {host: [python[host], "-IS", f"{folder}/{name}"] for host in queues}
    said: dict[str, dict[str, Any]] = {}
    try:
        with fleet.start({host: shlex.join([*words, "hold"]) for host, words in program.items()}) as launch:
            for host, nics in queues.items():
                launch.send(json.dumps({"nics": nics, "sysctls": SETTINGS}) + "\n", host)
            _follow(launch, said, {"set"}, SET_S, len(queues))
            _check_set(said, queues)
            try:
                yield
            finally:
                launch.close_input()
                _follow(launch, said, {"restored"}, RESTORE_S, len(queues))
    finally:
        _restore(fleet, {host: words for host, words in program.items() if _is_left(said.get(host))})


def _follow(
    launch: Launch, said: dict[str, dict[str, Any]], wanted: set[str], timeout_s: float, hosts: int
) -> None:
    """Take lines until every host has said what is wanted, or an error, or the time has passed."""
    ends_at = time.monotonic() + timeout_s
    while (left_s := ends_at - time.monotonic()) > 0 and launch.running:
        if sum(one["event"] in wanted | {"error"} for one in said.values()) == hosts:
            return
        for host, line in launch.lines(min(0.2, left_s)):
            with suppress(ValueError):
                said[host] = json.loads(line)
            break


def _check_set(said: Mapping[str, Mapping[str, Any]], queues: Queues) -> None:
    for host in queues:
        found = said.get(host, {"event": "", "message": "nothing is heard from it"})
        if found["event"] != "set":
            why = found.get("message", "it ended")
            raise HostError(f"the queues of host {host} cannot be set: {why}", host=host)


def _is_left(said: Mapping[str, Any] | None) -> bool:
    return said is None or said["event"] != "restored"


def _restore(fleet: Fleet, programs: Mapping[str, list[str]]) -> None:
    """Restore hosts that did not report it. Raises `HostError`."""
    if not programs:
        return
    done = fleet.run({host: shlex.join([*words, "restore"]) for host, words in programs.items()})
    for host, one in done.items():
        if one.exit_status:
            what = one.stdout.strip() or one.stderr.strip()
            raise HostError(
                f"the queues of host {host} may not be as they were: {what}. Look there with `tc qdisc show`",
                host=host,
            )
