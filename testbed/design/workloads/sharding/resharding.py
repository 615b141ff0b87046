"""Resharding: the data between an operator and the next when they are laid out differently.

An operator's output is held by its servers: on replicas for a range of samples each; by shards of a tensor-parallel
operator as a copy each; by shards of a placed one as a slice each, for all samples. The next operator needs whole
outputs for the samples it computes. Gradients go back the same way, except that a tensor-parallel operator may be
asked at any of its shards in both directions, and that the shards of a placed one each send their part of a sum.
Samples and bytes are cut at whole numbers, so nothing is lost or counted twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.workloads.sharding.sharding import Sharding

Integers = NDArray[np.int64]

_REMEMBERED = 2048


class Resharding(NamedTuple):
    """Rows (source server, target server, bytes), those within a server included; do not write to them."""

    source: Integers
    target: Integers
    size_bytes: Integers


def cut(total: int, pieces: int) -> Integers:
    """Return where `pieces` equal parts of `total` begin and end, in whole numbers, (pieces + 1,).

    >>> cut(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(pieces + 1) * total // pieces


def row_samples(sharding: Sharding, batch: int) -> Integers:
    """Return how many samples the replica of each server computes, in the order of `sharding.servers`."""
    return np.repeat(np.diff(cut(batch, sharding.replicas)), sharding.shards)


@lru_cache(maxsize=_REMEMBERED)
def forward_resharding(
    producer: Sharding, consumer: Sharding, batch: int, output_bytes: int, sliced: bool = False
) -> Resharding:
    """Return outputs of `output_bytes` a sample on their way to the next operator.

    `sliced` says that shards of both sides work on their slice alone, as those of a cache of keys and values.
    """
    held = _features(producer, output_bytes, sliced=sliced or producer.way == "place")
    wanted = _features(consumer, output_bytes, sliced=sliced)
    return _between(_Side(producer, *held), _Side(consumer, *wanted), batch, copies=not sliced)


@lru_cache(maxsize=_REMEMBERED)
def backward_resharding(
    producer: Sharding, consumer: Sharding, batch: int, output_bytes: int, sliced: bool = False
) -> Resharding:
    """Return the gradients on the way back, from consumer to producer."""
    held = _features(consumer, output_bytes, sliced=sliced)
    wanted = _features(producer, output_bytes, sliced=sliced or producer.way == "place")
    return _between(_Side(consumer, *held), _Side(producer, *wanted), batch, copies=not sliced)


@lru_cache(maxsize=_REMEMBERED)
def dispatch_resharding(sharding: Sharding, batch: int, sample_bytes: int) -> Resharding:
    """Return samples sent to the experts: each server sends an equal share of its own to each shard of its replica.

    `sample_bytes` counts a sample once for each expert that it goes to. Results return by the same rows reversed.
    """
    first, last = _sample_bounds(sharding, batch)
    grid = np.array(sharding.grid)
    k = sharding.shards
    totals = (last - first) * sample_bytes
    ends = np.arange(k + 1) * totals[:, None] // k
    source = np.repeat(grid.ravel(), k)
    target = np.repeat(grid, k, axis=0).ravel()
    return Resharding(source, target, np.diff(ends, axis=1).ravel())


def reversed_resharding(resharding: Resharding) -> Resharding:
    """Return the same bytes the other way."""
    return Resharding(resharding.target, resharding.source, resharding.size_bytes)


def _sample_bounds(sharding: Sharding, batch: int) -> tuple[Integers, Integers]:
    """Return the first sample whose output each server holds, and the one after the last."""
    if sharding.way == "expert":
        # By number of the server, so that groups of any size keep the samples that copies on all servers have.
        bounds, rank = cut(batch, len(sharding.servers)), np.argsort(np.argsort(sharding.servers))
        return bounds[rank], bounds[rank + 1]
    bounds = cut(batch, sharding.replicas)
    return np.repeat(bounds[:-1], sharding.shards), np.repeat(bounds[1:], sharding.shards)


class _Side(NamedTuple):
    """Sender or receiver: for each server which bytes of a sample's output it holds or wants."""

    sharding: Sharding
    first: Integers
    last: Integers


def _features(sharding: Sharding, output_bytes: int, *, sliced: bool) -> tuple[Integers, Integers]:
    """Return the first byte of a sample's output that is each server's, and the one after the last."""
    ends = cut(output_bytes, sharding.shards) if sliced else np.array([0, output_bytes])
    repeats = sharding.replicas * sharding.shards // (ends.size - 1)
    return np.tile(ends[:-1], repeats), np.tile(ends[1:], repeats)


def _between(sender: _Side, receiver: _Side, batch: int, *, copies: bool) -> Resharding:
    samples = _overlap(_sample_bounds(sender.sharding, batch), _sample_bounds(receiver.sharding, batch))
    features = _overlap((sender.first, sender.last), (receiver.first, receiver.last))
    # Outputs of no bytes still have to be waited for; slices that have nothing in common have not.
    asked = (samples > 0) & ((features > 0) | (sender.last.max() == 0))
    if sender.sharding.way == "tensor" and copies:
        asked &= _chosen_copies(sender.sharding, receiver.sharding)
    row, column = np.nonzero(asked)
    sizes = (samples * features)[row, column]
    return Resharding(
        np.array(sender.sharding.servers)[row], np.array(receiver.sharding.servers)[column], sizes
    )


def _overlap(these: tuple[Integers, Integers], those: tuple[Integers, Integers]) -> Integers:
    """Return how much each of these ranges has in common with each of those; negative where they are apart."""
    overlap: Integers = np.minimum.outer(these[1], those[1]) - np.maximum.outer(these[0], those[0])
    return overlap


def _chosen_copies(sender: Sharding, receiver: Sharding) -> NDArray[np.bool_]:
    """Return which of the equal copies each receiver takes, (senders, receivers): its own, else they take turns."""
    grid, targets = np.array(sender.grid), np.array(receiver.servers)
    own = grid[:, :, None] == targets
    turn = np.arange(targets.size) % sender.shards
    chosen = np.where(own.any(axis=1), own.argmax(axis=1), turn)
    copies: NDArray[np.bool_] = np.arange(sender.shards)[None, :, None] == chosen[:, None, :]
    return copies.reshape(-1, targets.size)
