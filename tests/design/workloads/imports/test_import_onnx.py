"""ONNX files are imported with the sizes that a hand computes; what has no formula is estimated and named."""

from __future__ import annotations

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.imports import import_onnx, import_workload
from testbed.errors import WorkloadError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def weights(name, *dims, dtype=np.float32):
    return numpy_helper.from_array(np.zeros(dims, dtype), name)


def value(name, *dims, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


@pytest.fixture
def save(tmp_path):
    """Return nodes, inputs, outputs and weights as a file."""

    def write(nodes, inputs, outputs, initializers=(), functions=(), domains=()):
        graph = helper.make_graph(nodes, "graph", inputs, outputs, list(initializers))
        opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path

    return write


def node(kind, inputs, outputs, name="", **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), name=name, **attributes)


@pytest.fixture
def mlp(save):
    """Return two dense layers: 6 to 10, 10 to 3; the number of samples is open."""
    return save(
        [
            node("Gemm", "x w1 b1", "h", "first", transB=1),
            node("Relu", "h", "r", "relu"),
            node("MatMul", "r w2", "m", "second"),
            node("Add", "m b2", "y", "bias"),
        ],
        [value("x", "batch", 6)],
        [value("y", "batch", 3)],
        [weights("w1", 10, 6), weights("b1", 10), weights("w2", 10, 3), weights("b2", 3)],
    )


def test_dense_layers_by_hand(mlp):
    imported = import_onnx(mlp, batch=32)
    job = imported.workload
    assert [operator.name for operator in job.operators] == ["first", "second"]
    assert [operator.forward_flops for operator in job.operators] == [2 * 6 * 10, 2 * 10 * 3]
    assert [operator.backward_flops for operator in job.operators] == [4 * 6 * 10, 4 * 10 * 3]
    assert [operator.parameter_bytes for operator in job.operators] == [4 * 70, 4 * 33]
    assert [operator.output_bytes for operator in job.operators] == [40, 12]
    assert [operator.moved_bytes for operator in job.operators] == [
        (6 + 10 + 10 + 10) * 4,
        (10 + 3 + 3 + 3) * 4,
    ]
    assert [operator.ways for operator in job.operators] == [("data", "tensor", "place")] * 2
    assert (job.edges, job.batch, job.training, job.name) == (((0, 1),), 32, True, "model")
    assert imported.notes == ()
    assert {made.type: (made.count, made.flops, made.how) for made in imported.estimates} == {
        "Gemm": (1, 120.0, "2 m n k"),
        "Relu": (1, 0.0, "bytes moved"),
        "MatMul": (1, 60.0, "2 m n k"),
        "Add": (1, 0.0, "bytes moved"),
    }


def test_sizes_are_for_one_sample_whatever_the_example(mlp):
    one, many = (import_onnx(mlp, batch=8, dimensions={"batch": size}).workload for size in (1, 7))
    assert one == many


def test_a_convolution_block(save):
    """3x3 from 3 to 8 channels on 16 x 16, grouped 3x3 to 8 in 4 groups, normalised, pooled, with a short cut."""
    path = save(
        [
            node("Conv", "x w1", "c1", "conv1", pads=[1, 1, 1, 1]),
            node("Conv", "c1 w2", "c2", "conv2", pads=[1, 1, 1, 1], group=4),
            node("BatchNormalization", "c2 scale shift mean variance", "n"),
            node("Add", "n c1", "s"),
            node("MaxPool", "s", "y", kernel_shape=[2, 2], strides=[2, 2]),
        ],
        [value("x", 2, 3, 16, 16)],
        [value("y", 2, 8, 8, 8)],
        [weights("w1", 8, 3, 3, 3), weights("w2", 8, 2, 3, 3)]
        + [weights(name, 8) for name in ("scale", "shift", "mean", "variance")],
    )
    one, two = import_onnx(path, batch=2).workload.operators
    assert (one.forward_flops, two.forward_flops) == (2 * 256 * 8 * 3 * 9, 2 * 256 * 8 * 2 * 9)
    assert two.parameter_bytes == 4 * (8 * 2 * 9 + 2 * 8)  # mean and variance are not trained
    assert one.output_bytes == 4 * 8 * 256
    assert two.output_bytes == 4 * 8 * 64
    assert one.ways == ("data",)


def test_attention_written_out(save):
    """Projections of 8 to 8 begin operators; the scores belong to the keys', the weighted sum to the values'."""
    path = save(
        [
            *(node("MatMul", f"x w{part}", part, f"project_{part}") for part in "qkv"),
            node("Transpose", "k", "kt", perm=[0, 2, 1]),
            node("MatMul", "q kt", "scores"),
            node("Softmax", "scores", "shares", axis=-1),
            node("MatMul", "shares v", "y"),
        ],
        [value("x", "batch", "sequence", 8)],
        [value("y", "batch", "sequence", 8)],
        [weights(f"w{part}", 8, 8) for part in "qkv"],
    )
    job = import_onnx(path, batch=2, dimensions={"sequence": 5}).workload
    assert [operator.forward_flops for operator in job.operators] == [
        640,
        640 + 2 * 5 * 5 * 8,
        640 + 2 * 5 * 5 * 8,
    ]
    assert job.edges == ((0, 1), (1, 2))
    assert job.operators[1].output_bytes == 4 * 5 * 5
    with pytest.raises(WorkloadError, match=r"have no size \(sequence\).*dimensions=\{'sequence': 128\}"):
        import_onnx(path, batch=2)


