"""Tasks that the nodes of a trace become: each function adds those of a node, or of a collective, to a job."""

from __future__ import annotations

from sim.models.network.taskgraph import TaskGraphBuilder


def add_compute(job: TaskGraphBuilder, after: list[int], *, device: int, time_s: float) -> None:
    """Add computing."""
    job.compute(device, time_s, after=after)


def add_transfer(job: TaskGraphBuilder, after: list[int], *, ends: tuple[int, int], size_bytes: int) -> None:
    """Add a transfer."""
    job.transfer(*ends, size_bytes, after=after)


def add_wait(job: TaskGraphBuilder, after: list[int]) -> None:
    """Add a task that only waits."""
    job.barrier(after=after)


def add_reduce(
    job: TaskGraphBuilder, after: list[int], *, members: tuple[int, ...], size_bytes: int, time_s: float
) -> None:
    """Add an AllReduce."""
    job.allreduce(members, size_bytes, time_s=time_s, after=after)


def add_ring(job: TaskGraphBuilder, after: list[int], *, members: tuple[int, ...], size_bytes: int) -> None:
    """Add rounds in which each member sends to the next what it got in the round before."""
    count = len(members)
    got = [job.barrier(after=after)] * count
    for _ in range(count - 1):
        sent = [
            job.transfer(member, members[(place + 1) % count], size_bytes, after=[got[place]])
            for place, member in enumerate(members)
        ]
        got = sent[-1:] + sent[:-1]
    job.barrier(after=sorted(set(got)))


def add_messages(
    job: TaskGraphBuilder, after: list[int], *, messages: tuple[tuple[int, int, int], ...]
) -> None:
    """Add messages (source, target, bytes) that leave together; the last has arrived at the end."""
    begin = job.barrier(after=after)
    sent = [job.transfer(source, target, size, after=[begin]) for source, target, size in messages]
    job.barrier(after=sent or [begin])
