"""An iteration as a list of work in the order of `workloads.iteration`, quickly made for one strategy after another.

What an operator computes, what passes between two shardings and what a group sums is worked out once and remembered;
a strategy that differs in one operator costs little more than naming the parts again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.search.problem import Problem
from testbed.design.workloads.iteration.task_graph import BUCKET_BYTES
from testbed.design.workloads.iteration.traffic_model import Group
from testbed.design.workloads.roofline import operator_seconds
from testbed.design.workloads.sharding.resharding import (
    Resharding,
    backward_resharding,
    cut,
    dispatch_resharding,
    forward_resharding,
    reversed_resharding,
    row_samples,
)
from testbed.design.workloads.sharding.sharding import Sharding
from testbed.design.workloads.sharding.steps import microbatch_samples, replica_groups, shard_bytes, trainable

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FORWARD, BACKWARD = 0, 1
_REMEMBERED = 1 << 13
_NOWHERE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """Seconds that each of some servers computes."""

    servers: Integers
    seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """Bytes from servers to others; `keeps` are servers that have their input already."""

    source: Integers
    target: Integers
    size_bytes: Integers
    keeps: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Summing:
    """AllReduces side by side, of `size_bytes` each among the members of a group, in ascending order.

    They share links, so that all of them go on when the last is through.
    """

    groups: tuple[Group, ...]
    size_bytes: tuple[int, ...]


Work = Computing | Sending | Summing


class Item(NamedTuple):
    """Work that begins when its servers are ready at `stage`; those that get something are then ready at `onward`."""

    work: Work
    stage: int
    onward: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Items in order, over so many stages. Equal work is the same object wherever it occurs."""

    nodes: int
    stages: int
    items: tuple[Item, ...]


class _Bucket(NamedTuple):
    """Gradients summed together once operator `last` is through: bytes, and members, of each AllReduce."""

    last: int
    size_bytes: tuple[int, ...]
    groups: tuple[Group, ...]


