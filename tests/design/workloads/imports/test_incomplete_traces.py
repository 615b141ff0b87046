"""Traces as PyTorch, Kineto and its converters write them: what is missing is inferred or left out, and said."""

from __future__ import annotations

import json

import pytest

from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import Kind
from testbed.design.workloads.imports.chakra import read_job
from testbed.errors import WorkloadError


def feeder(folder, *ranks):
    """Write one file per rank, in the form of Chakra's feeder."""
    for rank, nodes in enumerate(ranks):
        graph = [{"Id": number, "NodeType": 4, "is_cpu_op": True} | node for number, node in enumerate(nodes)]
        (folder / f"job.{rank}.json").write_text(json.dumps({"workload_graph": graph}))
    return folder


def kernel(name, **more):
    return {"NodeType": 7, "Name": name, "is_cpu_op": False, "runtime": 100, **more}


def seconds_of(graph, rate_gbps=8):
    return simulate(graph, make_ideal_switch(graph.node_count, rate_gbps), latency=NO_LATENCY).iteration_s


def test_control_dependencies_that_close_a_circle_are_dropped_and_counted(tmp_path):
    first, second = {"runtime": 10, "ctrlDeps": [1]}, {"runtime": 20, "data_deps": [0]}
    third = {"runtime": 30, "ctrlDeps": [1, 99]}
    traces = read_job(feeder(tmp_path, [first, second, third]))

    assert seconds_of(traces.graph) == pytest.approx(60e-6)
    assert traces.notes == (
        "control dependencies on nodes that are not in the trace: 1",
        "control dependencies dropped, because they close a circle: 1",
    )


def test_data_dependencies_that_close_a_circle_are_refused(tmp_path):
    with pytest.raises(WorkloadError, match="depends on itself"):
        read_job(feeder(tmp_path, [{"data_deps": [1]}, {"data_deps": [0]}]))


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 2.0),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 1.0),
        ("nccl:reduce_scatter", 1.0),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", 1.0),
        ("nccl:all_to_all", 1.0),
        ("ncclDevKernel_AllGather_RING_LL", 2.0),
    ],
)
def test_the_type_of_a_collective_is_that_of_its_name(tmp_path, name, moved):
    size = 1 << 20
    traces = read_job(feeder(tmp_path, *[[kernel(name, comm_size=size)]] * 2))

    graph = traces.graph
    execution = simulate(graph, make_ideal_switch(2, 8), latency=NO_LATENCY)
    assert execution.payload_bytes == moved * size
    assert traces.notes == ("collectives whose type is that of their name: 2",)


def test_a_collective_without_a_size_takes_its_recorded_time_on_all_members(tmp_path):
    slow, quick = kernel("nccl:all_reduce", runtime=300), kernel("nccl:all_reduce", runtime=100)
    after = {"runtime": 50, "data_deps": [0]}
    traces = read_job(feeder(tmp_path, [slow, after], [quick, after]))

    assert seconds_of(traces.graph) == pytest.approx(350e-6)
    assert "nodes of collectives without a size, which take their recorded time: 2" in traces.notes


def test_a_collective_of_unknown_type_takes_its_recorded_time(tmp_path):
    traces = read_job(feeder(tmp_path, [kernel("ncclDevKernel_SendRecv", comm_size=5)]))

    assert seconds_of(traces.graph) == pytest.approx(100e-6)
    assert traces.notes == ("collectives of unknown type, which take their recorded time: 1",)


def test_members_without_a_trace_are_left_out(tmp_path):
    (tmp_path / "comm_group.json").write_text('{"7": [0, 1, 2, 3]}')
    nodes = [kernel("nccl:all_reduce", comm_size=1 << 20, comm_type=0, pg_name="7")]
    traces = read_job(feeder(tmp_path, nodes, nodes))

    assert traces.graph.groups == ((0, 1),)
    assert traces.notes == ("members of process groups that have no trace and are left out: 4",)


