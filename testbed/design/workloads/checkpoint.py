"""Checkpoints of a training job: the bytes that each server writes, and their transfers to storage hosts.

A checkpoint holds parameters and optimiser state, but no gradients: the next iteration computes them again. Half
precision with Adam has 14 bytes per parameter: 2 for the weight, and 4 each for its master copy and two moments. Single
precision with plain gradient descent has 4. Every byte is written once: replicas hold the same data and divide it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.sharding import Strategy, split_evenly
from testbed.errors import WorkloadError

Mode = Literal["blocking", "overlapped"]
"""A `blocking` write begins when the iteration has ended, an `overlapped` write begins with the iteration."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage hosts of a cluster, numbered after all servers: `host_count` hosts of `nic_count` NICs, as in servers."""

    host_count: int
    nic_count: int = 1

    @property
    def node_count(self) -> int:
        """Total number of nodes of the storage hosts, one per NIC."""
        return self.host_count * self.nic_count


def compute_saved_bytes(operator: Operator) -> int:
    """Return the bytes of an operator in a checkpoint: parameters, and state without gradients.

    With ZeRO, `gradient_bytes` is network traffic, which may exceed the gradients in memory, so it is limited.
    """
    gradient_bytes = min(operator.gradient_bytes, operator.parameter_bytes, operator.state_bytes)
    return operator.parameter_bytes + operator.state_bytes - gradient_bytes


def divide_checkpoint(workload: Workload, strategy: Strategy, nodes: int) -> tuple[int, ...]:
    """Return the bytes that each server writes.

    The servers of an operator write equal parts of its bytes. All values are 0 for a workload without training, which
    has nothing to save.
    """
    bytes_by_server = np.zeros(nodes, dtype=np.int64)
    if workload.training:
        for operator, sharding in zip(workload.operators, strategy.shardings, strict=True):
            servers = np.array(sharding.servers)
            bytes_by_server[servers] += np.diff(split_evenly(compute_saved_bytes(operator), servers.size))
    return tuple(bytes_by_server.tolist())


def divide_evenly(size_bytes: int, nodes: int) -> tuple[int, ...]:
    """Return equal parts of `size_bytes` for the nodes, in whole bytes."""
    return tuple(np.diff(split_evenly(size_bytes, nodes)).tolist())


def add_storage(graph: TaskGraph, storage: Storage) -> TaskGraph:
    """Return the graph in a cluster with additional storage hosts, which compute nothing."""
    return replace(graph, node_count=graph.node_count + storage.node_count)


def add_checkpoint(
    graph: TaskGraph, bytes_by_node: tuple[int, ...], storage: Storage, mode: Mode
) -> TaskGraph:
    """Return the graph with storage hosts and the write of a checkpoint: `bytes_by_node[i]` bytes from node i.

    Each node divides its bytes over all storage hosts. NIC i of a server sends to NIC i of a storage host, so that each
    write stays on one rail in a rail network. Raises `WorkloadError` unless there is one share per node, and if there
    is nothing to write.
    """
    if len(bytes_by_node) != graph.node_count:
        raise WorkloadError(
            f"a checkpoint of {len(bytes_by_node)} shares for {graph.node_count} nodes: give one per node"
        )
    messages = [
        (node, graph.node_count + host * storage.nic_count + node % storage.nic_count, int(message_bytes))
        for node, node_bytes in enumerate(bytes_by_node)
        for host, message_bytes in enumerate(np.diff(split_evenly(node_bytes, storage.host_count)))
        if message_bytes
    ]
    if not messages:
        raise WorkloadError("the job has nothing to save: it does not train; give --checkpoint-bytes")
    leaves = np.setdiff1d(np.arange(graph.task_count), graph.before)
    barrier_count = int(mode == "blocking" and leaves.size > 0)
    barrier, first_write = graph.task_count, graph.task_count + barrier_count
    source, target, size_bytes = np.array(messages, dtype=np.int64).T
    kind = np.array([Kind.BARRIER] * barrier_count + [Kind.TRANSFER] * len(messages), dtype=np.int64)
    no_values = np.full(kind.size, -1, dtype=np.int64)
    write_tasks = first_write + np.arange(len(messages))
    earlier_tasks, later_tasks = [graph.before], [graph.after]
    if barrier_count:
        earlier_tasks += [leaves, np.full(write_tasks.size, barrier)]
        later_tasks += [np.full(leaves.size, barrier), write_tasks]

    def extend_column(values: NDArray[np.int64], barrier_value: int) -> NDArray[np.int64]:
        return np.concatenate([np.full(barrier_count, barrier_value, dtype=np.int64), values])

    return replace(
        add_storage(graph, storage),
        kind=np.concatenate([graph.kind, kind]),
        device=np.concatenate([graph.device, no_values]),
        time_s=np.concatenate([graph.time_s, np.zeros(kind.size)]),
        size_bytes=np.concatenate([graph.size_bytes, extend_column(size_bytes, 0)]),
        source=np.concatenate([graph.source, extend_column(source, -1)]),
        target=np.concatenate([graph.target, extend_column(target, -1)]),
        group=np.concatenate([graph.group, no_values]),
        before=np.concatenate(earlier_tasks),
        after=np.concatenate(later_tasks),
    )
