"""Specifications of measurements: AllReduces and exchanges, their message sizes and durations."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

from testbed.design.collectives.collective_list import find_collective
from testbed.design.collectives.kind import Collective, Pair
from testbed.design.model import RingOrder
from testbed.errors import CollectiveError

if TYPE_CHECKING:
    from testbed.design.routing.route_sets import RouteSets

Backend = Literal["auto", "gloo", "nccl"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """An AllReduce on `rings`, over all nodes or over several groups at once; or an exchange between `pairs`.

    Every node must be in the same number of rings, and splits its tensor evenly over them. Without rings, all pairs
    (source, target) send at once, and a node splits its tensor evenly over its targets. All pairs form an all-to-all.
    """

    name: str
    rings: tuple[RingOrder, ...]
    sizes: tuple[int, ...]
    pairs: tuple[Pair, ...] = ()

    @property
    def collective(self) -> Collective:
        """The collective of these rings or pairs."""
        return find_collective(self)

    @property
    def ranks(self) -> int:
        """Number of nodes in one ring, or in the exchange."""
        return len({node for pair in self.pairs for node in pair}) or len(self.rings[0].order)

    @property
    def rings_per_node(self) -> int:
        """Number of rings over which each node splits its tensor; 0 for an exchange."""
        return max(Counter(node for ring in self.rings for node in ring.order).values(), default=0)

    def as_json(self) -> dict[str, Any]:
        """Return the configuration as `testbed/node/collective.py` reads it."""
        common_fields = {"name": self.name, "sizes": self.sizes}
        if self.pairs:
            return {**common_fields, "pairs": self.pairs}
        return {**common_fields, "rings": [ring.order for ring in self.rings]}


@dataclass(frozen=True, slots=True)
class CollectiveSpec:
    """Measurements of one launch.

    Each size takes one warm-up, then iterations until `min_time_s` has passed or `max_iterations` are done. At least
    `min_iterations` are done, but three are enough if `min_iterations` would take longer than `max_time_s`.

    The backend "auto" is NCCL if every host has a GPU and no configuration is an exchange, else Gloo. Gloo uses all
    `sets` of routes with their weights, NCCL only the first.
    """

    run_id: str
    topology: str
    configurations: tuple[Configuration, ...]
    hosts_in_use: str = "kernel"
    backend: Backend = "auto"
    min_time_s: float = 0.5
    min_iterations: int = 5
    max_iterations: int = 20
    max_time_s: float = 8.0
    sets: RouteSets | None = None

    @property
    def row_count(self) -> int:
        """Number of timings of the launch."""
        return sum(len(configuration.sizes) for configuration in self.configurations)


def make_all_to_all(name: str, node_count: int, sizes: tuple[int, ...]) -> Configuration:
    """Return the exchange in which every node sends an equal part of its tensor to every other node.

    >>> make_all_to_all("x", 3, (1024,)).pairs
    ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))
    """
    return Configuration(name, (), sizes, tuple(permutations(range(node_count), 2)))


def list_doubling_sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """Return message sizes from `smallest` to at most `largest` bytes, each twice the previous size.

    >>> list_doubling_sizes(1024, 8192)
    (1024, 2048, 4096, 8192)
    """
    doubling_count = max(0, math.floor(math.log2(largest / smallest) + 1e-9))
    return tuple(smallest << step for step in range(doubling_count + 1))


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse a range like `1KiB:8MiB` as doubling sizes in bytes. Raise `CollectiveError` for anything else.

    >>> parse_sizes("1KiB:4KiB")
    (1024, 2048, 4096)
    """
    smallest_text, _, largest_text = text.partition(":")
    sizes = [_parse_size(size_text) for size_text in (smallest_text, largest_text or smallest_text)]
    if not 4 <= sizes[0] <= sizes[1]:
        raise CollectiveError(f"--sizes {text!r}: sizes start at 4 bytes and grow (example: 1KiB:8MiB)")
    return list_doubling_sizes(sizes[0], sizes[1])


_SIZE_PATTERN = re.compile(r"(\d+)\s*(|k|ki|kib|m|mi|mib)b?", re.IGNORECASE)
_BYTES_BY_UNIT = {"": 1, "k": 1 << 10, "m": 1 << 20}


def _parse_size(text: str) -> int:
    match = _SIZE_PATTERN.fullmatch(text.strip())
    if match is None:
        raise CollectiveError(f"--sizes: {text!r} is not a valid size (example: 1KiB:8MiB)")
    return int(match[1]) * _BYTES_BY_UNIT[match[2][:1].lower()]
