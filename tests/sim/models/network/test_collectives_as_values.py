"""Collectives as values: their measure, their bytes and their tasks agree with one another and with the simulator."""

from __future__ import annotations

import pytest

from sim.models.network.collectives import COLLECTIVES
from sim.models.network.execution import simulate
from sim.models.network.fabrics import ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder

by_name = pytest.mark.parametrize("name", COLLECTIVES)
MEMBERS = (3, 0, 1, 2)
SIZE_BYTES = 12_000_000


@by_name
def test_a_node_sends_the_bus_factor_of_its_tensor(name):
    collective = COLLECTIVES[name]
    sent = collective.pair_bytes(MEMBERS, SIZE_BYTES)
    for member in MEMBERS:
        total = sum(size for (source, _), size in sent.items() if source == member)
        assert total == pytest.approx(collective.bus_factor(len(MEMBERS)) * SIZE_BYTES)


@by_name
def test_on_an_ideal_switch_the_bus_bandwidth_is_that_of_the_links(name):
    collective, graph = COLLECTIVES[name], TaskGraphBuilder(len(MEMBERS))
    collective.add_tasks(graph, MEMBERS, SIZE_BYTES, ())
    seconds = simulate(graph.build(), ideal_switch(len(MEMBERS), 10.0), latency=NO_LATENCY).iteration_s
    bus_gbps = collective.bus_factor(len(MEMBERS)) * SIZE_BYTES * 8 / seconds / 1e9
    assert bus_gbps == pytest.approx(10.0, rel=2e-3)


@by_name
def test_a_run_begins_after_the_tasks_that_it_follows(name):
    collective, graph = COLLECTIVES[name], TaskGraphBuilder(len(MEMBERS))
    first = graph.compute(0, 1.0)
    tasks = collective.add_tasks(graph, MEMBERS, SIZE_BYTES, (first,))
    run = simulate(graph.build(), ideal_switch(len(MEMBERS), 10.0), latency=NO_LATENCY)
    assert all(run.begin_s[task] >= 1.0 for task in tasks)


@by_name
def test_one_node_alone_sends_nothing(name):
    assert not any(COLLECTIVES[name].pair_bytes((0,), SIZE_BYTES).values())
    assert COLLECTIVES[name].bus_factor(1) == 0
