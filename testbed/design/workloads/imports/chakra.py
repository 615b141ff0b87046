"""Job from Chakra execution traces: a folder with one file per rank, `NAME.RANK.et`.

A rank is a server. Its nodes become tasks:

| node | task |
|---|---|
| `COMP_NODE` | computing of `duration_micros` on the rank's GPU, or on its CPU where `is_cpu_op` is set |
| the same without a duration | computing, estimated from `num_ops` operations and `tensor_size` bytes |
| `COMM_SEND_NODE`, `COMM_RECV_NODE` | a transfer of `comm_size` bytes; matched by tag, else by order |
| `COMM_COLL_NODE` | a collective of its process group, matched on all ranks by tag, else by order |
| the same on a CPU, without `comm_type` | computing on the CPU: the call of a collective that is another node |
| others | barriers, which only keep the order |

What a trace lacks is inferred, and what cannot be kept is dropped; `Traces.notes` says both:

- a collective without `comm_type` has that of its name (`ncclKernel_AllReduce_RING_LL_Sum_float`);
- a collective without `comm_size`, or of an unknown type, takes its recorded time on all its members;
- members of a process group without a trace are left out;
- control dependencies that close a circle are dropped. PyTorch's converter writes an operator's caller as one, and the
  operators before it in program order as others.

Members of process groups are in a file `comm_group.json` of the folder (`{"1": [0, 1]}`, as in ASTRA-sim), or in the
metadata that PyTorch writes; a collective without `pg_name`, or of an undescribed group 0, is of all ranks. Collectives
become tasks by their type:

| type | tasks |
|---|---|
| 0 all-reduce | one of the job's AllReduces |
| 1 reduce, 5 broadcast | all hops along the members at once, to the root or from it: a pipeline of small parts |
| 2 all-gather | a ring of rounds in which each member passes a share on |
| 3 gather, 4 scatter | a share of each member to the root, or from it |
| 6 all-to-all | a share to each other member; sizes may differ between members |
| 7, 8 reduce-scatter | a ring of rounds in which each member passes a share of the tensor on |

`comm_size` means the same as in ASTRA-sim: for an all-gather the share of one rank, for the others the whole tensor.
The root is the rank in the attribute `root_rank`, or by default the first member.
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
    "read_traces",
    "seconds",
]

DEVICE, SECONDS = "lightbed_device", "lightbed_seconds"
"""Attributes of our own traces: the device of a task (-1 for a barrier), and its time, which the format rounds."""

Place = tuple[int, int]
"""Rank, number of the node."""

Tasks = tuple[int, Callable[[TaskGraphBuilder, list[int]], None]]
"""Number of tasks, and the function that adds them to a job behind others."""
_MESSAGES = (wire.REDUCE, wire.GATHER, wire.SCATTER, wire.BROADCAST, wire.ALL_TO_ALL)
_KNOWN = (
    "all-reduce 0, reduce 1, all-gather 2, gather 3, scatter 4, broadcast 5, all-to-all 6, reduce-scatter 7 and 8, "
    "barrier 9"
)
GROUPS_FILE = "comm_group.json"

_TYPES_BY_NAME = {
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
"""Types of collectives by a word in their names; the first that occurs counts."""

_NAMED = "collectives whose type is that of their name"
_UNKNOWN = "collectives of unknown type, which take their recorded time"
_UNSIZED = "nodes of collectives without a size, which take their recorded time"
_LEFT_OUT = "members of process groups that have no trace and are left out"
_CIRCLES = "control dependencies dropped, because they close a circle"
_ALONE = "collectives of which only one member has a trace, so they send nothing"
_UNTIMED = "operators without a time, because the folder has no profile of their rank"
_OUTSIDE = "control dependencies on nodes that are not in the trace"


@dataclass(frozen=True, slots=True)
class Traces:
    """A job from traces; `estimated` is the number of nodes whose time is estimated from their operations.

    `notes` say what was assumed and what was dropped.
    """

    graph: TaskGraph
    estimated: int
    notes: tuple[str, ...] = ()


def read_traces(folder: str | Path) -> TaskGraph:
    """Return the task graph of the traces in a folder. Raises `WorkloadError` with file and node, and `OSError`."""
    return read_job(folder).graph


def read_job(folder: str | Path, device: Device = A100) -> Traces:
    """Return the job in a folder, with missing times estimated for a device. Raises as `read_traces` does."""
    ranks = read_ranks(Path(folder))
    try:
        reader = _Reader(ranks, read_groups(Path(folder), ranks), device)
        return Traces(reader.graph(), reader.estimated, reader.notes)
    except ValueError as error:
        raise WorkloadError(f"{folder} does not contain the Chakra traces of a job: {error}") from error


@dataclass(frozen=True, slots=True)
class _Part:
    """Tasks of a node, or of the nodes of a collective; the last task is its end."""

    places: tuple[Place, ...]
    tasks: int
    add: Callable[[TaskGraphBuilder, list[int]], None]

    @property
    def order(self) -> Place:
        """Number of the node, then its rank: so an exported job gets its task numbers back."""
        rank, number = min(self.places, key=lambda place: place[::-1])
        return number, rank


class _Reader:
    """Converter of the nodes of all ranks to tasks."""

    def __init__(
        self, ranks: Sequence[Sequence[Node]], groups: dict[str, tuple[int, ...]], accelerator: Device
    ) -> None:
        self._nodes = {(rank, node.number): node for rank, nodes in enumerate(ranks) for node in nodes}
        if len(self._nodes) < sum(map(len, ranks)):
            raise ValueError("a rank has two nodes of the same number")
        self._groups, self._ranks, self._accelerator = groups, len(ranks), accelerator
        self._counts = Counter({_UNTIMED: sum(UNTIMED in node.attributes for node in self._nodes.values())})
        self._arrivals = self._messages()

    @property
    def estimated(self) -> int:
        """Number of nodes whose time is estimated from their operations."""
        return sum(map(_is_estimated, self._nodes.values()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and omissions, each with its number."""
        return tuple(f"{text}: {count}" for text, count in self._counts.items())

    def graph(self) -> TaskGraph:
        """Return the task graph. Raises `ValueError` for inconsistent traces."""
        parts = sorted([*self._parts_of_nodes(), *self._collectives()], key=self._order)
        part_of = {place: number for number, part in enumerate(parts) for place in part.places}

        def collect(find: Callable[[Place], Iterable[Place]]) -> list[set[int]]:
            return [{part_of[before] for place in part.places for before in find(place)} for part in parts]

        edges, control = collect(self._find_predecessors), collect(self._find_control)
        for needed, before, dropped in zip(edges, control, _break_circles(edges, control), strict=True):
            self._counts[_CIRCLES] += len(dropped)
            needed.update(before - dropped)
        ends = list(itertools.accumulate(part.tasks for part in parts))
        job = TaskGraphBuilder(self._ranks)
        for part, before in zip(parts, edges, strict=True):
            part.add(job, sorted(ends[other] - 1 for other in before))
        self._counts = +self._counts
        return job.build()

    def _order(self, part: _Part) -> tuple[bool, Place]:
        """Return the sort key of parts, which sets the numbers of tasks; receiving nodes come last."""
        return part.places[0] in self._arrivals, part.order

    def _find_predecessors(self, place: Place) -> Iterable[Place]:
        rank, _ = place
        for number in self._nodes[place].after:
            if (rank, number) not in self._nodes:
                raise ValueError(f"{_describe(place)} waits for node {number}, which is not in its trace")
            yield rank, number
        if place in self._arrivals:
            yield self._arrivals[place]

    def _find_control(self, place: Place) -> Iterable[Place]:
        rank, _ = place
        for number in self._nodes[place].control:
            if (rank, number) in self._nodes:
                yield rank, number
            else:
                self._counts[_OUTSIDE] += 1

    def _parts_of_nodes(self) -> Iterable[_Part]:
        for place, node in self._nodes.items():
            if _is_collective(node):
                continue
            if node.kind > wire.COLLECTIVE:
                raise ValueError(
                    f"{_describe(place)} has the unknown type {node.kind}; "
                    "known types are 0 to 7 (memory, computing, communication)"
                )
            own = node.attributes.get(DEVICE)
            if (node.kind == wire.COMPUTE or _is_call(node)) and own != -1:
                on_cpu = bool(node.attributes.get("is_cpu_op", False))
                # A rank has two devices: its accelerator and its processor.
                device = int(own) if own is not None else 2 * place[0] + on_cpu
                if _is_estimated(node):
                    moved = _number(place, node, "tensor_size") if "tensor_size" in node.attributes else 0
                    operations = _number(place, node, "num_ops")
                    time_s = self._accelerator.pass_seconds(operations, moved, devices=1)
                else:
                    time_s = seconds(node)
                yield _Part((place,), 1, partial(add_compute, device=device, time_s=time_s))
            elif node.kind == wire.SEND:
                ends, size = (place[0], self._rank(place, "comm_dst")), _number(place, node, "comm_size")
                yield _Part((place,), 1, partial(add_transfer, ends=ends, size_bytes=size))
            else:
                yield _Part((place,), 1, add_wait)

    def _messages(self) -> dict[Place, Place]:
        """Return the sending node of each receiving node. Raises `ValueError` for one without a partner."""
        waiting: dict[tuple[int, int, int], list[Place]] = defaultdict(list)
        for place, node in self._nodes.items():
            if node.kind == wire.SEND:
                waiting[place[0], self._rank(place, "comm_dst"), _tag(node)].append(place)
        senders = {}
        for place, node in self._nodes.items():
            if node.kind == wire.RECEIVE:
                candidates = waiting[self._rank(place, "comm_src"), place[0], _tag(node)]
                if not candidates:
                    raise ValueError(f"{_describe(place)} receives data that no rank sends")
                senders[place] = candidates.pop(0)
        unreceived = next((places[0] for places in waiting.values() if places), None)
        if unreceived:
            raise ValueError(f"{_describe(unreceived)} sends data that no rank receives")
        return senders

    def _rank(self, place: Place, name: str) -> int:
        rank = _number(place, self._nodes[place], name)
        if rank >= self._ranks:
            raise ValueError(f"{_describe(place)} has {name} {rank}: ranks are 0 to {self._ranks - 1}")
        return rank

    def _collectives(self) -> Iterable[_Part]:
        """Yield the collectives, each with the nodes of all its members."""
        kinds: dict[tuple[tuple[int, ...], int, int], dict[int, list[Place]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for place, node in self._nodes.items():
            if _is_collective(node):
                kinds[self._members(place, node), self._infer_type(node), _tag(node)][place[0]].append(place)
        for (members, kind, _), by_rank in kinds.items():
            counts = {rank: len(by_rank[rank]) for rank in members}
            if len(set(counts.values())) > 1:
                most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
                raise ValueError(f"{_describe(by_rank[most][-1])} is a collective without rank {least}")
            for places in zip(*(by_rank[rank] for rank in members), strict=True):
                yield self._collective(members, kind, places)

    def _members(self, place: Place, node: Node) -> tuple[int, ...]:
        name = str(node.attributes.get("pg_name", ""))
        if not name or (name == "0" and name not in self._groups):
            return tuple(range(self._ranks))
        if name not in self._groups:
            raise ValueError(f"{_describe(place)} is of process group {name}: describe it in {GROUPS_FILE}")
        if place[0] not in self._groups[name]:
            what = f"is of process group {name}, whose members are {self._groups[name]}"
            raise ValueError(f"{_describe(place)} {what}")
        members = tuple(rank for rank in self._groups[name] if rank < self._ranks)
        self._counts[_LEFT_OUT] += len(self._groups[name]) - len(members)
        return members

    def _infer_type(self, node: Node) -> int:
        """Return the type of a collective from its attribute or its name, or -1."""
        if "comm_type" in node.attributes:
            return _number((0, node.number), node, "comm_type")
        name = node.name.lower().replace("_", "")
        kind = next((kind for word, kind in _TYPES_BY_NAME.items() if word in name), -1)
        self._counts[_UNKNOWN if kind < 0 else _NAMED] += 1
        return kind

    def _collective(self, members: tuple[int, ...], kind: int, places: tuple[Place, ...]) -> _Part:
        if kind == wire.BARRIER:
            return _Part(places, 1, add_wait)
        if kind < 0 or any("comm_size" not in self._nodes[place].attributes for place in places):
            self._counts[_UNSIZED] += len(places) * (kind >= 0)
            times_s = {2 * place[0]: seconds(self._nodes[place]) for place in places}
            return _Part(places, len(places) + 2, partial(add_timed, times_s=times_s))
        self._counts[_ALONE] += len(members) == 1
        sizes = tuple(_number(place, self._nodes[place], "comm_size") for place in places)
        first = self._nodes[places[0]]
        root = self._rank(places[0], "root_rank") if "root_rank" in first.attributes else members[0]
        try:
            # The recorded time of a collective is that of its network; ours has the work before it.
            work_s = float(first.attributes.get(SECONDS, 0.0))
            return _Part(places, *collective_tasks(kind, members, sizes, root, work_s))
        except ValueError as error:
            raise ValueError(f"{_describe(places[0])} is a collective {error}") from error


def _break_circles(data: Sequence[set[int]], control: Sequence[set[int]]) -> list[set[int]]:
    """Return for each node the control dependencies to drop, so that no circle remains that data does not form.

    Nodes are taken in an order that obeys both kinds. When none is free, the first whose data is there goes on without
    the control dependencies that it still waits for.
    """
    followers: list[list[int]] = [[] for _ in data]
    waits = [len(needed | before) for needed, before in zip(data, control, strict=True)]
    data_waits = [len(needed) for needed in data]
    for node, (needed, before) in enumerate(zip(data, control, strict=True)):
        for other in needed | before:
            followers[other].append(node)
    dropped: list[set[int]] = [set() for _ in data]
    is_done = [False] * len(data)
    free = [node for node, count in enumerate(waits) if count == 0]
    with_data = [node for node, count in enumerate(data_waits) if count == 0]
    while free or with_data:
        node = heapq.heappop(free or with_data)
        if is_done[node]:
            continue
        is_done[node] = True
        dropped[node] = {other for other in control[node] - data[node] if not is_done[other] or other == node}
        for other in followers[node]:
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(free, other)
            if node in data[other]:
                data_waits[other] -= 1
                if data_waits[other] == 0:
                    heapq.heappush(with_data, other)
    return dropped


def seconds(node: Node) -> float:
    """Return the computing time of a node: exact from an attribute of our own traces, otherwise from its duration."""
    return float(node.attributes.get(SECONDS, node.duration_us * 1e-6))


def _is_collective(node: Node) -> bool:
    return node.kind == wire.COLLECTIVE and not _is_call(node)


def _is_call(node: Node) -> bool:
    """Return whether a node only calls a collective: PyTorch's traces have such nodes besides the communication."""
    on_cpu = bool(node.attributes.get("is_cpu_op", False))
    return node.kind == wire.COLLECTIVE and on_cpu and "comm_type" not in node.attributes


def _is_estimated(node: Node) -> bool:
    """Return whether a node computes on an accelerator with known operations but without a time."""
    is_timed = node.duration_us or SECONDS in node.attributes or node.attributes.get("is_cpu_op", False)
    return node.kind == wire.COMPUTE and not is_timed and bool(node.attributes.get("num_ops", 0))


def _describe(place: Place) -> str:
    return f"node {place[1]} of rank {place[0]}"


def _number(place: Place, node: Node, name: str) -> int:
    value = node.attributes.get(name)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{_describe(place)} has {'no' if value is None else 'a wrong'} attribute {name}")
    return value


def _tag(node: Node) -> int:
    return int(node.attributes.get("comm_tag", 0))


def collective_tasks(
    kind: int, members: tuple[int, ...], sizes: tuple[int, ...], root: int, time_s: float
) -> Tasks:
    """Return the tasks of a collective. Raises `ValueError`: "of type 12: known are ..."."""
    if kind == wire.ALL_TO_ALL:
        return _send_all(
            tuple(
                (one, other, -(-size // len(members)))
                for one, size in zip(members, sizes, strict=True)
                for other in members
                if one != other
            )
        )
    if len(set(sizes)) > 1:
        raise ValueError(f"of {sorted(set(sizes))} bytes: ranks disagree")
    size = sizes[0]
    if kind == wire.ALL_REDUCE:
        return 1, partial(add_reduce, members=members, size_bytes=size, time_s=time_s)
    share = -(-size // len(members))
    if kind in (wire.ALL_GATHER, wire.REDUCE_SCATTER, wire.REDUCE_SCATTER_BLOCK):
        each = size if kind == wire.ALL_GATHER else share
        tasks = len(members) * (len(members) - 1) + 2
        return tasks, partial(add_ring, members=members, size_bytes=each)
    if kind not in _MESSAGES:
        raise ValueError(f"of type {kind}: known are {_KNOWN}")
    if root not in members:
        raise ValueError(f"with root {root}, which is not among its members {members}")
    return _send_all(_list_rooted_messages(kind, members, root, size, share))


def _send_all(messages: tuple[tuple[int, int, int], ...]) -> Tasks:
    return len(messages) + 2, partial(add_messages, messages=messages)


def _list_rooted_messages(
    kind: int, members: tuple[int, ...], root: int, size: int, share: int
) -> tuple[tuple[int, int, int], ...]:
    place = members.index(root)
    line = members[place:] + members[:place]
    if kind in (wire.BROADCAST, wire.REDUCE):
        hops = itertools.pairwise(line)
        return tuple((a, b, size) if kind == wire.BROADCAST else (b, a, size) for a, b in hops)
    return tuple((root, other, share) if kind == wire.SCATTER else (other, root, share) for other in line[1:])


def read_groups(folder: Path, ranks: Sequence[Sequence[Node]]) -> dict[str, tuple[int, ...]]:
    """Return the members of each process group in metadata or in the groups file. Raises `WorkloadError`, `OSError`."""
    everybody = tuple(range(len(ranks)))
    groups: dict[str, tuple[int, ...]] = {}
    for node in (
        node for nodes in ranks for node in nodes if node.kind == wire.METADATA and "pg_name" in node.inputs
    ):
        start, end = node.inputs.find("[{"), node.inputs.rfind("}]")
        text, where = node.inputs[start : end + 2].replace("\\", ""), f"node {node.number}"
        listed = _parse_groups(
            text, where, lambda found: {group["pg_name"]: group["ranks"] or everybody for group in found}
        )
        groups |= listed
    if (folder / GROUPS_FILE).exists():
        path = folder / GROUPS_FILE
        groups |= _parse_groups(path.read_text(encoding="utf-8"), str(path), dict)
    return groups


def _parse_groups(
    text: str, where: str, groups_of: Callable[[Any], dict[Any, Iterable[Any]]]
) -> dict[str, tuple[int, ...]]:
    """Return the members of process groups in a JSON text, by name. Raises `WorkloadError`."""
    try:
        groups = {str(name): tuple(map(int, ranks)) for name, ranks in groups_of(json.loads(text)).items()}
    except (ValueError, TypeError, KeyError) as error:
        raise WorkloadError(
            f'{where} does not describe process groups as JSON, as in {{"1": [0, 1]}}: {error}'
        ) from error
    return groups


def add_compute(job: TaskGraphBuilder, after: list[int], *, device: int, time_s: float) -> None:
    """Add computing on a device."""
    job.compute(device, time_s, after=after)


def add_transfer(job: TaskGraphBuilder, after: list[int], *, ends: tuple[int, int], size_bytes: int) -> None:
    """Add a transfer between two ranks."""
    job.transfer(*ends, size_bytes, after=after)


def add_timed(job: TaskGraphBuilder, after: list[int], *, times_s: dict[int, float]) -> None:
    """Add computing that begins together on several devices, and a task that waits for all of it."""
    begin = job.barrier(after=after)
    job.barrier(after=[job.compute(device, time_s, after=[begin]) for device, time_s in times_s.items()])


def add_wait(job: TaskGraphBuilder, after: list[int]) -> None:
    """Add a task that only waits."""
    job.barrier(after=after)


def add_reduce(
    job: TaskGraphBuilder, after: list[int], *, members: tuple[int, ...], size_bytes: int, time_s: float
) -> None:
    """Add an AllReduce among members."""
    job.allreduce(members, size_bytes, time_s=time_s, after=after)


def add_ring(job: TaskGraphBuilder, after: list[int], *, members: tuple[int, ...], size_bytes: int) -> None:
    """Add the rounds of a ring, in which each member sends on the bytes that it received in the round before."""
    count = len(members)
    received = [job.barrier(after=after)] * count
    for _ in range(count - 1):
        transfers = [
            job.transfer(member, members[(place + 1) % count], size_bytes, after=[received[place]])
            for place, member in enumerate(members)
        ]
        received = transfers[-1:] + transfers[:-1]
    job.barrier(after=sorted(set(received)))


def add_messages(
    job: TaskGraphBuilder, after: list[int], *, messages: tuple[tuple[int, int, int], ...]
) -> None:
    """Add messages (source, target, bytes) that begin together, and a barrier that waits for all of them."""
    begin = job.barrier(after=after)
    transfers = [job.transfer(source, target, size, after=[begin]) for source, target, size in messages]
    job.barrier(after=transfers or [begin])
