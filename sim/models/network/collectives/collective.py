"""Collectives as values: how nccl-tests measures them, the bytes that they send, the tasks that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from sim.models.network.collectives.algorithms import parts
from sim.models.network.taskgraph.graph import TaskGraphBuilder

Pair = tuple[int, int]
"""Source and target."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of a group of nodes that hold a tensor each. Members are in the order of their ring.

    `bus_factor(ranks)` times size over time is nccl-tests' bus bandwidth: the bytes that a node sends, in tensors.
    `pair_bytes(members, size_bytes)` are the bytes between pairs. `add_tasks(graph, members, size_bytes, after)` adds
    one run to a task graph, with which `sim.models.network.execution.simulate` predicts its time, and returns the
    numbers of its tasks.
    """

    name: str
    bus_factor: Callable[[int], float]
    pair_bytes: Callable[[Sequence[int], int], Mapping[Pair, float]]
    add_tasks: Callable[[TaskGraphBuilder, Sequence[int], int, Sequence[int]], tuple[int, ...]]


def ring_share(ranks: int) -> float:
    """Return the part of a tensor that each member of a ring AllReduce sends: 2(n-1)/n.

    >>> ring_share(4)
    1.5
    """
    return 2 * (ranks - 1) / ranks


def _neighbours(members: Sequence[int]) -> tuple[Pair, ...]:
    return tuple(pairwise((*members, members[0]))) if len(members) > 1 else ()


def _all_pairs(members: Sequence[int]) -> tuple[Pair, ...]:
    return tuple(permutations(members, 2))


def _ring_bytes(members: Sequence[int], size_bytes: int) -> dict[Pair, float]:
    return dict.fromkeys(_neighbours(members), ring_share(len(members)) * size_bytes)


def _reduce(
    graph: TaskGraphBuilder, members: Sequence[int], size_bytes: int, after: Sequence[int]
) -> tuple[int, ...]:
    return (graph.allreduce(tuple(members), size_bytes, after=list(after)),)


def _exchange(name: str, pairs_of: Callable[[Sequence[int]], tuple[Pair, ...]]) -> Collective:
    """Return the collective in which a node splits its tensor evenly over its targets, sent to all at once."""

    def shares(members: Sequence[int], size_bytes: int) -> dict[Pair, int]:
        found: dict[Pair, int] = {}
        for member in members:
            targets = [pair for pair in pairs_of(members) if pair[0] == member]
            found.update(zip(targets, parts(size_bytes, len(targets)) if targets else (), strict=True))
        return found

    def add(
        graph: TaskGraphBuilder, members: Sequence[int], size_bytes: int, after: Sequence[int]
    ) -> tuple[int, ...]:
        return tuple(
            graph.transfer(*pair, share, after=list(after))
            for pair, share in shares(members, size_bytes).items()
        )

    return Collective(name, lambda ranks: float(ranks > 1), shares, add)


COLLECTIVES: Mapping[str, Collective] = {
    collective.name: collective
    for collective in (
        Collective("all_reduce", ring_share, _ring_bytes, _reduce),
        _exchange("all_to_all", _all_pairs),
        _exchange("sendrecv", _neighbours),
    )
}
"""By the name that measurements carry."""
