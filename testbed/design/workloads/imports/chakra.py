"""Reads a job from Chakra execution traces: a folder with one file per rank, `NAME.RANK.et`.

A rank is a server. The nodes of its trace become tasks:

| node | task |
|---|---|
| `COMP_NODE` | computing of `duration_micros` on the rank's GPU, or on its CPU where `is_cpu_op` is set |
| the same without a duration | computing, estimated from `num_ops` operations and `tensor_size` bytes |
| `COMM_SEND_NODE`, `COMM_RECV_NODE` | a transfer of `comm_size` bytes, matched by tag, otherwise by order |
| `COMM_COLL_NODE` | a collective of its process group, matched on all ranks by tag, otherwise by order |
| the same on a CPU, without `comm_type` | computing on the CPU: the call of a collective, which is another node |
| others | barriers, which only keep the order |

The reader infers missing information and drops inconsistent information; `Traces.notes` reports both:

- The name of a collective without `comm_type` determines its type (`ncclKernel_AllReduce_RING_LL_Sum_float`).
- A collective without `comm_size`, or of an unknown type, takes its recorded time on all its members.
- Members of a process group without a trace are left out.
- Control dependencies that close a cycle are dropped. PyTorch's converter writes them from an operator to its caller,
  and to earlier operators in program order.

The members of process groups are listed in the file `comm_group.json` of the folder (`{"1": [0, 1]}`, as in ASTRA-sim)
or in the metadata that PyTorch writes. A collective without `pg_name`, or of group 0 without a description, involves
all ranks. The type of a collective determines its tasks:

| type | tasks |
|---|---|
| 0 all-reduce | one of the job's AllReduces |
| 1 reduce, 5 broadcast | concurrent hops along the members, to or from the root: a pipeline of small parts |
| 2 all-gather | a ring of rounds in which each member passes a share on |
| 3 gather, 4 scatter | a share from each member to the root, or from the root to each member |
| 6 all-to-all | a share to each other member; sizes may differ between members |
| 7, 8 reduce-scatter | a ring of rounds in which each member passes a share of the tensor on |

`comm_size` means the same as in ASTRA-sim: the share of one rank for an all-gather, otherwise the whole tensor. The
root is the rank in the attribute `root_rank`, by default the first member.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sim.models.network.taskgraph import TaskGraph, TaskGraphBuilder
from testbed.design.workloads.imports import chakra_wire as wire
from testbed.design.workloads.imports.chakra_files import is_trace_folder, read_ranks
from testbed.design.workloads.imports.chakra_wire import Node
from testbed.design.workloads.imports.pytorch_trace import UNTIMED
from testbed.design.workloads.roofline import A100, Device
from testbed.errors import WorkloadError

__all__ = [
    "DEVICE",
    "GROUPS_FILE",
    "SECONDS",
    "Traces",
    "is_trace_folder",
    "read_job",
    "read_seconds",
    "read_traces",
]

DEVICE, SECONDS = "lightbed_device", "lightbed_seconds"
"""Attributes of our own traces: the device of a task (-1 for a barrier), and its time, which the format would round."""

NodeId = tuple[int, int]
"""Rank, and number of the node in its trace."""

Tasks = tuple[int, Callable[[TaskGraphBuilder, list[int]], None]]
"""Number of tasks, and a function that adds them to a job after other tasks."""
_MESSAGES = (wire.REDUCE, wire.GATHER, wire.SCATTER, wire.BROADCAST, wire.ALL_TO_ALL)
_KNOWN_TYPES = (
    "all-reduce 0, reduce 1, all-gather 2, gather 3, scatter 4, broadcast 5, all-to-all 6, reduce-scatter 7 and 8, "
    "barrier 9"
)
GROUPS_FILE = "comm_group.json"

_TYPE_BY_NAME = {
    "allreduce": wire.ALL_REDUCE,
    "reducescatter": wire.REDUCE_SCATTER,
    "allgather": wire.ALL_GATHER,
    "alltoall": wire.ALL_TO_ALL,
    "broadcast": wire.BROADCAST,
    "barrier": wire.BARRIER,
    "scatter": wire.SCATTER,
    "gather": wire.GATHER,
    "reduce": wire.REDUCE,
}
"""Types of collectives by a word in their names. The first word that occurs in a name counts."""

_NAMED_NOTE = "collectives whose type is that of their name"
_UNKNOWN_NOTE = "collectives of unknown type, which take their recorded time"
_UNSIZED_NOTE = "nodes of collectives without a size, which take their recorded time"
_LEFT_OUT_NOTE = "members of process groups that have no trace and are left out"
_CYCLES_NOTE = "control dependencies dropped, because they close a circle"
_ALONE_NOTE = "collectives of which only one member has a trace, so they send nothing"
_UNTIMED_NOTE = "operators without a time, because the folder has no profile of their rank"
_OUTSIDE_NOTE = "control dependencies on nodes that are not in the trace"


@dataclass(frozen=True, slots=True)
class Traces:
    """A job from traces. `estimated_count` is the number of nodes whose time is estimated from their operations.

    `notes` report what was assumed and what was dropped.
    """

    graph: TaskGraph
    estimated_count: int
    notes: tuple[str, ...] = ()


def read_traces(folder: str | Path) -> TaskGraph:
    """Return the task graph of the traces in a folder. Raises `WorkloadError` with file and node, and `OSError`."""
    return read_job(folder).graph


def read_job(folder: str | Path, device: Device = A100) -> Traces:
    """Return the job in a folder, with missing times estimated for `device`. Raises the errors of `read_traces`."""
    nodes_by_rank = read_ranks(Path(folder))
    try:
        reader = _Reader(nodes_by_rank, read_groups(Path(folder), nodes_by_rank), device)
        return Traces(reader.build_graph(), reader.estimated_count, reader.notes)
    except ValueError as error:
        raise WorkloadError(f"{folder} does not contain the Chakra traces of a job: {error}") from error


@dataclass(frozen=True, slots=True)
class _Part:
    """Tasks of a node, or of all nodes of a collective. The last task is its end."""

    node_ids: tuple[NodeId, ...]
    task_count: int
    add_tasks: Callable[[TaskGraphBuilder, list[int]], None]

    @property
    def sort_key(self) -> NodeId:
        """Number of the node, then its rank. With this order, an exported job gets its task numbers back."""
        rank, number = min(self.node_ids, key=lambda node_id: node_id[::-1])
        return number, rank


class _Reader:
    """Converter of the nodes of all ranks to tasks."""

    def __init__(
        self, ranks: Sequence[Sequence[Node]], groups: dict[str, tuple[int, ...]], accelerator: Device
    ) -> None:
        self._nodes = {(rank, node.number): node for rank, nodes in enumerate(ranks) for node in nodes}
        if len(self._nodes) < sum(map(len, ranks)):
            raise ValueError("a rank has two nodes of the same number; every node of a rank needs its own")
        self._groups, self._ranks, self._accelerator = groups, len(ranks), accelerator
        self._counts = Counter(
            {_UNTIMED_NOTE: sum(UNTIMED in node.attributes for node in self._nodes.values())}
        )
        self._sender_by_receiver = self._match_messages()

    @property
    def estimated_count(self) -> int:
        """Number of nodes whose time is estimated from their operations."""
        return sum(map(_is_estimated, self._nodes.values()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and omissions, each with its count."""
        return tuple(f"{text}: {count}" for text, count in self._counts.items())

    def build_graph(self) -> TaskGraph:
        """Return the task graph. Raises `ValueError` for inconsistent traces."""
        parts = sorted([*self._make_node_parts(), *self._match_collectives()], key=self._make_sort_key)
        part_of = {node_id: number for number, part in enumerate(parts) for node_id in part.node_ids}

        def collect(find: Callable[[NodeId], Iterable[NodeId]]) -> list[set[int]]:
            return [
                {part_of[predecessor] for node_id in part.node_ids for predecessor in find(node_id)}
                for part in parts
            ]

        data_predecessors, control_predecessors = (
            collect(self._find_predecessors),
            collect(self._find_control_predecessors),
        )
        for data_before, predecessor, dropped in zip(
            data_predecessors,
            control_predecessors,
            _break_cycles(data_predecessors, control_predecessors),
            strict=True,
        ):
            self._counts[_CYCLES_NOTE] += len(dropped)
            data_before.update(predecessor - dropped)
        task_ends = list(itertools.accumulate(part.task_count for part in parts))
        builder = TaskGraphBuilder(self._ranks)
        for part, predecessor in zip(parts, data_predecessors, strict=True):
            part.add_tasks(builder, sorted(task_ends[part_number] - 1 for part_number in predecessor))
        self._counts = +self._counts
        return builder.build()

    def _make_sort_key(self, part: _Part) -> tuple[bool, NodeId]:
        """Return the sort key of a part. Sorting determines the task numbers; receiving nodes come last."""
        return part.node_ids[0] in self._sender_by_receiver, part.sort_key

    def _find_predecessors(self, node_id: NodeId) -> Iterable[NodeId]:
        rank, _ = node_id
        for number in self._nodes[node_id].after:
            if (rank, number) not in self._nodes:
                raise ValueError(f"{_describe(node_id)} waits for node {number}, which is not in its trace")
            yield rank, number
        if node_id in self._sender_by_receiver:
            yield self._sender_by_receiver[node_id]

    def _find_control_predecessors(self, node_id: NodeId) -> Iterable[NodeId]:
        rank, _ = node_id
        for number in self._nodes[node_id].control:
            if (rank, number) in self._nodes:
                yield rank, number
            else:
                self._counts[_OUTSIDE_NOTE] += 1

    def _make_node_parts(self) -> Iterable[_Part]:
        for node_id, node in self._nodes.items():
            if _is_collective(node):
                continue
            if node.kind > wire.COLLECTIVE:
                raise ValueError(
                    f"{_describe(node_id)} has the unknown type {node.kind}; "
                    "known types are 0 to 7 (memory, computing, communication)"
                )
            device_attribute = node.attributes.get(DEVICE)
            if (node.kind == wire.COMPUTE or _is_call(node)) and device_attribute != -1:
                is_on_cpu = bool(node.attributes.get("is_cpu_op", False))
                # A rank has two devices: its accelerator and its processor.
                device = int(device_attribute) if device_attribute is not None else 2 * node_id[0] + is_on_cpu
                if _is_estimated(node):
                    moved_bytes = (
                        _read_count(node_id, node, "tensor_size") if "tensor_size" in node.attributes else 0
                    )
                    operations = _read_count(node_id, node, "num_ops")
                    time_s = self._accelerator.compute_pass_seconds(operations, moved_bytes, devices=1)
                else:
                    time_s = read_seconds(node)
                yield _Part((node_id,), 1, partial(add_compute, device=device, time_s=time_s))
            elif node.kind == wire.SEND:
                endpoints, size = (
                    (node_id[0], self._read_rank(node_id, "comm_dst")),
                    _read_count(node_id, node, "comm_size"),
                )
                yield _Part((node_id,), 1, partial(add_transfer, endpoints=endpoints, size_bytes=size))
            else:
                yield _Part((node_id,), 1, add_wait)

    def _match_messages(self) -> dict[NodeId, NodeId]:
        """Return the sending node of each receiving node. Raises `ValueError` for a node without a partner."""
        senders_by_message: dict[tuple[int, int, int], list[NodeId]] = defaultdict(list)
        for node_id, node in self._nodes.items():
            if node.kind == wire.SEND:
                senders_by_message[node_id[0], self._read_rank(node_id, "comm_dst"), _get_tag(node)].append(
                    node_id
                )
        senders = {}
        for node_id, node in self._nodes.items():
            if node.kind == wire.RECEIVE:
                candidates = senders_by_message[
                    self._read_rank(node_id, "comm_src"), node_id[0], _get_tag(node)
                ]
                if not candidates:
                    raise ValueError(f"{_describe(node_id)} receives data that no rank sends")
                senders[node_id] = candidates.pop(0)
        unreceived = next((node_ids[0] for node_ids in senders_by_message.values() if node_ids), None)
        if unreceived:
            raise ValueError(f"{_describe(unreceived)} sends data that no rank receives")
        return senders

    def _read_rank(self, node_id: NodeId, name: str) -> int:
        rank = _read_count(node_id, self._nodes[node_id], name)
        if rank >= self._ranks:
            raise ValueError(f"{_describe(node_id)} has {name} {rank}: ranks are 0 to {self._ranks - 1}")
        return rank

    def _match_collectives(self) -> Iterable[_Part]:
        """Yield the collectives, each with the nodes of all its members."""
        nodes_by_collective: dict[tuple[tuple[int, ...], int, int], dict[int, list[NodeId]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for node_id, node in self._nodes.items():
            if _is_collective(node):
                nodes_by_collective[
                    self._find_members(node_id, node), self._infer_type(node), _get_tag(node)
                ][node_id[0]].append(node_id)
        for (members, kind, _), node_ids_by_rank in nodes_by_collective.items():
            counts = {rank: len(node_ids_by_rank[rank]) for rank in members}
            if len(set(counts.values())) > 1:
                largest_rank, smallest_rank = (
                    max(counts, key=counts.__getitem__),
                    min(counts, key=counts.__getitem__),
                )
                raise ValueError(
                    f"{_describe(node_ids_by_rank[largest_rank][-1])} is a collective without rank {smallest_rank}"
                )
            for node_ids in zip(*(node_ids_by_rank[rank] for rank in members), strict=True):
                yield self._make_collective_part(members, kind, node_ids)

    def _find_members(self, node_id: NodeId, node: Node) -> tuple[int, ...]:
        name = str(node.attributes.get("pg_name", ""))
        if not name or (name == "0" and name not in self._groups):
            return tuple(range(self._ranks))
        if name not in self._groups:
            raise ValueError(f"{_describe(node_id)} is of process group {name}: describe it in {GROUPS_FILE}")
        if node_id[0] not in self._groups[name]:
            problem = f"is of process group {name}, whose members are {self._groups[name]}"
            raise ValueError(f"{_describe(node_id)} {problem}")
        members = tuple(rank for rank in self._groups[name] if rank < self._ranks)
        self._counts[_LEFT_OUT_NOTE] += len(self._groups[name]) - len(members)
        return members

    def _infer_type(self, node: Node) -> int:
        """Return the type of a collective from its attribute or its name, or -1."""
        if "comm_type" in node.attributes:
            return _read_count((0, node.number), node, "comm_type")
        name = node.name.lower().replace("_", "")
        kind = next((kind for name_part, kind in _TYPE_BY_NAME.items() if name_part in name), -1)
        self._counts[_UNKNOWN_NOTE if kind < 0 else _NAMED_NOTE] += 1
        return kind

    def _make_collective_part(
        self, members: tuple[int, ...], kind: int, node_ids: tuple[NodeId, ...]
    ) -> _Part:
        if kind == wire.BARRIER:
            return _Part(node_ids, 1, add_wait)
        if kind < 0 or any("comm_size" not in self._nodes[node_id].attributes for node_id in node_ids):
            self._counts[_UNSIZED_NOTE] += len(node_ids) * (kind >= 0)
            times_s = {2 * node_id[0]: read_seconds(self._nodes[node_id]) for node_id in node_ids}
            return _Part(node_ids, len(node_ids) + 2, partial(add_timed_computing, times_s=times_s))
        self._counts[_ALONE_NOTE] += len(members) == 1
        sizes = tuple(_read_count(node_id, self._nodes[node_id], "comm_size") for node_id in node_ids)
        first_node = self._nodes[node_ids[0]]
        root = (
            self._read_rank(node_ids[0], "root_rank") if "root_rank" in first_node.attributes else members[0]
        )
        try:
            # The recorded time of a collective is its network time; our attribute holds the computing before it.
            work_s = float(first_node.attributes.get(SECONDS, 0.0))
            return _Part(node_ids, *make_collective_tasks(kind, members, sizes, root, work_s))
        except ValueError as error:
            raise ValueError(f"{_describe(node_ids[0])} is a collective {error}") from error


def _break_cycles(
    data_predecessors: Sequence[set[int]], control_predecessors: Sequence[set[int]]
) -> list[set[int]]:
    """Return, for each node, the control dependencies to drop so that the only remaining cycles are of data.

    Nodes are processed in an order that obeys data and control dependencies. If no node is free, the first node with
    all its data is processed, and its remaining control dependencies are dropped.
    """
    followers: list[list[int]] = [[] for _ in data_predecessors]
    wait_counts = [
        len(data_before | control_before)
        for data_before, control_before in zip(data_predecessors, control_predecessors, strict=True)
    ]
    data_wait_counts = [len(data_before) for data_before in data_predecessors]
    for node, (data_before, control_before) in enumerate(
        zip(data_predecessors, control_predecessors, strict=True)
    ):
        for follower in data_before | control_before:
            followers[follower].append(node)
    dropped_predecessors: list[set[int]] = [set() for _ in data_predecessors]
    is_done = [False] * len(data_predecessors)
    free_nodes = [node for node, count in enumerate(wait_counts) if count == 0]
    nodes_with_data = [node for node, count in enumerate(data_wait_counts) if count == 0]
    while free_nodes or nodes_with_data:
        node = heapq.heappop(free_nodes or nodes_with_data)
        if is_done[node]:
            continue
        is_done[node] = True
        dropped_predecessors[node] = {
            follower
            for follower in control_predecessors[node] - data_predecessors[node]
            if not is_done[follower] or follower == node
        }
        for follower in followers[node]:
            wait_counts[follower] -= 1
            if wait_counts[follower] == 0:
                heapq.heappush(free_nodes, follower)
            if node in data_predecessors[follower]:
                data_wait_counts[follower] -= 1
                if data_wait_counts[follower] == 0:
                    heapq.heappush(nodes_with_data, follower)
    return dropped_predecessors


def read_seconds(node: Node) -> float:
    """Return the computing time of a node: from the exact attribute of our own traces, otherwise from its duration."""
    return float(node.attributes.get(SECONDS, node.duration_us * 1e-6))


def _is_collective(node: Node) -> bool:
    return node.kind == wire.COLLECTIVE and not _is_call(node)


def _is_call(node: Node) -> bool:
    """Return whether a node only calls a collective. PyTorch's traces have such nodes besides the communication."""
    on_cpu = bool(node.attributes.get("is_cpu_op", False))
    return node.kind == wire.COLLECTIVE and on_cpu and "comm_type" not in node.attributes


def _is_estimated(node: Node) -> bool:
    """Return whether a node computes on an accelerator with known operations but without a time."""
    is_timed = node.duration_us or SECONDS in node.attributes or node.attributes.get("is_cpu_op", False)
    return node.kind == wire.COMPUTE and not is_timed and bool(node.attributes.get("num_ops", 0))


def _describe(node_id: NodeId) -> str:
    return f"node {node_id[1]} of rank {node_id[0]}"


def _read_count(node_id: NodeId, node: Node, name: str) -> int:
    value = node.attributes.get(name)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{_describe(node_id)} has {'no' if value is None else 'a wrong'} attribute {name}")
    return value


def _get_tag(node: Node) -> int:
    return int(node.attributes.get("comm_tag", 0))


def make_collective_tasks(
    kind: int, members: tuple[int, ...], sizes: tuple[int, ...], root: int, time_s: float
) -> Tasks:
    """Return the tasks of a collective.

    Raises `ValueError` for unknown types, different sizes, or a root that is not a member. The message continues the
    words "is a collective".
    """
    if kind == wire.ALL_TO_ALL:
        return _make_message_tasks(
            tuple(
                (sender, receiver, -(-size // len(members)))
                for sender, size in zip(members, sizes, strict=True)
                for receiver in members
                if sender != receiver
            )
        )
    if len(set(sizes)) > 1:
        raise ValueError(f"for which its ranks give different sizes, in bytes: {sorted(set(sizes))}")
    size = sizes[0]
    if kind == wire.ALL_REDUCE:
        return 1, partial(add_reduce, members=members, size_bytes=size, time_s=time_s)
    share_bytes = -(-size // len(members))
    if kind in (wire.ALL_GATHER, wire.REDUCE_SCATTER, wire.REDUCE_SCATTER_BLOCK):
        bytes_per_hop = size if kind == wire.ALL_GATHER else share_bytes
        task_count = len(members) * (len(members) - 1) + 2
        return task_count, partial(add_ring, members=members, size_bytes=bytes_per_hop)
    if kind not in _MESSAGES:
        raise ValueError(f"of type {kind}: known are {_KNOWN_TYPES}")
    if root not in members:
        raise ValueError(f"with root {root}, which is not among its members {members}")
    return _make_message_tasks(_list_rooted_messages(kind, members, root, size, share_bytes))


def _make_message_tasks(messages: tuple[tuple[int, int, int], ...]) -> Tasks:
    return len(messages) + 2, partial(add_messages, messages=messages)


def _list_rooted_messages(
    kind: int, members: tuple[int, ...], root: int, size_bytes: int, part_bytes: int
) -> tuple[tuple[int, int, int], ...]:
    root_position = members.index(root)
    rotated_members = members[root_position:] + members[:root_position]
    if kind in (wire.BROADCAST, wire.REDUCE):
        hops = itertools.pairwise(rotated_members)
        return tuple(
            (sender, receiver, size_bytes) if kind == wire.BROADCAST else (receiver, sender, size_bytes)
            for sender, receiver in hops
        )
    return tuple(
        (root, member, part_bytes) if kind == wire.SCATTER else (member, root, part_bytes)
        for member in rotated_members[1:]
    )


def read_groups(folder: Path, nodes_by_rank: Sequence[Sequence[Node]]) -> dict[str, tuple[int, ...]]:
    """Return the members of each process group, from metadata and the groups file.

    Raises `WorkloadError` for an invalid description, and `OSError`.
    """
    all_ranks = tuple(range(len(nodes_by_rank)))
    groups: dict[str, tuple[int, ...]] = {}
    for node in (
        node
        for nodes in nodes_by_rank
        for node in nodes
        if node.kind == wire.METADATA and "pg_name" in node.inputs
    ):
        start, end = node.inputs.find("[{"), node.inputs.rfind("}]")
        text, node_text = node.inputs[start : end + 2].replace("\\", ""), f"node {node.number}"
        listed = _parse_groups(
            text,
            node_text,
            lambda parsed_groups: {group["pg_name"]: group["ranks"] or all_ranks for group in parsed_groups},
        )
        groups |= listed
    if (folder / GROUPS_FILE).exists():
        path = folder / GROUPS_FILE
        groups |= _parse_groups(path.read_text(encoding="utf-8"), str(path), dict)
    return groups


def _parse_groups(
    text: str, source: str, select_groups: Callable[[Any], dict[Any, Iterable[Any]]]
) -> dict[str, tuple[int, ...]]:
    """Return the members of process groups in a JSON text, by name. Raises `WorkloadError` if it is invalid."""
    try:
        groups = {
            str(name): tuple(map(int, ranks)) for name, ranks in select_groups(json.loads(text)).items()
        }
    except (ValueError, TypeError, KeyError) as error:
        raise WorkloadError(
            f'{source} does not describe process groups as JSON, as in {{"1": [0, 1]}}: {error}'
        ) from error
    return groups


def add_compute(builder: TaskGraphBuilder, predecessors: list[int], *, device: int, time_s: float) -> None:
    """Add computing on a device."""
    builder.add_compute(device, time_s, predecessors=predecessors)


def add_transfer(
    builder: TaskGraphBuilder, predecessors: list[int], *, endpoints: tuple[int, int], size_bytes: int
) -> None:
    """Add a transfer between two ranks."""
    builder.add_transfer(*endpoints, size_bytes, predecessors=predecessors)


def add_timed_computing(
    builder: TaskGraphBuilder, predecessors: list[int], *, times_s: dict[int, float]
) -> None:
    """Add computing that begins together on several devices, and a barrier after all of it."""
    begin = builder.add_barrier(predecessors=predecessors)
    builder.add_barrier(
        predecessors=[
            builder.add_compute(device, time_s, predecessors=[begin]) for device, time_s in times_s.items()
        ]
    )


def add_wait(builder: TaskGraphBuilder, predecessors: list[int]) -> None:
    """Add a barrier."""
    builder.add_barrier(predecessors=predecessors)


def add_reduce(
    builder: TaskGraphBuilder,
    predecessors: list[int],
    *,
    members: tuple[int, ...],
    size_bytes: int,
    time_s: float,
) -> None:
    """Add an AllReduce among members."""
    builder.add_allreduce(members, size_bytes, time_s=time_s, predecessors=predecessors)


def add_ring(
    builder: TaskGraphBuilder, predecessors: list[int], *, members: tuple[int, ...], size_bytes: int
) -> None:
    """Add the rounds of a ring, in which each member passes on the bytes that it received in the previous round."""
    count = len(members)
    arrivals = [builder.add_barrier(predecessors=predecessors)] * count
    for _ in range(count - 1):
        transfers = [
            builder.add_transfer(
                member, members[(position + 1) % count], size_bytes, predecessors=[arrivals[position]]
            )
            for position, member in enumerate(members)
        ]
        arrivals = transfers[-1:] + transfers[:-1]
    builder.add_barrier(predecessors=sorted(set(arrivals)))


def add_messages(
    builder: TaskGraphBuilder, predecessors: list[int], *, messages: tuple[tuple[int, int, int], ...]
) -> None:
    """Add messages (source, target, bytes) that begin together, and a barrier after all of them."""
    begin = builder.add_barrier(predecessors=predecessors)
    transfers = [
        builder.add_transfer(source, target, size, predecessors=[begin]) for source, target, size in messages
    ]
    builder.add_barrier(predecessors=transfers or [begin])
