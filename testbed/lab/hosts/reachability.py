"""Reachability of hosts, over how many links, and what passes on the way: every host tries every other, all at once.

A host has an address for each set of routes, so that each set is tried by itself.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from testbed.lab.hosts.forwarding import set_addresses
from testbed.lab.hosts.probe import collect
from testbed.lab.model import LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

# Linux sends echo replies with TTL 64; every host that forwards takes one off.
INITIAL_TTL = 64
IP_AND_ICMP_BYTES = 28
PING_S, SMALL_S = 0.005, 0.1
"""Time of a ping that is counted (`ping.PAUSE_S`), and of what goes before and comes after."""
TRIAL = "the trial of all ways"
PORTS = range(20000, 32768)
"""Below those that kernels give to clients."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reachability:
    """Answers of hosts to one another; pairs are (asker, asked).

    `hops[a, b]` is the number of links on the path from a to b. It is read from the TTL of the reply, so it is there
    when b asked a and was answered.
    `slowest_s` is the longest time from a host's first question until an answer, lost ones included. Of pairs that
    answered, `lost` holds how many pings of how many were lost; through those in `small_only` no ping of the full size
    came back, and through those `without_tcp` no exchange over TCP.
    """

    asked: tuple[Pair, ...]
    answered: frozenset[Pair]
    hops: dict[Pair, int]
    slowest_s: float
    lost: Mapping[Pair, tuple[int, int]] = field(default_factory=dict)
    small_only: frozenset[Pair] = frozenset()
    without_tcp: frozenset[Pair] = frozenset()

    @property
    def missing(self) -> tuple[Pair, ...]:
        """Pairs (asker, asked) without an answer."""
        return tuple(pair for pair in self.asked if pair not in self.answered)

    @property
    def is_complete(self) -> bool:
        """True if everybody who was asked answered."""
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
    asked = fleet.hosts if hosts is None else tuple(hosts)
    everybody = {(a.name, b.name): count for a in asked for b in asked if a is not b}
    (reached,) = ping_sets(fleet, [everybody], hosts=asked, deadline_s=deadline_s, mtu=mtu)
    return reached


def ping_sets(
    fleet: Fleet,
    sets: Sequence[Mapping[Pair, int]],
    *,
    hosts: Sequence[LabHost],
    deadline_s: float = 2.0,
    mtu: int = 0,
) -> tuple[Reachability, ...]:
    """Return for each of several sets of routes what `ping_all` returns, of its pairs of these `hosts`.

    Each pair comes with the pings that are counted.
    """
    program = resources.files("testbed.node").joinpath("ping.py").read_bytes()
    path = f"{fleet.put({'ping.py': program})}/ping.py"
    more = []
    if mtu:
        alone_s = SMALL_S + PING_S * max((count for pairs in sets for count in pairs.values()), default=0)
        more = ["--size", str(mtu - IP_AND_ICMP_BYTES), "--port", str(random.choice(PORTS))]
        more += ["--later", f"{alone_s:g}"]
    names = {host.name for host in hosts}
    addresses = {host.name: list(map(str, set_addresses(host)[: len(sets)])) for host in hosts}
    commands = {}
    for host in hosts:
        ways = [
            f"{addresses[b][number]}={count}"
            for number, pairs in enumerate(sets)
            for (a, b), count in pairs.items()
            if a == host.name and b in names
        ]
        own = [word for address in addresses[host.name] for word in ("--bind", address)]
        program_line = [host.python, "-IS", path, "--deadline", f"{deadline_s:g}", *own, *more, *ways]
        commands[host.name] = shlex.join(program_line)
    with fleet.start(commands) as launch:
        collect(launch, "ready", set(commands), TRIAL)
        launch.send("go\n")
        told = collect(launch, "ways", set(commands), TRIAL)  # each serves the others until all have told
        launch.close_input()
    return tuple(
        _read(
            tuple(pair for pair in pairs if names.issuperset(pair)),
            {given[number]: host for host, given in addresses.items()},
            told,
        )
        for number, pairs in enumerate(sets)
    )


def _read(
    asked: tuple[Pair, ...], names: Mapping[str, str], told: Mapping[str, dict[str, Any]]
) -> Reachability:
    """Return what the hosts tell of one set of routes; `names` are the hosts by their addresses in it."""
    replies = {
        (asker, names[address]): reply
        for asker, answer in told.items()
        for address, reply in answer["ways"].items()
        if reply is not None and address in names
    }
    listening = {
        names[address] for answer in told.values() for address in answer["listens"] if address in names
    }
    return Reachability(
        asked=asked,
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
