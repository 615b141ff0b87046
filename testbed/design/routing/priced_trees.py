"""Trees of cheapest paths to a target, and the load of a demand on their links. Compiled if numba is installed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lightbed.compiled import compile_function


class Links(NamedTuple):
    """Links by number, from node `tail` to node `head`.

    `into[first_in[v] : first_in[v + 1]]` are the links into node v.
    """

    tail: Any
    head: Any
    first_in: Any
    into: Any


class Workspace(NamedTuple):
    """Scratch arrays: prices of links, distances of nodes, a tree, and a heap."""

    price: Any
    distance: Any
    tree: Any
    keys: Any
    nodes: Any


@compile_function
def grow_tree(
    target: int, links: Any, price: Any, distance: Any, next_edge: Any, keys: Any, nodes: Any
) -> None:
    """Fill `next_edge` with each node's link on its cheapest path to the target, and `distance` with the path's price.

    Uses Dijkstra's algorithm. `keys` and `nodes` are scratch arrays for the heap.
    """
    distance[:] = np.inf
    next_edge[:] = -1
    distance[target] = 0.0
    keys[0], nodes[0] = 0.0, target
    heap_size = 1
    while heap_size > 0:
        node_price, node = keys[0], nodes[0]
        heap_size -= 1
        _pop_heap(keys, nodes, heap_size)
        if node_price > distance[node]:
            continue
        for position in range(links.first_in[node], links.first_in[node + 1]):
            link = links.into[position]
            previous_node = links.tail[link]
            new_price = node_price + price[link]
            if new_price < distance[previous_node]:
                distance[previous_node] = new_price
                next_edge[previous_node] = link
                _push_heap(keys, nodes, heap_size, new_price, previous_node)
                heap_size += 1


@compile_function
def _pop_heap(keys: Any, nodes: Any, heap_size: int) -> None:
    """Replace the first entry of a heap by its last, at place `heap_size`, and restore the order."""
    key, node, position = keys[heap_size], nodes[heap_size], 0
    while 2 * position + 1 < heap_size:
        child = 2 * position + 1
        if child + 1 < heap_size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[position], nodes[position] = keys[child], nodes[child]
        position = child
    keys[position], nodes[position] = key, node


@compile_function
def _push_heap(keys: Any, nodes: Any, position: int, key: float, node: int) -> None:
    while position > 0 and keys[(position - 1) // 2] > key:
        keys[position], nodes[position] = keys[(position - 1) // 2], nodes[(position - 1) // 2]
        position = (position - 1) // 2
    keys[position], nodes[position] = key, node


@compile_function
def add_load(node: int, target: int, next_edge: Any, head: Any, load: Any, amount: float) -> None:
    """Add `amount` to the load of every link on the path from a node to the target."""
    while node != target:
        load[next_edge[node]] += amount
        node = head[next_edge[node]]


@compile_function
def add_demand(next_edge: Any, weight: Any, bytes_by_pair: Any, head: Any, load: Any) -> None:
    """Split the bytes of every pair, `bytes_by_pair[s, t]`, over its paths by weight, and add them to the load."""
    set_count, nodes = weight.shape[0], weight.shape[1]
    for set_number in range(set_count):
        for target in range(nodes):
            for source in range(nodes):
                amount = weight[set_number, source, target] * bytes_by_pair[source, target]
                if amount > 0:
                    add_load(source, target, next_edge[set_number, target], head, load, amount)
