"""Programs: an iteration as a list of work in the order of `workloads.iteration`, built quickly for many strategies.

Computing of an operator, messages between two shardings and sums of a group are built once and cached: a strategy that
differs in one operator costs little more than the list of its parts.
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
from testbed.design.workloads.roofline import operator_seconds
from testbed.design.workloads.sharding import (
    Group,
    Resharding,
    Sharding,
    backward_resharding,
    cut,
    dispatch_resharding,
    forward_resharding,
    microbatch_samples,
    replica_groups,
    reverse_resharding,
    row_samples,
    shard_bytes,
    trainable,
)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FORWARD, BACKWARD = 0, 1
_REMEMBERED = 1 << 13
_NOWHERE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """Seconds of computing on each of some servers."""

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
    """Concurrent AllReduces, each of `size_bytes` among the members of a group, which are in ascending order.

    They share links, so all of them end when the last one ends.
    """

    groups: tuple[Group, ...]
    size_bytes: tuple[int, ...]


Work = Computing | Sending | Summing


class Item(NamedTuple):
    """Work that begins when its servers are ready at `stage`; servers that receive are then ready at `onward`."""

    work: Work
    stage: int
    onward: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Items of one operator in one pass, with their stages (items, 2) in the first microbatch."""

    works: tuple[Work, ...]
    stages: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Parts in order, over `stages` stages; `items` are stage and onward stage of each of their works.

    Equal work is the same object wherever it occurs, and so are equal parts of equal microbatches.
    """

    nodes: int
    stages: int
    parts: tuple[Part, ...]
    items: Integers


class _Bucket(NamedTuple):
    """Gradients summed together once operator `last` has ended: bytes and members of each AllReduce."""

    last: int
    size_bytes: tuple[int, ...]
    groups: tuple[Group, ...]


class Programs:
    """Factory of programs for the strategies of one problem; it caches their parts."""

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
        depth: list[int] = []
        for producers in self._fed_by:
            depth.append(1 + max((depth[producer] for producer in producers), default=0))
        self._order = sorted(range(len(depth)), key=depth.__getitem__)
        self._rank = {place: rank for rank, place in enumerate(self._order)}
        self._computing = lru_cache(_REMEMBERED)(self._make_computing)
        self._gradients = lru_cache(_REMEMBERED)(self._make_gradients)
        self._forward = lru_cache(_REMEMBERED)(self._make_forward)
        self._backward = lru_cache(_REMEMBERED)(self._make_backward)

    def program(self, shardings: Sequence[Sharding]) -> Program:
        """Return the program of a strategy of these shardings."""
        parts, shifts = [], []
        for microbatch, samples in enumerate(self._samples):
            for place in self._order:
                feeding = tuple(shardings[producer] for producer in self._fed_by[place])
                parts.append(self._forward(place, shardings[place], feeding, samples))
                shifts.append(self._stage(FORWARD, microbatch, 0))
        if self._problem.workload.training:
            for microbatch, part in self._backwards(shardings):
                parts.append(part)
                shifts.append(self._stage(FORWARD, microbatch, 0))
        items = np.concatenate([part.stages for part in parts])
        shift = np.repeat(shifts, [len(part.works) for part in parts])
        items += np.where(items == _NOWHERE, 0, shift[:, None])
        return Program(
            self._problem.nodes, 4 * len(self._operators) * len(self._samples), tuple(parts), items
        )

    def _make_forward(
        self, place: int, sharding: Sharding, feeding: Sequence[Sharding], samples: int
    ) -> Part:
        """Return the part in which an operator receives its inputs and computes its forward pass."""
        items, stage = [], self._stage(FORWARD, 0, place)
        for producer, producing in zip(self._fed_by[place], feeding, strict=True):
            size = self._problem.workload.edge_bytes((producer, place))
            sliced = self._problem.workload.is_sliced((producer, place))
            work = _make_sending(FORWARD, producing, sharding, samples, size, sliced)
            items.append(Item(work, self._stage(FORWARD, 0, producer), stage))
        return _part([*items, *self._pass(FORWARD, place, sharding, samples, stage)])

    def _backwards(self, shardings: Sequence[Sharding]) -> Iterator[tuple[int, Part]]:
        """Yield the microbatch and the part of each operator's backward pass and of each sum of gradients."""
        buckets, last = {bucket.last: bucket for bucket in self._buckets(shardings)}, len(self._samples) - 1
        for microbatch, samples in enumerate(self._samples):
            for place in reversed(self._order):
                if not self._trainable[place]:
                    continue
                fed = tuple(shardings[consumer] for consumer in self._feeds[place])
                later = 0 if fed else last - microbatch  # the last operator waits for all forward passes
                yield microbatch, self._backward(place, shardings[place], fed, samples, later)
                if place in buckets and microbatch == last:
                    groups = zip(buckets[place].size_bytes, buckets[place].groups, strict=True)
                    sums = [_make_summing((members,), (size,)) for size, members in groups if size]
                    stage = self._stage(BACKWARD, 0, place)
                    yield microbatch, _part([Item(work, stage, _NOWHERE) for work in sums])

    def _make_backward(
        self, place: int, sharding: Sharding, fed: Sequence[Sharding], samples: int, later: int
    ) -> Part:
        """Return the part of an operator's backward pass: it waits for a forward pass, gets gradients, and computes.

        The forward pass is that of the microbatch `later` microbatches after its own.
        """
        workload, stage = self._problem.workload, self._stage(BACKWARD, 0, place)
        items = [Item(_make_waiting(sharding), self._stage(FORWARD, later, place), stage)]
        for consumer, consuming in zip(self._feeds[place], fed, strict=True):
            size, sliced = workload.edge_bytes((place, consumer)), workload.is_sliced((place, consumer))
            work = _make_sending(BACKWARD, sharding, consuming, samples, size, sliced)
            items.append(Item(work, self._stage(BACKWARD, 0, consumer), stage))
        return _part([*items, *self._pass(BACKWARD, place, sharding, samples, stage)])

    def _pass(
        self, direction: int, place: int, sharding: Sharding, samples: int, stage: int
    ) -> Iterator[Item]:
        """Yield the computing of an operator, the dispatch of samples to experts and back, and the sum over shards."""
        operator = self._operators[place]
        computing = self._computing(place, sharding, samples, direction)
        if sharding.way == "expert":
            sample_bytes = operator.output_bytes * operator.routed
            there, back = _make_dispatch(sharding, samples, sample_bytes, operator.popularity)
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
            yield Item(_make_summing(*zip(*sums, strict=True)), stage, stage)

    def _stage(self, direction: int, microbatch: int, place: int) -> int:
        """Return the number of an operator's stage; the next number is the stage of its experts."""
        return 4 * (microbatch * len(self._operators) + place) + 2 * direction

    def _make_computing(self, place: int, sharding: Sharding, samples: int, direction: int) -> Computing:
        operator, cluster = self._operators[place], self._problem.cluster
        rows = row_samples(sharding, samples)
        counts, where = np.unique(rows, return_inverse=True)
        seconds = [
            operator_seconds(operator, count, sharding.shards, cluster)[direction]
            for count in counts.tolist()
        ]
        return Computing(np.array(sharding.servers), np.array(seconds)[where])

    def _buckets(self, shardings: Sequence[Sharding]) -> Iterator[_Bucket]:
        """Yield the buckets of `workloads.sharding.gradient_buckets`; the gradients of each operator are cached."""
        open_buckets: dict[tuple[Group, ...], _Bucket] = {}
        for place in reversed(range(len(shardings))):
            sizes, groups = self._gradients(place, shardings[place])
            if not any(sizes):
                continue
            bucket = open_buckets.pop(groups, None)
            if bucket and max(bucket.size_bytes) + max(sizes) > BUCKET_BYTES:
                yield bucket
                bucket = None
            if bucket:
                sizes = tuple(held + more for held, more in zip(bucket.size_bytes, sizes, strict=True))
            last = min(place, bucket.last, key=self._rank.__getitem__) if bucket else place
            open_buckets[groups] = _Bucket(last, sizes, groups)
        yield from open_buckets.values()

    def _make_gradients(self, place: int, sharding: Sharding) -> tuple[tuple[int, ...], tuple[Group, ...]]:
        groups = tuple(tuple(sorted(group)) for group in replica_groups(sharding))
        return shard_bytes(self._operators[place], sharding), groups


