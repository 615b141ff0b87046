"""Demand of a job in an iteration: AllReduces in groups, and bytes between pairs of nodes.

The functions that build a demand check everything, so that searches can trust the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from testbed.design.topology.strides import list_totient_strides
from testbed.errors import DemandError, TopologyError


@dataclass(frozen=True, slots=True)
class AllReduceDemand:
    """AllReduce of `size_bytes` within each group {s, s + n/k, s + 2n/k, ...} of k = `group_size` among n nodes."""

    group_size: int
    size_bytes: int

    @property
    def bytes_sent(self) -> float:
        """Bytes that every member sends in a ring AllReduce: 2(k-1)/k times the size."""
        return 2 * (self.group_size - 1) / self.group_size * self.size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The traffic of one iteration among `nodes` nodes.

    `source`, `target` and `size_bytes` have one entry per one-way pair, sorted. Use `make_demand` or
    `make_matrix_demand` to build a checked demand.
    """

    nodes: int
    allreduce: tuple[AllReduceDemand, ...]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    size_bytes: NDArray[np.float64]

    @property
    def allreduce_bytes(self) -> float:
        """Total bytes that all members of all groups send."""
        return self.nodes * sum(demand.bytes_sent for demand in self.allreduce)

    @property
    def pair_bytes(self) -> float:
        """Total bytes between pairs."""
        return float(self.size_bytes.sum())


def make_demand(
    nodes: int,
    allreduce: Iterable[AllReduceDemand] = (),
    pair_bytes: Iterable[tuple[int, int, float]] = (),
) -> Demand:
    """Return a demand from AllReduces and triples (source, target, bytes).

    Bytes of equal pairs are summed. Bytes from a node to itself and groups of one node need no link and are dropped.
    Raises `DemandError` for a size that is negative or not a number, a node that does not exist, and a group that does
    not divide the nodes.
    """
    triples = list(pair_bytes)
    source = np.array([pair[0] for pair in triples], dtype=np.int64)
    target = np.array([pair[1] for pair in triples], dtype=np.int64)
    return make_array_demand(nodes, allreduce, source, target, [pair[2] for pair in triples])


def make_matrix_demand(matrix: ArrayLike, allreduce: Iterable[AllReduceDemand] = ()) -> Demand:
    """Return a demand from a square matrix: entry (s, t) holds the bytes from s to t.

    Raises `DemandError` for a matrix that is not square, and as `make_demand` does.
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        raise DemandError(f"a demand matrix of shape {table.shape}: give one row and one column per node")
    if np.isnan(table).any():
        row, column = np.argwhere(np.isnan(table))[0]
        raise DemandError(f"demand from node {row} to node {column} is not a number: give bytes of 0 or more")
    source, target = np.nonzero(table)
    return make_array_demand(len(table), allreduce, source, target, table[source, target])


def sum_by_hosts(demand: Demand, domain_size: int) -> Demand:
    """Return the demand among hosts, each of which holds `domain_size` consecutive nodes of the demand.

    An AllReduce first sums within each host. Groups with members in the same hosts add up. For example, 8 nodes in
    hosts of 2 have two groups of 4, {0, 2, 4, 6} and {1, 3, 5, 7}, which make two sums over all 4 hosts:

    >>> sum_by_hosts(make_demand(8, [AllReduceDemand(4, 100)], [(0, 1, 5), (1, 2, 7)]), 2).allreduce
    (AllReduceDemand(group_size=4, size_bytes=200),)
    """
    hosts = demand.nodes // domain_size
    allreduce_demands = []
    for allreduce_demand in demand.allreduce:
        group_count = demand.nodes // allreduce_demand.group_size
        spans_all_hosts = group_count % domain_size != 0
        allreduce_demands.append(
            AllReduceDemand(
                hosts if spans_all_hosts else allreduce_demand.group_size,
                allreduce_demand.size_bytes * (group_count if spans_all_hosts else domain_size),
            )
        )
    return make_array_demand(
        hosts,
        allreduce_demands,
        demand.source // domain_size,
        demand.target // domain_size,
        demand.size_bytes,
    )


def make_array_demand(
    nodes: int,
    allreduce: Iterable[AllReduceDemand],
    source: ArrayLike,
    target: ArrayLike,
    size_bytes: ArrayLike,
) -> Demand:
    """Return a demand from three arrays of equal length. Raises `DemandError` as `make_demand` does."""
    if nodes < 1:
        raise DemandError(f"{nodes} nodes: a job needs at least 1")
    source_nodes, target_nodes = np.asarray(source, dtype=np.int64), np.asarray(target, dtype=np.int64)
    sizes = np.asarray(size_bytes, dtype=np.float64)
    if not len(source_nodes) == len(target_nodes) == len(sizes):
        raise DemandError(
            f"{len(source_nodes)} sources, {len(target_nodes)} targets, {len(sizes)} sizes: give equally many"
        )
    invalid_indices = np.flatnonzero(~np.isfinite(sizes) | (sizes < 0))
    if len(invalid_indices):
        index = invalid_indices[0]
        raise DemandError(
            f"demand from node {source_nodes[index]} to node {target_nodes[index]} is {sizes[index]} bytes: "
            "give a number of 0 or more"
        )
    invalid_node_indices = np.flatnonzero(
        (np.minimum(source_nodes, target_nodes) < 0) | (np.maximum(source_nodes, target_nodes) >= nodes)
    )
    if len(invalid_node_indices):
        index = invalid_node_indices[0]
        raise DemandError(
            f"demand from node {source_nodes[index]} to node {target_nodes[index]}: "
            f"there are nodes 0 to {nodes - 1} only"
        )
    allreduce_demands = tuple(demand for demand in allreduce if demand.group_size != 1)
    for demand in allreduce_demands:
        check_group(nodes, demand)
    pair_key, pair_index = np.unique(source_nodes * nodes + target_nodes, return_inverse=True)
    summed_bytes = np.bincount(pair_index, weights=sizes, minlength=len(pair_key))
    needs_link = (summed_bytes > 0) & (pair_key // nodes != pair_key % nodes)
    return Demand(
        nodes,
        allreduce_demands,
        pair_key[needs_link] // nodes,
        pair_key[needs_link] % nodes,
        summed_bytes[needs_link],
    )


def check_group(nodes: int, demand: AllReduceDemand) -> None:
    """Raise `DemandError` unless the groups evenly divide the nodes and the bytes are finite and not negative."""
    if demand.group_size > nodes:
        raise DemandError(
            f"a group of {demand.group_size} nodes in a job of {nodes}: a group cannot be larger than the job"
        )
    try:
        list_totient_strides(nodes, demand.group_size)
    except TopologyError as error:
        raise DemandError(str(error)) from error
    if not np.isfinite(demand.size_bytes) or demand.size_bytes < 0:
        raise DemandError(f"AllReduce of {demand.size_bytes} bytes: give a size of 0 or more")
