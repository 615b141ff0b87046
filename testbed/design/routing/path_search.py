"""Inner loop of `compute_next_hops`: plain functions over arrays, compiled if numba is installed."""

from __future__ import annotations

from typing import Any

from lightbed.compiled import compile_function


@compile_function
def choose_links(neighbours: Any, hops: Any, next_slots: Any, nearer_count: Any, nearer_links: Any) -> None:
    """Fill `next_slots[v, t]` with a link of v on a shortest path to t: of n such links, number (v + t) modulo n.

    `nearer_links[t]` (a bit for each link of v that leads nearer to t) and `nearer_count[t]` are scratch arrays.
    """
    nodes, slot_count = neighbours.shape
    for node in range(nodes):
        for target in range(nodes):
            nearer_count[target] = 0
            nearer_links[target] = 0
        for slot in range(slot_count):
            next_node = neighbours[node, slot]
            if next_node >= 0:
                for target in range(nodes):
                    is_nearer = hops[next_node, target] < hops[node, target]
                    nearer_count[target] += is_nearer
                    nearer_links[target] |= is_nearer << slot
        for target in range(nodes):
            if target != node:
                next_slots[node, target] = _find_bit(
                    nearer_links[target], (node + target) % nearer_count[target]
                )


@compile_function
def _find_bit(bits: int, bit_number: int) -> int:
    """Return the position of the set bit `bit_number`, counted from 0 at the lowest."""
    bit_index = 0
    while True:
        if bits & 1:
            if bit_number == 0:
                return bit_index
            bit_number -= 1
        bits >>= 1
        bit_index += 1
