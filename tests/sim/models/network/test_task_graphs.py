"""Task graphs: their semantics when run, their checks, the file format, and the published graphs."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_fat_tree, make_ideal_switch
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import Kind, TaskGraphBuilder, read_task_graph

NETWORK, GPU, NONE = 13, 0, 2**64 - 1


def run(job, nodes=2, latency=NO_LATENCY, **options):
    return simulate(job.build(), make_ideal_switch(nodes, 8), latency=latency, **options)  # 1 GB/s


def test_a_device_takes_one_task_at_a_time_in_the_order_they_become_ready():
    job = TaskGraphBuilder(1)
    first, second = job.add_compute(0, 3.0), job.add_compute(0, 1.0)
    other = job.add_compute(1, 2.0)
    third = job.add_compute(0, 1.0, predecessors=[other])
    done = run(job, 1)
    assert done.begin_s.tolist() == [0.0, 3.0, 0.0, 4.0]
    assert done.end_s[[first, second, third]].tolist() == [3.0, 4.0, 5.0]
    assert done.iteration_s == 5.0


def test_tasks_that_become_ready_together_take_their_device_by_number():
    """Predecessors end at the same time; the later number was let go first, and still comes second."""
    job = TaskGraphBuilder(1)
    late, soon = job.add_compute(1, 2.0), job.add_compute(2, 1.0)
    second = job.add_compute(2, 1.0, predecessors=[soon])
    low = job.add_compute(0, 3.0, predecessors=[second])
    high = job.add_compute(0, 1.0, predecessors=[late])
    done = run(job, 1)
    assert done.begin_s[[low, high]].tolist() == [2.0, 5.0]


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0)])
def test_a_task_that_becomes_ready_earlier_goes_first_whatever_its_number(times):
    job = TaskGraphBuilder(1)
    job.add_compute(0, 2.0)
    gates = [job.add_compute(1 + place, time_s) for place, time_s in enumerate(times)]
    waiting = [job.add_compute(0, 1.0, predecessors=[gate]) for gate in gates]
    begin = run(job, 1).begin_s[waiting].tolist()
    assert begin == ([2.0, 3.0] if times == (0.0, 1.0) else [3.0, 2.0])


def test_a_task_waits_for_all_that_are_before_it():
    job = TaskGraphBuilder(2)
    slow, fast = job.add_compute(0, 2.0), job.add_compute(1, 1.0)
    gate = job.add_barrier(predecessors=[slow, fast])
    move = job.add_transfer(0, 1, 10**9, predecessors=[gate])
    last = job.add_compute(1, 0.5, predecessors=[move])
    done = run(job)
    assert done.begin_s[[gate, move, last]] == pytest.approx([2.0, 2.0, 3.0])
    assert done.iteration_s == pytest.approx(3.5)


def test_computing_goes_on_while_bytes_move():
    job = TaskGraphBuilder(2)
    job.add_transfer(0, 1, 10**9)
    job.add_compute(0, 1.0)
    assert run(job).iteration_s == pytest.approx(1.0)


def test_an_allreduce_spends_its_time_first():
    job = TaskGraphBuilder(2)
    job.add_allreduce((0, 1), 10**9, time_s=0.25)
    assert run(job).iteration_s == pytest.approx(1.25)


def test_what_stays_in_a_node_or_is_empty_takes_no_time():
    job = TaskGraphBuilder(2)
    job.add_transfer(0, 0, 10**9)
    job.add_transfer(0, 1, 0)
    job.add_allreduce((1,), 10**9)
    done = run(job, latency=Latency())
    assert (done.iteration_s, done.payload_bytes, done.bandwidth_tax) == (0.0, 0, 1.0)


def test_an_empty_graph_has_ended():
    assert run(TaskGraphBuilder(1), 1).iteration_s == 0.0


def test_the_handshake_and_the_flight_of_a_transfer():
    """Fat-tree, other pod: 12 us there and back, 1 packet of 0.715 us and five more crossings, 12 us there and back."""
    job = TaskGraphBuilder(16)
    job.add_transfer(0, 15, 1)
    done = simulate(job.build(), make_fat_tree(16, 100))
    assert done.iteration_s == pytest.approx(24e-6 + 6 * 8936 * 8 / 1e11)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda job: job.add_compute(0, -1.0), "task 0 of the graph has a time"),
        (lambda job: job.add_compute(0, float("nan")), "task 0 of the graph has a time"),
        (lambda job: job.add_compute(-1, 1.0), "has no device"),
        (lambda job: job.add_transfer(0, 2, 1), r"a node outside 0\.\.1"),
        (lambda job: job.add_transfer(0, 1, -1), "a negative size"),
        (lambda job: job.add_allreduce((0, 2), 1), r"group 0 \(0, 2\)"),
        (lambda job: job.add_allreduce((0, 0), 1), "different nodes"),
        (lambda job: job.add_allreduce((), 1), "different nodes"),
        (lambda job: job.add_barrier(predecessors=[7]), "names a task outside"),
        (
            lambda job: job.add_barrier(predecessors=[0]),
            "task 0 of the graph depends on itself: edges must not form a cycle",
        ),
    ],
)
def test_a_graph_that_cannot_be_is_refused(make, message):
    job = TaskGraphBuilder(2)
    make(job)
    with pytest.raises(ValueError, match=message):
        job.build()


def test_a_graph_larger_than_its_fabric_is_refused():
    with pytest.raises(ValueError, match="has 3 nodes, ideal only 2"):
        run(TaskGraphBuilder(3))


# ------------------------------------------------------------------------------ file


def columns(**other):
    """Return two nodes: node 0 computes, sends 1,000 bytes to node 1, which computes; then an AllReduce of both."""
    return {
        "task_type": np.array([0, 5, 1, 6], np.int16),
        "task_id": np.array([10, 11, 12, 13], np.uint64),
        "task_device": np.array([7, 9, 8, 0], np.uint64),
        "task_runtime_ms": np.array([1.0, 5.0, 2.0, 0.5], np.float32),
        "task_bytes": np.array([0, 1000, 0, 4000], np.uint64),
        "next_ptr": np.array([0, 1, 2, 3, 5]),
        "next_ids": np.array([11, 12, 13, 0, 1], np.uint64),
        "device_id": np.array([7, 8, 9], np.uint64),
        "device_type": np.array([GPU, GPU, NETWORK], np.int16),
        "device_property": np.array([0, 1, 1], np.uint64),  # 0 * (2 + 1) + 1
        "meta": np.array(json.dumps({"nodes": 2, "switches": 1})),
    } | other


def test_a_file_is_read(tmp_path):
    np.savez(tmp_path / "job.npz", **columns())
    graph = read_task_graph(tmp_path / "job.npz")
    assert graph.kind.tolist() == [Kind.COMPUTE, Kind.TRANSFER, Kind.COMPUTE, Kind.ALLREDUCE]
    assert (graph.source[1], graph.target[1], graph.transfer_bytes) == (0, 1, 1000)
    assert graph.groups == ((0, 1),)
    assert list(zip(graph.before.tolist(), graph.after.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3)]
    done = simulate(graph, make_ideal_switch(2, 8), latency=NO_LATENCY)
    assert done.iteration_s == pytest.approx(1e-3 + 1e-6 + 2e-3 + 0.5e-3 + 4e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task_type": np.array([0, 5, 1, 9], np.int16)}, r"task types \[9\] are unknown"),
        (
            {"task_device": np.array([7, 9, 3, 0], np.uint64)},
            "task 12 names device 3, which is not in device_id",
        ),
        (
            {"task_device": np.array([7, 8, 8, 0], np.uint64)},
            "task 11 is a transfer, but its device 8 has type 0, not a network",
        ),
        (
            {"next_ids": np.array([11, 12, 99, 0, 1], np.uint64)},
            "next_ids names task 99, which is not in task_id",
        ),
        ({"next_ids": np.array([11, 12, 13, 0, 5], np.uint64)}, r"group 0 \(0, 5\)"),
        ({"meta": np.array("{}")}, "nodes"),
        ({"meta": np.array('{"nodes": 1000000000}')}, "1000000000 nodes"),
        ({"meta": np.array("[]")}, ""),
        ({"task_bytes": np.array([0, 2**61, 0, 4000], np.uint64)}, "task 1 of the graph has more than"),
        ({"task_bytes": np.array([0, 2**64 - 1, 0, 4000], np.uint64)}, "task 1 of the graph has more than"),
        ({"task_runtime_ms": np.array([1e30, 5.0, 2.0, 0.5])}, "task 0 of the graph has a time of more than"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, wrong, message):
    np.savez(tmp_path / "job.npz", **columns(**wrong))
    with pytest.raises(ValueError, match=rf"job\.npz is not a valid task graph: .*{message}"):
        read_task_graph(tmp_path / "job.npz")


def test_a_column_that_lacks_is_named(tmp_path):
    np.savez(
        tmp_path / "job.npz", **{name: column for name, column in columns().items() if name != "task_bytes"}
    )
    with pytest.raises(ValueError, match="it lacks task_bytes"):
        read_task_graph(tmp_path / "job.npz")


def test_something_else_is_no_graph(tmp_path):
    (tmp_path / "job.npz").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(ValueError, match=r"job\.npz is not a valid task graph"):
        read_task_graph(tmp_path / "job.npz")


# ------------------------------------------------------------------------------ published graphs

PUBLISHED_MS = {"100vgg_16": 210.77, "100transformer_16": 64.74, "100dlrm_128": 246.09}


@pytest.fixture
def published():
    folder = os.environ.get("LIGHTBED_DATA")
    if not folder:
        pytest.skip("LIGHTBED_DATA names no folder with the published task graphs")
    pytest.importorskip("numba")
    return lambda name: read_task_graph(Path(folder) / "taskgraphs" / f"{name}.npz")


@pytest.mark.long
@pytest.mark.parametrize("name", PUBLISHED_MS)
def test_published_iterations_within_five_per_cent(name, published):
    graph = published(name)
    done = simulate(graph, make_fat_tree(graph.node_count, 100))
    assert done.iteration_s * 1e3 == pytest.approx(PUBLISHED_MS[name], rel=0.05)


def test_transfers_of_the_published_graph_end_where_somebody_waits(published):
    """The divisor of the pairs: with another one hardly any would."""
    graph = published("100dlrm_128")
    node_of = np.full(graph.device.max() + 1, -1)
    moves = graph.kind[graph.before] == Kind.TRANSFER
    device = graph.device[graph.after[moves]]
    waiting = device >= 0
    ends = graph.target[graph.before[moves]][waiting]
    node_of[device[waiting]] = ends
    assert (node_of[device[waiting]] == ends).all()
    assert waiting.sum() > 10_000
    assert (graph.source != graph.target)[graph.kind == Kind.TRANSFER].all()
