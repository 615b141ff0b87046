"""Reachability of hosts, over how many links, and what passes on the way: every host tries every other, all at once."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from testbed.lab.hosts.probe import collect
from testbed.lab.model import LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

# Linux sends echo replies with TTL 64; every host that forwards takes one off.
INITIAL_TTL = 64
IP_AND_ICMP_BYTES = 28
TRIAL = "the trial of all ways"
PORTS = range(20000, 32768)
"""Below those that kernels give to clients."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reachability:
    """`answered` holds (asker, asked); `hops[a, b]` is the number of links on the path from a to b.

    Hops are read from the TTL of the reply, so `hops[a, b]` is there when b asked a and was answered.
    `slowest_s` is the longest time from a host's first question until an answer, lost ones included. Of pairs that
    answered, `lost` holds how many pings of how many were lost; through those in `small_only` no ping of the full size
    came back, and through those `without_tcp` no exchange over TCP.
    """

    hosts: tuple[str, ...]
    answered: frozenset[Pair]
    hops: dict[Pair, int]
    slowest_s: float
    lost: Mapping[Pair, tuple[int, int]] = field(default_factory=dict)
    small_only: frozenset[Pair] = frozenset()
    without_tcp: frozenset[Pair] = frozenset()

    @property
    def missing(self) -> tuple[Pair, ...]:
        """Pairs (asker, asked) without an answer."""
        pairs = ((a, b) for a in self.hosts for b in self.hosts if a != b)
        return tuple(pair for pair in pairs if pair not in self.answered)

    @property
    def is_complete(self) -> bool:
        """True if every host reached every other."""
        return not self.missing


def ping_all(
    fleet: Fleet,
    *,
    deadline_s: float = 2.0,
    hosts: Sequence[LabHost] | None = None,
    mtu: int = 0,
    count: int = 0,
) -> Reachability:
    """Return who answers when every host (of `hosts`, or all) pings the node address of every other.

    With an `mtu` each pair also tries one ping of the full size that may not be fragmented, and a short exchange over
    TCP; with a `count` so many pings tell how many are lost. Returns as soon as all have answered.

    Raises `HostError` when the ping cannot be run on a host at all.
    """
    program = resources.files("testbed.node").joinpath("ping.py").read_bytes()
    path = f"{fleet.put({'ping.py': program})}/ping.py"
    asked = fleet.hosts if hosts is None else tuple(hosts)
    more = ["--count", str(count)]
    if mtu:
        more += ["--size", str(mtu - IP_AND_ICMP_BYTES), "--port", str(random.choice(PORTS))]
    commands = {host.name: _command(host, path, asked, deadline_s, more) for host in asked}
    with fleet.start(commands) as launch:
        collect(launch, "ready", set(commands), TRIAL)
        launch.send("go\n")
        told = collect(launch, "ways", set(commands), TRIAL)  # each serves the others until all have told
        launch.close_input()
    return _read(asked, told)


def _command(
    host: LabHost, path: str, hosts: tuple[LabHost, ...], deadline_s: float, more: Sequence[str]
) -> str:
    others = [str(other.address) for other in hosts if other is not host]
    own = ["--bind", str(host.address)]
    return shlex.join([host.python, "-IS", path, "--deadline", f"{deadline_s:g}", *own, *more, *others])


def _read(hosts: tuple[LabHost, ...], told: dict[str, dict[str, Any]]) -> Reachability:
    names = {str(host.address): host.name for host in hosts}
    replies = {
        (asker, names[address]): reply
        for asker, answer in told.items()
        for address, reply in answer["ways"].items()
        if reply is not None
    }
    listening = {host for host, answer in told.items() if answer["listens"]}
    return Reachability(
        hosts=tuple(host.name for host in hosts),
        answered=frozenset(replies),
        hops={
            (asked, asker): INITIAL_TTL + 1 - int(reply["ttl"]) for (asker, asked), reply in replies.items()
        },
        slowest_s=max((reply["seconds"] for reply in replies.values()), default=0.0),
        lost={
            pair: (reply["sent"] - reply["received"], reply["sent"])
            for pair, reply in replies.items()
            if reply["sent"]
        },
        small_only=frozenset(pair for pair, reply in replies.items() if reply["large"] is False),
        without_tcp=frozenset(
            pair for pair, reply in replies.items() if reply["tcp"] is False and pair[1] in listening
        ),
    )
