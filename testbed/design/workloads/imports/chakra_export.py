"""Export of a job to Chakra execution traces, one file per rank. Times of tasks survive export and import.

The format orders nodes only within a rank. If a task waits for a task of another rank, a message of 0 bytes is added.
Nodes have the numbers of their tasks. Attributes, which other readers skip, hold what the format lacks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from lightbed.output_file import write_output
from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.workloads.imports import chakra_wire as wire
from testbed.design.workloads.imports.chakra import DEVICE, GROUPS_FILE, SECONDS
from testbed.design.workloads.imports.chakra_wire import Node, Value
from testbed.errors import WorkloadError


def export_traces(graph: TaskGraph, folder: str | Path, name: str) -> tuple[Path, ...]:
    """Write `NAME.RANK.et` for each server of a job, and its process groups, and return the paths.

    Raises `WorkloadError` if the folder has traces of another job, since they would be read together, and for a graph
    with exchanges, which the format lacks. Raises `OSError` if a file cannot be written.
    """
    if graph.exchanges:
        raise WorkloadError(
            f"{name} holds each all-to-all as one task, which traces cannot store: open the job with"
            " exchanges_by_pair=True"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(graph)
    paths = [folder / f"{name}.{rank}.et" for rank in range(graph.node_count)]
    foreign_files = sorted(set(folder.glob("*.et")) - set(paths))
    if foreign_files:
        raise WorkloadError(
            f"{folder} contains traces of another job, {foreign_files[0].name}: give an empty folder"
        )
    for path, nodes in zip(paths, writer.make_nodes_by_rank(), strict=True):
        write_output(path, wire.write_nodes(nodes))
    write_output(folder / GROUPS_FILE, json.dumps(writer.groups) + "\n")
    return (*paths, folder / GROUPS_FILE)


class _Writer:
    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        self._predecessors: dict[int, list[int]] = defaultdict(list)
        for predecessor, successor in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
            self._predecessors[successor].append(predecessor)
        self._rank = _assign_ranks(graph)
        self._nodes: list[list[Node]] = [[] for _ in range(graph.node_count)]
        self._notice_nodes: dict[tuple[int, int], int] = {}
        self._next_number = graph.task_count
        self._group_names: dict[tuple[int, ...], str] = {}

    @property
    def groups(self) -> dict[str, list[int]]:
        """Members of each process group."""
        return {name: list(members) for members, name in self._group_names.items()}

    def make_nodes_by_rank(self) -> list[list[Node]]:
        """Return the nodes of each rank."""
        for task, kind in enumerate(self._graph.kind.tolist()):
            if kind == Kind.ALLREDUCE:
                members = self._graph.groups[self._graph.group[task]]
                group_attribute: dict[str, Value] = {}
                if members != tuple(range(self._graph.node_count)):
                    group_attribute = {
                        "pg_name": self._group_names.setdefault(members, str(len(self._group_names) + 1))
                    }
                size = int(self._graph.size_bytes[task])
                for rank in members:
                    communication_attributes: dict[str, Value] = {
                        "comm_type": wire.ALL_REDUCE,
                        "comm_size": size,
                        "comm_tag": task,
                    }
                    local_nodes = self._list_local_nodes(task, rank) if rank == self._rank[task] else ()
                    self._add(
                        rank, task, wire.COLLECTIVE, communication_attributes | group_attribute, local_nodes
                    )
            elif kind == Kind.TRANSFER and self._graph.source[task] != self._graph.target[task]:
                source, target = int(self._graph.source[task]), int(self._graph.target[task])
                self._add_message(
                    task,
                    source,
                    target,
                    int(self._graph.size_bytes[task]),
                    self._list_local_nodes(task, source),
                )
            else:
                device = int(self._graph.device[task]) if kind == Kind.COMPUTE else -1
                self._add(
                    self._rank[task],
                    task,
                    wire.COMPUTE,
                    {DEVICE: device},
                    self._list_local_nodes(task, self._rank[task]),
                )
        return [sorted(nodes, key=lambda node: node.number) for nodes in self._nodes]

    def _add(
        self,
        rank: int,
        number: int,
        kind: int,
        attributes: dict[str, Value],
        predecessors: tuple[int, ...] = (),
    ) -> None:
        task_s = float(self._graph.time_s[number]) if number < self._graph.task_count else 0.0
        time_attribute: dict[str, Value] = (
            {SECONDS: task_s} if task_s and kind in (wire.COMPUTE, wire.COLLECTIVE) else {}
        )
        name = {wire.COMPUTE: "compute", wire.SEND: "send", wire.RECEIVE: "receive"}.get(kind, "all_reduce")
        all_attributes: dict[str, Value] = {"is_cpu_op": False} | attributes | time_attribute
        self._nodes[rank].append(
            Node(number, f"{name}_{number}", kind, predecessors, round(task_s * 1e6), all_attributes)
        )

    def _add_message(
        self, number: int, source: int, target: int, size_bytes: int, predecessors: tuple[int, ...]
    ) -> None:
        communication_attributes: dict[str, Value] = {"comm_size": size_bytes, "comm_tag": number}
        communication_attributes |= {"comm_src": source, "comm_dst": target}
        self._add(source, number, wire.SEND, communication_attributes, predecessors)
        self._add(target, number, wire.RECEIVE, communication_attributes)

    def _list_local_nodes(self, task: int, rank: int) -> tuple[int, ...]:
        """Return the nodes of a rank that must end before it begins a task."""
        return tuple(self._find_local_node(predecessor, rank) for predecessor in self._predecessors[task])

    def _find_local_node(self, task: int, rank: int) -> int:
        """Return the node of `rank` whose end means that `task` has ended.

        It is the task itself if it ends at `rank`. Otherwise it is a 0-byte message from the rank where the task ends.
        """
        kind = self._graph.kind[task]
        members = self._graph.groups[self._graph.group[task]] if kind == Kind.ALLREDUCE else ()
        end_rank = int(self._graph.target[task]) if kind == Kind.TRANSFER else self._rank[task]
        if rank == end_rank or rank in members:
            return task
        if (task, rank) not in self._notice_nodes:
            number = self._notice_nodes[task, rank] = self._next_number
            self._next_number += 1
            self._add_message(number, end_rank, rank, 0, (task,))
        return self._notice_nodes[task, rank]


def _assign_ranks(graph: TaskGraph) -> list[int]:
    """Return the rank of each task.

    A device belongs to the rank at which a transfer before its computing arrives, or from which a transfer after its
    computing starts.
    """
    rank_of_device: dict[int, int] = {}
    is_transfer = graph.kind == Kind.TRANSFER
    edges = np.stack([graph.before, graph.after], axis=1)
    for predecessor, successor in edges[is_transfer[graph.before] | is_transfer[graph.after]].tolist():
        if graph.device[successor] >= 0:
            rank_of_device.setdefault(int(graph.device[successor]), int(graph.target[predecessor]))
        if graph.device[predecessor] >= 0:
            rank_of_device.setdefault(int(graph.device[predecessor]), int(graph.source[successor]))
    ranks = []
    for task, kind in enumerate(graph.kind.tolist()):
        if kind == Kind.COMPUTE:
            device = int(graph.device[task])
            ranks.append(rank_of_device.get(device, device % graph.node_count))
        elif kind == Kind.TRANSFER:
            ranks.append(int(graph.source[task]))
        else:
            ranks.append(graph.groups[graph.group[task]][0] if kind == Kind.ALLREDUCE else 0)
    return ranks