class Programs:
    """Makes programs for the strategies of one problem, and remembers their parts."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        workload = problem.workload
        self._operators = workload.operators
        self._samples = microbatch_samples(workload.batch, problem.microbatches)
        self._trainable = trainable(workload)
        self._fed_by: list[list[int]] = [[] for _ in self._operators]
        self._feeds: list[list[int]] = [[] for _ in self._operators]
        for producer, consumer in workload.edges:
            self._fed_by[consumer].append(producer)
            self._feeds[producer].append(consumer)
        self._order = _by_depth(self._fed_by)
        self._rank = {place: rank for rank, place in enumerate(self._order)}
        self._computing = lru_cache(_REMEMBERED)(self._find_computing)
        self._gradients = lru_cache(_REMEMBERED)(self._find_gradients)

    def program(self, shardings: Sequence[Sharding]) -> Program:
        """Return the program of a strategy of these shardings."""
        items = list(self._forward(shardings))
        if self._problem.workload.training:
            items += self._backward(shardings)
        return Program(self._problem.nodes, 4 * len(self._operators) * len(self._samples), tuple(items))

    def _forward(self, shardings: Sequence[Sharding]) -> Iterator[Item]:
        for microbatch, samples in enumerate(self._samples):
            for place in self._order:
                sharding, stage = shardings[place], self._stage(FORWARD, microbatch, place)
                for producer in self._fed_by[place]:
                    size = self._problem.workload.edge_bytes((producer, place))
                    sliced = self._problem.workload.sliced((producer, place))
                    work = _sending(FORWARD, shardings[producer], sharding, samples, size, sliced)
                    yield Item(work, self._stage(FORWARD, microbatch, producer), stage)
                yield from self._pass(FORWARD, place, sharding, samples, stage)

    def _backward(self, shardings: Sequence[Sharding]) -> Iterator[Item]:
        buckets = {bucket.last: bucket for bucket in self._buckets(shardings)}
        for microbatch, samples in enumerate(self._samples):
            for place in reversed(self._order):
                if not self._trainable[place]:
                    continue
                stage = self._stage(BACKWARD, microbatch, place)
                yield from self._begin_backward(shardings, place, microbatch, samples)
                yield from self._pass(BACKWARD, place, shardings[place], samples, stage)
                if place in buckets and microbatch == len(self._samples) - 1:
                    bucket = buckets[place]
                    for size, members in zip(bucket.size_bytes, bucket.groups, strict=True):
                        if size:
                            yield Item(_summing((members,), (size,)), stage, _NOWHERE)

    def _begin_backward(
        self, shardings: Sequence[Sharding], place: int, microbatch: int, samples: int
    ) -> Iterator[Item]:
        """Yield work after the forward pass of a microbatch (of all where nothing follows) and with the gradients."""
        sharding, workload = shardings[place], self._problem.workload
        stage = self._stage(BACKWARD, microbatch, place)
        after = microbatch if self._feeds[place] else len(self._samples) - 1
        yield Item(_waiting(sharding), self._stage(FORWARD, after, place), stage)
        for consumer in self._feeds[place]:
            size, sliced = workload.edge_bytes((place, consumer)), workload.sliced((place, consumer))
            work = _sending(BACKWARD, sharding, shardings[consumer], samples, size, sliced)
            yield Item(work, self._stage(BACKWARD, microbatch, consumer), stage)

    def _pass(
        self, direction: int, place: int, sharding: Sharding, samples: int, stage: int
    ) -> Iterator[Item]:
        """Compute; of experts, send samples there and back; of shards, sum their outputs."""
        operator = self._operators[place]
        computing = self._computing(place, sharding, samples, direction)
        if sharding.way == "expert":
            there, back = _dispatching(sharding, samples, operator.output_bytes * operator.routed)
            yield Item(there, stage, stage + 1)
            yield Item(computing, stage + 1, _NOWHERE)
            yield Item(back, stage + 1, stage)
            return
        yield Item(computing, stage, _NOWHERE)
        size = operator.backward_reduce_bytes if direction else operator.forward_reduce_bytes
        if sharding.way == "tensor" and sharding.shards > 1 and size:
            counts = np.diff(cut(samples, sharding.replicas)).tolist()
            sums = [
                (tuple(sorted(row)), count * size)
                for row, count in zip(sharding.grid, counts, strict=True)
                if count
            ]
            yield Item(_summing(*zip(*sums, strict=True)), stage, stage)

    def _stage(self, direction: int, microbatch: int, place: int) -> int:
        """Return a stage of an operator; the one after it is where its experts compute."""
        return 4 * (microbatch * len(self._operators) + place) + 2 * direction

    def _find_computing(self, place: int, sharding: Sharding, samples: int, direction: int) -> Computing:
        operator, cluster = self._operators[place], self._problem.cluster
        rows = row_samples(sharding, samples)
        counts, where = np.unique(rows, return_inverse=True)
        seconds = [
            operator_seconds(operator, count, sharding.shards, cluster)[direction]
            for count in counts.tolist()
        ]
        return Computing(np.array(sharding.servers), np.array(seconds)[where])

    def _buckets(self, shardings: Sequence[Sharding]) -> Iterator[_Bucket]:
        """Yield what `workloads.steps.gradient_buckets` does, with what each operator adds remembered."""
        opened: dict[tuple[Group, ...], _Bucket] = {}
        for place in reversed(range(len(shardings))):
            sizes, groups = self._gradients(place, shardings[place])
            if not any(sizes):
                continue
            bucket = opened.pop(groups, None)
            if bucket and max(bucket.size_bytes) + max(sizes) > BUCKET_BYTES:
                yield bucket
                bucket = None
            if bucket:
                sizes = tuple(had + more for had, more in zip(bucket.size_bytes, sizes, strict=True))
            last = min(place, bucket.last, key=self._rank.__getitem__) if bucket else place
            opened[groups] = _Bucket(last, sizes, groups)
        yield from opened.values()

    def _find_gradients(self, place: int, sharding: Sharding) -> tuple[tuple[int, ...], tuple[Group, ...]]:
        groups = tuple(tuple(sorted(group)) for group in replica_groups(sharding))
        return shard_bytes(self._operators[place], sharding), groups


def _by_depth(fed_by: Sequence[Sequence[int]]) -> list[int]:
    """Return operators in the order in which servers come to them.

    Side branches side by side, not one after the other.
    """
    depth: list[int] = []
    for producers in fed_by:
        depth.append(1 + max((depth[producer] for producer in producers), default=0))
    return sorted(range(len(depth)), key=depth.__getitem__)


@lru_cache(_REMEMBERED)
def _sending(
    direction: int, producer: Sharding, consumer: Sharding, samples: int, output_bytes: int, sliced: bool
) -> Sending:
    between = backward_resharding if direction else forward_resharding
    return _as_sending(between(producer, consumer, samples, output_bytes, sliced))


@lru_cache(_REMEMBERED)
def _dispatching(sharding: Sharding, samples: int, sample_bytes: int) -> tuple[Sending, Sending]:
    resharding = dispatch_resharding(sharding, samples, sample_bytes)
    return _as_sending(resharding), _as_sending(reversed_resharding(resharding))


def _as_sending(resharding: Resharding) -> Sending:
    there = resharding.source != resharding.target
    return Sending(
        resharding.source[there],
        resharding.target[there],
        resharding.size_bytes[there],
        np.unique(resharding.target[~there]),
    )


@lru_cache(_REMEMBERED)
def _summing(groups: tuple[Group, ...], size_bytes: tuple[int, ...]) -> Summing:
    return Summing(groups, size_bytes)


@lru_cache(_REMEMBERED)
def _waiting(sharding: Sharding) -> Sending:
    """Return work in which nothing is sent: every server goes on with what it has."""
    none = np.zeros(0, dtype=np.int64)
    return Sending(none, none, none, np.array(sharding.servers))