@lru_cache(_REMEMBERED)
def _make_sending(
    direction: int, producer: Sharding, consumer: Sharding, samples: int, output_bytes: int, sliced: bool
) -> Sending:
    between = backward_resharding if direction else forward_resharding
    return _to_sending(between(producer, consumer, samples, output_bytes, sliced))


@lru_cache(_REMEMBERED)
def _make_dispatch(
    sharding: Sharding, samples: int, sample_bytes: int, popularity: tuple[float, ...]
) -> tuple[Sending, Sending]:
    resharding = dispatch_resharding(sharding, samples, sample_bytes, popularity)
    return _to_sending(resharding), _to_sending(reverse_resharding(resharding))


def _to_sending(resharding: Resharding) -> Sending:
    there = resharding.source != resharding.target
    return Sending(
        resharding.source[there],
        resharding.target[there],
        resharding.size_bytes[there],
        np.unique(resharding.target[~there]),
    )


def _part(items: Sequence[Item]) -> Part:
    stages = np.array([(item.stage, item.onward) for item in items], dtype=np.int64).reshape(-1, 2)
    return Part(tuple(item.work for item in items), stages)


@lru_cache(_REMEMBERED)
def _make_summing(groups: tuple[Group, ...], size_bytes: tuple[int, ...]) -> Summing:
    return Summing(groups, size_bytes)


@lru_cache(_REMEMBERED)
def _make_waiting(sharding: Sharding) -> Sending:
    """Return work that sends nothing: every server keeps its input."""
    none = np.zeros(0, dtype=np.int64)
    return Sending(none, none, none, np.array(sharding.servers))
