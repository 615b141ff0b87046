"""Jobs of hosts: the scripts send what the plan and the simulator say, and wait for what their host can see."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from sim.models.network.allreduce import plan_rings
from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.evaluation.host_job import divide_by_host, make_host_job, make_host_scripts
from testbed.design.fabrics.direct import route_job
from testbed.design.topology.circulants import find_topology
from testbed.errors import WorkloadError

NODES = 8


def an_iteration(random):
    """Return computing, transfers, a barrier and AllReduces of drawn sizes."""
    job, last = TaskGraphBuilder(NODES), defaultdict(list)
    for _ in range(12):
        source, target = random.permutation(NODES)[:2].tolist()
        before = job.add_compute(source, float(random.random()) * 1e-3, predecessors=last[source])
        size = int(random.integers(1, 5_000_000))
        moved = job.add_transfer(source, target, size, predecessors=[before])
        last[source], last[target] = [before], [*last[target], moved]
    group = sorted(random.permutation(NODES)[: int(random.integers(2, NODES + 1))].tolist())
    ready = [job.add_barrier(predecessors=last[host]) for host in group if last[host]]
    summed = job.add_allreduce(
        tuple(group), int(random.integers(1, 5_000_000)), time_s=1e-4, predecessors=ready
    )
    for host in group:
        job.add_compute(host, 1e-4, predecessors=[summed])
    return job.build()


@pytest.mark.slow
def test_scripts_send_on_every_link_what_is_simulated_and_planned():
    random, seen = np.random.default_rng(5), Counter()
    topology = find_topology(NODES, 4)
    for _ in range(30):
        graph = an_iteration(random)
        routes = route_job(topology, graph, try_count=1)
        job = make_host_job(graph, routes, 100.0, target_s=0.5)
        carried, received = np.zeros(len(topology.edges)), Counter()
        parts = make_host_scripts(job)
        for source, part in enumerate(parts):
            for task in part["tasks"]:
                for target, number, size in task["send"]:
                    carried[list(routes.find_path(source, target, number))] += size
                    received[target, task["id"]] += 1
                    seen["other sets"] += number > 0
        assert (carried == job.execution.link_bytes).all()
        assert abs(carried - job.planned_bytes).max() <= 2 * len(job.execution.lowered.messages.task)
        awaited = {
            (host, task["id"]): task["receive"]
            for host, part in enumerate(parts)
            for task in part["tasks"]
            if task["receive"]
        }
        assert awaited == received
        assert job.predicted_s == pytest.approx(0.5, rel=0.1)
    assert seen["other sets"] >= 200, seen


def test_a_host_waits_only_for_tasks_that_it_knows_of():
    random = np.random.default_rng(6)
    for _ in range(20):
        graph, hosts = divide_by_host(an_iteration(random), plan_rings)
        for first, then in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
            assert hosts[then] in (hosts[first], graph.target[first])


def test_an_allreduce_of_equal_hosts_takes_the_time_of_its_rounds():
    job = TaskGraphBuilder(4)
    job.add_allreduce((0, 1, 2, 3), 4_000_000, time_s=1e-3)
    whole = job.build()
    switch = make_ideal_switch(4, 10.0)
    unrolled, _ = divide_by_host(whole, plan_rings)
    taken = [
        simulate(graph, switch, latency=NO_LATENCY, allreduce=plan_rings).iteration_s
        for graph in (whole, unrolled)
    ]
    assert taken == pytest.approx([1e-3 + 6 * 1e6 * 8 / 10e9] * 2)


def test_a_task_that_waits_for_another_host_without_a_transfer_is_refused():
    job = TaskGraphBuilder(2)
    job.add_compute(1, 1e-3, predecessors=[job.add_compute(0, 1e-3)])
    with pytest.raises(WorkloadError, match=r"task 1 waits on host 1 for task 0.*put a transfer between"):
        divide_by_host(job.build(), plan_rings)
    job = TaskGraphBuilder(2)
    job.add_barrier(predecessors=[job.add_compute(0, 1e-3), job.add_compute(1, 1e-3)])
    with pytest.raises(
        WorkloadError, match="no host can tell when task 2 may start: put transfers before it"
    ):
        divide_by_host(job.build(), plan_rings)


def test_bytes_and_computing_are_scaled_by_the_factor_and_computing_by_the_links_too():
    job = TaskGraphBuilder(2)
    job.add_transfer(0, 1, 1_000_000, predecessors=[job.add_compute(0, 1.0)])
    graph, topology = job.build(), find_topology(2, 1)
    made = make_host_job(graph, route_job(topology, graph), 100.0, stretch=250, factor=0.001)
    computing = [task["seconds"] for task in make_host_scripts(made)[0]["tasks"] if task["computes"]]
    assert computing == pytest.approx([0.25])
    assert made.execution.link_bytes.sum() == 1000
    assert made.predicted_s == pytest.approx(0.25, rel=0.01)
