"""The order of an epoch: the indices of each unit, and the side (trainer or workers) that prepares it.

A unit is an element or a batch. Its number alone determines its side: assigning units to the side that is ready would
change the ratio of the decision.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


def is_remote(unit: int, ratio: float) -> bool:
    """Return whether workers prepare a unit. Of the first n units, floor(n * ratio) go to workers.

    >>> [is_remote(unit, 0.4) for unit in range(5)]
    [False, False, True, False, True]
    """
    return math.floor((unit + 1) * ratio) > math.floor(unit * ratio)


@dataclass(frozen=True, slots=True)
class Order:
    """The indices of an epoch in order.

    `batch_bounds` holds the start of each batch and the end, or () for equal batches.

    >>> Order([5, 6, 7], 2, batch_bounds=(0, 1, 3)).get_batch(1)
    (6, 7)
    """

    indices: Sequence[int]
    batch_size: int
    batch_bounds: Sequence[int] = ()

    @property
    def batch_count(self) -> int:
        """Number of batches. The last may be smaller than `batch_size`."""
        return len(self.batch_bounds) - 1 if self.batch_bounds else -(-len(self.indices) // self.batch_size)

    def get_batch(self, number: int) -> tuple[int, ...]:
        """Return the indices of a batch."""
        if self.batch_bounds:
            return tuple(self.indices[self.batch_bounds[number] : self.batch_bounds[number + 1]])
        return tuple(self.indices[number * self.batch_size : (number + 1) * self.batch_size])

    def iterate_sizes(self, done_count: int) -> Iterator[int]:
        """Yield the sizes of the batches after the first `done_count` elements."""
        if self.batch_bounds:
            yield from (end - begin for begin, end in pairwise(self.batch_bounds) if begin >= done_count)
            return
        for begin in range(done_count, len(self.indices), self.batch_size):
            yield min(self.batch_size, len(self.indices) - begin)

    def take_share(self, first_batch: int, process_count: int) -> Order:
        """Return the share of one of `process_count` processes: every `process_count`-th batch from `first_batch`."""
        batches = [self.get_batch(number) for number in range(first_batch, self.batch_count, process_count)]
        return make_order_of_batches(batches, self.batch_size)


def make_order_of_batches(index_batches: Iterable[Sequence[int]], batch_size: int) -> Order:
    """Return the order of these batches, which may differ in size."""
    index_lists = [list(batch) for batch in index_batches]
    indices = [index for batch in index_lists for index in batch]
    return Order(indices, batch_size, tuple(accumulate((len(batch) for batch in index_lists), initial=0)))


def make_order(
    sample_count: int, batch_size: int, *, shuffle_by: str | None, drop_last: bool = False
) -> Order:
    """Return the order of an epoch: the order of the dataset, or shuffled with the seed `shuffle_by`."""
    indices: Sequence[int] = range(sample_count)
    if shuffle_by is not None:
        shuffled_indices = list(indices)
        random.Random(shuffle_by).shuffle(shuffled_indices)
        indices = shuffled_indices
    if drop_last:
        indices = indices[: sample_count - sample_count % batch_size]
    return Order(indices, batch_size)


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as sorted half-open ranges, to store them in a saved state.

    >>> to_ranges({0, 1, 2, 7})
    [[0, 3], [7, 8]]
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] = number + 1
        else:
            ranges.append([number, number + 1])
    return ranges


def from_ranges(ranges: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the numbers of half-open ranges."""
    for begin, end in ranges:
        yield from range(begin, end)
