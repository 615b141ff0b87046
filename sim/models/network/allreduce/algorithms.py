"""AllReduce as rounds of messages: rings, double binary trees, halving and doubling.

Every algorithm returns chains that run side by side; a chain is a sequence of phases. Sizes are integers, and parts
differ by at most one byte, so that sums are exact. `g` is the number of members, `size_bytes` the size of the tensor
of each member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Phase:
    """The same messages in each of `round_count` consecutive rounds.

    `sources`, `targets` and `sizes_bytes` are (messages,).

    With `is_merged` a message moves the bytes of all its rounds at once; see `make_fluid`.
    """

    sources: Integers
    targets: Integers
    sizes_bytes: Integers
    round_count: int = 1
    is_merged: bool = False


Chain = tuple[Phase, ...]
Algorithm = Callable[[Sequence[int], int], tuple[Chain, ...]]
"""A function from members and size in bytes to chains."""


def split_bytes(size_bytes: int, count: int) -> list[int]:
    """Split `size_bytes` into `count` parts that differ by at most one byte, the larger parts first.

    >>> split_bytes(10, 4)
    [3, 3, 2, 2]
    """
    return [size_bytes // count + (index < size_bytes % count) for index in range(count)]


def plan_rings(
    members: Sequence[int], size_bytes: int, *, strides: Sequence[int] = (1,)
) -> tuple[Chain, ...]:
    """Return one ring for each stride; each ring reduces an equal share in 2(g-1) rounds of 1/g of the share.

    With stride p, position i sends to i + p mod g. Every member sends 2(g-1)/g of the tensor (Patarasuk and Yuan,
    2009). All messages of a ring have the size of its largest message: a share of 10 bytes over 4 members moves 3 bytes
    in most messages and 2 in others, but a round lasts as long as its largest message.

    Raise `ValueError` if a stride and g have a common factor.
    """
    members, member_count = list(members), len(members)
    for stride in strides:
        if member_count > 1 and gcd(stride, member_count) != 1:
            raise ValueError(
                f"stride {stride} does not form a single ring of {member_count} members: choose one without a common "
                "factor"
            )
    if member_count == 1 or size_bytes == 0:
        return ()
    order = np.array(members)

    def make_chain(stride: int, share_bytes: int) -> Chain:
        sizes = np.full(member_count, -(-share_bytes // member_count))
        return (Phase(order, np.roll(order, -stride), sizes, round_count=2 * (member_count - 1)),)

    shares = split_bytes(size_bytes, len(strides))
    return tuple(make_chain(stride, share) for stride, share in zip(strides, shares, strict=True) if share)


def plan_exchange(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
    """Return a single round with all bytes of a ring, as the packet simulator moves small AllReduces."""
    member_count = len(members)
    if member_count == 1 or size_bytes == 0:
        return ()
    order = np.array(members)
    return (
        (
            Phase(
                order,
                np.roll(order, -1),
                np.full(member_count, -(-2 * (member_count - 1) * size_bytes // member_count**2)),
            ),
        ),
    )


def plan_halving_doubling(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
    """Return recursive halving, then doubling: 2 log2(g) rounds (Rabenseifner, 2004).

    Each member sends 2(g-1)/g of the tensor. Members beyond the largest power of two first send their tensor to a
    partner, and receive the sum at the end.
    """
    member_count = len(members)
    if member_count == 1 or size_bytes == 0:
        return ()
    core_count = 1 << (member_count.bit_length() - 1)
    remaining_members = np.array(members[core_count:], dtype=np.int64)
    partners = np.array(members[: member_count - core_count], dtype=np.int64)
    full_sizes = np.full(member_count - core_count, size_bytes)
    halves = [
        _make_halving_round(np.array(members[:core_count]), core_count >> step, size_bytes)
        for step in range(1, core_count.bit_length())
    ]
    rounds = [*halves, *reversed(halves)]
    if member_count > core_count:
        rounds = [
            Phase(remaining_members, partners, full_sizes),
            *rounds,
            Phase(partners, remaining_members, full_sizes),
        ]
    return (tuple(rounds),)


def _make_halving_round(order: Integers, distance: int, size_bytes: int) -> Phase:
    """Return the phase in which ranks that differ in the bit `distance` send each other distance/g of the tensor."""
    ranks = np.arange(order.size)
    return Phase(order, order[ranks ^ distance], np.full(order.size, -(-size_bytes * distance // order.size)))


TREE_CHUNK_BYTES = 512 * 1024
"""Size of a chunk on a tree: NCCL's buffer of 4 MiB in 8 steps (NCCL_BUFFSIZE, NCCL_STEPS)."""


