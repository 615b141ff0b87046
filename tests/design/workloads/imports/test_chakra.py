"""Chakra traces: bytes as the schema lays them out, jobs as ASTRA-sim's microbenchmarks are, round trips."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.network.allreduce import plan_rings
from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import Kind, TaskGraphBuilder
from testbed.design.workloads.imports import chakra_wire as wire
from testbed.design.workloads.imports.chakra import read_job, read_traces
from testbed.design.workloads.imports.chakra_export import export_traces
from testbed.design.workloads.imports.chakra_wire import Node
from testbed.design.workloads.mig import find_device
from testbed.errors import WorkloadError

MIB = 1 << 20
# The first file of the all-reduce of four ranks, field by field as et_def.proto numbers them: metadata with version
# "0.0.4"; a node without number, its name, type 7, and attributes is_cpu_op false, comm_type 0, comm_size 1 MiB.
ALL_REDUCE_OF_FOUR = bytes.fromhex(
    "07 0a 05 30 2e 30 2e 34"
    "48 12 14 616c6c5f7265647563655f346e7075735f314d42 18 07"
    "52 0e 0a 09 69735f6370755f6f70 d8 01 00"
    "52 0d 0a 09 636f6d6d5f74797065 48 00"
    "52 0f 0a 09 636f6d6d5f73697a65 48 80 80 40".replace(" ", "")
)


def collective(kind, size_bytes=MIB, number=0, **attributes):
    about = {"is_cpu_op": False, "comm_type": kind, "comm_size": size_bytes} | attributes
    return Node(number, "collective", wire.COLLECTIVE, (), 0, about)


def write(folder, ranks, name="job"):
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(wire.write_nodes(nodes))
    return folder


def seconds_of(graph, rate_gbps=8, latency=NO_LATENCY):
    return simulate(graph, make_ideal_switch(graph.node_count, rate_gbps), latency=latency).iteration_s


def test_a_file_is_read_byte_by_byte():
    (node,) = wire.read_nodes(ALL_REDUCE_OF_FOUR)
    assert (node.kind, node.name) == (wire.COLLECTIVE, "all_reduce_4npus_1MB")
    assert node.attributes == {"is_cpu_op": 0, "comm_type": 0, "comm_size": MIB}


@given(st.binary(max_size=60))
def test_bytes_are_read_or_refused(data):
    with suppress(ValueError):
        assert isinstance(wire.read_nodes(data), list)


@given(
    st.lists(
        st.builds(
            Node,
            st.integers(0, 2**64 - 1),
            st.text(max_size=9),
            st.integers(0, 7),
            st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=5).map(tuple),
            st.integers(0, 2**64 - 1),
            st.dictionaries(
                st.text(min_size=1, max_size=5),
                st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
                max_size=4,
            ),
        ),
        max_size=4,
    )
)
def test_nodes_that_are_written_are_read_again(nodes):
    assert wire.read_nodes(wire.write_nodes(nodes)) == nodes


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_a_ring_all_reduce_equals_the_closed_form(tmp_path, ranks):
    """Every rank sends 2 (g - 1) / g of 1 MiB at 1 GB/s."""
    graph = read_traces(write(tmp_path, [[collective(wire.ALL_REDUCE)] for _ in range(ranks)]))
    assert seconds_of(graph) == pytest.approx(2 * (ranks - 1) / ranks * MIB / 1e9)


@pytest.mark.parametrize(
    ("kind", "part"),
    [(wire.ALL_GATHER, 15.0), (wire.REDUCE_SCATTER, 15 / 16), (wire.ALL_TO_ALL, 15 / 16)],
)
def test_the_other_microbenchmarks_send_their_part_of_a_mebibyte(tmp_path, kind, part):
    graph = read_traces(write(tmp_path, [[collective(kind)] for _ in range(16)]))
    assert seconds_of(graph) == pytest.approx(part * MIB / 1e9)


def test_a_ring_of_sends_and_receives_is_the_same_job(tmp_path):
    """Four ranks pass a quarter on six times, as in ASTRA-sim's custom collectives; receiving is waited for."""
    ranks = []
    for rank in range(4):
        nodes = []
        for turn in range(6):
            ends = {
                "comm_size": MIB // 4,
                "comm_tag": 0,
                "comm_dst": (rank + 1) % 4,
                "comm_src": (rank - 1) % 4,
            }
            before = (2 * turn - 1,) if turn else ()
            nodes.append(Node(2 * turn, "send", wire.SEND, before, 0, ends))
            nodes.append(Node(2 * turn + 1, "receive", wire.RECEIVE, before, 0, ends))
        ranks.append(nodes)
    graph = read_traces(write(tmp_path, ranks))
    assert seconds_of(graph) == pytest.approx(1.5 * MIB / 1e9)


