"""ONNX files as networks: canonical form, foldings that are reported, shapes as exporters write them, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightning.errors import CyclicNetwork, LightningError, NetworkError, UnsupportedNode
from lightning.networks import Preprocessing, load_network, run_float
from lightning.networks.work import compute_photonic_share, count_macs, count_photonic_macs

onnx = pytest.importorskip("onnx", reason="pip install 'lightbed[inference]'")


def floats(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bytes_of(model):
    from lightning.networks.imports.onnx.file import from_bytes

    return from_bytes(model.SerializeToString(), "m")


def operations(network):
    return [node.operation for node in network.nodes]


# ------------------------------------------------------------------------------------ products


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("third", [None, (5,), (1, 5), (1,), ()], ids=str)
def test_gemm_with_its_factors_in_weights_and_bias(agree, onnx_model, trans, third):
    constants = {"w": floats(5, 7) if trans else floats(7, 5)}
    if third is not None:
        constants["b"] = np.asarray(floats(*third))
    attributes = {"transB": trans, "alpha": 0.5, "beta": 2.0}
    network = agree(onnx_model([("Gemm", ["x", *constants], "y", attributes)], constants, (7,)))
    assert operations(network) == ["Gemm"]
    assert [network.constants[name].shape for name in network.nodes[0].inputs[1:]] == [(5, 7), (5,)][
        : len(constants)
    ]


def test_gemm_with_an_activation_as_its_third(agree, onnx_model):
    nodes = [("Gemm", ["x", "w", "x"], "y", {"beta": 0.5})]
    assert operations(agree(onnx_model(nodes, {"w": floats(4, 4)}, (4,)))) == ["Gemm", "Mul", "Add"]


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)], ids=str)
@pytest.mark.parametrize("factor", [(7, 5), (7,), (1, 7, 5)], ids=str)
def test_matmul_with_a_constant_on_the_right_is_a_gemm(agree, onnx_model, shape, factor):
    if len(factor) > len(shape) + 1:
        shape = (3, 7)
    network = agree(onnx_model([("MatMul", ["x", "w"], "y", {})], {"w": floats(*factor)}, shape))
    assert operations(network)[0] == "Gemm"


@pytest.mark.parametrize("factor", [(5, 3), (3,)], ids=str)
def test_matmul_with_a_constant_on_the_left_is_a_gemm_between_transpositions(agree, onnx_model, factor):
    network = agree(onnx_model([("MatMul", ["w", "x"], "y", {})], {"w": floats(*factor)}, (3, 4)))
    assert operations(network)[:2] == ["Transpose", "Gemm"]
    assert "two transpositions" in network.notes[0]


def test_matmul_of_activations_and_with_stacked_constants_is_digital(agree, onnx_model):
    turned = [("Transpose", ["x"], "t", {"perm": [0, 1, 3, 2]}), ("MatMul", ["x", "t"], "y", {})]
    assert operations(agree(onnx_model(turned, {}, (2, 3, 4)))) == ["Transpose", "MatMul"]
    for order, constant in ((["x", "w"], (2, 4, 5)), (["w", "x"], (2, 5, 3))):
        network = agree(onnx_model([("MatMul", order, "y", {})], {"w": floats(*constant)}, (2, 3, 4)))
        assert operations(network) == ["MatMul"]
        assert count_macs(network) == {"MatMul_y": 2 * 3 * 4 * 5}
        assert compute_photonic_share(network) == 0


def test_work_is_counted_by_node(onnx_model):
    nodes = [
        ("Conv", ["x", "w"], "c", {"group": 2, "pads": [1, 1, 1, 1]}),
        ("Flatten", ["c"], "f", {}),
        ("MatMul", ["f", "v"], "y", {}),
    ]
    network = bytes_of(onnx_model(nodes, {"w": floats(6, 2, 3, 3), "v": floats(120, 10)}, (4, 4, 5)))
    assert count_macs(network) == {"Conv_c": 6 * 20 * 2 * 9, "MatMul_y": 1200}
    assert count_photonic_macs(network) == 3360
    assert compute_photonic_share(network) == 1


# ------------------------------------------------------------------------------------- folding


def normalisation(channels):
    return {
        "s": floats(channels, seed=2),
        "o": floats(channels, seed=3),
        "m": floats(channels, seed=4),
        "v": floats(channels, seed=5) ** 2 + 0.1,
    }


def test_normalisation_behind_a_product_becomes_part_of_it(agree, onnx_model):
    for operation, constants, shape in (
        ("Conv", {"w": floats(6, 3, 3, 3)}, (3, 5, 5)),
        ("Conv", {"w": floats(6, 3, 3), "b": floats(6)}, (3, 9)),
        ("Gemm", {"w": floats(3, 6), "b": floats(6)}, (3,)),
    ):
        nodes = [
            (operation, ["x", *constants], "c", {}),
            ("BatchNormalization", ["c", "s", "o", "m", "v"], "n", {"epsilon": 1e-3}),
            ("Relu", ["n"], "y", {}),
        ]
        network = agree(onnx_model(nodes, constants | normalisation(6), shape))
        assert [name for name in operations(network) if name != "Reshape"] == [operation, "Relu"]
        assert (
            f"BatchNormalization BatchNormalization_n folded into {operation} {operation}_c" in network.notes
        )


def test_normalisation_elsewhere_is_digital_and_reported(agree, onnx_model):
    alone = [("BatchNormalization", ["x", "s", "o", "m", "v"], "n", {}), ("Relu", ["n"], "y", {})]
    network = agree(onnx_model(alone, normalisation(3), (3, 4, 4)))
    assert operations(network) == ["Mul", "Add", "Relu"]
    assert network.notes == (
        "BatchNormalization BatchNormalization_n computed digitally: no product with one reader before it",
    )
    shared = [
        ("Conv", ["x", "w"], "c", {}),
        ("BatchNormalization", ["c", "s", "o", "m", "v"], "n", {}),
        ("Add", ["c", "n"], "y", {}),
    ]
    network = agree(onnx_model(shared, normalisation(6) | {"w": floats(6, 3, 1, 1)}, (3, 4, 4)))
    assert operations(network) == ["Conv", "Mul", "Add", "Add"]


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("order", [["p", "c"], ["c", "p"]], ids=str)
@pytest.mark.parametrize("shape", [(), (6,), (1, 1, 6)], ids=str)
def test_one_constant_a_row_becomes_part_of_the_product(agree, onnx_model, operation, order, shape):
    nodes = [("MatMul", ["x", "w"], "p", {}), (operation, order, "y", {})]
    network = agree(onnx_model(nodes, {"w": floats(3, 6), "c": np.asarray(floats(*shape)) + 3}, (4, 3)))
    folds = operation != "Div" or order[0] == "p"
    assert operations(network) == (["Gemm"] if folds else ["Gemm", "Div"])
    assert len(network.notes) == folds


def test_a_constant_for_every_value_does_not_become_part_of_it(agree, onnx_model):
    nodes = [("MatMul", ["x", "w"], "p", {}), ("Add", ["p", "c"], "y", {})]
    for shape in ((4, 1), (4, 6)):
        network = agree(onnx_model(nodes, {"w": floats(3, 6), "c": floats(*shape)}, (4, 3)))
        assert operations(network) == ["Gemm", "Add"]
    image = [("Conv", ["x", "w"], "p", {}), ("Add", ["p", "c"], "y", {})]
    network = agree(onnx_model(image, {"w": floats(2, 3, 1, 1), "c": floats(5)}, (3, 5, 5)))
    assert operations(network) == ["Conv", "Add"]


def test_scales_and_shifts_one_after_the_other_are_all_folded(agree, onnx_model):
    nodes = [
        ("Conv", ["x", "w"], "p", {}),
        ("Mul", ["p", "c"], "q", {}),
        ("Add", ["q", "c"], "r", {}),
        ("Div", ["r", "c"], "y", {}),
    ]
    network = agree(onnx_model(nodes, {"w": floats(2, 3, 2, 2), "c": floats(2, 1, 1)}, (3, 4, 4)))
    assert operations(network) == ["Conv"]
    assert [note.split()[0] for note in network.notes] == ["Mul", "Add", "Div"]


# ------------------------------------------------------------------------- shapes and constants


def test_shapes_that_are_computed_as_exporters_write_them(agree, onnx_model):
    constants = {"zero": np.array(0), "ax": np.array([0]), "rest": np.array([-1]), "two": np.array(2)}
    nodes = [
        ("Shape", ["x"], "s", {}),
        ("Gather", ["s", "zero"], "n", {}),
        ("Unsqueeze", ["n", "ax"], "n1", {}),
        ("Gather", ["s", "two"], "h", {}),
        ("Mul", ["h", "two"], "hh", {}),
        ("Unsqueeze", ["hh", "ax"], "h1", {}),
        ("Concat", ["n1", "rest", "h1"], "t", {"axis": 0}),
        ("Reshape", ["x", "t"], "y", {}),
    ]
    for batch in ("n", 1):
        network = agree(onnx_model(nodes, constants, (6, 4, 2), batch=batch), images=2 if batch == "n" else 1)
        assert network.output_shape == (6, 8)
        assert set(network.constants) == set()


@pytest.mark.parametrize(
    ("target", "after"),
    [
        ((0, -1), (24,)),
        ((-1, 24), (24,)),
        ((1, 24), (24,)),
        ((0, 0, 12), (2, 12)),
        ((-1, 4, 3, 2), (4, 3, 2)),
    ],
)
def test_reshapes_keep_images_apart(onnx_model, target, after):
    network = bytes_of(
        onnx_model([("Reshape", ["x", "t"], "y", {})], {"t": np.array(target)}, (2, 3, 4), batch=1)
    )
    assert network.output_shape == after


def test_a_constant_that_is_repeated_for_every_image_stands_next_to_each(agree, onnx_model):
    constants = {"token": floats(1, 1, 4), "zero": np.array([0]), "rest": np.array([1, 4])}
    nodes = [
        ("Shape", ["x"], "s", {}),
        ("Gather", ["s", "zero"], "n", {}),
        ("Concat", ["n", "rest"], "t", {"axis": 0}),
        ("Expand", ["token", "t"], "e", {}),
        ("Concat", ["e", "x"], "y", {"axis": 1}),
    ]
    assert agree(onnx_model(nodes, constants, (3, 4)), images=5).output_shape == (4, 4)


@pytest.mark.parametrize("opset", range(13, 22))
def test_every_opset_from_13_to_21(agree, onnx_model, opset):
    axes = {"axes": np.array([2, 3])} if opset >= 18 else {}
    reduction = ("ReduceMean", ["d", *axes], "e", {"keepdims": 0} | ({} if axes else {"axes": [2, 3]}))
    constants = {"w": floats(4, 2, 3, 3), **axes, "l": np.float32(0.0), "h": np.float32(6.0)}
    nodes = [
        ("Conv", ["x", "w"], "a", {}),
        ("BatchNormalization", ["a", "s", "o", "m", "v"], "b", {}),
        ("Clip", ["b", "l", "h"], "c", {}),
        ("Dropout", ["c"], "d", {}),
        reduction,
        ("Softmax", ["e"], "y", {}),
    ]
    network = agree(onnx_model(nodes, constants | normalisation(4), (2, 6, 6), opset=opset))
    assert operations(network) == ["Conv", "Clip", "ReduceMean", "Softmax"]


def test_images_with_channels_last_as_converters_of_keras_write_them(agree, onnx_model):
    constants = {
        "w": floats(4, 3, 3, 3),
        "b": floats(4),
        "t": np.array([-1, 36]),
        "v": floats(36, 5),
        "c": floats(5),
    }
    nodes = [
        ("Transpose", ["x"], "first", {"perm": [0, 3, 1, 2]}),
        ("Conv", ["first", "w", "b"], "conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("LeakyRelu", ["conv"], "relu", {"alpha": 0.3}),
        ("MaxPool", ["relu"], "pool", {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"}),
        ("Transpose", ["pool"], "last", {"perm": [0, 2, 3, 1]}),
        ("Reshape", ["last", "t"], "flat", {}),
        ("MatMul", ["flat", "v"], "dense", {}),
        ("Add", ["dense", "c"], "biased", {}),
        ("Softmax", ["biased"], "y", {"axis": -1}),
    ]
    network = agree(onnx_model(nodes, constants, (12, 12, 3)))
    expected = "Transpose Conv LeakyRelu MaxPool Transpose Reshape Gemm Softmax"
    assert " ".join(operations(network)) == expected
    assert network.notes == ("Add Add_biased merged into Gemm MatMul_dense",)


def test_gelu_as_separate_nodes_and_weights_of_other_floats(agree, onnx_model):
    constants = {"r": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    nodes = [
        ("Div", ["x", "r"], "a", {}),
        ("Erf", ["a"], "b", {}),
        ("Add", ["b", "one"], "c", {}),
        ("Mul", ["x", "c"], "d", {}),
        ("Mul", ["d", "half"], "y", {}),
    ]
    assert operations(agree(onnx_model(nodes, constants, (9,)))) == ["Div", "Erf", "Add", "Mul", "Mul"]
    half = [("Cast", ["w"], "v", {"to": 1}), ("MatMul", ["x", "v"], "y", {})]
    network = agree(onnx_model(half, {"w": floats(4, 3).astype(np.float16)}, (4,)))
    assert network.constants[network.nodes[0].inputs[1]].dtype == np.float32


def test_constant_nodes_hold_weights(agree, onnx_model):
    model = onnx_model([("MatMul", ["x", "w"], "y", {})], {}, (4,))
    value = onnx.numpy_helper.from_array(floats(4, 3))
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=value))
    assert operations(agree(model)) == ["Gemm"]


def test_nodes_may_come_in_any_order_and_without_names(agree, onnx_model):
    nodes = [("MatMul", ["x", "w"], "a", {}), ("Relu", ["a"], "b", {}), ("Add", ["b", "x"], "y", {})]
    model = onnx_model(nodes, {"w": floats(4, 4)}, (4,))
    turned = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(turned)
    for node in model.graph.node:
        node.name = ""
    network = bytes_of(model)
    assert operations(network) == ["Gemm", "Relu", "Add"]
    assert len({node.name for node in network.nodes}) == 3


def test_functions_of_the_model_are_written_out(onnx_model):
    model = onnx_model([("Twice", ["x"], "y", {"domain": "ours"})], {}, (4,))
    body = [onnx.helper.make_node("Add", ["a", "a"], ["b"])]
    opset = onnx.helper.make_opsetid("", 17)
    model.functions.append(onnx.helper.make_function("ours", "Twice", ["a"], ["b"], body, [opset]))
    model.opset_import.append(onnx.helper.make_opsetid("ours", 1))
    assert run_float(bytes_of(model), np.ones((2, 4))).tolist() == [[2.0] * 4] * 2


def test_a_file_with_preprocessing_of_its_own(tmp_path, onnx_model):
    path = tmp_path / "small.onnx"
    onnx.save(onnx_model([("Relu", ["x"], "y", {})], {}, (3, 4, 4)), path)
    assert load_network(path).preprocessing == Preprocessing()
    given = Preprocessing(1 / 255, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2), "HWC")
    assert load_network(path, given).preprocessing == given
    assert load_network(str(path)).name == "small"


# ------------------------------------------------------------------------------------- refusals


def refused(kind, model, *words):
    with pytest.raises(kind) as caught:
        bytes_of(model)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, str(caught.value)
    assert caught.value.hint


def test_an_unknown_operation_is_named_with_its_node_domain_and_opset(onnx_model):
    model = onnx_model(
        [("Relu", ["x"], "r", {}), ("FancyThing", ["r"], "y", {"domain": "acme"})], {}, (4,), 15
    )
    refused(UnsupportedNode, model, "node FancyThing_y (acme::FancyThing, opset undeclared)")
    model.opset_import.append(onnx.helper.make_opsetid("acme", 3))
    refused(UnsupportedNode, model, "node FancyThing_y (acme::FancyThing, opset 3)")
    refused(UnsupportedNode, onnx_model([("Det", ["x"], "y", {})], {}, (4, 4)), "Det_y", "opset 17")


def test_an_open_axis_besides_the_batch_is_named(onnx_model):
    nodes = [("Relu", ["x"], "y", {})]
    refused(NetworkError, onnx_model(nodes, {}, ("k",)), "axis 1 of input 'x' has the length 'k'")
    refused(NetworkError, onnx_model(nodes, {}, (3, None)), "axis 2 of input 'x' has the length unknown")
    refused(NetworkError, onnx_model(nodes, {}, ()), "no axis after the batch axis")


def test_a_quantised_network_is_advised_to_fix_its_shapes(onnx_model):
    constants = {"s": np.float32(0.1), "z": np.int8(0)}
    model = onnx_model([("QuantizeLinear", ["x", "s", "z"], "y", {})], constants, (4,))
    refused(UnsupportedNode, model, "--shape x=1x4")


def test_the_reference_page_names_every_operation():
    from lightning.networks.operations.operation_list import OPERATOR_BY_NAME

    page = (Path(__file__).parents[3] / "docs" / "reference" / "networks.md").read_text(encoding="utf-8")
    assert [name for name in OPERATOR_BY_NAME if f"`{name}`" not in page] == []


def test_a_single_entry_is_still_one_in_a_compiled_file(onnx_model, tmp_path):
    from lightning.compiler import compile_network, load_model, save_model

    nodes = [("Gather", ["x", "i"], "e", {"axis": 1}), ("MatMul", ["e", "w"], "y", {})]
    network = bytes_of(onnx_model(nodes, {"i": np.array(1), "w": floats(4, 2)}, (3, 4)))
    model = compile_network(network, np.abs(floats(20, 3, 4)))
    save_model(model, tmp_path / "m.lng")
    again = load_model(tmp_path / "m.lng").network
    x = floats(5, 3, 4, seed=9)
    assert run_float(again, x).tolist() == run_float(network, x).tolist()


def test_a_cycle_is_named(onnx_model):
    nodes = [
        ("Add", ["x", "c"], "a", {}),
        ("Relu", ["a"], "b", {}),
        ("Neg", ["b"], "c", {}),
        ("Abs", ["b"], "y", {}),
    ]
    refused(CyclicNetwork, onnx_model(nodes, {}, (4,)), "Relu_b -> Add_a -> Neg_c -> Relu_b")
    refused(CyclicNetwork, onnx_model([("Add", ["x", "y"], "y", {})], {}, (4,)), "Add_y -> Add_y")


FACTOR = {"w": floats(4, 4)}
REFUSED = {
    "transA": ([("Gemm", ["x", "w"], "y", {"transA": 1})], FACTOR, (4,), "transposes its activations"),
    "turned Gemm": ([("Gemm", ["w", "x"], "y", {})], FACTOR, (4,), "Swap the factors"),
    "Gemm of images": ([("Gemm", ["x", "x"], "y", {})], {}, (4,), "depends on the image"),
    "Gemm that does not fit": ([("Gemm", ["x", "w"], "y", {})], FACTOR, (5,), "weights (4, 4)"),
    "MatMul across images": ([("MatMul", ["x", "x"], "y", {})], {}, (4,), "mix images"),
    "MatMul of the batch": (
        [("MatMul", ["w", "x"], "y", {})],
        FACTOR,
        (4,),
        "rows of its output are not images",
    ),
    "sum over images": ([("ReduceSum", ["x", "a"], "y", {})], {"a": np.array([0])}, (4,), "across images"),
    "softmax over images": ([("Softmax", ["x"], "y", {"axis": 0})], {}, (4,), "across images"),
    "batch moved": ([("Transpose", ["x"], "y", {"perm": [1, 0]})], {}, (4,), "moves the batch axis"),
    "batch mixed": ([("Reshape", ["x", "t"], "y", {})], {"t": np.array([-1, 2])}, (4,), "mixes images"),
    "batch lost": ([("Reshape", ["x", "t"], "y", {})], {"t": np.array([4])}, (4,), "another batch axis"),
    "constant with a batch": ([("Add", ["x", "w"], "y", {})], FACTOR, (4,), "batch axis"),
    "shapes": ([("Add", ["x", "c"], "y", {})], {"c": floats(3)}, (4,), "Add_y"),
    "kernel too large": (
        [("Conv", ["x", "k"], "y", {})],
        {"k": floats(1, 1, 9, 9)},
        (1, 4, 4),
        "larger than the image",
    ),
    "groups": ([("Conv", ["x", "k"], "y", {"group": 2})], {"k": floats(2, 2, 1, 1)}, (2, 4, 4), "2 groups"),
    "three axes": (
        [("MaxPool", ["x"], "y", {"kernel_shape": [1, 1, 1]})],
        {},
        (1, 4, 4, 4),
        "moves over 3 axes",
    ),
    "table": (
        [("Cast", ["x"], "i", {"to": 7}), ("Gather", ["w", "i"], "y", {})],
        FACTOR,
        (4,),
        "converts activations to integers",
    ),
    "places": (
        [("Gather", ["x", "i"], "y", {"axis": 1})],
        {"i": np.array([1, 4])},
        (4,),
        "indices 1 to 4 of an axis of length 4",
    ),
    "training": (
        [("Dropout", ["x", "", "t"], "y", {})],
        {"t": np.array(True)},
        (4,),
        "training mode",
    ),
    "weights from the image": ([("Conv", ["x", "x"], "y", {})], {}, (1, 4, 4), "needs a constant as input 1"),
    "missing": ([("Relu", ["nothing"], "y", {})], {}, (4,), "which no node produces"),
    "two makers": ([("Relu", ["x"], "y", {}), ("Abs", ["x"], "y", {})], {}, (4,), "both produce 'y'"),
    "constant answer": ([("Neg", ["w"], "y", {})], FACTOR, (4,), "does not depend on the input"),
    "huge constant": (
        [("ConstantOfShape", ["s"], "c", {}), ("Add", ["x", "c"], "y", {})],
        {"s": np.array([1 << 40])},
        (4,),
        "numbers; the limit is",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_named(onnx_model, name):
    nodes, constants, shape, words = REFUSED[name]
    refused(NetworkError, onnx_model(nodes, constants, shape), words)


def test_inputs_outputs_opsets_and_files_that_are_not_taken(onnx_model, tmp_path):
    simple = [("Relu", ["x"], "y", {})]
    two = onnx_model(simple, {}, (4,))
    two.graph.input.append(onnx.helper.make_tensor_value_info("mask", 1, [1]))
    refused(NetworkError, two, "2 inputs (x, mask)")
    outputs = onnx_model(simple, {}, (4,))
    outputs.graph.output.append(onnx.helper.make_tensor_value_info("x", 1, None))
    refused(NetworkError, outputs, "2 outputs (y, x)")
    refused(NetworkError, onnx_model(simple, {}, (4,), 6), "opset 6")
    newest = onnx.defs.onnx_opset_version()
    refused(NetworkError, onnx_model(simple, {}, (4,), newest + 1), f"opset {newest + 1}")
    assert bytes_of(onnx_model(simple, {}, (4,), batch=8)).input_shape == (8, 4)
    refused(NetworkError, onnx_model(simple, {}, ("wide",)), "the length 'wide'")
    whole = onnx_model(simple, {}, (4,))
    whole.graph.input[0].type.tensor_type.elem_type = 7
    refused(NetworkError, whole, "does not take floats")
    for content, words in ((b"no network at all", "not a valid ONNX file"), (b"", "no network")):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(NetworkError, match=words):
            load_network(tmp_path / "bad.onnx")
    for path in (tmp_path / "nothing.onnx", tmp_path):
        with pytest.raises(NetworkError, match="there is no file"):
            load_network(path)
    (tmp_path / "model.h5").write_bytes(b"")
    with pytest.raises(NetworkError, match=r"neither \.onnx nor \.npz"):
        load_network(tmp_path / "model.h5")


def test_data_in_a_file_of_their_own(tmp_path, onnx_model):
    model = onnx_model([("MatMul", ["x", "w"], "y", {})], {"w": floats(40, 30)}, (40,))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert load_network(path).constants["MatMul_y.weight"].shape == (30, 40)
    (tmp_path / "m.data").unlink()
    with pytest.raises(NetworkError, match=r"data of constant 'w' are missing.*next to"):
        load_network(path)


@pytest.mark.slow
def test_damaged_files_give_a_network_or_an_error_of_ours(onnx_model):
    from lightning.networks.imports.onnx.file import from_bytes

    constants = {"w": floats(2, 1, 2, 2), "t": np.array([0, -1]), "v": floats(18, 3), "b": floats(3)}
    nodes = [
        ("Conv", ["x", "w"], "c", {"strides": [1, 1], "pads": [0, 0, 0, 0]}),
        ("MaxPool", ["c"], "p", {"kernel_shape": [2, 2], "ceil_mode": 1}),
        ("Reshape", ["p", "t"], "r", {}),
        ("MatMul", ["r", "v"], "m", {}),
        ("Add", ["m", "b"], "a", {}),
        ("Softmax", ["a"], "y", {"axis": -1}),
    ]
    whole = onnx_model(nodes, constants, (1, 5, 5)).SerializeToString()
    rng = np.random.default_rng(7)
    outcomes = {"network": 0, "error": 0, "named": 0}
    for _ in range(800):
        damaged = np.frombuffer(whole, np.uint8).copy()
        places = rng.integers(len(damaged), size=rng.integers(1, 4))
        damaged[places] ^= rng.integers(1, 256, size=len(places)).astype(np.uint8)
        try:
            cut = rng.integers(len(damaged)) if rng.random() < 0.1 else None
            network = from_bytes(damaged.tobytes()[:cut], "m")
            answer = run_float(network, np.ones((1, *network.input_shape)))
            assert answer.shape == (1, *network.output_shape)
            outcomes["network"] += 1
        except LightningError as error:
            outcomes["error"] += 1
            outcomes["named"] += "node " in str(error)
    assert outcomes["network"] >= 120
    assert outcomes["error"] >= 200
    assert outcomes["named"] >= 40