def plan_double_binary_tree(
    members: Sequence[int], size_bytes: int, *, chunk_bytes: int = TREE_CHUNK_BYTES, multiplier: int = 1
) -> tuple[Chain, ...]:
    """Return two binary trees, each of which reduces half of the tensor (Sanders, Speck and Traff, 2009).

    A leaf of one tree is an inner node of the other. Chunks are pipelined up and then down each tree, one level per
    round. `multiplier` relabels position i to i * multiplier mod g, as a stride does with a ring. Raise `ValueError`
    if the multiplier and g have a common factor.
    """
    member_count = len(members)
    if gcd(multiplier, member_count) != 1:
        raise ValueError(
            f"multiplier {multiplier} shares a factor with {member_count} members: labels would collide"
        )
    if member_count == 1 or size_bytes == 0:
        return ()
    order = [members[index * multiplier % member_count] for index in range(member_count)]
    next_members = order[1:] + order[:1]
    trees = zip((order, next_members), split_bytes(size_bytes, 2), strict=True)
    return tuple(_make_pipeline(_list_levels(labels), share, chunk_bytes) for labels, share in trees if share)


def find_tree_parents(member_count: int) -> list[int]:
    """Return the parent of each position in a binary tree whose odd positions are leaves.

    The parent of position i with lowest set bit b is i + b or i - b, whichever has bit 2b set. If i + b is outside the
    tree, the parent is i - b. Position 0 is the root: it has one child, and is its own parent.

    >>> find_tree_parents(8)
    [0, 2, 4, 2, 0, 6, 4, 6]
    """
    return [_find_parent(position, member_count) for position in range(member_count)]


def _find_parent(position: int, member_count: int) -> int:
    if position == 0:
        return 0
    bit = position & -position
    parent_position = (position ^ bit) | (bit << 1)
    return parent_position if parent_position < member_count else position ^ bit


def _list_levels(labels: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return (child, parent) pairs by distance from the root, the deepest level first."""
    parents = find_tree_parents(len(labels))

    def measure_depth(position: int) -> int:
        return 0 if position == 0 else 1 + measure_depth(parents[position])

    deepest = max(map(measure_depth, range(len(labels))))
    return [
        [
            (labels[node], labels[parents[node]])
            for node in range(1, len(labels))
            if measure_depth(node) == level
        ]
        for level in range(deepest, 0, -1)
    ]


def _make_pipeline(up_levels: list[list[tuple[int, int]]], share_bytes: int, chunk_bytes: int) -> Chain:
    """Return the chain that moves the chunks up, then down the levels: level l is busy in rounds l..l + chunks - 1."""
    down_levels = [[(parent, child) for child, parent in level] for level in reversed(up_levels)]
    levels = up_levels + down_levels
    chunk_count = -(-share_bytes // chunk_bytes)
    # The set of busy levels changes only here, so the rounds between two bounds are one phase of equal rounds.
    bounds = sorted({*range(len(levels)), *(chunk_count + level for level in range(len(levels)))})
    message_bytes = -(-share_bytes // chunk_count)
    phases = []
    for begin, end in pairwise(bounds):
        sources, targets = _find_busy_pairs(levels, chunk_count, begin).T
        phases.append(Phase(sources, targets, np.full(sources.size, message_bytes), round_count=end - begin))
    return tuple(phases)


def _find_busy_pairs(levels: list[list[tuple[int, int]]], chunk_count: int, round_index: int) -> Integers:
    pairs = [
        pair
        for level, edges in enumerate(levels)
        if level <= round_index < level + chunk_count
        for pair in edges
    ]
    return np.array(pairs, dtype=np.int64)