def test_computing_takes_its_time_on_the_device_of_its_rank(tmp_path):
    one = [
        Node(0, "", wire.COMPUTE, (), 500),
        Node(1, "", wire.COMPUTE, (), 700),
        Node(2, "", wire.LOAD, (0, 1)),
    ]
    other = [Node(0, "", wire.COMPUTE, (), 300), Node(1, "", wire.COMPUTE, (), 400, {"is_cpu_op": 1})]
    graph = read_traces(write(tmp_path, [one, other]))
    assert seconds_of(graph) == pytest.approx(1.2e-3)
    assert sorted(set(graph.device.tolist())) == [-1, 0, 2, 3]


@pytest.mark.parametrize("described", ["file", "metadata"])
def test_process_groups_are_read(tmp_path, described):
    groups = {"3": [0, 2], "4": [1, 3]}
    ranks = [[collective(wire.ALL_REDUCE, number=5, pg_name=str(3 + rank % 2))] for rank in range(4)]
    if described == "file":
        (tmp_path / "comm_group.json").write_text(json.dumps(groups))
    else:
        text = json.dumps([json.dumps([{"pg_name": name, "ranks": ranks} for name, ranks in groups.items()])])
        for nodes in ranks:
            nodes.insert(0, Node(0, "process_group:init", wire.METADATA, inputs=text))
    write(tmp_path, ranks)
    if described == "metadata":
        _with_inputs(tmp_path, ranks)
    assert sorted(read_traces(tmp_path).groups) == [(0, 2), (1, 3)]


