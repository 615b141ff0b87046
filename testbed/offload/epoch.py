"""The order of an epoch: which indices form which unit, which side prepares it, and what is done already.

A unit is what one side prepares at once: an element, or a batch. Sides are chosen by counting alone, never by who is
ready, since that would change the share that was decided.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


def is_remote(unit: int, ratio: float) -> bool:
    """Return whether a unit goes to workers: of the first n units floor(n * ratio) do.

    >>> [is_remote(unit, 0.4) for unit in range(5)]
    [False, False, True, False, True]
    """
    return math.floor((unit + 1) * ratio) > math.floor(unit * ratio)


@dataclass(frozen=True, slots=True)
class Order:
    """The indices of an epoch in the order in which batches take them."""

    indices: Sequence[int]
    batch_size: int

    @property
    def batches(self) -> int:
        """Number of batches; the last may be smaller."""
        return -(-len(self.indices) // self.batch_size)

    def batch(self, number: int) -> tuple[int, ...]:
        """Return the indices of a batch."""
        return tuple(self.indices[number * self.batch_size : (number + 1) * self.batch_size])


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
