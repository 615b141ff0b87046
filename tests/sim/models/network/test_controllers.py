"""Controllers of circuits: when circuits move, for which bytes, and how near that is to the best possible."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.network.allreduce import plan_rings
from sim.models.network.execution.circuits import (
    CircuitSwitch,
    Controller,
    compute_communication_layers,
    compute_remaining_demand,
    plan_circuits,
    simulate_circuits,
)
from sim.models.network.execution.lowering import lower_graph
from sim.models.network.execution.simulation import Run, StalledError
from sim.models.network.fabrics import make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import Exchange, TaskGraphBuilder

NODES = 4
GB = 10**9


def graph_of(demands, compute_s: float = 0.0):
    """Return a graph of exchanges, one after another, with computing before each."""
    job, after = TaskGraphBuilder(NODES), []
    for demand in demands:
        pairs = np.nonzero(demand)
        if compute_s:
            after = [job.add_compute(0, compute_s, predecessors=after)]
        after = [
            job.add_exchange(Exchange(*pairs, np.asarray(demand)[pairs].astype(np.int64)), predecessors=after)
        ]
    return job.build()


def demand_of(*messages: tuple[int, int, float]):
    demand = np.zeros((NODES, NODES))
    for source, target, size_bytes in messages:
        demand[source, target] = size_bytes
    return demand


def run(demands, controller: Controller, *, compute_s: float = 0.0, **options):
    switch = CircuitSwitch(
        NODES, **{"degree": 1, "rate_gbps": 8, "delay_s": 0.1} | options, controller=controller
    )
    return simulate_circuits(graph_of(demands, compute_s), switch, latency=NO_LATENCY)


THERE, BACK, ASIDE = demand_of((0, 1, GB)), demand_of((1, 0, GB)), demand_of((0, 2, GB))


@pytest.mark.parametrize(
    ("controller", "iteration_s", "moves"),
    [
        (Controller("once"), 2.0, 0),
        (Controller("per-iteration"), 2.1, 1),
        (Controller("per-layer"), 2.2, 2),  # dark before each layer, as the first leaves the way back unlit
    ],
    ids=["once", "per-iteration", "per-layer"],
)
def test_circuits_move_when_the_controller_says(controller, iteration_s, moves):
    execution = run([THERE, BACK], controller)

    assert (execution.iteration_s, execution.reconfiguration_count) == (pytest.approx(iteration_s), moves)


@pytest.mark.parametrize("when", ["once", "per-iteration"])
def test_circuits_that_never_move_leave_pairs_without_one(when):
    with pytest.raises(StalledError, match="choose a controller that moves them more often"):
        run([THERE, ASIDE], Controller(when))


def test_circuits_of_a_layer_move_on_when_its_flows_wait():
    execution = run([THERE + ASIDE], Controller("per-layer"))

    assert execution.iteration_s == pytest.approx(0.1 + 1 + 0.1 + 1)
    assert execution.reconfiguration_count == 2


def test_flows_that_wait_get_circuits_while_other_servers_compute():
    job = TaskGraphBuilder(NODES)
    job.add_compute(3, 10.0)
    job.add_transfer(0, 1, GB)
    job.add_transfer(0, 2, GB)
    switch = CircuitSwitch(NODES, 1, 8, Controller("per-layer"), 0.1)

    execution = simulate_circuits(job.build(), switch, latency=NO_LATENCY)

    assert sorted(execution.end_s.tolist()) == pytest.approx([1.1, 2.2, 10.0])


def test_look_ahead_moves_circuits_while_servers_compute():
    late, early = (
        run([THERE, ASIDE], Controller("per-layer", look_ahead=ahead), compute_s=0.5) for ahead in (0, 1)
    )

    assert late.iteration_s == pytest.approx(2 * (0.5 + 0.1 + 1))
    assert early.iteration_s == pytest.approx(2 * (0.5 + 1))
    assert early.outage_s == late.outage_s == pytest.approx(0.2)


def test_hysteresis_keeps_circuits_that_save_less_than_they_cost():
    small = demand_of((0, 1, GB // 100), (0, 2, GB // 100))
    lively, calm = (
        run([THERE, small], Controller("per-layer", hysteresis=h), packet_gbps=8) for h in (0.0, 1.0)
    )

    assert calm.reconfiguration_count <= 1
    assert calm.iteration_s <= lively.iteration_s


def test_hysteresis_does_not_keep_pairs_waiting_for_ever():
    execution = run([THERE + ASIDE], Controller("every", 0.5, hysteresis=2))

    # Nothing moves from 1.1 s on, which shows at 2 s.
    assert execution.iteration_s == pytest.approx(2 + 0.1 + 1)
    assert execution.reconfiguration_count == 2


def test_bytes_of_a_layer_to_come_are_its_own():
    graph, fabric = graph_of([THERE, ASIDE]), make_ideal_switch(NODES, 8)
    lowered = lower_graph(graph, fabric, NO_LATENCY, plan_rings, splits_by_pair=True)
    started = Run(lowered, fabric.capacity_bps / 8, fabric.never_full)
    started.run_until(0.25)

    running, to_come, both = (
        compute_remaining_demand(started, lowered, NODES, 1, tasks)
        for tasks in (None, compute_communication_layers(graph) == 1, np.ones(graph.task_count, dtype=bool))
    )
    assert running.tolist() == (THERE * 0.75).tolist()
    assert to_come.tolist() == ASIDE.tolist()
    assert both.tolist() == (running + to_come).tolist()


def test_dark_times_reach_from_nanoseconds_to_minutes():
    for dark_s in (1e-9, 20e-6, 30e-3, 60.0):
        execution = run([THERE, ASIDE], Controller("per-layer"), delay_s=dark_s)
        assert execution.iteration_s == pytest.approx(2 + 2 * dark_s)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Controller("every", 0.0), "period_s is 0.0"),
        (lambda: Controller("once", hysteresis=1), "has no hysteresis"),
        (lambda: Controller("every", look_ahead=1), "choose per-layer"),
        (lambda: Controller(look_ahead=-1), "0 or more"),
        (lambda: CircuitSwitch(4, 2, 8, hosts_forward=True, packet_gbps=1), "no packet switch"),
    ],
)
def test_a_controller_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ------------------------------------------------------------------------------ bytes


@st.composite
def demand_matrices(draw):
    sizes = draw(st.lists(st.integers(0, 10**7), min_size=NODES**2, max_size=NODES**2))
    demand = np.array(sizes, dtype=float).reshape(NODES, NODES)
    np.fill_diagonal(demand, 0)
    return demand


@pytest.mark.parametrize(
    "way", [{}, {"packet_gbps": 4}, {"hosts_forward": True, "degree": 2}], ids=["", "packets", "ring"]
)
@pytest.mark.parametrize("when", ["every", "per-layer"])
@given(demands=st.lists(demand_matrices(), min_size=1, max_size=3), look_ahead=st.integers(0, 2))
def test_every_byte_arrives_once(way, when, demands, look_ahead):
    controller = Controller(when, 5e-3, look_ahead=look_ahead if when == "per-layer" else 0)

    execution = run(demands, controller, delay_s=1e-4, **way)

    sent = int(np.sum(demands))
    fabric, link_bytes = execution.fabric, execution.link_bytes
    assert execution.payload_bytes == execution.wire_bytes == sent
    assert execution.received_bytes == sent + execution.forwarded_bytes
    arrived = np.bincount(fabric.targets, link_bytes) - np.bincount(
        fabric.sources, link_bytes, minlength=fabric.targets.max() + 1
    )
    expected = np.sum(demands, axis=0).sum(axis=0) - np.sum(demands, axis=0).sum(axis=1)
    assert arrived[:NODES].tolist() == expected.tolist()


# ------------------------------------------------------------------------------ layers


def test_layers_count_the_communication_before():
    job = TaskGraphBuilder(3)
    first = job.add_transfer(0, 1, 1)
    compute = job.add_compute(1, 1.0, predecessors=[first])
    second = job.add_allreduce((0, 1, 2), 9, predecessors=[compute])
    beside = job.add_transfer(2, 0, 1)
    job.add_transfer(0, 2, 1, predecessors=[second, beside])

    assert compute_communication_layers(job.build()).tolist() == [0, -1, 1, 0, 2]


# ------------------------------------------------------------------------------ the best possible


def all_circuits():
    """Return all circuits of four nodes with one transmitter and receiver each."""
    places = [[place for place in range(-1, NODES) if place != node] for node in range(NODES)]
    every = []
    for targets in product(*places):
        lit = [target for target in targets if target >= 0]
        if len(set(lit)) == len(lit):
            circuits = np.zeros((NODES, NODES), np.int64)
            for node, target in enumerate(targets):
                circuits[node, target] = target >= 0
            np.fill_diagonal(circuits, 0)
            every.append(circuits)
    return every


def random_layers(seed: int):
    """Return the demands of 3 to 6 layers, of which some are alike, and a dark time from 1 to 300 ms."""
    random = np.random.default_rng(seed)
    count, kinds = int(random.integers(3, 7)), []
    for _ in range(int(random.integers(1, 4))):
        demand = np.round(
            random.gamma(0.5, size=(NODES, NODES)) * (random.random((NODES, NODES)) < 0.6) * 1e8
        )
        np.fill_diagonal(demand, 0)
        kinds.append(demand)
    layers = [kinds[int(random.integers(len(kinds)))] for _ in range(count)]
    return [layer for layer in layers if layer.any()], float(10 ** random.uniform(-3, -0.5))


def test_per_layer_is_within_five_per_cent_of_the_optimum():
    ratios, moved = [], 0
    for seed in range(50):
        demands, dark_s = random_layers(seed)
        controller = Controller("per-layer", hysteresis=1, look_ahead=1)
        execution = run(demands, controller, delay_s=dark_s, packet_gbps=4)
        switch, dark = (
            CircuitSwitch(NODES, 1, 8, controller, dark_s, packet_gbps=4),
            np.zeros((NODES, NODES), np.int64),
        )
        plan = plan_circuits(switch, demands, dark, dark_s, all_circuits())
        moves = sum((one != other).any() for one, other in zip([dark, *plan], plan, strict=False))
        best_s = sum(map(switch.compute_service_s, demands, plan)) + dark_s * moves
        ratios.append(execution.iteration_s / best_s)
        moved += execution.reconfiguration_count

    assert max(ratios) <= 1.05
    assert moved >= 50
