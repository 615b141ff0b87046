"""Connections whose packets wait in queues: times worked out by hand, bytes, and the packet simulator's figures."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.models.network.execution import simulate
from sim.models.network.execution.packets import RING_TIMEOUT_S, simulate_packets
from sim.models.network.fabrics import (
    find_shortest_paths,
    make_direct_fabric,
    make_fat_tree,
    make_ideal_switch,
)
from sim.models.network.taskgraph import TaskGraphBuilder, read_task_graph

PACKET_S = 8936 * 8 / 1e11
LINK_S = 1e-6


@pytest.fixture(autouse=True)
def _compiled():
    pytest.importorskip("numba")


def sent(*sizes, nodes=3, fabric=None, **options):
    """Return node 0's transfers to nodes 1, 2, ... all at once."""
    job = TaskGraphBuilder(nodes)
    for target, size in enumerate(sizes, start=1):
        job.add_transfer(0, target, size)
    return simulate_packets(job.build(), fabric or make_ideal_switch(nodes, 100), **options)


def test_a_message_alone_takes_its_request_its_packets_and_a_store_and_forward():
    """Two links: 2 us for the request, 10 packets on the first, one more crossing on the second, 2 us of flight."""
    done = sent(10 * 8936)
    assert done.iteration_s == pytest.approx(2 * LINK_S + 11 * PACKET_S + 2 * LINK_S)
    assert done.link_bytes.tolist() == [89_360, 0, 0, 0, 89_360, 0]


def test_trains_of_packets_cut_through():
    assert sent(96 * 8936, packets_per_train=16).iteration_s == pytest.approx(
        sent(96 * 8936, packets_per_train=1).iteration_s, rel=1e-3
    )


def test_windows_of_100_packets_share_a_hosts_queue_alike():
    """Both send 100 packets at once; the second's last one waits behind all of the first's."""
    done = sent(100 * 8936, 100 * 8936)
    assert done.end_s.max() == pytest.approx(2 * LINK_S + 201 * PACKET_S + 2 * LINK_S, rel=1e-6)


def test_a_request_waits_behind_packets():
    """The second message begins when the first has 100 packets in the host's queue."""
    job = TaskGraphBuilder(3)
    job.add_transfer(0, 1, 100 * 8936)
    late = job.add_transfer(0, 2, 8936, predecessors=[job.add_compute(0, 3e-6)])
    done = simulate_packets(job.build(), make_ideal_switch(3, 100), packets_per_train=1)
    assert done.end_s[late] == pytest.approx(
        2 * LINK_S + 100 * PACKET_S + 2 * LINK_S + 2 * PACKET_S + 2 * LINK_S, rel=1e-3
    )


def test_a_message_that_waits_in_a_switch_leaves_its_hosts_queue_to_another():
    """Nodes 1 and 2 fill the link to node 0; what node 1 sends to node 3 besides has its host's queue for itself."""
    job = TaskGraphBuilder(4)
    marked = job.add_transfer(1, 0, 8000 * 8936)
    job.add_transfer(2, 0, 8000 * 8936)
    free = job.add_transfer(1, 3, 8000 * 8936)
    fabric = make_ideal_switch(4, 100)
    done = simulate_packets(job.build(), fabric)
    fair = simulate(job.build(), fabric)
    assert done.end_s[free] < 0.8 * fair.end_s[free]
    assert fair.end_s[marked] == fair.end_s[free]
    assert done.end_s[free] < 0.8 * done.end_s[marked]


def test_a_ring_request_that_waits_too_long_is_sent_again_and_begins_with_one_packet():
    """At 1 Gbit/s 100 packets take 7 ms, far more than a ring's request waits for."""
    job = TaskGraphBuilder(3)
    job.add_transfer(0, 1, 100 * 8936)
    ring = job.add_allreduce((0, 2), 200 * 8936, predecessors=[job.add_compute(0, 1e-4)])
    done = simulate_packets(job.build(), make_ideal_switch(3, 1))
    alone = TaskGraphBuilder(3)
    alone.add_allreduce((0, 2), 200 * 8936)
    alone_s = simulate_packets(alone.build(), make_ideal_switch(3, 1)).iteration_s
    waits_s = 100 * PACKET_S * 100
    assert waits_s > RING_TIMEOUT_S
    assert done.end_s[ring] > waits_s + alone_s


