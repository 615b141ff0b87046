"""Planned routes are simulated routes: bytes of every link by the plan and by the simulator, over many jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from free_routes import least_maximum

from sim.models.network.execution.lowering import lower_graph
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.fabrics.direct import find_demand, make_ring_allreduce, route_job
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import ROUTINGS, FabricOptions, FabricRequest
from testbed.design.model import Topology
from testbed.design.topology.circulants import list_circulant_edges
from testbed.design.topology.demand import AllReduceDemand, make_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.topology.strides import list_direct_strides

SIZES = (4, 6, 8)


def a_plan(random):
    """Return a topology with rings and links for pairs, and an iteration of transfers and AllReduces."""
    nodes = int(random.choice(SIZES))
    pairs = [(*random.permutation(nodes)[:2].tolist(), int(random.integers(1, 50_000_000))) for _ in range(9)]
    demand = make_demand(nodes, [AllReduceDemand(nodes, 10**7)], pairs)
    degree = 2 if nodes == 4 else 4
    topology = plan_topology(demand, degree, matching_degree=int(random.choice([0, degree - 2]))).topology
    job, last = TaskGraphBuilder(nodes), []
    for source, target, size in pairs:
        last.append(job.add_transfer(source, target, size, predecessors=[job.add_compute(source, 1e-3)]))
    group = sorted(random.permutation(nodes)[: int(random.integers(2, nodes + 1))].tolist())
    job.add_allreduce(group, int(random.integers(1, 20_000_000)), predecessors=last[:3])
    job.add_allreduce(range(nodes), int(random.integers(1, 20_000_000)), predecessors=last)
    return topology, job.build()


def simulated(topology, graph, routes, latency):
    request = FabricRequest("direct", topology.nodes, topology.degree, 25.0, topology=topology, routes=routes)
    return build_fabric(request).as_fluid().run(graph, latency=latency)


def parts_on_links(routes, done):
    """Return how many parts of messages may take each link, which are whole packets each, in each round."""
    whole = lower_graph(
        done.graph, replace(done.fabric, weights=None), Latency(), make_ring_allreduce(routes.topology)
    )
    parts, messages = np.zeros(routes.weight.shape[1:]), whole.messages
    np.add.at(parts, (messages.source, messages.target), messages.round_count * messages.merged_round_count)
    return replace(routes, weight=(routes.weight > 0).astype(float)).compute_link_bytes(parts)


@pytest.mark.long
@pytest.mark.parametrize("latency", [NO_LATENCY, Latency()], ids=["bytes", "packets"])
def test_every_link_carries_in_the_simulator_what_the_plan_says(latency):
    random, seen = np.random.default_rng(17), Counter()
    for _ in range(100):
        topology, graph = a_plan(random)
        routes = route_job(topology, graph, latency=latency, try_count=1)
        demand = find_demand(topology, graph, latency)
        done = simulated(topology, graph, routes, latency)
        planned, messages = routes.compute_link_bytes(demand), done.lowered.messages
        assert done.payload_bytes == demand.pair_bytes
        # A part begins and ends at a packet, and its last one is filled up.
        slack = 2 * latency.packet_bytes * (parts_on_links(routes, done) + 1)
        assert (abs(done.link_bytes - planned) <= slack).all()
        seen["split"] += len(set(zip(messages.phase, messages.source, strict=True))) < len(messages.phase)
        seen["several sets"] += routes.set_count > 1 and bool((routes.weight[1:] > 0).any())
        if latency is NO_LATENCY:
            assert done.link_bytes == pytest.approx(planned, rel=1e-3, abs=1e-3 * planned.max())
    assert min(seen["several sets"], seen["split"]) >= 60, seen


@pytest.mark.parametrize("strides", [(1,), (1, 5), (1, 3), (1, 2)])
def test_an_all_to_all_on_planned_routes_takes_what_a_linear_programme_allows(strides):
    """Messages are whole here: the routes of the plan split them, as the hosts do."""
    nodes, size_bytes = 12, 4_000_000
    edges = list_circulant_edges(nodes, list_direct_strides(nodes, strides, simplex=False))
    topology = Topology(nodes, 2 * len(strides), False, strides, edges)
    job = TaskGraphBuilder(nodes)
    for source in range(nodes):
        for target in set(range(nodes)) - {source}:
            job.add_transfer(source, target, size_bytes)
    graph = job.build()
    routes = route_job(topology, graph, latency=NO_LATENCY)
    least = least_maximum(topology, find_demand(topology, graph, NO_LATENCY))
    done = simulated(topology, graph, routes, NO_LATENCY)
    assert least * (1 - 1e-6) <= done.link_bytes.max() <= 1.02 * least
    # Flows share links fairly, not by what each still has to carry: the last ones do not fill them.
    assert done.iteration_s <= 1.1 * least * 8 / 25e9


def test_the_parts_of_a_message_follow_the_weights():
    topology = plan_topology(make_demand(4, [AllReduceDemand(4, 1)]), 2).topology
    job = TaskGraphBuilder(4)
    for _ in range(200):
        job.add_transfer(0, 2, 3_000)  # less than a packet each: 200 of them are dealt out
    graph = job.build()
    routes = route_job(topology, graph)
    done = simulated(topology, graph, routes, Latency())
    assert routes.weight[:, 0, 2].max() <= 0.55
    assert (done.link_bytes > 0).sum() == 4
    carried = done.link_bytes[done.link_bytes > 0]
    assert carried.max() <= 1.1 * carried.min()
    assert done.lowered.messages.size_bytes.size == 200


def test_other_routings_know_no_weights():
    topology = plan_topology(make_demand(4, [AllReduceDemand(4, 1)]), 2).topology
    job = TaskGraphBuilder(4)
    job.add_transfer(0, 2, 100 * 8936)
    graph, counts = job.build(), {}
    for routing in ROUTINGS:
        request = FabricRequest("direct", 4, 2, 25.0, topology=topology, routes=route_job(topology, graph))
        chosen = build_fabric(replace(request, options=FabricOptions(routing=routing)))
        counts[routing] = chosen.run(graph).lowered.messages.size_bytes.tolist()
    assert counts["ideal"] == [50 * 8936] * 2, "two sets of routes, of equal weights"
    assert counts["spread"] == [25 * 8936] * 4
    assert counts["hash"] == [100 * 8936]


def test_without_routes_nothing_is_split():
    topology = plan_topology(make_demand(4, [AllReduceDemand(4, 1)]), 2).topology
    job = TaskGraphBuilder(4)
    job.add_transfer(0, 2, 10**6)
    done = simulated(topology, job.build(), None, Latency())
    assert done.lowered.messages.size_bytes.tolist() == [10**6]
