"""Trees of cheapest paths to a target, and the load of a demand on their links. Compiled if numba is installed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lightbed.compiled import compile_function


class Links(NamedTuple):
    """Links by number, from node `tail` to node `head`.

    `links_by_head[first_in_index[v] : first_in_index[v + 1]]` are the links into node v.
    """

    tail: Any
    head: Any
    first_in_index: Any
    links_by_head: Any


class Workspace(NamedTuple):
    """Scratch arrays: prices of links, distances of nodes, a tree, and a heap."""

    price: Any
    distance: Any
    tree: Any
    heap_keys: Any
    heap_nodes: Any


@compile_function
def grow_tree(
    target: int, links: Any, price: Any, distance: Any, next_edge: Any, heap_keys: Any, heap_nodes: Any
) -> None:
    """Fill `next_edge` with each node's link on its cheapest path to the target, and `distance` with the path's price.

    Uses Dijkstra's algorithm. `heap_keys` and `heap_nodes` are scratch arrays for the heap.
    """
    distance[:] = np.inf
    next_edge[:] = -1
    distance[target] = 0.0
    heap_keys[0], heap_nodes[0] = 0.0, target
    heap_size = 1
    while heap_size > 0:
        node_price, node = heap_keys[0], heap_nodes[0]
        heap_size -= 1
        _pop_heap(heap_keys, heap_nodes, heap_size)
        if node_price > distance[node]:
            continue
        for position in range(links.first_in_index[node], links.first_in_index[node + 1]):
            link = links.links_by_head[position]
            previous_node = links.tail[link]
            new_price = node_price + price[link]
            if new_price < distance[previous_node]:
                distance[previous_node] = new_price
                next_edge[previous_node] = link
                _push_heap(heap_keys, heap_nodes, heap_size, new_price, previous_node)
                heap_size += 1


@compile_function
def _pop_heap(heap_keys: Any, heap_nodes: Any, heap_size: int) -> None:
    """Replace the first entry of a heap by its last, at place `heap_size`, and restore the order."""
    key, node, position = heap_keys[heap_size], heap_nodes[heap_size], 0
    while 2 * position + 1 < heap_size:
        child = 2 * position + 1
        if child + 1 < heap_size and heap_keys[child + 1] < heap_keys[child]:
            child += 1
        if heap_keys[child] >= key:
            break
        heap_keys[position], heap_nodes[position] = heap_keys[child], heap_nodes[child]
        position = child
    heap_keys[position], heap_nodes[position] = key, node


@compile_function
def _push_heap(heap_keys: Any, heap_nodes: Any, position: int, key: float, node: int) -> None:
    while position > 0 and heap_keys[(position - 1) // 2] > key:
        heap_keys[position], heap_nodes[position] = (
            heap_keys[(position - 1) // 2],
            heap_nodes[(position - 1) // 2],
        )
        position = (position - 1) // 2
    heap_keys[position], heap_nodes[position] = key, node


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
