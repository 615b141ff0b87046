"""Shardings: a grid of servers, replicas by shards; and a strategy, one sharding an operator.

| way | grid (replicas, shards) | parameters | samples | communication |
|---|---|---|---|---|
| data | (n, 1) | whole on each | split over replicas | gradients: AllReduce over replicas |
| tensor | (r, k) | 1/k on each | split over replicas | activations among shards; gradients over replicas |
| place | (1, k) | 1/k on each | all, a slice of the output each | output to whoever needs it, gradients back |
| expert | (r, k) | 1/k on each | split over all r*k servers | all-to-all among shards, there and back |

Samples go to replicas in the order of the grid; expert parallel ones to servers in the order of their numbers.
A pipeline is a strategy whose operators have grids over different servers; microbatches then overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.design.workloads.model import Way
from testbed.errors import StrategyError

Group = tuple[int, ...]
"""Servers that do something together."""

Grid = tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Sharding:
    """`grid[r][s]` is the server that holds shard s of replica r. Hashable, so that costs can be remembered."""

    way: Way
    grid: Grid
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Shardings are keys of every remembered cost; hashing 128 tuples each time would cost more than adding up.
        # Only integers go in: the hash of a string differs between processes, and shardings travel between them.
        object.__setattr__(self, "_hash", hash(self.grid))

    def __hash__(self) -> int:
        return self._hash

    @property
    def replicas(self) -> int:
        """Number of whole copies of the operator."""
        return len(self.grid)

    @property
    def shards(self) -> int:
        """Number of pieces into which each replica is cut."""
        return len(self.grid[0])

    @property
    def servers(self) -> tuple[int, ...]:
        """All servers of the grid, replica by replica."""
        return tuple(server for replica in self.grid for server in replica)


@dataclass(frozen=True, slots=True)
class Strategy:
    """One sharding for each operator of a workload, and into how many microbatches an iteration is cut."""

    shardings: tuple[Sharding, ...]
    microbatches: int = 1

    def with_sharding(self, place: int, sharding: Sharding) -> Strategy:
        """Return the same strategy, one operator laid out otherwise."""
        changed = (*self.shardings[:place], sharding, *self.shardings[place + 1 :])
        return Strategy(changed, self.microbatches)


def data_sharding(servers: Sequence[int]) -> Sharding:
    """Return a replica on each server."""
    return Sharding("data", tuple((server,) for server in servers))


def place_sharding(servers: Sequence[int]) -> Sharding:
    """Return one copy, a slice of it on each server."""
    return Sharding("place", (tuple(servers),))


def spaced_sharding(way: Way, nodes: int, shards: int) -> Sharding:
    """Return replicas of `shards` evenly spaced servers {s, s + n/k, ...}, as rings of stride n/k join them.

    Raises `StrategyError` unless the shards divide the servers.
    """
    if shards < 1 or nodes < 1 or nodes % shards:
        raise StrategyError(
            f"{shards} shards on {nodes} servers: the shards must divide the servers, both at least 1"
        )
    step = nodes // shards
    return Sharding(way, tuple(tuple(range(start, nodes, step)) for start in range(step)))


def block_sharding(way: Way, nodes: int, shards: int) -> Sharding:
    """Return replicas of `shards` servers side by side {s, s + 1, ...}: copies of a shard are then evenly spaced.

    Raises `StrategyError` unless the shards divide the servers.

    >>> block_sharding("tensor", 6, 3).grid
    ((0, 1, 2), (3, 4, 5))
    """
    columns = spaced_sharding(way, nodes, nodes // shards if shards and nodes % shards == 0 else 0).grid
    return Sharding(way, tuple(zip(*columns, strict=True)))
