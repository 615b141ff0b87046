"""Steps of a workload: operators that run as one, gradients summed together, and who needs a backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.sharding.resharding import cut
from testbed.design.workloads.sharding.sharding import Grid, Sharding, Strategy


def microbatch_samples(batch: int, microbatches: int) -> list[int]:
    """Return samples of each microbatch; they differ by at most one."""
    return [int(samples) for samples in np.diff(cut(batch, microbatches))]


def trainable(workload: Workload) -> tuple[bool, ...]:
    """Return which operators have a backward pass: those with parameters, or fed by one that has."""
    needed = [max(operator.parameter_bytes, operator.gradient_bytes) > 0 for operator in workload.operators]
    for producer, consumer in sorted(workload.edges, key=lambda edge: edge[1]):
        needed[consumer] |= needed[producer]
    return tuple(each and workload.training for each in needed)


def replica_groups(sharding: Sharding) -> Grid:
    """Return for each shard the servers that hold a copy of it: who sums its gradients."""
    return tuple(zip(*sharding.grid, strict=True))


def shard_bytes(operator: Operator, sharding: Sharding) -> tuple[int, ...]:
    """Return bytes of gradients that each group of `replica_groups` sums."""
    if sharding.replicas == 1:
        return (0,) * sharding.shards
    return tuple(np.diff(cut(operator.gradient_bytes, sharding.shards)).tolist())


@dataclass(frozen=True, slots=True)
class Bucket:
    """Operators whose gradients are summed in one AllReduce for each shard: bytes, and servers, of each."""

    operators: tuple[int, ...]
    size_bytes: tuple[int, ...]
    groups: Grid


def gradient_buckets(workload: Workload, strategy: Strategy, bucket_bytes: float | None) -> list[Bucket]:
    """Return buckets in the order in which a backward pass in reverse order completes them.

    Operators with the same groups share a bucket until the next one would exceed `bucket_bytes`; None gives each
    operator its own. An operator larger than a bucket has one to itself.
    """
    limit = 0.0 if bucket_bytes is None else bucket_bytes
    opened: dict[Grid, Bucket] = {}
    buckets = []
    for place in reversed(range(len(workload.operators))):
        sharding = strategy.shardings[place]
        sizes, groups = shard_bytes(workload.operators[place], sharding), replica_groups(sharding)
        if not any(sizes):
            continue
        bucket = opened.pop(groups, None)
        if bucket is not None and max(bucket.size_bytes) + max(sizes) > limit:
            buckets.append(bucket)
            bucket = None
        opened[groups] = _joined(bucket, place, sizes, groups)
    return buckets + list(opened.values())


def _joined(bucket: Bucket | None, place: int, sizes: tuple[int, ...], groups: Grid) -> Bucket:
    if bucket is None:
        return Bucket((place,), sizes, groups)
    total = tuple(had + more for had, more in zip(bucket.size_bytes, sizes, strict=True))
    return Bucket((*bucket.operators, place), total, groups)


def fused_steps(
    workload: Workload, strategy: Strategy, buckets: Sequence[Bucket]
) -> tuple[tuple[int, ...], ...]:
    """Return neighbouring operators that run as one: same sharding, one feeds only the other, which is fed by it alone.

    Nothing is sent between them, and their gradients wait for each other anyway (one bucket, or none), so one task
    does what several would; the times differ only where another task that is ready would have run in between.
    """
    bucket_of = {place: number for number, bucket in enumerate(buckets) for place in bucket.operators}
    edges = set(workload.edges)
    fed_by = [producer for producer, _ in workload.edges]
    feeds = [consumer for _, consumer in workload.edges]

    def joins(first: int) -> bool:
        second = first + 1
        sharding = strategy.shardings[first]
        alone = (first, second) in edges and fed_by.count(first) == 1 and feeds.count(second) == 1
        together = {bucket_of[place] for place in (first, second) if place in bucket_of}
        return (
            alone
            and sharding == strategy.shardings[second]
            and sharding.way in ("data", "tensor")
            and not _sums_between(workload.operators[first], workload.operators[second], sharding)
            and len(together) <= 1
        )

    steps: list[tuple[int, ...]] = []
    for place in range(len(workload.operators)):
        if steps and joins(place - 1):
            steps[-1] = (*steps[-1], place)
        else:
            steps.append((place,))
    return tuple(steps)


def single_steps(workload: Workload) -> tuple[tuple[int, ...], ...]:
    """Return every operator on its own."""
    return tuple((place,) for place in range(len(workload.operators)))


def _sums_between(first: Operator, second: Operator, sharding: Sharding) -> bool:
    """Return whether shards sum activations between the two, forward or backward."""
    return sharding.shards > 1 and bool(first.forward_reduce_bytes or second.backward_reduce_bytes)
