"""Shardings (grids of servers: replicas by shards), strategies (one sharding per operator), and their traffic.

| way | grid (replicas, shards) | parameters | samples | communication |
|---|---|---|---|---|
| data | (n, 1) | whole on each | split over replicas | gradients: AllReduce over replicas |
| tensor | (r, k) | 1/k on each | split over replicas | activations among shards; gradients over replicas |
| place | (1, k) | 1/k on each | all; each has a slice of the output | output to servers that need it, gradients back |
| expert | (r, k) | 1/k on each | split over all r*k servers | all-to-all among shards, there and back |

Samples go to replicas in the order of the grid, or to the servers of an expert-parallel operator in the order of their
numbers. A pipeline is a strategy whose operators have grids over different servers, so that microbatches overlap.

A resharding is the messages between two operators with different shardings. Each replica holds the output for its range
of samples. Each shard of a tensor-parallel operator holds a copy of this output, and each shard of a placed operator a
slice of it. The next operator needs whole outputs for the samples that it computes. Gradients return the same way, but
each shard of a placed operator sends its part of a sum. In both directions, any shard of a tensor-parallel operator can
send a copy. Samples and bytes are cut at whole numbers, so nothing is lost or counted twice.

A step is a group of operators that run as one task. Gradients are summed in buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.workloads.model import Operator, Way, Workload
from testbed.errors import StrategyError

Group = tuple[int, ...]
"""Servers of a collective, a replica or a shard."""

Grid = tuple[Group, ...]

Integers = NDArray[np.int64]
_CACHE_SIZE = 2048


@dataclass(frozen=True, slots=True)
class Sharding:
    """Sharding of an operator: `grid[r][s]` is the server of shard s of replica r."""

    way: Way
    grid: Grid
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Shardings are keys of all cost caches: hashing 128 tuples each time would take longer than computing costs.
        # Hash only integers: shardings are sent to other processes, where a string would have another hash.
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
    """One sharding for each operator of a workload, and the number of microbatches of an iteration."""

    shardings: tuple[Sharding, ...]
    microbatches: int = 1

    def with_sharding(self, op_index: int, sharding: Sharding) -> Strategy:
        """Return the strategy with the sharding of one operator replaced."""
        shardings = (*self.shardings[:op_index], sharding, *self.shardings[op_index + 1 :])
        return Strategy(shardings, self.microbatches)


def make_data_sharding(servers: Sequence[int]) -> Sharding:
    """Return the sharding with one replica per server."""
    return Sharding("data", tuple((server,) for server in servers))


def make_placed_sharding(servers: Sequence[int]) -> Sharding:
    """Return the sharding with a single copy, and a slice of it on each server."""
    return Sharding("place", (tuple(servers),))


def make_spaced_sharding(way: Way, nodes: int, shards: int) -> Sharding:
    """Return replicas on k = `shards` evenly spaced servers {s, s + n/k, ...}, which a ring of stride n/k joins.

    Raises `StrategyError` unless the number of shards divides the number of servers.
    """
    if shards < 1 or nodes < 1 or nodes % shards:
        raise StrategyError(
            f"{shards} shards on {nodes} servers: the number of shards must divide the number of servers, "
            "both at least 1"
        )
    step = nodes // shards
    return Sharding(way, tuple(tuple(range(start, nodes, step)) for start in range(step)))


def make_block_sharding(way: Way, nodes: int, shards: int) -> Sharding:
    """Return replicas on `shards` consecutive servers {s, s + 1, ...}. The copies of each shard are evenly spaced.

    Raises `StrategyError` unless the number of shards divides the number of servers.

    >>> make_block_sharding("tensor", 6, 3).grid
    ((0, 1, 2), (3, 4, 5))
    """
    columns = make_spaced_sharding(way, nodes, nodes // shards if shards and nodes % shards == 0 else 0).grid
    return Sharding(way, tuple(zip(*columns, strict=True)))


class Resharding(NamedTuple):
    """Messages as rows (source server, target server, bytes), including rows within a server. Do not write to them."""

    source: Integers
    target: Integers
    size_bytes: Integers


def split_evenly(total: int, piece_count: int) -> Integers:
    """Return the borders of `piece_count` equal parts of `total`, in whole numbers, shape (piece_count + 1,).

    >>> split_evenly(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(piece_count + 1) * total // piece_count


def count_row_samples(sharding: Sharding, batch: int) -> Integers:
    """Return the number of samples that the replica of each server computes, in the order of `sharding.servers`."""
    return np.repeat(np.diff(split_evenly(batch, sharding.replicas)), sharding.shards)


@lru_cache(maxsize=_CACHE_SIZE)
def make_forward_resharding(
    producer: Sharding, consumer: Sharding, batch: int, output_bytes: int, is_sliced: bool = False
) -> Resharding:
    """Return the messages of an operator's outputs, `output_bytes` per sample, to the next operator.

    With `is_sliced`, shards on both sides work only on their slices, as for a cache of keys and values.
    """
    available_bytes = _list_byte_bounds(
        producer, output_bytes, is_sliced=is_sliced or producer.way == "place"
    )
    needed_bytes = _list_byte_bounds(consumer, output_bytes, is_sliced=is_sliced)
    return _match_sides(
        _Side(producer, *available_bytes), _Side(consumer, *needed_bytes), batch, has_copies=not is_sliced
    )


@lru_cache(maxsize=_CACHE_SIZE)
def make_backward_resharding(
    producer: Sharding, consumer: Sharding, batch: int, output_bytes: int, is_sliced: bool = False
) -> Resharding:
    """Return the messages of the gradients of an operator's outputs, from the consumer to the producer."""
    available_bytes = _list_byte_bounds(consumer, output_bytes, is_sliced=is_sliced)
    needed_bytes = _list_byte_bounds(producer, output_bytes, is_sliced=is_sliced or producer.way == "place")
    return _match_sides(
        _Side(consumer, *available_bytes), _Side(producer, *needed_bytes), batch, has_copies=not is_sliced
    )


@lru_cache(maxsize=_CACHE_SIZE)
def make_dispatch_resharding(
    sharding: Sharding, batch: int, sample_bytes: int, popularity: tuple[float, ...] = ()
) -> Resharding:
    """Return the messages to experts: each server sends its samples to the shards of its replica.

    Shards get equal parts, or with `popularity` the parts of `compute_shard_shares`. `sample_bytes` counts a sample
    once per expert. Results return along the reversed rows.
    """
    first_samples, end_samples = _list_sample_bounds(sharding, batch)
    grid = np.array(sharding.grid)
    shard_count = sharding.shards
    bytes_by_server = (end_samples - first_samples) * sample_bytes
    if popularity:
        borders = np.concatenate([[0.0], np.cumsum(compute_shard_shares(popularity, shard_count))])
        borders[-1] = 1.0
        byte_borders = np.floor(borders * bytes_by_server[:, None]).astype(np.int64)
    else:
        byte_borders = np.arange(shard_count + 1) * bytes_by_server[:, None] // shard_count
    source = np.repeat(grid.ravel(), shard_count)
    target = np.repeat(grid, shard_count, axis=0).ravel()
    return Resharding(source, target, np.diff(byte_borders, axis=1).ravel())


def compute_shard_shares(popularity: tuple[float, ...], shards: int) -> NDArray[np.float64]:
    """Return the fraction of all samples that each shard gets, shape (shards,). A shard holds consecutive experts.

    >>> compute_shard_shares((0.4, 0.1, 0.3, 0.2), 2).tolist()
    [0.5, 0.5]
    """
    borders = split_evenly(len(popularity), shards)
    sums = np.concatenate([[0.0], np.cumsum(popularity)])
    return np.diff(sums[borders])


def reverse_resharding(resharding: Resharding) -> Resharding:
    """Return the messages with source and target exchanged."""
    return Resharding(resharding.target, resharding.source, resharding.size_bytes)


def _list_sample_bounds(sharding: Sharding, batch: int) -> tuple[Integers, Integers]:
    """Return, for each server, the first sample whose output it holds, and the end of its range."""
    if sharding.way == "expert":
        # In the order of server numbers, so that a server holds the same samples with groups of any size.
        borders, rank = split_evenly(batch, len(sharding.servers)), np.argsort(np.argsort(sharding.servers))
        return borders[rank], borders[rank + 1]
    borders = split_evenly(batch, sharding.replicas)
    return np.repeat(borders[:-1], sharding.shards), np.repeat(borders[1:], sharding.shards)


class _Side(NamedTuple):
    """Sender or receiver, and the range of a sample's output bytes that each of its servers holds or needs."""

    sharding: Sharding
    first_bytes: Integers
    end_bytes: Integers


def _list_byte_bounds(sharding: Sharding, output_bytes: int, *, is_sliced: bool) -> tuple[Integers, Integers]:
    """Return, for each server, its first byte of a sample's output, and the end of its range."""
    borders = split_evenly(output_bytes, sharding.shards) if is_sliced else np.array([0, output_bytes])
    repeats = sharding.replicas * sharding.shards // (borders.size - 1)
    return np.tile(borders[:-1], repeats), np.tile(borders[1:], repeats)


def _match_sides(sender: _Side, receiver: _Side, batch: int, *, has_copies: bool) -> Resharding:
    overlap_samples = _compute_overlaps(
        _list_sample_bounds(sender.sharding, batch), _list_sample_bounds(receiver.sharding, batch)
    )
    overlap_bytes = _compute_overlaps(
        (sender.first_bytes, sender.end_bytes), (receiver.first_bytes, receiver.end_bytes)
    )
    # Receivers also wait for outputs of 0 bytes, but not for slices that do not overlap their own.
    has_message = (overlap_samples > 0) & ((overlap_bytes > 0) | (sender.end_bytes.max() == 0))
    if sender.sharding.way == "tensor" and has_copies:
        has_message &= _choose_copies(sender.sharding, receiver.sharding)
    row, column = np.nonzero(has_message)
    sizes = (overlap_samples * overlap_bytes)[row, column]
    return Resharding(
        np.array(sender.sharding.servers)[row], np.array(receiver.sharding.servers)[column], sizes
    )


def _compute_overlaps(
    first_ranges: tuple[Integers, Integers], second_ranges: tuple[Integers, Integers]
) -> Integers:
    """Return the overlap of each of the first ranges with each of the second ranges, negative if they are apart."""
    overlap: Integers = np.minimum.outer(first_ranges[1], second_ranges[1]) - np.maximum.outer(
        first_ranges[0], second_ranges[0]
    )
    return overlap


def _choose_copies(sender: Sharding, receiver: Sharding) -> NDArray[np.bool_]:
    """Return a mask (senders, receivers) of the copy for each receiver: its own, otherwise the copies take turns."""
    grid, targets = np.array(sender.grid), np.array(receiver.servers)
    holds_copy = grid[:, :, None] == targets
    copies_in_turn = np.arange(targets.size) % sender.shards
    copy_index = np.where(holds_copy.any(axis=1), holds_copy.argmax(axis=1), copies_in_turn)
    copies: NDArray[np.bool_] = np.arange(sender.shards)[None, :, None] == copy_index[:, None, :]
    return copies.reshape(-1, targets.size)


def count_microbatch_samples(batch: int, microbatches: int) -> list[int]:
    """Return the number of samples of each microbatch. The numbers differ by at most one."""
    return [int(samples) for samples in np.diff(split_evenly(batch, microbatches))]


def list_trainable(workload: Workload) -> tuple[bool, ...]:
    """Return, for each operator, whether it has a backward pass: if it, or an operator before it, has parameters."""
    needs_gradients = [
        max(operator.parameter_bytes, operator.gradient_bytes) > 0 for operator in workload.operators
    ]
    for producer, consumer in sorted(workload.edges, key=lambda edge: edge[1]):
        needs_gradients[consumer] |= needs_gradients[producer]
    return tuple(has_gradients and workload.training for has_gradients in needs_gradients)


def list_replica_groups(sharding: Sharding) -> Grid:
    """Return, for each shard, the servers with a copy of it, which sum its gradients."""
    return tuple(zip(*sharding.grid, strict=True))


def count_shard_bytes(operator: Operator, sharding: Sharding) -> tuple[int, ...]:
    """Return the bytes of gradients that each group of `list_replica_groups` sums."""
    if sharding.replicas == 1:
        return (0,) * sharding.shards
    return tuple(np.diff(split_evenly(operator.gradient_bytes, sharding.shards)).tolist())


@dataclass(frozen=True, slots=True)
class Bucket:
    """Operators whose gradients are summed together. Each shard has an AllReduce, with its bytes and servers."""

    operators: tuple[int, ...]
    size_bytes: tuple[int, ...]
    groups: Grid


def make_gradient_buckets(workload: Workload, strategy: Strategy, bucket_bytes: float | None) -> list[Bucket]:
    """Return the buckets in the order in which the backward pass completes them.

    Operators with the same groups share a bucket of up to `bucket_bytes`. A larger operator has its own bucket, and so
    has every operator if `bucket_bytes` is None.
    """
    max_bytes = 0.0 if bucket_bytes is None else bucket_bytes
    open_buckets: dict[Grid, Bucket] = {}
    buckets = []
    for op_index in reversed(range(len(workload.operators))):
        sharding = strategy.shardings[op_index]
        sizes, groups = (
            count_shard_bytes(workload.operators[op_index], sharding),
            list_replica_groups(sharding),
        )
        if not any(sizes):
            continue
        bucket = open_buckets.pop(groups, None)
        if bucket is not None and max(bucket.size_bytes) + max(sizes) > max_bytes:
            buckets.append(bucket)
            bucket = None
        open_buckets[groups] = _add_to_bucket(bucket, op_index, sizes, groups)
    return buckets + list(open_buckets.values())


def _add_to_bucket(bucket: Bucket | None, op_index: int, sizes: tuple[int, ...], groups: Grid) -> Bucket:
    if bucket is None:
        return Bucket((op_index,), sizes, groups)
    total_bytes = tuple(
        old_bytes + added_bytes for old_bytes, added_bytes in zip(bucket.size_bytes, sizes, strict=True)
    )
    return Bucket((*bucket.operators, op_index), total_bytes, groups)


def fuse_steps(
    workload: Workload, strategy: Strategy, buckets: Sequence[Bucket]
) -> tuple[tuple[int, ...], ...]:
    """Return the operators in steps, each of which runs as one task.

    A step holds consecutive operators with the same sharding, each of which is the only producer and consumer of its
    neighbour. Nothing is sent between them, and at most one bucket holds their gradients. Times differ only if another
    ready task would have run in between.
    """
    bucket_by_operator = {
        op_index: bucket_number
        for bucket_number, bucket in enumerate(buckets)
        for op_index in bucket.operators
    }
    edges = set(workload.edges)
    producers = [producer for producer, _ in workload.edges]
    consumers = [consumer for _, consumer in workload.edges]

    def can_fuse(first_op_index: int) -> bool:
        second_op_index = first_op_index + 1
        sharding = strategy.shardings[first_op_index]
        is_only_edge = (
            (first_op_index, second_op_index) in edges
            and producers.count(first_op_index) == 1
            and consumers.count(second_op_index) == 1
        )
        shared_buckets = {
            bucket_by_operator[op_index]
            for op_index in (first_op_index, second_op_index)
            if op_index in bucket_by_operator
        }
        return (
            is_only_edge
            and sharding == strategy.shardings[second_op_index]
            and sharding.way in ("data", "tensor")
            and not _has_sum_between(
                workload.operators[first_op_index], workload.operators[second_op_index], sharding
            )
            and len(shared_buckets) <= 1
        )

    steps: list[tuple[int, ...]] = []
    for op_index in range(len(workload.operators)):
        if steps and can_fuse(op_index - 1):
            steps[-1] = (*steps[-1], op_index)
        else:
            steps.append((op_index,))
    return tuple(steps)


def list_single_steps(workload: Workload) -> tuple[tuple[int, ...], ...]:
    """Return a step for each operator."""
    return tuple((op_index,) for op_index in range(len(workload.operators)))


def _has_sum_between(producer: Operator, consumer: Operator, sharding: Sharding) -> bool:
    """Return whether the shards sum activations between two operators, in either pass."""
    return sharding.shards > 1 and bool(producer.forward_reduce_bytes or consumer.backward_reduce_bytes)
