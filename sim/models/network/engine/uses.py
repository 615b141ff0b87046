"""Assignment of circuits to pairs of nodes by marginal use, one at a time."""

from __future__ import annotations

from lightbed.compiled import compile_function
from sim.models.network.engine.program import Floats, Integers


@compile_function
def assign_circuits(
    pairs: Integers,
    demand: Floats,
    circuit_counts: Integers,
    free_out: Integers,
    free_in: Integers,
    heap_use: Floats,
    heap_pair: Integers,
) -> None:
    """Add a circuit for the pair of greatest use whose ports are free, until no use is left.

    Pair s * n + t of `pairs`, sorted by use, has the use `demand` for its first circuit, and half as much for each
    further circuit; among equal uses the lower pair comes first. `free_out` and `free_in` (n,) are free ports.
    `heap_use` and `heap_pair` have room for all circuits.
    """
    node_count, size, next_index = free_out.size, 0, 0
    free_circuit_count = min(free_out.sum(), free_in.sum())
    while free_circuit_count > 0 and (size > 0 or next_index < pairs.size):
        takes_next = size == 0
        if not takes_next and next_index < pairs.size:
            use = demand[pairs[next_index]]
            takes_next = use > heap_use[0] or (use == heap_use[0] and pairs[next_index] < heap_pair[0])
        if takes_next:
            pair = pairs[next_index]
            use = demand[pair]
            next_index += 1
        else:
            pair, use = heap_pair[0], heap_use[0]
            size -= 1
            _sift_down(heap_use, heap_pair, size)
        source, target = pair // node_count, pair % node_count
        if free_out[source] > 0 and free_in[target] > 0:
            circuit_counts[source, target] += 1
            free_out[source] -= 1
            free_in[target] -= 1
            free_circuit_count -= 1
            _push(heap_use, heap_pair, size, use / 2, pair)
            size += 1


@compile_function
def _precedes(use: float, pair: int, other_use: float, other_pair: int) -> bool:
    return use > other_use or (use == other_use and pair < other_pair)


@compile_function
def _push(heap_use: Floats, heap_pair: Integers, position: int, use: float, pair: int) -> None:
    """Insert a use at the end of the heap, and move it up."""
    while position > 0:
        parent = (position - 1) // 2
        if not _precedes(use, pair, heap_use[parent], heap_pair[parent]):
            break
        heap_use[position], heap_pair[position] = heap_use[parent], heap_pair[parent]
        position = parent
    heap_use[position], heap_pair[position] = use, pair


@compile_function
def _sift_down(heap_use: Floats, heap_pair: Integers, size: int) -> None:
    """Move the last use to the top of a heap whose top was removed, then down to its place."""
    use, pair, position = heap_use[size], heap_pair[size], 0
    while 2 * position + 1 < size:
        child = 2 * position + 1
        if child + 1 < size and _precedes(
            heap_use[child + 1], heap_pair[child + 1], heap_use[child], heap_pair[child]
        ):
            child += 1
        if not _precedes(heap_use[child], heap_pair[child], use, pair):
            break
        heap_use[position], heap_pair[position] = heap_use[child], heap_pair[child]
        position = child
    heap_use[position], heap_pair[position] = use, pair
