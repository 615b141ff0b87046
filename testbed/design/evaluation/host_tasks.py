"""A task graph as tasks of single hosts: AllReduces as the messages of their rounds, and waits that a host can see.

In the simulator a round of an AllReduce begins everywhere when the last one has ended everywhere. Hosts do not know of
one another: each sends on when it has sent and received what it had to in the round before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from sim.models.network.allreduce import Algorithm
from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.errors import WorkloadError


def on_hosts(graph: TaskGraph, allreduce: Algorithm) -> tuple[TaskGraph, tuple[int, ...]]:
    """Return the graph with transfers in place of AllReduces, and the host of each task, of a transfer its source.

    All that a task waits for is known to its host. Raises `WorkloadError` for a task that waits for one of another
    host without a transfer between.
    """
    unrolled = _Unrolled(graph, allreduce)
    return unrolled.graph(), tuple(unrolled.hosts)


class _Unrolled:
    """Tasks of hosts in the making; `done[task, host]` is the task by which a host knows that one has ended."""

    def __init__(self, graph: TaskGraph, allreduce: Algorithm) -> None:
        self._whole, self._allreduce = graph, allreduce
        self.hosts: list[int] = []
        self._rows: list[tuple[int, int, float, int, int, int]] = []
        self._edges: list[tuple[int, int]] = []
        self._done: dict[tuple[int, int], int] = {}
        self._before: dict[int, list[int]] = defaultdict(list)
        for first, then in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
            self._before[then].append(first)
        self._places = _places(graph, self._before)

    def graph(self) -> TaskGraph:
        """Return the graph of all tasks."""
        for task in _in_order(self._whole.tasks, self._before):
            self._unroll(task)
        kind, device, time_s, size_bytes, source, target = zip(*self._rows, strict=True)
        edges = np.array(self._edges, dtype=np.int64).reshape(-1, 2)
        return TaskGraph(
            nodes=self._whole.nodes,
            kind=np.array(kind, dtype=np.int64),
            device=np.array(device, dtype=np.int64),
            time_s=np.array(time_s, dtype=np.float64),
            size_bytes=np.array(size_bytes, dtype=np.int64),
            source=np.array(source, dtype=np.int64),
            target=np.array(target, dtype=np.int64),
            group=np.full(len(kind), -1, dtype=np.int64),
            groups=(),
            before=edges[:, 0].copy(),
            after=edges[:, 1].copy(),
        )

    def _unroll(self, task: int) -> None:
        whole, time_s = self._whole, float(self._whole.time_s[task])
        match whole.kind[task]:
            case Kind.COMPUTE:
                host = int(whole.device[task])
                self._done[task, host] = self._add(Kind.COMPUTE, host, time_s, after=self._waits(task, host))
            case Kind.TRANSFER:
                source, target = int(whole.source[task]), int(whole.target[task])
                size, after = int(whole.size_bytes[task]), self._waits(task, source)
                moved = self._add(Kind.TRANSFER, source, time_s, size, target, after=after)
                self._done[task, source] = self._done[task, target] = moved
            case Kind.ALLREDUCE:
                self._sum(task, time_s)
            case _:
                for host in self._places[task]:
                    self._done[task, host] = self._add(Kind.BARRIER, host, after=self._waits(task, host))

    def _sum(self, task: int, time_s: float) -> None:
        """Add the messages of an AllReduce, and on each member a wait for its last ones."""
        members = self._whole.groups[self._whole.group[task]]
        ready = {host: self._waits(task, host) for host in members}
        ends: dict[int, list[int]] = {host: list(ready[host]) for host in members}
        for chain in self._allreduce(members, int(self._whole.size_bytes[task])):
            last, before_s = ready, time_s
            for phase in chain:
                messages = list(
                    zip(phase.sources.tolist(), phase.targets.tolist(), phase.sizes.tolist(), strict=True)
                )
                for _ in range(phase.rounds):
                    now: dict[int, list[int]] = defaultdict(list)
                    for source, target, size in messages:
                        sent = self._add(Kind.TRANSFER, source, before_s, size, target, after=last[source])
                        now[source].append(sent)
                        now[target].append(sent)
                    last, before_s = {**last, **now}, 0.0
            for host in members:
                ends[host] += last[host]
        for host in members:
            self._done[task, host] = self._add(Kind.BARRIER, host, after=sorted(set(ends[host])))

    def _waits(self, task: int, host: int) -> list[int]:
        """Return what a host waits for before a task: what it knows of; the other members of a sum know the rest."""
        found = []
        for first in self._before[task]:
            if host in self._places[first]:
                found.append(self._done[first, host])
            elif self._whole.kind[task] != Kind.ALLREDUCE or self._places[task].isdisjoint(
                self._places[first]
            ):
                raise WorkloadError(
                    f"task {task} waits on host {host} for task {first}, which ends elsewhere: put a transfer between"
                )
        return found

    def _add(
        self,
        kind: Kind,
        host: int,
        time_s: float = 0.0,
        size_bytes: int = 0,
        target: int = -1,
        *,
        after: Iterable[int],
    ) -> int:
        number = len(self._rows)
        device = host if kind == Kind.COMPUTE else -1
        source = host if kind == Kind.TRANSFER else -1
        self._rows.append((int(kind), device, time_s, size_bytes, source, target))
        self.hosts.append(host)
        self._edges.extend((first, number) for first in after)
        return number


def _places(graph: TaskGraph, before: Mapping[int, Iterable[int]]) -> list[set[int]]:
    """Return the hosts that know when each task has ended; of a barrier those that know all that it waits for."""
    places: list[set[int]] = [set() for _ in range(graph.tasks)]
    for task in _in_order(graph.tasks, before):
        match graph.kind[task]:
            case Kind.COMPUTE:
                places[task] = {int(graph.device[task])}
            case Kind.TRANSFER:
                places[task] = {int(graph.source[task]), int(graph.target[task])}
            case Kind.ALLREDUCE:
                places[task] = set(graph.groups[graph.group[task]])
            case _:
                each = [places[first] for first in before.get(task, ())]
                places[task] = set.intersection(*each) if each else set(range(graph.nodes))
        if not places[task] or max(places[task]) >= graph.nodes:
            raise WorkloadError(f"no host knows when task {task} may go on: put transfers before it")
    return places


def _in_order(tasks: int, before: Mapping[int, Iterable[int]]) -> list[int]:
    """Return the tasks, each behind all that it waits for."""
    left = [len(list(before.get(task, ()))) for task in range(tasks)]
    following: dict[int, list[int]] = defaultdict(list)
    for task in range(tasks):
        for first in before.get(task, ()):
            following[first].append(task)
    order = [task for task in range(tasks) if not left[task]]
    for task in order:  # grows while it is walked
        for then in following[task]:
            left[then] -= 1
            if not left[then]:
                order.append(then)
    return order
