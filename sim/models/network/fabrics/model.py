"""A fabric as the simulator sees it: one-way links with capacities, paths over them, a price.

Vertices are numbered: hosts 0..nodes-1, then switches. A router answers for many pairs at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import Cost

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Router = Callable[[Integers, Integers, Integers], Integers]
"""Sources, targets, choices, each (pairs,), to the links of each path, (pairs, longest), filled up with -1.

A choice picks among equally good paths; any number will do, equal numbers pick equally.
"""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Links `sources[l]` -> `targets[l]` of `capacity_bps[l]` bit/s, all (links,), and the paths over them.

    Several parallel lanes may count as one link: then a single packet crosses it at `lane_bps`. Links that other
    links keep from ever being full may be named in `never_full`, a bool each; they are left out of the sharing.
    `hosts_forward` tells whether inner vertices of a path are hosts (direct connect) or switches. With `weights`
    (sets, nodes, nodes) every message is split: that part of what row sends to column takes the path of choice `set`.
    """

    name: str
    nodes: int
    sources: Integers
    targets: Integers
    capacity_bps: Floats
    lane_bps: Floats
    never_full: NDArray[np.bool_]
    router: Router
    hosts_forward: bool
    cost: Cost
    weights: Floats | None = None
    alternatives: tuple[int, Router] | None = None
    """How many paths a hash may draw for a pair, and the router whose choice c is the c-th of them."""

    def __post_init__(self) -> None:
        columns = (self.targets, self.capacity_bps, self.lane_bps, self.never_full)
        if any(column.shape != self.sources.shape for column in columns):
            raise ValueError("sources, targets and capacities of a fabric must have one entry a link")
        if (~np.isfinite(self.capacity_bps) | (self.capacity_bps < 0)).any():
            raise ValueError("a link's capacity must be a finite number of bit/s, 0 or more")

    @property
    def links(self) -> int:
        """Number of one-way links."""
        return self.sources.size

    def routes(self, sources: Integers, targets: Integers, choices: Integers) -> tuple[Integers, Integers]:
        """Return paths of many pairs: offsets (pairs + 1,) into the second array, the links one path after another.

        A pair of equal nodes has no links. Raises `ValueError` for nodes that the fabric does not have.
        """
        ends = np.concatenate([sources, targets])
        if ends.size and (ends.min() < 0 or ends.max() >= self.nodes):
            raise ValueError(f"{self.name} has nodes 0..{self.nodes - 1}, not {ends.min()}..{ends.max()}")
        padded = self.router(sources, targets, choices)
        there = padded >= 0
        there[sources == targets] = False
        first = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return first, padded[there].astype(np.int64)

    def path(self, source: int, target: int, choice: int = 0) -> tuple[int, ...]:
        """Return the links from one node to another, in order."""
        _, links = self.routes(*(np.array([number]) for number in (source, target, choice)))
        return tuple(links.tolist())

    def link(self, source: int, target: int) -> int:
        """Return the first link between two vertices. Raises `ValueError` when there is none."""
        found = np.flatnonzero((self.sources == source) & (self.targets == target))
        if not found.size:
            raise ValueError(f"{self.name} has no link {source} -> {target}")
        return int(found[0])

    def scale(self, factor: float) -> Fabric:
        """Return the same fabric with all capacities times `factor`; the price is not changed."""
        return replace(self, capacity_bps=self.capacity_bps * factor, lane_bps=self.lane_bps * factor)


def check_sizes(nodes: int, rate_gbps: float) -> None:
    """Raise `ValueError` for a fabric of no nodes or no rate."""
    if nodes < 1:
        raise ValueError(f"a fabric of {nodes} nodes: at least 1 is needed")
    if not 0 < rate_gbps < float("inf"):
        raise ValueError(f"rate_gbps is {rate_gbps}: a link's rate must be finite and above 0")


def mix(*numbers: Integers) -> Integers:
    """Return numbers to look-alikes of random ones, 0 to 2^62, the same on every machine (SplitMix64's finaliser)."""
    state = np.zeros(np.broadcast(*numbers).shape, dtype=np.uint64)
    for number in numbers:
        state = (state ^ np.asarray(number).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return (state >> np.uint64(2)).astype(np.int64)
