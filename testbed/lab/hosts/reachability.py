"""Reachability of hosts: every host pings every other in parallel, and tests packet sizes, losses, hops and TCP.

A host has an address for each set of routes, so that pings test each set separately.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from testbed.lab.hosts.forwarding import list_set_addresses
from testbed.lab.hosts.probe import collect_messages
from testbed.lab.model import LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

# Linux sends echo replies with TTL 64; every forwarding host decrements it.
INITIAL_TTL = 64
IP_AND_ICMP_BYTES = 28
COUNTED_PING_S, SMALL_PINGS_S = 0.005, 0.1
"""Seconds per counted ping (`ping.PING_PAUSE_S`), and for all other small pings."""
PING_TITLE = "the ping of all pairs"
TCP_PORTS = range(20000, 32768)
"""TCP ports, below the range that kernels assign to clients."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reachability:
    """Answers of hosts to pings of each other; pairs are (sender, target).

    `hop_count_by_pair[a, b]` is the number of links from a to b, derived from the TTL of a's reply to b.
    `longest_answer_s` is the longest time from a host's first ping to an answer, lost pings included. `loss_by_pair`
    maps pairs with an answer to their numbers of lost and sent pings. Pairs in `small_only_pairs` got no answer to
    full-size pings. Pairs in `pairs_without_tcp` completed no TCP exchange.
    """

    pairs: tuple[Pair, ...]
    answered_pairs: frozenset[Pair]
    hop_count_by_pair: dict[Pair, int]
    longest_answer_s: float
    loss_by_pair: Mapping[Pair, tuple[int, int]] = field(default_factory=dict)
    small_only_pairs: frozenset[Pair] = frozenset()
    pairs_without_tcp: frozenset[Pair] = frozenset()

    @property
    def missing_pairs(self) -> tuple[Pair, ...]:
        """Pairs (sender, target) without an answer."""
        return tuple(pair for pair in self.pairs if pair not in self.answered_pairs)

    @property
    def is_complete(self) -> bool:
        """True if all pairs have an answer."""
        return not self.missing_pairs


def ping_all(
    fleet: Fleet,
    *,
    deadline_s: float = 2.0,
    hosts: Sequence[LabHost] | None = None,
    mtu: int = 0,
    count: int = 0,
) -> Reachability:
    """Ping the node address of every host from every other, and return the answers. `hosts` defaults to the fleet.

    With an `mtu`, each pair also sends one full-size ping that must not be fragmented, and tries a short TCP exchange.
    With a `count`, that many more pings measure the loss. Returns as soon as all have answered. Raises `HostError` if
    the ping program fails on a host.
    """
    members = fleet.hosts if hosts is None else tuple(hosts)
    count_by_pair = {
        (sender.name, target.name): count for sender in members for target in members if sender is not target
    }
    (result,) = ping_sets(fleet, [count_by_pair], hosts=members, deadline_s=deadline_s, mtu=mtu)
    return result


def ping_sets(
    fleet: Fleet,
    ping_counts_by_set: Sequence[Mapping[Pair, int]],
    *,
    hosts: Sequence[LabHost],
    deadline_s: float = 2.0,
    mtu: int = 0,
) -> tuple[Reachability, ...]:
    """Ping the pairs of several sets of routes as `ping_all` does, and return one result per set.

    Each set maps pairs to their number of counted pings. Pairs outside `hosts` are skipped.
    """
    program = resources.files("testbed.node").joinpath("ping.py").read_bytes()
    path = f"{fleet.put({'ping.py': program})}/ping.py"
    size_options = []
    if mtu:
        small_pings_s = SMALL_PINGS_S + COUNTED_PING_S * max(
            (count for count_by_pair in ping_counts_by_set for count in count_by_pair.values()), default=0
        )
        size_options = ["--size", str(mtu - IP_AND_ICMP_BYTES), "--port", str(random.choice(TCP_PORTS))]
        size_options += ["--later", f"{small_pings_s:g}"]
    host_names = {host.name for host in hosts}
    addresses_by_host = {
        host.name: list(map(str, list_set_addresses(host)[: len(ping_counts_by_set)])) for host in hosts
    }
    command_by_host = {}
    for host in hosts:
        target_options = [
            f"{addresses_by_host[target][set_number]}={count}"
            for set_number, count_by_pair in enumerate(ping_counts_by_set)
            for (sender, target), count in count_by_pair.items()
            if sender == host.name and target in host_names
        ]
        bind_options = [option for address in addresses_by_host[host.name] for option in ("--bind", address)]
        program_line = [
            host.python,
            "-IS",
            path,
            "--deadline",
            f"{deadline_s:g}",
            *bind_options,
            *size_options,
            *target_options,
        ]
        command_by_host[host.name] = shlex.join(program_line)
    with fleet.start(command_by_host) as launch:
        collect_messages(launch, "ready", set(command_by_host), PING_TITLE)
        launch.send("go\n")
        answer_by_host = collect_messages(launch, "ways", set(command_by_host), PING_TITLE)
        # Only now, because each host serves the others until all are done.
        launch.close_input()
    return tuple(
        _make_reachability(
            tuple(pair for pair in count_by_pair if host_names.issuperset(pair)),
            {host_addresses[set_number]: host for host, host_addresses in addresses_by_host.items()},
            answer_by_host,
        )
        for set_number, count_by_pair in enumerate(ping_counts_by_set)
    )


def _make_reachability(
    pairs: tuple[Pair, ...], host_by_address: Mapping[str, str], answer_by_host: Mapping[str, dict[str, Any]]
) -> Reachability:
    """Return the reachability in one set of routes; `host_by_address` maps addresses in the set to hosts."""
    reply_by_pair = {
        (sender, host_by_address[address]): reply
        for sender, answer in answer_by_host.items()
        for address, reply in answer["ways"].items()
        if reply is not None and address in host_by_address
    }
    listeners = {
        host_by_address[address]
        for answer in answer_by_host.values()
        for address in answer["listens"]
        if address in host_by_address
    }
    return Reachability(
        pairs=pairs,
        answered_pairs=frozenset(reply_by_pair),
        hop_count_by_pair={
            (target, sender): INITIAL_TTL + 1 - int(reply["ttl"])
            for (sender, target), reply in reply_by_pair.items()
        },
        longest_answer_s=max((reply["seconds"] for reply in reply_by_pair.values()), default=0.0),
        loss_by_pair={
            pair: (reply["sent"] - reply["received"], reply["sent"])
            for pair, reply in reply_by_pair.items()
            if reply["sent"]
        },
        small_only_pairs=frozenset(pair for pair, reply in reply_by_pair.items() if reply["large"] is False),
        pairs_without_tcp=frozenset(
            pair for pair, reply in reply_by_pair.items() if reply["tcp"] is False and pair[1] in listeners
        ),
    )
