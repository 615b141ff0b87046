"""The order of an epoch: which indices form which unit, which side prepares it, and what is done already.

A unit is what one side prepares at once: an element, or a batch. Sides are chosen by counting alone, never by who is
ready, since that would change the share that was decided.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


def is_remote(unit: int, ratio: float) -> bool:
    """Return whether a unit goes to workers: of the first n units floor(n * ratio) do.

    >>> [is_remote(unit, 0.4) for unit in range(5)]
    [False, False, True, False, True]
    """
    return math.floor((unit + 1) * ratio) > math.floor(unit * ratio)


@dataclass(frozen=True, slots=True)
class Order:
    """The indices of an epoch in the order in which batches take them; `bounds` has where each begins, and the end.

    >>> Order([5, 6, 7], 2, bounds=(0, 1, 3)).batch(1)
    (6, 7)
    """

    indices: Sequence[int]
    batch_size: int
    bounds: Sequence[int] = ()

    @property
    def batches(self) -> int:
        """Number of batches; the last may be smaller."""
        return len(self.bounds) - 1 if self.bounds else -(-len(self.indices) // self.batch_size)

    def batch(self, number: int) -> tuple[int, ...]:
        """Return the indices of a batch."""
        if self.bounds:
            return tuple(self.indices[self.bounds[number] : self.bounds[number + 1]])
        return tuple(self.indices[number * self.batch_size : (number + 1) * self.batch_size])

    def sizes(self, done: int) -> Iterator[int]:
        """Yield the sizes of the batches after so many elements."""
        if self.bounds:
            yield from (end - first for first, end in pairwise(self.bounds) if first >= done)
            return
        for first in range(done, len(self.indices), self.batch_size):
            yield min(self.batch_size, len(self.indices) - first)

    def share(self, first: int, count: int) -> Order:
        """Return every batch of so many, from the first on: the part of one of several processes."""
        mine = [self.batch(number) for number in range(first, self.batches, count)]
        return order_of_batches(mine, self.batch_size)


def order_of_batches(batches: Iterable[Sequence[int]], batch_size: int) -> Order:
    """Return the order in which a sampler has put whole batches, of any sizes."""
    lists = [list(batch) for batch in batches]
    indices = [index for batch in lists for index in batch]
    return Order(indices, batch_size, tuple(accumulate((len(batch) for batch in lists), initial=0)))


def order_of(count: int, batch_size: int, *, shuffle_by: str | None, drop_last: bool = False) -> Order:
    """Return the order of an epoch: as the dataset has it, or shuffled by a seed."""
    indices: Sequence[int] = range(count)
    if shuffle_by is not None:
        shuffled = list(indices)
        random.Random(shuffle_by).shuffle(shuffled)
        indices = shuffled
    if drop_last:
        indices = indices[: count - count % batch_size]
    return Order(indices, batch_size)


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as half-open ranges, for a state that is saved.

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
    for first, end in ranges:
        yield from range(first, end)