def _with_inputs(folder, ranks):
    """Write the metadata's inputs, which our own traces do not have: field 8, of it field 1."""
    for rank, (first, *rest) in enumerate(ranks):
        whole = wire.write_nodes([first, *rest])
        bare = wire.write_nodes([first])
        values = wire._encode_field(8, wire._encode_field(1, first.inputs.encode()))
        node = wire._encode_node(first) + values
        head = bare[: 1 + bare[0]]
        (folder / f"job.{rank}.et").write_bytes(
            head + wire._encode_varint(len(node)) + node + whole[len(bare) :]
        )


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[collective(wire.ALL_REDUCE)], []], "is a collective without rank"),
        (
            [[collective(wire.ALL_REDUCE)], [collective(wire.ALL_REDUCE, 5)]],
            r"the Chakra traces of a job: node 0 of rank 0 is a collective for which its ranks give different sizes",
        ),
        ([[collective(12)], [collective(12)]], "collective of type 12: known are"),
        ([[Node(3, "", 8)], []], "node 3 of rank 0 has the unknown type 8; known types are 0 to 7"),
        ([[collective(5, root_rank=9)], [collective(5)]], "has root_rank 9: ranks are 0 to"),
        ([[collective(wire.ALL_REDUCE, pg_name="9")], []], "process group 9: describe it in"),
        ([[Node(0, "", wire.COLLECTIVE, (), 0, {"comm_type": -1})], []], "a wrong attribute comm_type"),
        ([[Node(4, "", wire.COMPUTE, (3,))], []], "node 4 of rank 0 waits for node 3"),
        ([[Node(4, "", wire.COMPUTE), Node(4, "", wire.COMPUTE)], []], "two nodes of the same number"),
        (
            [[Node(0, "", wire.SEND, (), 0, {"comm_size": 1, "comm_dst": 1})], []],
            "sends data that no rank receives",
        ),
        ([[], [Node(0, "", wire.RECEIVE, (), 0, {"comm_src": 0})]], "receives data that no rank sends"),
        (
            [[Node(0, "", wire.SEND, (), 0, {"comm_size": 1, "comm_dst": 7})], []],
            "has comm_dst 7: ranks are 0 to",
        ),
        (
            [[Node(0, "", wire.COMPUTE, (1,)), Node(1, "", wire.COMPUTE, (0,))], []],
            "task 0 of the graph depends on itself: edges must not form a cycle",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_its_node(tmp_path, ranks, message):
    with pytest.raises(WorkloadError, match=message):
        read_traces(write(tmp_path, ranks))


@pytest.mark.parametrize("ranks", [4, 8])
def test_broadcast_and_reduce_are_pipelines(tmp_path, ranks):
    """Every hop carries the whole at once; gather and scatter end at the root's one link."""
    taken = {}
    for kind in (wire.BROADCAST, wire.REDUCE, wire.GATHER, wire.SCATTER):
        write(tmp_path, [[collective(kind, root_rank=1)] for _ in range(ranks)])
        taken[kind] = seconds_of(read_traces(tmp_path))
    assert taken[wire.BROADCAST] == taken[wire.REDUCE] == pytest.approx(MIB / 1e9)
    assert taken[wire.GATHER] == taken[wire.SCATTER] == pytest.approx((ranks - 1) / ranks * MIB / 1e9)


def test_a_root_sends_first(tmp_path):
    graph = read_traces(write(tmp_path, [[collective(wire.BROADCAST, root_rank=2)] for _ in range(4)]))
    moves = graph.kind == Kind.TRANSFER
    ends = zip(graph.source[moves].tolist(), graph.target[moves].tolist(), strict=True)
    assert set(ends) == {(2, 3), (3, 0), (0, 1)}


def test_ranks_may_send_different_sizes_to_all(tmp_path):
    """Rank 1 sends 3/4 of 2 MiB, the others 3/4 of 1 MiB."""
    ranks = [[collective(wire.ALL_TO_ALL, MIB * (1 + (rank == 1)))] for rank in range(4)]
    assert seconds_of(read_traces(write(tmp_path, ranks))) == pytest.approx(1.5 * MIB / 1e9)


def test_nodes_with_operations_and_no_time_take_what_a_device_needs(tmp_path):
    """78 GFLOP at half of 156 TFLOP/s are 1 ms, 1.244 GB at 0.8 of 1.555 TB/s too; 10 us a pass. A CPU is not one."""
    timed = {"num_ops": 78_000_000_000, "tensor_size": 1_244_000_000}
    nodes = [
        Node(0, "", wire.COMPUTE, (), 0, {"num_ops": timed["num_ops"]}),
        Node(1, "", wire.COMPUTE, (0,), 0, timed),
        Node(2, "", wire.COMPUTE, (1,), 500, timed),
        Node(3, "", wire.COMPUTE, (2,), 0, timed | {"is_cpu_op": True}),
    ]
    traces = read_job(write(tmp_path, [nodes]))
    assert traces.estimated_count == 2
    assert seconds_of(traces.graph) == pytest.approx(2 * 1.01e-3 + 500e-6)
    half = read_job(tmp_path, find_device("a100/2"))
    assert seconds_of(half.graph) > seconds_of(traces.graph)


def test_the_call_of_a_collective_computes_and_its_kernel_communicates(tmp_path):
    """As PyTorch's traces have them: the call on the CPU has no comm_type, the kernel hangs on it."""
    ranks = [
        [
            Node(1, "c10d::allreduce_", wire.COLLECTIVE, (), 85, {"is_cpu_op": True}),
            collective(wire.ALL_REDUCE, number=2, is_cpu_op=False),
        ]
        for _ in range(4)
    ]
    ranks = [[call, replace(kernel, after=(1,))] for call, kernel in ranks]
    graph = read_traces(write(tmp_path, ranks))
    assert seconds_of(graph) == pytest.approx(85e-6 + 1.5 * MIB / 1e9)


def test_a_caller_is_waited_for_where_the_trace_has_it(tmp_path):
    """The converter of PyTorch's traces leaves callers out (field 4, control); what data are from (5) must be there."""
    call, made = bytes.fromhex("08 01 18 04 38 64"), bytes.fromhex("08 02 18 04 38 32 22 02 01 03")
    (tmp_path / "job.0.et").write_bytes(b"\x00" + b"".join(bytes([len(n)]) + n for n in (call, made)))
    graph = read_traces(tmp_path)
    assert list(zip(graph.before.tolist(), graph.after.tolist(), strict=True)) == [(0, 1)]
    (tmp_path / "job.0.et").write_bytes((tmp_path / "job.0.et").read_bytes().replace(b"\x22", b"\x2a"))
    with pytest.raises(WorkloadError, match="node 2 of rank 0 waits for node 3, which is not in its trace"):
        read_traces(tmp_path)


def test_group_0_is_everybody_unless_it_is_described(tmp_path):
    write(tmp_path, [[collective(wire.ALL_REDUCE, pg_name="0")] for _ in range(3)])
    assert read_traces(tmp_path).groups == ((0, 1, 2),)


@pytest.mark.parametrize(
    "names", [(), ("job.1.et",), ("a.0.et", "b.1.et"), ("job.0.et", "job.2.et"), ("job.0.et", "job.0.et.gz")]
)
def test_a_folder_without_a_trace_for_each_rank_is_refused(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(wire.write_nodes([]))
    with pytest.raises(WorkloadError, match=r"give one trace per rank, NAME\.0\.et, NAME\.1\.et and so on"):
        read_traces(tmp_path)


def test_a_file_that_is_no_trace_is_named(tmp_path):
    (tmp_path / "job.0.et").write_bytes(b"\x7f")
    with pytest.raises(WorkloadError, match=r"job\.0\.et is not a Chakra execution trace: it ends within"):
        read_traces(tmp_path)


def job_of_all_kinds():
    job = TaskGraphBuilder(4)
    forward = [job.add_compute(node, 1e-4 * (node + 1) / 7) for node in range(4)]
    move = job.add_transfer(0, 2, 300_001, predecessors=[forward[0], forward[3]])
    inside = job.add_transfer(1, 1, 500, predecessors=[forward[1]])
    gate = job.add_barrier(predecessors=[*forward, inside])
    part = job.add_allreduce((2, 0), 800_000, predecessors=[gate, move], time_s=1e-5)
    back = [job.add_compute(node, 2e-4, predecessors=[move, part]) for node in (3, 1, 2)]
    job.add_allreduce((0, 1, 2, 3), 4_000_000, predecessors=back)
    return job.build()


def test_a_job_that_is_written_and_read_again_is_the_same(tmp_path):
    graph = job_of_all_kinds()
    paths = export_traces(graph, tmp_path, "job")
    again = read_traces(tmp_path)
    assert [path.name for path in paths] == [*(f"job.{rank}.et" for rank in range(4)), "comm_group.json"]
    ours = graph.kind != Kind.BARRIER
    assert (again.kind[: graph.task_count][ours] == graph.kind[ours])[graph.source[ours] != 1].all()
    assert (again.time_s[: graph.task_count] == graph.time_s).all()
    before, after = (
        simulate(each, make_ideal_switch(4, 100), allreduce=plan_rings) for each in (graph, again)
    )
    assert after.iteration_s == before.iteration_s
    assert (after.link_bytes == before.link_bytes).all()


@pytest.mark.parametrize("text", ["5", "[1]", '{"1": 5}', '{"1": ["a"]}', "{", '"x"'])
def test_groups_that_are_none_are_told(tmp_path, text):
    write(tmp_path, [[collective(0, pg_name="1")]] * 2)
    (tmp_path / "comm_group.json").write_text(text)
    with pytest.raises(WorkloadError, match=r"comm_group.json does not describe process groups as JSON"):
        read_traces(tmp_path)
