"""Specifications of measurements: AllReduces and exchanges, their message sizes and durations."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

from testbed.design.collectives.collective_list import collective_of
from testbed.design.collectives.kind import Collective, Pair
from testbed.design.model import RingOrder
from testbed.errors import CollectiveError

if TYPE_CHECKING:
    from testbed.design.routing.route_sets import RouteSets

Backend = Literal["auto", "gloo", "nccl"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """An AllReduce on `rings` over all nodes, or over groups of them at the same time; or an exchange.

    Every node must be in the same number of rings: its tensor is split evenly over them. Without rings, all
    (source, target) of `pairs` are sent at once, and a node's tensor is split evenly over its targets; all pairs
    form an all-to-all.
    """

    name: str
    rings: tuple[RingOrder, ...]
    sizes: tuple[int, ...]
    pairs: tuple[Pair, ...] = ()

    @property
    def collective(self) -> Collective:
        """The collective of these rings or pairs."""
        return collective_of(self)

    @property
    def ranks(self) -> int:
        """Number of nodes that share one sum, or that send and receive."""
        return len({node for pair in self.pairs for node in pair}) or len(self.rings[0].order)

    @property
    def rings_per_node(self) -> int:
        """Number of rings over which each node splits its tensor; 0 for an exchange."""
        return max(Counter(node for ring in self.rings for node in ring.order).values(), default=0)

    def as_json(self) -> dict[str, Any]:
        """Return the configuration as `testbed/node/collective.py` reads it."""
        common = {"name": self.name, "sizes": self.sizes}
        if self.pairs:
            return {**common, "pairs": self.pairs}
        return {**common, "rings": [ring.order for ring in self.rings]}


@dataclass(frozen=True, slots=True)
class CollectiveSpec:
    """Measurements of one launch.

    Per size one warm-up, then iterations for `min_time_s` or up to `max_iterations`, at least `min_iterations`; if
    these take longer than `max_time_s`, three are enough. The backend `auto` is NCCL if every host has a GPU and
    there are no exchanges, else Gloo. Gloo uses all `sets` of routes of a plan, with their weights; NCCL the first.
    """

    run_id: str
    topology: str
    configurations: tuple[Configuration, ...]
    hosts: str = "kernel"
    backend: Backend = "auto"
    min_time_s: float = 0.5
    min_iterations: int = 5
    max_iterations: int = 20
    max_time_s: float = 8.0
    sets: RouteSets | None = None

    @property
    def rows(self) -> int:
        """Number of timings of the launch."""
        return sum(len(configuration.sizes) for configuration in self.configurations)


def all_to_all(name: str, nodes: int, sizes: tuple[int, ...]) -> Configuration:
    """Return the exchange in which every node sends an equal part of its tensor to every other.

    >>> all_to_all("x", 3, (1024,)).pairs
    ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))
    """
    return Configuration(name, (), sizes, tuple(permutations(range(nodes), 2)))


def doubling_sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """Return message sizes from `smallest` to `largest` bytes, each twice the one before.

    >>> doubling_sizes(1024, 8192)
    (1024, 2048, 4096, 8192)
    """
    steps = max(0, math.floor(math.log2(largest / smallest) + 1e-9))
    return tuple(smallest << step for step in range(steps + 1))


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse `1KiB:8MiB` as doubling sizes in bytes. Raise `CollectiveError` with an example for other text.

    >>> parse_sizes("1KiB:4KiB")
    (1024, 2048, 4096)
    """
    smallest, _, largest = text.partition(":")
    sizes = [_parse_size(word) for word in (smallest, largest or smallest)]
    if not 4 <= sizes[0] <= sizes[1]:
        raise CollectiveError(f"--sizes {text!r}: sizes start at 4 bytes and grow (example: 1KiB:8MiB)")
    return doubling_sizes(sizes[0], sizes[1])


_SIZE = re.compile(r"(\d+)\s*(|k|ki|kib|m|mi|mib)b?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def _parse_size(word: str) -> int:
    match = _SIZE.fullmatch(word.strip())
    if match is None:
        raise CollectiveError(f"--sizes: {word!r} is not a valid size (example: 1KiB:8MiB)")
    return int(match[1]) * _FACTORS[match[2][:1].lower()]