def test_dimensions_without_a_name_are_called_by_their_place(save):
    path = save(
        [node("MatMul", "x w", "y")],
        [value("x", None, None, 8)],
        [value("y", None, None, 4)],
        [weights("w", 8, 4)],
    )
    with pytest.raises(WorkloadError, match=r"have no size \(x\.1\).*--set x\.1=128"):
        import_onnx(path, batch=4)
    (operator,) = import_onnx(path, batch=4, dimensions={"x.1": 3}).workload.operators
    assert operator.forward_flops == 2 * 3 * 8 * 4


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"batch": 0}, "dimension batch is 0: give an integer of at least 1"),
        ({"batch": -3}, "dimension batch is -3"),
        ({"batch": 1.5}, r"dimension batch is 1\.5"),
        ({"btach": 2}, "'btach' names no input dimension that needs a size; those that do are batch"),
    ],
)
def test_sizes_that_cannot_be_are_named(mlp, sizes, told):
    with pytest.raises(WorkloadError, match=told):
        import_onnx(mlp, batch=4, dimensions=sizes)


def test_a_mistyped_setting_is_named(mlp):
    with pytest.raises(WorkloadError, match="'btach' names no input dimension that needs a size"):
        WorkloadChoice(str(mlp), settings={"btach": "8"}).make_workload(4)
    assert WorkloadChoice(str(mlp), settings={"batch_per_device": "8"}).make_workload(4).batch == 8 * 4 * 4


def test_tables_and_shapes(save):
    """A table of 1000 x 16 read 5 times a sample; what only depends on shapes is no traffic."""
    path = save(
        [
            node("Gather", "table words", "vectors", "table"),
            node("MatMul", "vectors w", "h", "dense"),
            node("Shape", "words", "shape"),
            node("Concat", "shape width", "wanted", axis=0),
            node("Reshape", "h wanted", "y"),
        ],
        [value("words", 3, 5, kind=INT64)],
        [value("y", 3, 5, 4)],
        [weights("table", 1000, 16), weights("w", 16, 4), numpy_helper.from_array(np.array([4]), "width")],
    )
    table, dense = import_onnx(path, batch=3).workload.operators
    assert (table.kind, table.ways) == ("embedding", ("place", "data"))
    assert (table.parameter_bytes, table.state_bytes) == (64_000, 0)
    assert table.moved_bytes == 5 * 8 + 2 * 5 * 16 * 4
    assert table.output_bytes == 5 * 16 * 4
    assert dense.forward_flops == 2 * 5 * 16 * 4
    assert dense.parameter_bytes == 16 * 4 * 4


def test_a_recurrent_layer(save):
    """4 gates of 6 from 4 inputs and 6 states, over 10 steps."""
    path = save(
        [node("LSTM", "x w r b", "y", "lstm", hidden_size=6, layout=1)],
        [value("x", 2, 10, 4)],
        [value("y", 2, 10, 1, 6)],
        [weights("w", 1, 24, 4), weights("r", 1, 24, 6), weights("b", 1, 48)],
    )
    (operator,) = import_onnx(path, batch=2).workload.operators
    assert operator.forward_flops == 2 * 10 * 24 * (4 + 6)
    assert operator.kind == "recurrent"
    assert operator.parameter_bytes == 4 * (24 * 10 + 48)


def test_an_einsum(save):
    path = save(
        [node("Einsum", "x w", "y", "mix", equation="bsh,hk->bsk")],
        [value("x", 2, 5, 8)],
        [value("y", 2, 5, 3)],
        [weights("w", 8, 3)],
    )
    (operator,) = import_onnx(path, batch=2).workload.operators
    assert (operator.kind, operator.forward_flops) == ("dense", 2 * 5 * 8 * 3)


def test_quantised_weights_count(save):
    path = save(
        [node("DequantizeLinear", "q scale", "w"), node("MatMul", "x w", "y", "dense")],
        [value("x", 2, 8)],
        [value("y", 2, 3)],
        [weights("q", 8, 3, dtype=np.int8), weights("scale")],
    )
    (operator,) = import_onnx(path, batch=2, training=False).workload.operators
    assert operator.parameter_bytes == 8 * 3 + 4
    assert operator.forward_flops == 2 * 8 * 3
    assert operator.backward_flops == operator.gradient_bytes == operator.state_bytes == 0


