"""Traffic of an iteration, added up without its task graph, and quickly corrected when one operator moves.

It equals `traffic_of(iteration(...))` to the byte: both take the same resharding. Sums are of whole numbers below
2**53, so adding and taking away in floating point is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.workloads.iteration.traffic_model import Group, Traffic
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding.resharding import (
    Resharding,
    backward_resharding,
    cut,
    dispatch_resharding,
    forward_resharding,
    reversed_resharding,
)
from testbed.design.workloads.sharding.sharding import Sharding, Strategy
from testbed.design.workloads.sharding.steps import microbatch_samples, replica_groups, shard_bytes, trainable
from testbed.design.workloads.strategies.strategies import check_strategy

Samples = tuple[tuple[int, int], ...]
"""Samples of a microbatch, and how many such microbatches there are."""

_REMEMBERED = 1 << 14


class Pairs(NamedTuple):
    """Bytes of pairs of servers: `key` is source * nodes + target, each once, none within a server."""

    key: NDArray[np.int64]
    size_bytes: NDArray[np.float64]


def traffic(workload: Workload, strategy: Strategy, cluster: Cluster) -> Traffic:
    """Return what one iteration sends. Raises `StrategyError`."""
    return TrafficTotals.of(workload, strategy, cluster).traffic


def edge_pairs(
    producer: Sharding,
    consumer: Sharding,
    batch: int,
    size_bytes: int,
    nodes: int,
    sliced: bool,
    with_gradients: bool,
) -> NDArray[np.float64]:
    """Return bytes of one edge from row to column, (nodes, nodes), in one microbatch."""
    output = _Output(size_bytes, sliced=sliced, with_gradients=with_gradients)
    term = _edge_pairs(producer, consumer, ((batch, 1),), output, nodes)
    matrix = np.zeros(nodes * nodes)
    matrix[term.key] = term.size_bytes
    return matrix.reshape(nodes, nodes)


def sums_of(workload: Workload, place: int, sharding: Sharding) -> tuple[tuple[Group, int], ...]:
    """Return groups and bytes that one operator sums in one microbatch."""
    needed = trainable(workload)[place]
    samples = ((workload.batch, 1),)
    return _allreduce(workload.operators[place], sharding, samples, workload.training, needed)


@dataclass(frozen=True, slots=True, eq=False)
class TrafficTotals:
    """The traffic of a strategy, ready to be corrected: `with_sharding` costs what the changed operator sends.

    `pairs` (nodes * nodes,) and `allreduce` are as in `Traffic`; do not write to them.
    """

    workload: Workload
    strategy: Strategy
    nodes: int
    pairs: NDArray[np.float64]
    allreduce: Mapping[Group, int]
    _trainable: tuple[bool, ...]

    @classmethod
    def of(cls, workload: Workload, strategy: Strategy, cluster: Cluster) -> TrafficTotals:
        """Return everything added up. Raises `StrategyError`."""
        check_strategy(workload, strategy, cluster.nodes)
        nodes = cluster.nodes
        pairs, allreduce = np.zeros(nodes * nodes), Counter[Group]()
        terms = _Terms(workload, strategy, nodes, trainable(workload))
        _add(pairs, terms.pairs(range(len(workload.operators)), workload.edges), 1)
        for place in range(len(workload.operators)):
            _count(allreduce, terms.allreduce(place), 1)
        return cls(workload, strategy, nodes, pairs, allreduce, terms.trainable)

    def with_sharding(self, place: int, sharding: Sharding) -> TrafficTotals:
        """Return the same with one operator laid out otherwise; the sharding is not checked."""
        changed = self.strategy.with_sharding(place, sharding)
        edges = [edge for edge in self.workload.edges if place in edge]
        pairs, allreduce = self.pairs.copy(), Counter(self.allreduce)
        for strategy, sign in ((self.strategy, -1), (changed, 1)):
            terms = _Terms(self.workload, strategy, self.nodes, self._trainable)
            _add(pairs, terms.pairs((place,), edges), sign)
            _count(allreduce, terms.allreduce(place), sign)
        return TrafficTotals(self.workload, changed, self.nodes, pairs, allreduce, self._trainable)

    @property
    def traffic(self) -> Traffic:
        """As topology search takes it."""
        return Traffic(self.nodes, dict(self.allreduce), self.pairs.reshape(self.nodes, self.nodes).copy())


class _Terms:
    """The single sums of a strategy."""

    def __init__(
        self, workload: Workload, strategy: Strategy, nodes: int, trainable: tuple[bool, ...]
    ) -> None:
        self._workload, self._strategy, self._nodes = workload, strategy, nodes
        counted = Counter(_microbatches(workload.batch, strategy.microbatches))
        self._samples: Samples = tuple(sorted(counted.items()))
        self.trainable = trainable

    def pairs(self, places: Iterable[int], edges: Iterable[tuple[int, int]]) -> Iterator[Pairs]:
        """Yield what those operators send within, and along those edges."""
        operators, shardings = self._workload.operators, self._strategy.shardings
        for place in places:
            if shardings[place].way == "expert":
                sample_bytes = operators[place].output_bytes * operators[place].routed
                there_and_back = 2 if self.trainable[place] else 1
                yield _expert_pairs(
                    shardings[place], self._samples, sample_bytes, there_and_back, self._nodes
                )
        for producer, consumer in edges:
            output = _Output(
                self._workload.edge_bytes((producer, consumer)),
                sliced=self._workload.sliced((producer, consumer)),
                with_gradients=self.trainable[producer],
            )
            yield _edge_pairs(shardings[producer], shardings[consumer], self._samples, output, self._nodes)

    def allreduce(self, place: int) -> tuple[tuple[Group, int], ...]:
        """Return what is summed for this operator."""
        return _allreduce(
            self._workload.operators[place],
            self._strategy.shardings[place],
            self._samples,
            self._workload.training,
            self.trainable[place],
        )


def _add(pairs: NDArray[np.float64], terms: Iterable[Pairs], sign: int) -> None:
    for term in terms:
        pairs[term.key] += sign * term.size_bytes


def _count(allreduce: Counter[Group], terms: Iterable[tuple[Group, int]], sign: int) -> None:
    for members, size_bytes in terms:
        allreduce[members] += sign * size_bytes
        if not allreduce[members]:
            del allreduce[members]


@lru_cache(maxsize=256)
def _microbatches(batch: int, microbatches: int) -> tuple[int, ...]:
    return tuple(microbatch_samples(batch, microbatches))


class _Output(NamedTuple):
    """Properties of an edge that its bytes depend on, besides shardings."""

    size_bytes: int
    sliced: bool
    with_gradients: bool


@lru_cache(maxsize=_REMEMBERED)
def _edge_pairs(
    producer: Sharding, consumer: Sharding, samples: Samples, output: _Output, nodes: int
) -> Pairs:
    ways = (forward_resharding, backward_resharding) if output.with_gradients else (forward_resharding,)
    resharding = (
        (way(producer, consumer, size, output.size_bytes, output.sliced), times)
        for size, times in samples
        for way in ways
    )
    return _summed(resharding, nodes)


@lru_cache(maxsize=_REMEMBERED)
def _expert_pairs(sharding: Sharding, samples: Samples, sample_bytes: int, passes: int, nodes: int) -> Pairs:
    resharding = [
        (dispatch_resharding(sharding, size, sample_bytes), passes * times) for size, times in samples
    ]
    return _summed(resharding + [(reversed_resharding(move), times) for move, times in resharding], nodes)


def _summed(resharding: Iterable[tuple[Resharding, int]], nodes: int) -> Pairs:
    total = np.zeros(nodes * nodes)
    for (source, target, size_bytes), times in resharding:
        between = source != target
        np.add.at(total, (source * nodes + target)[between], times * size_bytes[between])
    key = np.flatnonzero(total)
    return Pairs(key, total[key])


@lru_cache(maxsize=_REMEMBERED)
def _allreduce(
    operator: Operator, sharding: Sharding, samples: Samples, training: bool, backward: bool
) -> tuple[tuple[Group, int], ...]:
    sums: Counter[Group] = Counter()
    if training and sharding.replicas > 1:
        for members, size_bytes in zip(
            replica_groups(sharding), shard_bytes(operator, sharding), strict=True
        ):
            sums[tuple(sorted(members))] += size_bytes
    if sharding.way == "tensor" and sharding.shards > 1:
        sample_bytes = operator.forward_reduce_bytes + backward * operator.backward_reduce_bytes
        for size, times in samples:
            counts = np.diff(cut(size, sharding.replicas)).tolist()
            for row, count in zip(sharding.grid, counts, strict=True):
                sums[tuple(sorted(row))] += count * sample_bytes * times
    return tuple((members, size_bytes) for members, size_bytes in sums.items() if size_bytes)
