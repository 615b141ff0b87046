"""Reachability, and over how many links: every host pings every other, all at once."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from testbed.errors import HostError
from testbed.lab.model import LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

# Linux sends echo replies with TTL 64; every host that forwards takes one off.
INITIAL_TTL = 64


@dataclass(frozen=True, slots=True)
class Reachability:
    """`answered` holds (asker, asked); `hops[a, b]` is the number of links on the path from a to b.

    Hops are read from the TTL of the reply, so `hops[a, b]` is there when b asked a and was answered.
    `slowest_s` is the longest time from a host's first question until an answer, lost ones included.
    """

    hosts: tuple[str, ...]
    answered: frozenset[tuple[str, str]]
    hops: dict[tuple[str, str], int]
    slowest_s: float

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """Pairs (asker, asked) without an answer."""
        pairs = ((a, b) for a in self.hosts for b in self.hosts if a != b)
        return tuple(pair for pair in pairs if pair not in self.answered)

    @property
    def is_complete(self) -> bool:
        """True if every host reached every other."""
        return not self.missing


def ping_all(
    fleet: Fleet, *, deadline_s: float = 2.0, hosts: Sequence[LabHost] | None = None
) -> Reachability:
    """Return who answers when every host (of `hosts`, or all) pings the node address of every other.

    Returns as soon as all have answered.

    Raises `HostError` when the ping cannot be run on a host at all.
    """
    program = resources.files("testbed.node").joinpath("ping.py").read_bytes()
    path = f"{fleet.put({'ping.py': program})}/ping.py"
    asked = fleet.hosts if hosts is None else tuple(hosts)
    commands = {host.name: _command(host, path, asked, deadline_s) for host in asked}
    done = fleet.run(commands, timeout_s=deadline_s + 30.0)
    failed = {host: result.stderr.strip()[-200:] for host, result in done.items() if result.exit_status != 0}
    if failed:
        said = "; ".join(f"{host}: {words}" for host, words in failed.items())
        raise HostError(f"ping cannot be run on {said}; it needs root and Python 3 there", reasons=failed)
    return _read(asked, {host: json.loads(result.stdout) for host, result in done.items()})


def _command(host: LabHost, path: str, hosts: tuple[LabHost, ...], deadline_s: float) -> str:
    others = [str(other.address) for other in hosts if other is not host]
    return shlex.join([host.python, "-IS", path, "--deadline", f"{deadline_s:g}", *others])


def _read(hosts: tuple[LabHost, ...], answers: dict[str, dict[str, dict[str, float] | None]]) -> Reachability:
    names = {str(host.address): host.name for host in hosts}
    replies = {
        (asker, names[address]): reply
        for asker, asked in answers.items()
        for address, reply in asked.items()
        if reply is not None
    }
    return Reachability(
        hosts=tuple(host.name for host in hosts),
        answered=frozenset(replies),
        hops={
            (asked, asker): INITIAL_TTL + 1 - int(reply["ttl"]) for (asker, asked), reply in replies.items()
        },
        slowest_s=max((reply["seconds"] for reply in replies.values()), default=0.0),
    )