@pytest.mark.parametrize("train", [1, 7])
def test_every_packet_is_carried_once_by_each_link_of_its_path(train):
    random = np.random.default_rng(3)
    job = TaskGraphBuilder(16)
    for _ in range(60):
        source, target = random.choice(16, 2, replace=False)
        job.add_transfer(int(source), int(target), int(random.integers(1, 50 * 8936)))
    graph = job.build()
    fabric = make_fat_tree(16, 100, balance="hash")
    done = simulate_packets(graph, fabric, packets_per_train=train, seed=5)
    from_hosts = done.link_bytes[fabric.sources < 16]
    packets = -(-graph.size_bytes // 8936)
    assert from_hosts.tolist() == np.bincount(graph.source, packets * 8936, 16).tolist()
    assert done.link_bytes[fabric.targets < 16].sum() == from_hosts.sum()


def test_a_seed_draws_paths_and_the_same_one_the_same():
    job = TaskGraphBuilder(16)
    for source in range(4):
        job.add_transfer(source, 15 - source, 400 * 8936)
    fabric = make_fat_tree(16, 100, balance="hash")
    times = [simulate_packets(job.build(), fabric, seed=seed).iteration_s for seed in (1, 1, 2, 3)]
    assert times[0] == times[1]
    assert len(set(times)) > 1


def test_more_trains_than_there_is_room_for_make_room(monkeypatch):
    monkeypatch.setattr("sim.models.network.execution.packets._FIRST_TRAIN_COUNT", -15_000)
    job = TaskGraphBuilder(40)
    for target in range(1, 40):
        job.add_transfer(0, target, 400 * 8936)
    done = simulate_packets(job.build(), make_ideal_switch(40, 100), packets_per_train=1)
    assert done.link_bytes[0] == 39 * 400 * 8936


def test_shortest_paths_are_all_taken_and_none_is_longer():
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 4), (4, 1)]
    fabric = make_direct_fabric(5, edges, 100)
    count, router = find_shortest_paths(5, fabric.sources, fabric.targets)
    ends = [np.full(count, node) for node in (0, 3)]
    paths = {tuple(path) for path in router(*ends, np.arange(count)).tolist()}
    assert {tuple(fabric.targets[list(path)].tolist()) for path in paths} == {(1, 3), (2, 3)}


def test_parts_spread_a_message_over_its_shortest_paths():
    """Two ways of two links each: half of the message on each takes half of the time."""
    fabric = make_direct_fabric(4, [(0, 1), (0, 2), (1, 3), (2, 3)], 100)
    alternatives = find_shortest_paths(4, fabric.sources, fabric.targets)
    spread = replace(fabric, alternatives=alternatives, router=alternatives[1])
    job = TaskGraphBuilder(4)
    job.add_transfer(0, 3, 4_000 * 8936)
    whole, parts = (simulate(job.build(), spread, part_count=parts) for parts in (1, 4))
    assert parts.link_bytes.tolist() == [2_000 * 8936] * 4
    assert parts.iteration_s == pytest.approx(whole.iteration_s / 2, rel=0.01)


def test_parts_are_whole_packets():
    """Of 200 messages of a packet each a quarter takes each part; one of five packets fills no sixth."""
    fabric = make_direct_fabric(4, [(0, 1), (0, 2), (1, 3), (2, 3)], 100)
    alternatives = find_shortest_paths(4, fabric.sources, fabric.targets)
    spread = replace(fabric, alternatives=alternatives, router=alternatives[1])
    job = TaskGraphBuilder(4)
    for _ in range(200):
        job.add_transfer(0, 3, 8936)
    done = simulate(job.build(), spread, part_count=4)
    assert np.bincount(done.lowered.messages.choice).tolist() == pytest.approx([50] * 4, abs=2)
    assert done.wire_bytes == done.link_bytes.sum() // 2 == 200 * 8936

    job = TaskGraphBuilder(4)
    job.add_transfer(0, 3, 4 * 8936 + 1)
    done = simulate(job.build(), spread, part_count=4)
    assert sorted(done.lowered.messages.size_bytes.tolist()) == [8936, 8936, 8936, 8937]
    assert done.wire_bytes == 5 * 8936


def test_parts_take_no_weights_of_routes():
    """A fabric may have both: parts over alternatives, or weights for sets."""
    fabric = make_direct_fabric(4, [(0, 1), (0, 2), (1, 3), (2, 3)], 100)
    both = replace(fabric, weights=np.full((2, 4, 4), 0.5))
    job = TaskGraphBuilder(4)
    job.add_transfer(0, 3, 400 * 8936)
    counts = [simulate(job.build(), both, part_count=parts).lowered.messages.task.size for parts in (1, 4)]
    assert counts == [2, 4]


# ------------------------------------------------------------------------------ published graphs

PUBLISHED = {"25candle_16": (25, 2187.41, 0.06), "40dlrm_16": (40, 138.85, 0.02)}
PUBLISHED |= {"200transformer_16": (200, 63.52, 0.02), "10vgg_16": (10, 1782.31, 0.02)}


@pytest.mark.long
@pytest.mark.parametrize("name", PUBLISHED)
def test_hashed_paths_take_what_the_packet_simulator_found(name):
    folder = os.environ.get("LIGHTBED_DATA")
    if not folder:
        pytest.skip("LIGHTBED_DATA names no folder with the published task graphs")
    rate_gbps, published_ms, within = PUBLISHED[name]
    graph = read_task_graph(Path(folder) / "taskgraphs" / f"{name}.npz")
    done = simulate_packets(graph, make_fat_tree(graph.node_count, rate_gbps, balance="hash"))
    assert done.iteration_s * 1e3 == pytest.approx(published_ms, rel=within)
