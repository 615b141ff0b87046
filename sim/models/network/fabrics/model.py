"""A fabric of the simulator: one-way links with capacities, routes over them, a cost.

Vertices are numbered: hosts 0..nodes-1, then switches. A router computes the paths of many pairs at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import Cost

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_PAIR_BATCH_SIZE = 1 << 14
"""Number of pairs for which a router is called at once: its tables then stay in the processor's cache."""

Router = Callable[[Integers, Integers, Integers], Integers]
"""A function from sources, targets and choices, each (pairs,), to the links of each path, (pairs, longest).

Rows are padded with -1, also between links. A choice is any integer; it selects among equally good paths.
"""


@dataclass(frozen=True, slots=True)
class CyclicRouter:
    """A router for which choice c takes the path of c modulo `choice_count`, so that messages can share paths."""

    router: Router
    choice_count: int

    def __call__(self, sources: Integers, targets: Integers, choices: Integers) -> Integers:
        """Return the links of each path, as any router does."""
        return self.router(sources, targets, choices)

    @classmethod
    def with_choices_of(cls, original: Router, router: Router) -> Router:
        """Return `router`, with the number of choices of `original` if `original` has such a number."""
        return cls(router, original.choice_count) if isinstance(original, cls) else router


@dataclass(frozen=True, slots=True)
class Fabric:
    """Links `sources[l]` -> `targets[l]` of `capacity_bps[l]` bit/s, all (links,), and the paths over them.

    Several parallel lanes may count as one link; a single packet then crosses it at `lane_bps`. `never_full` (links,)
    marks links that other links keep from ever being full; these are left out of the sharing. With `hosts_forward`
    the inner vertices of a path are hosts (direct connect), otherwise switches. With `weights` (sets, nodes, nodes)
    every message is split: the share `weights[c, s, t]` of the bytes from s to t takes the path of choice c.
    """

    name: str
    node_count: int
    sources: Integers
    targets: Integers
    capacity_bps: Floats
    lane_bps: Floats
    never_full: NDArray[np.bool_]
    router: Router
    hosts_forward: bool
    cost: Cost
    domain_size: int = 1
    """Consecutive nodes that share the links of a host: the hosts are then the vertices from `node_count` on."""
    weights: Floats | None = None
    alternatives: tuple[int, Router] | None = None
    """Number of paths among which a hash may choose for a pair, and the router whose choice c is the c-th of these
    paths."""

    def __post_init__(self) -> None:
        columns = (self.targets, self.capacity_bps, self.lane_bps, self.never_full)
        if any(column.shape != self.sources.shape for column in columns):
            raise ValueError("sources, targets and capacities of a fabric must have one entry per link")
        if (~np.isfinite(self.capacity_bps) | (self.capacity_bps < 0)).any():
            raise ValueError("a link's capacity must be a finite number of bit/s, 0 or more")

    @property
    def choice_count(self) -> int | None:
        """Number of choices that the router distinguishes; None if it may distinguish all."""
        return self.router.choice_count if isinstance(self.router, CyclicRouter) else None

    @property
    def link_count(self) -> int:
        """Number of one-way links."""
        return self.sources.size

    def find_routes(
        self, sources: Integers, targets: Integers, choices: Integers
    ) -> tuple[Integers, Integers]:
        """Return the paths of many pairs: offsets (pairs + 1,) into an array with the links of all paths.

        The path of a node to itself has no links. Raise `ValueError` for nodes outside the fabric.
        """
        endpoints = np.concatenate([sources, targets])
        if endpoints.size and (endpoints.min() < 0 or endpoints.max() >= self.node_count):
            raise ValueError(
                f"{self.name} has nodes 0..{self.node_count - 1}, not {endpoints.min()}..{endpoints.max()}"
            )
        hops, links = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
        for begin in range(0, sources.size, _PAIR_BATCH_SIZE):
            batch = slice(begin, begin + _PAIR_BATCH_SIZE)
            padded_paths = self.router(sources[batch], targets[batch], choices[batch])
            is_link = padded_paths >= 0
            is_link[sources[batch] == targets[batch]] = False
            hops.append(is_link.sum(axis=1))
            links.append(padded_paths[is_link].astype(np.int64))
        return np.cumsum(np.concatenate(hops)), np.concatenate(links)

    def count_relays(self, first: Integers, links: Integers) -> Integers:
        """Return the number of hosts that forward on each path, (paths,), of paths as `find_routes` returns them."""
        relay_counts = np.zeros(first.size - 1, np.int64)
        for leaves_host in (self.sources[links] < self.node_count, self.leaves_shared_host[links]):
            relays_before = np.concatenate([[0], np.cumsum(leaves_host)])
            relay_counts += np.maximum(np.diff(relays_before[first]) - 1, 0)
        return relay_counts

    @property
    def leaves_shared_host(self) -> NDArray[np.bool_]:
        """True for a link from a host of several nodes to a host or switch, (links,); False if the nodes are hosts."""
        is_host = (self.sources >= self.node_count) & (
            self.sources < self.node_count + self.node_count // self.domain_size
        )
        return is_host & (self.targets >= self.node_count) & (self.domain_size > 1)

    def find_path(self, source: int, target: int, choice: int = 0) -> tuple[int, ...]:
        """Return the links from one node to another, in order."""
        _, links = self.find_routes(*(np.array([number]) for number in (source, target, choice)))
        return tuple(links.tolist())

    def find_link(self, source: int, target: int) -> int:
        """Return the first link from one vertex to another. Raise `ValueError` if there is none."""
        links = np.flatnonzero((self.sources == source) & (self.targets == target))
        if not links.size:
            raise ValueError(f"{self.name} has no link {source} -> {target}")
        return int(links[0])

    def scale_capacities(self, factor: float) -> Fabric:
        """Return the fabric with all capacities times `factor`, and the same cost."""
        return replace(self, capacity_bps=self.capacity_bps * factor, lane_bps=self.lane_bps * factor)


def check_sizes(node_count: int, rate_gbps: float) -> None:
    """Raise `ValueError` unless there is a node, and the rate is finite and positive."""
    if node_count < 1:
        raise ValueError(f"a fabric of {node_count} nodes: at least 1 is needed")
    if not 0 < rate_gbps < float("inf"):
        raise ValueError(f"rate_gbps is {rate_gbps}: a link's rate must be finite and above 0")


def hash_integers(*numbers: Integers) -> Integers:
    """Hash integers, broadcast against each other, to numbers below 2^62 (SplitMix64's finaliser).

    The hash is the same on every machine.
    """
    state = np.zeros(np.broadcast(*numbers).shape, dtype=np.uint64)
    for number in numbers:
        state = (state ^ np.asarray(number).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return (state >> np.uint64(2)).astype(np.int64)
