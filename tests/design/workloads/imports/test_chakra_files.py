"""Files of Chakra traces: types of attributes, older schemas, compressed files, JSON."""

import bz2
import gzip
import json
import lzma

import pytest

from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_ideal_switch
from sim.models.network.latency import NO_LATENCY
from testbed.design.workloads.imports import chakra_wire as wire
from testbed.design.workloads.imports.chakra import read_traces
from testbed.design.workloads.imports.chakra_wire import Node
from testbed.errors import WorkloadError

MIB = 1 << 20


def write_all_reduce(folder, ranks=4):
    about = {"is_cpu_op": False, "comm_type": wire.ALL_REDUCE, "comm_size": MIB}
    for rank in range(ranks):
        node = Node(0, "collective", wire.COLLECTIVE, (), 0, about)
        (folder / f"job.{rank}.et").write_bytes(wire.write_nodes([node]))


def seconds_of(graph):
    return simulate(graph, make_ideal_switch(graph.node_count, 8), latency=NO_LATENCY).iteration_s


# Values of attributes of every number type: the field that et_def.proto gives each, and its bytes.
@pytest.mark.parametrize(
    ("coded", "value"),
    [
        ("19 000000000000f83f", 1.5),
        ("2d 0000c03f", 1.5),
        ("38 fb ff ff ff ff ff ff ff ff 01", -5),
        ("48 05", 5),
        ("58 05", 5),
        ("68 05", 5),
        ("78 09", -5),
        ("88 01 09", -5),
        ("9d 01 05 00 00 00", 5),
        ("a9 01 05 00 00 00 00 00 00 00", 5),
        ("bd 01 fb ff ff ff", -5),
        ("c9 01 fb ff ff ff ff ff ff ff", -5),
        ("d8 01 01", 1),
        ("ea 01 01 35", "5"),
    ],
)
def test_attributes_of_every_type_are_read(coded, value):
    attribute = bytes.fromhex("0a 01 61" + coded)
    node = bytes.fromhex("18 04") + b"\x52" + bytes([len(attribute)]) + attribute
    (read,) = wire.read_nodes(b"\x00" + bytes([len(node)]) + node)
    assert read.attributes == {"a": value}


@pytest.mark.parametrize(
    ("coded", "message"),
    [
        ("06 08 05 12 00 18 04", "begins with a node"),
        ("00 06 08 05 18 04 5a 00", "node 5 has field 11, which no node has; it has an older schema"),
    ],
)
def test_files_of_older_schemas_are_told(tmp_path, coded, message):
    """Until version 0.0.2 there was no metadata; until 0.0.3 attributes were field 11."""
    (tmp_path / "job.0.et").write_bytes(bytes.fromhex(coded))
    with pytest.raises(WorkloadError, match=message):
        read_traces(tmp_path)


@pytest.mark.parametrize(
    ("compress", "ending"),
    [(gzip.compress, ""), (gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")],
)
def test_compressed_files_are_read(tmp_path, compress, ending):
    write_all_reduce(tmp_path)
    for rank in range(4):
        path = tmp_path / f"job.{rank}.et"
        data = path.read_bytes()
        path.unlink()
        path.with_name(path.name + ending).write_bytes(compress(data))
    assert seconds_of(read_traces(tmp_path)) == pytest.approx(1.5 * MIB / 1e9)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes.fromhex("28b52ffd00"), "compressed with Zstandard: decompress it with 'zstd -d' first"),
        (gzip.compress(b"\x00" * 99, mtime=0)[:20], "ended before the end-of-stream marker"),
        (b"", "it is empty"),
    ],
)
def test_what_cannot_be_decompressed_is_named(tmp_path, data, message):
    (tmp_path / "job.0.et").write_bytes(data)
    with pytest.raises(WorkloadError, match=message):
        read_traces(tmp_path)


JSONIZER = """{
  "version": "0.0.4"
}{
  "name": "first",
  "type": "COMP_NODE",
  "durationMicros": "300",
  "attr": [{"name": "is_cpu_op", "boolVal": false}]
}{
  "id": "7",
  "name": "second",
  "type": "COMM_COLL_NODE",
  "dataDeps": ["0"],
  "attr": [
    {"name": "is_cpu_op", "boolVal": false},
    {"name": "comm_type", "int64Val": "0"},
    {"name": "comm_size", "int64Val": "1048576"},
    {"name": "involved_dim", "boolList": {"values": [true]}}
  ]
}"""
FEEDER = {
    "workload_graph": [
        {"Id": 0, "Name": "first", "NodeType": 4, "data_deps": [], "runtime": 300, "is_cpu_op": False},
        {
            "Id": 7,
            "Name": "second",
            "NodeType": 7,
            "ctrlDeps": [],
            "data_deps": [0],
            "is_cpu_op": False,
            "comm_type": 0,
            "comm_size": MIB,
        },
    ]
}


@pytest.mark.parametrize("text", [JSONIZER, json.dumps(FEEDER)])
def test_traces_as_json_are_read(tmp_path, text):
    """As MLCommons' jsonizer writes them, zeros left out and long numbers as texts, and as its feeder reads them."""
    for rank in range(4):
        (tmp_path / f"job.{rank}.json").write_text(text)
    graph = read_traces(tmp_path)
    assert seconds_of(graph) == pytest.approx(300e-6 + 1.5 * MIB / 1e9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"schema": "1.0.2-chakra.0.0.4", "nodes": [{}]}',
            "it is not an execution trace as PyTorch writes it",
        ),
        ("[1]", "it is not a single JSON object"),
        ("", "it is not a single JSON object"),
        ("{", "Expecting property name"),
        ('{"workload_graph": 5}', "workload_graph is not a list"),
        ('{"workload_graph": [{"Name": "x"}]}', "not a node with an Id"),
        ('{"id": "1", "type": "STORAGE_NODE"}', "unknown type 'STORAGE_NODE'"),
        ('{"id": "x", "type": 4}', "is not a Chakra execution trace: id is 'x', not an integer"),
        ('{"id": 1, "type": 4, "attr": [5]}', "an attribute is not an object"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_json_that_is_no_trace_is_told(tmp_path, text, message):
    (tmp_path / "job.0.json").write_text(text)
    with pytest.raises(WorkloadError, match=message):
        read_traces(tmp_path)