def operator(number, name, rf_id, storage=None, parent=2):
    tensor = [] if storage is None else [[10 + storage, storage, 0, 1 << 18, 4, "cpu"]]
    values = {"values": tensor, "shapes": [], "types": []}
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": values,
        "outputs": {"values": [], "shapes": [], "types": []},
        "attrs": [{"name": "rf_id", "type": "uint64", "value": rf_id}],
    }


def event(rf_id, begin, length, thread=1, category="cpu_op", **more):
    arguments = {"Record function id": rf_id, "External id": 100 + rf_id}
    return {"ph": "X", "cat": category, "ts": begin, "dur": length, "tid": thread, "args": arguments} | more


GROUPS = operator(3, "## process_group:init ##", 1) | {
    "inputs": {"values": ['[{"pg_name": "0", "ranks": [], "group_size": 2}]'], "shapes": [], "types": []}
}
TRACE = {
    "schema": "1.1.1-chakra.0.0.4",
    "nodes": [
        GROUPS,
        operator(5, "aten::inner", 12, storage=1, parent=4),
        operator(4, "aten::outer", 11, storage=1),
        operator(6, "c10d::allreduce_", 13, storage=1),
        operator(7, "gloo:all_reduce", 14, storage=1),
        operator(8, "aten::other", 15, storage=2),
        operator(9, "aten::reader", 16, storage=1),
    ],
}
PROFILE = {
    "traceEvents": [
        event(11, 0.0, 100.0),
        event(12, 20.0, 60.0),
        event(13, 100.0, 10.0),
        event(14, 112.0, 500.0, thread=2, category="user_annotation"),
        event(15, 110.0, 40.0),
        event(16, 620.0, 30.0),
        {
            "ph": "X",
            "cat": "kernel",
            "name": "gemm",
            "ts": 130,
            "dur": 25,
            "args": {"External id": 115, "stream": 7},
        },
    ]
}


def pytorch(folder, ranks=2, profile=PROFILE):
    for rank in range(ranks):
        (folder / f"pytorch_et.{rank}.json").write_text(json.dumps(TRACE))
        if profile:
            (folder / f"kineto.{rank}.json").write_text(json.dumps(profile))
    return folder


def test_pytorchs_trace_and_profile_are_one_job(tmp_path):
    """The sum overlaps what does not read its tensor: 1 MiB of two ranks at 1 GB/s each way take 1.05 ms."""
    traces = read_job(pytorch(tmp_path))
    graph = traces.graph

    assert sorted((graph.time_s[graph.kind == Kind.COMPUTE] * 1e6).round().tolist()) == sorted(
        [40, 60, 10, 40, 30, 25] * 2
    )
    assert graph.size_bytes[graph.kind == Kind.ALLREDUCE].tolist() == [1 << 20]
    assert seconds_of(graph) == pytest.approx((40 + 60 + 10 + 30) * 1e-6 + (1 << 20) / 1e9)
    assert traces.notes == ("collectives whose type is that of their name: 2",)


def test_without_a_profile_operators_take_no_time_and_that_is_said(tmp_path):
    traces = read_job(pytorch(tmp_path, profile=None))

    assert seconds_of(traces.graph) == pytest.approx((1 << 20) / 1e9)
    assert "operators without a time, because the folder has no profile of their rank: 10" in traces.notes


def test_the_trace_of_one_rank_sends_nothing_and_says_so(tmp_path):
    traces = read_job(pytorch(tmp_path, ranks=1))

    assert traces.graph.node_count == 1
    assert "collectives of which only one member has a trace, so they send nothing: 1" in traces.notes


def test_a_profile_alone_is_refused(tmp_path):
    (tmp_path / "kineto.0.json").write_text(json.dumps(PROFILE))

    with pytest.raises(WorkloadError, match="give one trace per rank"):
        read_job(tmp_path)