def test_weights_used_twice_count_once(save):
    path = save(
        [node("MatMul", "x w", "h", "one"), node("Relu", "h", "r"), node("MatMul", "r w", "y", "two")],
        [value("x", 2, 8)],
        [value("y", 2, 8)],
        [weights("w", 8, 8)],
    )
    one, two = import_onnx(path, batch=2).workload.operators
    assert (one.parameter_bytes, two.parameter_bytes) == (256, 0)


def test_unknown_operators_are_counted_as_element_wise_and_named(save):
    """The shape of what an unknown one writes is unknown, so the product after it is estimated from its weights."""
    path = save(
        [
            node("Magic", "x", "m", "spell", domain="org.example"),
            node("MatMul", "m w", "y", "dense"),
        ],
        [value("x", 2, 8)],
        [value("y", 2, 3)],
        [weights("w", 8, 3)],
        domains=("org.example",),
    )
    imported = import_onnx(path, batch=2)
    assert [made.how for made in imported.estimates] == [
        "unknown: counted as element-wise, by bytes moved",
        "shapes unknown: 2 per weight",
    ]
    assert any("spell (Magic): shape unknown of m" in note for note in imported.notes)
    assert imported.workload.operators[1].forward_flops * 2 == 2 * 8 * 3
    assert imported.workload.edges == ((0, 1),)


def test_functions_of_the_model_are_looked_into(save):
    inside = helper.make_function(
        "org.example",
        "Layer",
        ["a", "b"],
        ["c"],
        [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Relu", ["p"], ["c"])],
        [helper.make_opsetid("", 21)],
    )
    path = save(
        [node("Layer", "x w", "y", domain="org.example")],
        [value("x", 2, 8)],
        [value("y", 2, 3)],
        [weights("w", 8, 3)],
        functions=[inside],
        domains=("org.example",),
    )
    imported = import_onnx(path, batch=2)
    assert [made.type for made in imported.estimates] == ["MatMul", "Relu"]
    assert imported.workload.operators[0].forward_flops == 2 * 8 * 3


def test_weights_need_not_be_there(mlp):
    model = onnx.load(mlp)
    onnx.save(
        model,
        mlp,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location="weights.bin",
        size_threshold=0,
    )
    (mlp.parent / "weights.bin").unlink()
    assert import_onnx(mlp, batch=1).workload.parameter_bytes == 4 * 103


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x08\x07"])
def test_a_file_that_is_no_model_is_named(tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match="is not an ONNX model"):
        import_workload(path)


def test_a_cut_file_is_named(mlp):
    mlp.write_bytes(mlp.read_bytes()[:-9])
    with pytest.raises(WorkloadError, match=r"model\.onnx"):
        import_onnx(mlp, batch=1)


def test_damage_is_named_or_harmless(mlp):
    """Whatever is written over a few bytes of a file, the answer is a workload or an error that names the file."""
    good, rng = mlp.read_bytes(), np.random.default_rng(5)
    outcomes = []
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            bad[rng.integers(len(bad))] = rng.integers(256)
        mlp.write_bytes(bad)
        try:
            outcomes.append(import_onnx(mlp, batch=1).workload.name)
        except WorkloadError as error:
            outcomes.append(str(error))
    assert all("model" in outcome for outcome in outcomes)
    assert outcomes.count("model") > 50
    assert (
        sum("model.onnx" in outcome for outcome in outcomes) == len(outcomes) - outcomes.count("model") > 50
    )


def test_a_model_without_inputs_is_named(save):
    path = save([node("Relu", "w", "y")], [], [value("y", 3)], [weights("w", 3)])
    with pytest.raises(WorkloadError, match="has no inputs"):
        import_onnx(path, batch=1)


def test_files_that_are_not_there_are_named(tmp_path):
    for name in ("none.onnx", "none.npz"):
        with pytest.raises(WorkloadError, match=name):
            import_workload(tmp_path / name)


def test_a_suffix_that_says_nothing_is_named(tmp_path):
    with pytest.raises(WorkloadError, match=r"give an ONNX model \(\.onnx\) or a task graph \(\.npz\)"):
        import_workload(tmp_path / "model.pt")


# ------------------------------------------------------------------------------------------ files


def test_the_suffix_chooses(mlp, tmp_path):
    assert import_workload(mlp, batch=4).workload.batch == 4
    path = tmp_path / "graph.npz"
    np.savez(path, **one_task_graph())
    graph = import_workload(path)
    assert (graph.node_count, graph.time_s.tolist()) == (1, [0.0025])


def one_task_graph():
    one = {"task_type": 0, "task_id": 7, "task_device": 3, "task_runtime_ms": 2.5, "task_bytes": 0}
    columns = {name: np.array([number]) for name, number in one.items()}
    devices = {"device_type": 0, "device_id": 3, "device_property": 0}
    columns |= {name: np.array([number]) for name, number in devices.items()}
    meta = np.array(json.dumps({"nodes": 1, "switches": 0}))
    return columns | {"next_ptr": np.array([0, 0]), "next_ids": np.array([], np.int64), "meta": meta}
