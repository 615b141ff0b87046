"""Programs: an iteration as a list of work in the order of `workloads.iteration`, built quickly for many strategies.

The computing of an operator, the messages between two shardings and the sums of a group are built once and cached. So a
strategy that differs in one operator costs little more than the list of its parts.
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
from testbed.design.workloads.roofline import compute_operator_seconds
from testbed.design.workloads.sharding import (
    Group,
    Resharding,
    Sharding,
    count_microbatch_samples,
    count_row_samples,
    count_shard_bytes,
    list_replica_groups,
    list_trainable,
    make_backward_resharding,
    make_dispatch_resharding,
    make_forward_resharding,
    reverse_resharding,
    split_evenly,
)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FORWARD, BACKWARD = 0, 1
_CACHE_SIZE = 1 << 13
_NO_STAGE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """Computing: `seconds[i]` on server `servers[i]`."""

    servers: Integers
    seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """Bytes from servers to other servers. `keeping_servers` are servers that already have their input."""

    source: Integers
    target: Integers
    size_bytes: Integers
    keeping_servers: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Summing:
    """Concurrent AllReduces, each of `size_bytes` among the members of a group, in ascending order.

    They share links, so all end together.
    """

    groups: tuple[Group, ...]
    size_bytes: tuple[int, ...]


Work = Computing | Sending | Summing


class WorkItem(NamedTuple):
    """Work that begins when its servers are ready at `stage`. At its end, its receivers are ready at `next_stage`."""

    work: Work
    stage: int
    next_stage: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Work of one operator in one pass. `stage_table`, shape (works, 2), holds `stage` and `next_stage` of each work.

    The stages are for the first microbatch.
    """

    works: tuple[Work, ...]
    stage_table: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Parts in order, over `stages` stages. `items` holds `stage` and `next_stage` of each work of the parts.

    Equal works are the same object, and so are equal parts of equal microbatches.
    """

    nodes: int
    stages: int
    parts: tuple[Part, ...]
    items: Integers


class _Bucket(NamedTuple):
    """Gradients that are summed together after operator `last_operator`: bytes and members of each AllReduce."""

    last_operator: int
    size_bytes: tuple[int, ...]
    groups: tuple[Group, ...]


class ProgramBuilder:
    """Factory of programs for the strategies of one problem; it caches their parts."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        workload = problem.workload
        self._operators = workload.operators
        self._microbatch_samples = count_microbatch_samples(workload.batch, problem.microbatches)
        self._has_backward = list_trainable(workload)
        self._producers: list[list[int]] = [[] for _ in self._operators]
        self._consumers: list[list[int]] = [[] for _ in self._operators]
        for producer, consumer in workload.edges:
            self._producers[consumer].append(producer)
            self._consumers[producer].append(consumer)
        depth_by_operator: list[int] = []
        for producers in self._producers:
            depth_by_operator.append(
                1 + max((depth_by_operator[producer] for producer in producers), default=0)
            )
        self._operator_order = sorted(range(len(depth_by_operator)), key=depth_by_operator.__getitem__)
        self._rank_by_operator = {op_index: rank for rank, op_index in enumerate(self._operator_order)}
        self._get_computing = lru_cache(_CACHE_SIZE)(self._make_computing)
        self._get_gradients = lru_cache(_CACHE_SIZE)(self._make_gradients)
        self._get_forward_part = lru_cache(_CACHE_SIZE)(self._make_forward)
        self._get_backward_part = lru_cache(_CACHE_SIZE)(self._make_backward)

    def build_program(self, shardings: Sequence[Sharding]) -> Program:
        """Return the program of the strategy with these shardings."""
        parts, stage_offsets = [], []
        for microbatch, samples in enumerate(self._microbatch_samples):
            for op_index in self._operator_order:
                producer_shardings = tuple(shardings[producer] for producer in self._producers[op_index])
                parts.append(
                    self._get_forward_part(op_index, shardings[op_index], producer_shardings, samples)
                )
                stage_offsets.append(self._number_stage(FORWARD, microbatch, 0))
        if self._problem.workload.training:
            for microbatch, part in self._make_backward_parts(shardings):
                parts.append(part)
                stage_offsets.append(self._number_stage(FORWARD, microbatch, 0))
        stage_table = np.concatenate([part.stage_table for part in parts])
        work_offsets = np.repeat(stage_offsets, [len(part.works) for part in parts])
        stage_table += np.where(stage_table == _NO_STAGE, 0, work_offsets[:, None])
        return Program(
            self._problem.nodes,
            4 * len(self._operators) * len(self._microbatch_samples),
            tuple(parts),
            stage_table,
        )

    def _make_forward(
        self, op_index: int, sharding: Sharding, producer_shardings: Sequence[Sharding], samples: int
    ) -> Part:
        """Return the part in which an operator receives its inputs and computes its forward pass."""
        items, stage = [], self._number_stage(FORWARD, 0, op_index)
        for producer, producer_sharding in zip(self._producers[op_index], producer_shardings, strict=True):
            edge_bytes = self._problem.workload.compute_edge_bytes((producer, op_index))
            is_sliced = self._problem.workload.is_sliced((producer, op_index))
            work = _make_sending(FORWARD, producer_sharding, sharding, samples, edge_bytes, is_sliced)
            items.append(WorkItem(work, self._number_stage(FORWARD, 0, producer), stage))
        return _make_part([*items, *self._make_pass(FORWARD, op_index, sharding, samples, stage)])

    def _make_backward_parts(self, shardings: Sequence[Sharding]) -> Iterator[tuple[int, Part]]:
        """Yield the microbatch and the part of each operator's backward pass and of each sum of gradients."""
        buckets, last_microbatch = (
            {bucket.last_operator: bucket for bucket in self._collect_buckets(shardings)},
            len(self._microbatch_samples) - 1,
        )
        for microbatch, samples in enumerate(self._microbatch_samples):
            for op_index in reversed(self._operator_order):
                if not self._has_backward[op_index]:
                    continue
                consumer_shardings = tuple(shardings[consumer] for consumer in self._consumers[op_index])
                forward_delay = (
                    0 if consumer_shardings else last_microbatch - microbatch
                )  # the last operator waits for all forward passes
                yield (
                    microbatch,
                    self._get_backward_part(
                        op_index, shardings[op_index], consumer_shardings, samples, forward_delay
                    ),
                )
                if op_index in buckets and microbatch == last_microbatch:
                    groups = zip(buckets[op_index].size_bytes, buckets[op_index].groups, strict=True)
                    sums = [_make_summing((members,), (size,)) for size, members in groups if size]
                    stage = self._number_stage(BACKWARD, 0, op_index)
                    yield microbatch, _make_part([WorkItem(work, stage, _NO_STAGE) for work in sums])

    def _make_backward(
        self,
        op_index: int,
        sharding: Sharding,
        consumer_shardings: Sequence[Sharding],
        samples: int,
        forward_delay: int,
    ) -> Part:
        """Return the part of an operator's backward pass: it waits for a forward pass, gets gradients, and computes.

        It waits for the forward pass of the microbatch that is `forward_delay` after its own.
        """
        workload, stage = self._problem.workload, self._number_stage(BACKWARD, 0, op_index)
        items = [
            WorkItem(_make_waiting(sharding), self._number_stage(FORWARD, forward_delay, op_index), stage)
        ]
        for consumer, consumer_sharding in zip(self._consumers[op_index], consumer_shardings, strict=True):
            edge_bytes, is_sliced = (
                workload.compute_edge_bytes((op_index, consumer)),
                workload.is_sliced((op_index, consumer)),
            )
            work = _make_sending(BACKWARD, sharding, consumer_sharding, samples, edge_bytes, is_sliced)
            items.append(WorkItem(work, self._number_stage(BACKWARD, 0, consumer), stage))
        return _make_part([*items, *self._make_pass(BACKWARD, op_index, sharding, samples, stage)])

    def _make_pass(
        self, direction: int, op_index: int, sharding: Sharding, samples: int, stage: int
    ) -> Iterator[WorkItem]:
        """Yield the computing of an operator, and its dispatch to experts and back or its sum over shards."""
        operator = self._operators[op_index]
        computing = self._get_computing(op_index, sharding, samples, direction)
        if sharding.way == "expert":
            sample_bytes = operator.output_bytes * operator.routed
            dispatch, return_transfer = _make_dispatch(sharding, samples, sample_bytes, operator.popularity)
            yield WorkItem(dispatch, stage, stage + 1)
            yield WorkItem(computing, stage + 1, _NO_STAGE)
            yield WorkItem(return_transfer, stage + 1, stage)
            return
        yield WorkItem(computing, stage, _NO_STAGE)
        size = operator.backward_reduce_bytes if direction else operator.forward_reduce_bytes
        if sharding.way == "tensor" and sharding.shards > 1 and size:
            counts = np.diff(split_evenly(samples, sharding.replicas)).tolist()
            group_bytes = [
                (tuple(sorted(row)), count * size)
                for row, count in zip(sharding.grid, counts, strict=True)
                if count
            ]
            yield WorkItem(_make_summing(*zip(*group_bytes, strict=True)), stage, stage)

    def _number_stage(self, direction: int, microbatch: int, op_index: int) -> int:
        """Return the number of an operator's stage; the next number is the stage of its experts."""
        return 4 * (microbatch * len(self._operators) + op_index) + 2 * direction

    def _make_computing(self, op_index: int, sharding: Sharding, samples: int, direction: int) -> Computing:
        operator, cluster = self._operators[op_index], self._problem.cluster
        samples_by_server = count_row_samples(sharding, samples)
        counts, count_index = np.unique(samples_by_server, return_inverse=True)
        seconds = [
            compute_operator_seconds(operator, count, sharding.shards, cluster)[direction]
            for count in counts.tolist()
        ]
        return Computing(np.array(sharding.servers), np.array(seconds)[count_index])

    def _collect_buckets(self, shardings: Sequence[Sharding]) -> Iterator[_Bucket]:
        """Yield the buckets of `workloads.sharding.make_gradient_buckets`. The gradients of operators are cached."""
        open_buckets: dict[tuple[Group, ...], _Bucket] = {}
        for op_index in reversed(range(len(shardings))):
            sizes, groups = self._get_gradients(op_index, shardings[op_index])
            if not any(sizes):
                continue
            bucket = open_buckets.pop(groups, None)
            if bucket and max(bucket.size_bytes) + max(sizes) > BUCKET_BYTES:
                yield bucket
                bucket = None
            if bucket:
                sizes = tuple(
                    old_bytes + added_bytes
                    for old_bytes, added_bytes in zip(bucket.size_bytes, sizes, strict=True)
                )
            last_operator = (
                min(op_index, bucket.last_operator, key=self._rank_by_operator.__getitem__)
                if bucket
                else op_index
            )
            open_buckets[groups] = _Bucket(last_operator, sizes, groups)
        yield from open_buckets.values()

    def _make_gradients(self, op_index: int, sharding: Sharding) -> tuple[tuple[int, ...], tuple[Group, ...]]:
        groups = tuple(tuple(sorted(group)) for group in list_replica_groups(sharding))
        return count_shard_bytes(self._operators[op_index], sharding), groups


