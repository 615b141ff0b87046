"""Devices are taken first come, first served, equals by number; against a plain interpreter in milliseconds."""

from __future__ import annotations

from random import Random

import pytest

from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import Kind, TaskGraphBuilder

DEVICES, TASKS, GRAPHS = 3, 40, 60
RATE_GBPS, BYTES_A_MS = 8, 10**6


def drawn(seed):
    """Return a graph of computing, transfers between pairs of nodes of their own, and barriers; times in whole ms."""
    random = Random(seed)
    job = TaskGraphBuilder(2 * TASKS)
    for task in range(TASKS):
        after = sorted(random.sample(range(task), min(task, random.choice((0, 1, 1, 2, 3)))))
        kind = random.choice((Kind.COMPUTE,) * 4 + (Kind.TRANSFER, Kind.BARRIER))
        if kind == Kind.COMPUTE:
            job.add_compute(random.randrange(DEVICES), random.randrange(4) * 1e-3, predecessors=after)
        elif kind == Kind.TRANSFER:
            job.add_transfer(2 * task, 2 * task + 1, random.randrange(1, 4) * BYTES_A_MS, predecessors=after)
        else:
            job.add_barrier(predecessors=after)
    return job.build()


def interpreted(graph):
    """Return when each task begins, in ms, and how often a device had to choose among equals."""
    took = [
        round(s * 1e3) + size // BYTES_A_MS for s, size in zip(graph.time_s, graph.size_bytes, strict=True)
    ]
    waits = [set(graph.before[graph.after == task].tolist()) for task in range(graph.task_count)]
    ready, begin, end, ties, now = {}, {}, {}, 0, 0
    while len(end) < graph.task_count:
        moved = True
        while moved:
            moved = False
            for task in [
                task for task, start in begin.items() if task not in end and start + took[task] <= now
            ]:
                end[task], moved = now, True
            for task in range(graph.task_count):
                if task not in ready and waits[task] <= end.keys():
                    ready[task], moved = now, True
                    if graph.kind[task] != Kind.COMPUTE:
                        begin[task] = now
        began = False
        for device in range(DEVICES):
            mine = [
                task for task in ready if graph.kind[task] == Kind.COMPUTE and graph.device[task] == device
            ]
            queue = sorted((ready[task], task) for task in mine if task not in begin)
            if queue and not any(task in begin and task not in end for task in mine):
                ties += len(queue) > 1 and queue[0][0] == queue[1][0]
                begin[queue[0][1]], began = now, True
        if not began:
            now = min((start + took[task] for task, start in begin.items() if task not in end), default=now)
    return [begin[task] for task in range(graph.task_count)], ties


@pytest.mark.long
def test_devices_are_taken_as_documented():
    chosen = 0
    for seed in range(GRAPHS):
        graph = drawn(seed)
        begin_ms, ties = interpreted(graph)
        done = simulate(graph, make_ideal_switch(graph.node_count, RATE_GBPS), latency=NO_LATENCY)
        assert (done.begin_s * 1e3).tolist() == pytest.approx(begin_ms, abs=1e-6), f"graph {seed}"
        chosen += ties > 0
    assert chosen > 0.8 * GRAPHS
