"""Dependencies in a task graph: messages between servers, and the tasks after which each server goes on."""

from __future__ import annotations

from collections.abc import Iterable

from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.workloads.sharding.resharding import Resharding

Tasks = dict[int, list[int]]
"""Task numbers by server."""


def send(builder: TaskGraphBuilder, resharding: Resharding, done: Tasks, ready: Tasks) -> None:
    """Add to `ready` what has to happen before each target can go on."""
    for source, target, size_bytes in zip(*(column.tolist() for column in resharding), strict=True):
        after = done[source]
        arrived = after if source == target else [builder.transfer(source, target, size_bytes, after=after)]
        ready.setdefault(target, []).extend(arrived)


def exchange(builder: TaskGraphBuilder, resharding: Resharding, done: Tasks) -> Tasks:
    """Return all-to-all; each server goes on when all of its parts are there."""
    done = settled(builder, {server: done.get(server, []) for server in set(resharding.source.tolist())})
    ready: Tasks = {}
    send(builder, resharding, done, ready)
    return settled(builder, ready)


def settled(builder: TaskGraphBuilder, tasks: Tasks) -> Tasks:
    """Return one task to wait for instead of many: each of them would be an edge to each message that follows."""
    return {
        server: [builder.barrier(after=waits)] if len(waits) > 1 else waits for server, waits in tasks.items()
    }


def join(ready: Tasks, passes: Iterable[Tasks]) -> None:
    """Wait for those passes, too, each server for its own."""
    for done in passes:
        for server, tasks in done.items():
            ready[server] = sorted({*ready.get(server, []), *tasks})