@lru_cache(_CACHE_SIZE)
def _make_sending(
    direction: int, producer: Sharding, consumer: Sharding, samples: int, output_bytes: int, is_sliced: bool
) -> Sending:
    make_edge_resharding = make_backward_resharding if direction else make_forward_resharding
    return _make_remote_sending(make_edge_resharding(producer, consumer, samples, output_bytes, is_sliced))


@lru_cache(_CACHE_SIZE)
def _make_dispatch(
    sharding: Sharding, samples: int, sample_bytes: int, popularity: tuple[float, ...]
) -> tuple[Sending, Sending]:
    resharding = make_dispatch_resharding(sharding, samples, sample_bytes, popularity)
    return _make_remote_sending(resharding), _make_remote_sending(reverse_resharding(resharding))


def _make_remote_sending(resharding: Resharding) -> Sending:
    is_remote = resharding.source != resharding.target
    return Sending(
        resharding.source[is_remote],
        resharding.target[is_remote],
        resharding.size_bytes[is_remote],
        np.unique(resharding.target[~is_remote]),
    )


def _make_part(items: Sequence[WorkItem]) -> Part:
    stage_table = np.array([(item.stage, item.next_stage) for item in items], dtype=np.int64).reshape(-1, 2)
    return Part(tuple(item.work for item in items), stage_table)


@lru_cache(_CACHE_SIZE)
def _make_summing(groups: tuple[Group, ...], size_bytes: tuple[int, ...]) -> Summing:
    return Summing(groups, size_bytes)


@lru_cache(_CACHE_SIZE)
def _make_waiting(sharding: Sharding) -> Sending:
    """Return work that sends nothing: every server keeps its input."""
    no_servers = np.zeros(0, dtype=np.int64)
    return Sending(no_servers, no_servers, no_servers, np.array(sharding.servers))
