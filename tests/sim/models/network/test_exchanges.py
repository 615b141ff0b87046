"""Exchanges: the same bytes on the same links as messages between pairs, and the time of the fullest link."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.network.execution import simulate
from sim.models.network.execution.circuits import CircuitSwitch, Controller, simulate_circuits
from sim.models.network.execution.lowering import load_links
from sim.models.network.execution.packets import simulate_packets
from sim.models.network.fabrics import (
    make_circulant,
    make_direct_fabric,
    make_expander,
    make_fat_tree,
    make_ideal_switch,
    make_rail_only,
)
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import Exchange, TaskGraphBuilder

NODES = 8
RING = [(node, (node + 1) % NODES) for node in range(NODES)]
FABRICS = (
    make_ideal_switch(NODES, 10),
    make_fat_tree(NODES, 10, oversubscription=2),
    make_rail_only(NODES, 4, 10, 100),
    make_circulant(NODES, (1, 3, 5), 10),
    make_direct_fabric(NODES, [*RING, *RING[:3]], 10),
    make_expander(NODES, 3, 10),
)


@st.composite
def exchanges(draw):
    """Return random transfers among `NODES` nodes; some are within a node, or empty."""
    pairs = draw(
        st.lists(
            st.tuples(*[st.integers(0, NODES - 1)] * 2, st.integers(0, 1_000_000)), min_size=1, max_size=40
        )
    )
    return Exchange(*(np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True)))


def run(fabric, exchange, *, whole, latency=NO_LATENCY, times=1):
    job, after = TaskGraphBuilder(NODES), None
    for _ in range(times):
        if whole:
            after = [job.add_exchange(exchange, predecessors=after)]
        else:
            rows = zip(*(column.tolist() for column in exchange), strict=True)
            after = [
                job.add_barrier(predecessors=[job.add_transfer(*row, predecessors=after) for row in rows])
            ]
    return simulate(job.build(), fabric, latency=latency)


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
@given(exchange=exchanges(), times=st.integers(1, 3))
def test_exchange_counts_what_its_transfers_count(fabric, exchange, times):
    one_path = fabric.choice_count == 1 or not fabric.hosts_forward
    whole, pairs = (
        run(fabric, exchange, whole=flag, latency=Latency(), times=times) for flag in (True, False)
    )

    for name in ("payload_bytes", "wire_bytes") + ("received_bytes", "forwarded_bytes") * one_path:
        assert getattr(whole, name) == getattr(pairs, name), name
    if one_path:
        assert whole.link_bytes.tolist() == pairs.link_bytes.tolist()


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
@given(exchange=exchanges())
def test_exchange_takes_the_time_of_its_fullest_link(fabric, exchange):
    execution = run(fabric, exchange, whole=True)

    busy_s = execution.link_bytes * 8 / fabric.capacity_bps
    assert execution.iteration_s == pytest.approx(busy_s[~fabric.never_full].max(initial=0.0))


def test_exchange_takes_turns_over_the_paths_of_a_circulant():
    ends = np.array([(one, other) for one in range(12) for other in range(12) if one != other])
    exchange = Exchange(ends[:, 0], ends[:, 1], np.full(len(ends), 1_000_000))

    load = load_links(exchange, make_circulant(12, (1, 5, 7, 11), 10), NO_LATENCY, part_count=1)

    # On the paths of a single set the fullest link has 1.8 times the mean.
    assert load.link_bytes.max() == pytest.approx(1.4 * load.link_bytes.sum() / 48)


def test_exchange_of_equal_parts_takes_as_long_as_its_transfers():
    ends = np.array([(one, other) for one in range(NODES) for other in range(NODES) if one != other])
    exchange = Exchange(ends[:, 0], ends[:, 1], np.full(len(ends), 1_000_000))

    whole, pairs = (run(FABRICS[0], exchange, whole=flag, latency=Latency()) for flag in (True, False))

    assert whole.iteration_s == pytest.approx(pairs.iteration_s, rel=1e-9)


def test_exchange_shares_its_links_with_other_flows():
    job = TaskGraphBuilder(NODES)
    job.add_exchange(Exchange(np.array([0]), np.array([1]), np.array([1_000_000])))
    job.add_transfer(0, 2, 1_000_000)

    execution = simulate(job.build(), FABRICS[0], latency=NO_LATENCY)

    assert execution.end_s.tolist() == pytest.approx([2 * 8e6 / 10e9] * 2)


def test_exchange_within_nodes_ends_at_once():
    job = TaskGraphBuilder(NODES)
    here = job.add_exchange(Exchange(np.array([3]), np.array([3]), np.array([1_000_000])))
    job.add_compute(0, 1e-3, predecessors=[here])

    assert simulate(job.build(), FABRICS[0]).iteration_s == 1e-3


def test_packets_of_an_exchange_move_between_pairs():
    exchange = Exchange(np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([100_000] * 3))
    job = TaskGraphBuilder(NODES)
    job.add_exchange(exchange)

    execution = simulate_packets(job.build(), FABRICS[3])

    assert execution.payload_bytes == 300_000
    assert execution.lowered.messages.source.tolist() == [0, 1, 2]


def test_exchange_over_links_that_are_never_full_takes_its_latency():
    fabric = replace(FABRICS[0], never_full=np.ones(FABRICS[0].link_count, dtype=bool))
    job = TaskGraphBuilder(NODES)
    job.add_exchange(Exchange(np.array([0]), np.array([1]), np.array([1_000_000])))

    execution = simulate(job.build(), fabric)

    assert 0 < execution.iteration_s < 1e-4
    assert execution.link_bytes.sum() == 2 * Latency().compute_wire_bytes(np.array(1_000_000))


def test_moving_circuits_serve_the_pairs_of_an_exchange():
    ends = np.array([(one, other) for one in range(NODES) for other in range(NODES) if one != other])
    job = TaskGraphBuilder(NODES)
    job.add_exchange(Exchange(ends[:, 0], ends[:, 1], np.full(len(ends), 1_000_000)))

    execution = simulate_circuits(
        job.build(), CircuitSwitch(NODES, 2, 10, controller=Controller(period_s=1e-3), delay_s=1e-5)
    )

    assert execution.wire_bytes == execution.link_bytes.sum() > 1_000_000 * len(ends)


@pytest.mark.parametrize("place", [-1, NODES])
def test_exchange_with_a_node_outside_the_graph_is_refused(place):
    job = TaskGraphBuilder(NODES)
    job.add_exchange(Exchange(np.array([place]), np.array([1]), np.array([1])))

    with pytest.raises(ValueError, match=r"exchange 0 must name nodes of 0\.\.7"):
        job.build()
