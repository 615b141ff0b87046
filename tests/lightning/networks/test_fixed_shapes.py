"""ONNX files with fixed shapes: several inputs and outputs, every operation, and refusals whose advice works."""

from __future__ import annotations

import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="pip install 'lightbed[inference]'")
from lightning.compiler import compile_network, load_model, save_model
from lightning.errors import InputError, NetworkError, OutOfRange, UnsupportedNode
from lightning.execution import open_executor
from lightning.networks import run_float
from lightning.networks.electronic import Operation
from lightning.networks.imports.onnx.choices import Choices, parse_choices
from lightning.networks.imports.onnx.file import from_bytes
from lightning.networks.preprocess import pack, pack_named_inputs, unpack

HELPER = onnx.helper
FLOAT, WHOLE, BOOL = 1, 7, 9


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def graph(nodes, inputs, outputs, constants=None, opset=17):
    """Return a ModelProto; nodes are (operation, inputs, outputs, attributes), inputs are name: (type, shape)."""
    made = []
    for place, (operation, given, results, attributes) in enumerate(nodes):
        made.append(HELPER.make_node(operation, given, results, name=f"n{place}", **attributes))
    entries = [HELPER.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [HELPER.make_empty_tensor_value_info(name) for name in outputs]
    held = [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    whole = HELPER.make_graph(made, "g", entries, results, held)
    return HELPER.make_model(whole, opset_imports=[HELPER.make_opsetid("", opset)], ir_version=8)


def taken(model, choices=None):
    return from_bytes(model.SerializeToString(), "m", choices=choices)


def runtime(model, given):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, given)


def check(model, given, choices=None, limit=1e-4):
    """Check two samples against ONNX Runtime; return the network."""
    network = taken(model, choices)
    many = {name: np.stack([array, array[..., ::-1]]) for name, array in given.items()}
    found = unpack(network, run_float(network, pack(network, many)))
    for sample in range(2):
        wanted = runtime(model, {name: array[sample] for name, array in many.items()})
        for ours, theirs in zip(found.values(), wanted, strict=True):
            size = max(float(np.abs(theirs).max(initial=0)), 1e-3)
            np.testing.assert_allclose(ours[sample].reshape(theirs.shape), theirs, rtol=0, atol=limit * size)
    return network


def on_light(network):
    return sum(node.operation in {"Gemm", "Conv"} for node in network.nodes)


# ------------------------------------------------------------------------------------- operations

IMAGE = {"x": (FLOAT, [1, 4, 6, 6])}
SIZES = {"roi": np.zeros(0, np.float32), "scales": np.float32([1, 1, 2, 1.5])}
SCALE = {"s": floats(4), "b": floats(4, seed=1)}
ONE = {  # operation: inputs, attributes, constants, opset
    "Resize nearest": ("Resize", ["x", "roi", "scales"], {"mode": "nearest"}, SIZES, 17),
    "Resize linear": ("Resize", ["x", "roi", "scales"], {"mode": "linear"}, SIZES, 17),
    "InstanceNormalization": ("InstanceNormalization", ["x", "s", "b"], {}, SCALE, 17),
    "GroupNormalization": ("GroupNormalization", ["x", "s", "b"], {"num_groups": 2}, SCALE, 21),
    "RMSNormalization": ("RMSNormalization", ["x", "s"], {}, {"s": floats(6)}, 23),
    "LRN": ("LRN", ["x"], {"size": 3}, {}, 17),
    "DepthToSpace": ("DepthToSpace", ["x"], {"blocksize": 2}, {}, 17),
    "SpaceToDepth": ("SpaceToDepth", ["x"], {"blocksize": 2}, {}, 17),
    "Selu": ("Selu", ["x"], {}, {}, 17),
    "Celu": ("Celu", ["x"], {}, {}, 17),
    "Mish": ("Mish", ["x"], {}, {}, 18),
    "HardSwish": ("HardSwish", ["x"], {}, {}, 17),
    "ThresholdedRelu": ("ThresholdedRelu", ["x"], {"alpha": 0.5}, {}, 17),
    "Softsign": ("Softsign", ["x"], {}, {}, 17),
    "ReduceMax of all": ("ReduceMax", ["x"], {"keepdims": 1}, {}, 17),
    "ReduceL2": ("ReduceL2", ["x"], {"axes": [1, 2]}, {}, 17),
    "ArgMax": ("ArgMax", ["x"], {"axis": 1}, {}, 17),
    "CumSum": ("CumSum", ["x", "a"], {}, {"a": np.array(2)}, 17),
    "Pad by reflection": ("Pad", ["x", "p"], {"mode": "reflect"}, {"p": np.array([0, 0, 1, 2, 0, 0, 1, 0])}, 17),
    "Tile": ("Tile", ["x", "r"], {}, {"r": np.array([2, 1, 1, 1])}, 17),
    "Transpose of the batch": ("Transpose", ["x"], {"perm": [1, 0, 2, 3]}, {}, 17),
    "Gather of the batch": ("Gather", ["x", "i"], {"axis": 0}, {"i": np.array(0)}, 17),
    "Upsample": ("Upsample", ["x", "u"], {"mode": "nearest"}, {"u": np.float32([1, 1, 2, 2])}, 9),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_operations_that_stay_electronic_agree_with_onnx_runtime(name):
    operation, inputs, attributes, constants, opset = ONE[name]
    model = graph([(operation, inputs, ["y"], attributes)], IMAGE, ["y"], constants, opset)
    check(model, {"x": floats(1, 4, 6, 6)})


@pytest.mark.parametrize("seed", range(12))
def test_transposed_convolutions_are_convolutions_on_light(seed):
    rng = np.random.default_rng(seed)
    group, kernel = int(rng.integers(1, 3)), [int(n) for n in rng.integers(1, 4, 2)]
    strides, dilations = ([int(n) for n in rng.integers(1, 4, 2)] for _ in range(2))
    attributes = {
        "group": group,
        "strides": strides,
        "dilations": dilations,
        "pads": [int(n) for n in rng.integers(0, 2, 4)],
        "output_padding": [int(rng.integers(0, s)) for s in strides],
    }
    constants = {"w": floats(4, 3, *kernel), "b": floats(3 * group)}
    model = graph([("ConvTranspose", ["x", "w", "b"], ["y"], attributes)], IMAGE, ["y"], constants)
    assert on_light(check(model, {"x": floats(1, 4, 6, 6)})) == 1


@pytest.mark.parametrize("operation", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers_have_their_matrices_on_light(operation, direction):
    gates, steps, size = {"LSTM": 4, "GRU": 3, "RNN": 1}[operation], 5, 3
    ways = 2 if direction == "bidirectional" else 1
    constants = {
        "w": floats(ways, gates * size, 4),
        "r": floats(ways, gates * size, size, seed=1),
        "b": floats(ways, 2 * gates * size, seed=2),
    }
    inputs = {"x": (FLOAT, [steps, 1, 4]), "h": (FLOAT, [ways, 1, size])}
    given, outputs = ["x", "w", "r", "b", "", "h"], ["y", "yh"]
    if operation == "LSTM":
        inputs["c"], given, outputs = (FLOAT, [ways, 1, size]), [*given, "c"], [*outputs, "yc"]
    for more in ({}, {"linear_before_reset": 1}) if operation == "GRU" else ({},):
        attributes = {"hidden_size": size, "direction": direction, **more}
        model = graph([(operation, given, outputs, attributes)], inputs, outputs, constants)
        network = check(model, {name: floats(*shape, seed=3) for name, (_, shape) in inputs.items()})
        assert on_light(network) >= ways * (steps + 1)
        assert not any(node.attributes.get("operation") == operation for node in network.nodes)


def test_a_batch_of_several_images_is_convolved_as_groups():
    constants = {"w": floats(6, 2, 3, 3), "b": floats(6)}
    nodes = [("Conv", ["x", "w", "b"], ["y"], {"group": 2, "pads": [1, 1, 1, 1]})]
    model = graph(nodes, {"x": (FLOAT, [3, 4, 5, 5])}, ["y"], constants)
    assert on_light(check(model, {"x": floats(3, 4, 5, 5)})) == 1


def test_attention_with_a_batch_axis_that_moves_and_comes_back():
    constants = {"w": floats(8, 24) / 3, "h": np.array([6, 1, 3, 2, 4]), "back": np.array([1, 6, 8])}
    constants |= {"z": np.array(0), "one": np.array(1), "two": np.array(2)}
    nodes = [
        ("Transpose", ["x"], ["t"], {"perm": [1, 0, 2]}),
        ("MatMul", ["t", "w"], ["qkv"], {}),
        ("Reshape", ["qkv", "h"], ["r"], {}),
        ("Transpose", ["r"], ["p"], {"perm": [2, 1, 3, 0, 4]}),
        ("Gather", ["p", "z"], ["q"], {"axis": 0}),
        ("Gather", ["p", "one"], ["k"], {"axis": 0}),
        ("Gather", ["p", "two"], ["v"], {"axis": 0}),
        ("Einsum", ["q", "k"], ["s"], {"equation": "bhid,bhjd->bhij"}),
        ("Softmax", ["s"], ["a"], {"axis": -1}),
        ("MatMul", ["a", "v"], ["o"], {}),
        ("Transpose", ["o"], ["m"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["m", "back"], ["y"], {}),
    ]
    model = graph(nodes, {"x": (FLOAT, [1, 6, 8])}, ["y"], constants)
    assert on_light(check(model, {"x": floats(1, 6, 8)})) == 1


def test_embeddings_masks_states_and_several_outputs():
    constants = {"table": floats(11, 5), "w": floats(5, 4)}
    nodes = [
        ("Gather", ["table", "ids"], ["e"], {}),
        ("Unsqueeze", ["mask", "last"], ["m"], {}),
        ("Cast", ["m"], ["f"], {"to": 1}),
        ("Mul", ["e", "f"], ["kept"], {}),
        ("MatMul", ["kept", "w"], ["z"], {}),
        ("Add", ["z", "state"], ["next"], {}),
        ("ArgMax", ["next"], ["best"], {"axis": -1}),
        ("Dropout", ["next"], ["y", "unused"], {}),
    ]
    inputs = {"ids": (WHOLE, [1, 6]), "mask": (BOOL, [1, 6]), "state": (FLOAT, [1, 1, 4])}
    model = graph(nodes, inputs, ["y", "best"], {**constants, "last": np.array([-1])})
    given = {"ids": np.arange(6)[None] * 2, "mask": np.arange(6)[None] % 2 == 0, "state": floats(1, 1, 4)}
    network = check(model, given)
    assert [(port.name, port.shape, port.dtype) for port in network.inputs] == [
        ("ids", (1, 6), "int64"), ("mask", (1, 6), "bool"), ("state", (1, 1, 4), "float32"),
    ]  # fmt: skip
    assert [port.name for port in network.outputs] == ["y", "best"]
    with pytest.raises(InputError, match="mask"):
        pack(network, {"ids": given["ids"], "state": given["state"]})
    with pytest.raises(InputError, match="ids of m takes integers up to"):
        pack(network, {**given, "ids": given["ids"] + 2**25})


def test_a_network_of_two_inputs_is_compiled_kept_and_run(tmp_path):
    constants = {"w": floats(6, 4) / 2, "v": floats(3, 4) / 2}
    nodes = [
        ("MatMul", ["a", "w"], ["p"], {}),
        ("MatMul", ["b", "v"], ["q"], {}),
        ("Add", ["p", "q"], ["s"], {}),
        ("Softsign", ["s"], ["y"], {}),
    ]
    model = graph(nodes, {"a": (FLOAT, [1, 6]), "b": (FLOAT, [1, 3])}, ["y", "p"], constants)
    network = taken(model)
    given = {"a": floats(40, 6), "b": floats(40, 3, seed=5)}
    compiled = compile_network(network, given)
    save_model(compiled, tmp_path / "two.lng")
    again = load_model(tmp_path / "two.lng")
    assert (again.network.inputs, again.network.outputs) == (network.inputs, network.outputs)
    scores = open_executor(again, "exact").run(pack_named_inputs(again.network, given)).scores
    found = unpack(again.network, scores)
    wanted = runtime(model, {"a": given["a"][:1], "b": given["b"][:1]})
    np.testing.assert_allclose(found["y"][0], wanted[0], atol=0.05)
    np.testing.assert_allclose(found["p"][0], wanted[1], atol=0.2)


# ------------------------------------------------------------------------------------- opsets


@pytest.mark.parametrize("opset", [*range(7, 25), onnx.defs.onnx_opset_version()])
def test_every_opset_is_taken_and_older_ones_are_converted(opset):
    constants = {
        "w": floats(4, 4, 1, 1),
        **{name: np.abs(floats(4, seed=k)) for k, name in enumerate("sbmv")},
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], {}),
        ("Relu", ["n"], ["r"], {}),
        ("GlobalAveragePool", ["r"], ["p"], {}),
        ("Flatten", ["p"], ["f"], {}),
        ("Softmax", ["f"], ["y"], {"axis": 1}),
    ]
    model = graph(nodes, IMAGE, ["y"], constants, opset)
    network = taken(model)
    assert any("converted from opset" in note for note in network.notes) == (opset < 13)
    if opset <= 26:  # ONNX Runtime of this environment knows no later one
        check(model, {"x": floats(1, 4, 6, 6)})


# ------------------------------------------------------------------------------------- choices


def branching(condition):
    """Return a model with an `If` on `condition`, made by nodes of its own."""
    branches = {}
    for name, operation in (("then_branch", "Relu"), ("else_branch", "Neg")):
        out = HELPER.make_empty_tensor_value_info(f"{name}_out")
        inner = HELPER.make_node(operation, ["h"], [f"{name}_out"])
        branches[name] = HELPER.make_graph([inner], name, [], [out])
    nodes = [("MatMul", ["x", "w"], ["h"], {}), *condition, ("If", ["c"], ["y"], branches)]
    constants = {"w": floats(4, 4), "zero": np.array([0]), "four": np.array([4]), "limit": np.array(8000)}
    return nodes, constants


def test_an_if_whose_condition_is_a_shape_or_a_value_that_is_set_is_folded():
    of_shape = [("Shape", ["x"], ["s"], {"start": 1}), ("Equal", ["s", "four"], ["c"], {})]
    nodes, constants = branching(of_shape)
    model = graph(nodes, {"x": (FLOAT, [1, 4])}, ["y"], constants)
    assert [node.operation for node in taken(model).nodes] == ["Gemm", "Relu"]
    of_value = [("Equal", ["rate", "limit"], ["c"], {})]
    nodes, constants = branching(of_value)
    model = graph(nodes, {"x": (FLOAT, ["n", 4]), "rate": (WHOLE, [])}, ["y"], constants)
    for rate, last in ((8000, "Relu"), (16000, "Neg")):
        network = taken(model, parse_choices(["x=1x4"], [f"rate={rate}"]))
        assert [node.operation for node in network.nodes] == ["Gemm", last]


def test_choices_that_do_not_fit_are_refused_in_words():
    model = graph([("Relu", ["x"], ["y"], {})], {"x": (FLOAT, ["n", 4])}, ["y"])
    for choices, words in (
        (Choices({"z": (1, 4)}), "no input 'z'"),
        (Choices({"x": (4,)}), "2 axes"),
        (Choices(outputs=("q",)), "no tensor 'q'"),
    ):
        with pytest.raises(NetworkError, match=words) as caught:
            taken(model, choices)
        assert caught.value.hint
    for bad in (["x"], ["x=1xz"], ["x=0x3"]):
        with pytest.raises(OutOfRange):
            parse_choices(bad)
    with pytest.raises(OutOfRange):
        parse_choices([], ["x=many"])


# ------------------------------------------------------------------------------------- advice


def loop():
    body = HELPER.make_graph(
        [HELPER.make_node("Add", ["v", "v"], ["w2"]), HELPER.make_node("Identity", ["go"], ["on"])],
        "body",
        [HELPER.make_tensor_value_info("i", WHOLE, []), HELPER.make_tensor_value_info("go", BOOL, []),
         HELPER.make_tensor_value_info("v", FLOAT, [1, 4])],
        [HELPER.make_tensor_value_info("on", BOOL, []), HELPER.make_tensor_value_info("w2", FLOAT, [1, 4])],
    )  # fmt: skip
    nodes = [("MatMul", ["x", "w"], ["h"], {}), ("Loop", ["count", "", "h"], ["y"], {"body": body})]
    return nodes, {"w": floats(4, 4), "count": np.array(3)}


def data_branch():
    nodes, constants = branching(
        [("ReduceMax", ["h"], ["top"], {"keepdims": 0}), ("Greater", ["top", "half"], ["c"], {})]
    )
    return nodes, {**constants, "half": np.float32(0.5)}


def input_branch():
    return branching([("Identity", ["flag"], ["c"], {})])


OPEN, FIXED = {"x": (FLOAT, ["n", 4])}, {"x": (FLOAT, [1, 4])}
REFUSED = {
    "Loop": (*loop(), FIXED),
    "open Loop": (*loop(), OPEN),
    "If of data": (*data_branch(), FIXED),
    "open If of data": (*data_branch(), OPEN),
    "If of an input": (*input_branch(), {**FIXED, "flag": (BOOL, [])}),
    "NonZero": ([("MatMul", ["x", "w"], ["h"], {}), ("NonZero", ["h"], ["y"], {})], {"w": floats(4, 4)}, FIXED),
    "random": ([("Relu", ["x"], ["h"], {}), ("RandomNormalLike", ["h"], ["y"], {})], {}, FIXED),
    "ReduceMax along the batch": ([("ReduceMax", ["x"], ["y"], {"axes": [0]})], {}, OPEN),
    "unknown with an open batch": ([("Selu", ["x"], ["y"], {})], {}, OPEN),
    "two inputs": ([("Add", ["x", "z"], ["y"], {})], {}, {**OPEN, "z": (FLOAT, ["n", "k"])}),
    "integers": ([("Cast", ["x"], ["y"], {"to": 1})], {}, {"x": (WHOLE, ["n", 4])}),
    "open image": (
        [("Conv", ["x", "w"], ["c"], {}), ("Shape", ["c"], ["s"], {}), ("Reshape", ["c", "s"], ["y"], {})],
        {"w": floats(2, 3, 3, 3)},
        {"x": (FLOAT, ["n", 3, "h", "w"])},
    ),
    "batch of 8": ([("Relu", ["x"], ["y"], {})], {}, {"x": (FLOAT, ["n", "m", 2, 2, 2])}),
}  # fmt: skip


def followed(hint):
    """Return the choices that a hint advises."""
    found = {kind: re.findall(rf"--{kind} (\S+)", hint) for kind in ("shape", "set", "output")}
    return parse_choices(found["shape"], found["set"], found["output"])


def advice_of(model, choices):
    """Return what an import advises, None where it takes the model."""
    try:
        taken(model, choices)
    except NetworkError as error:
        return error.hint
    return None


@pytest.mark.parametrize("name", REFUSED)
def test_every_advice_works(name):
    nodes, constants, inputs = REFUSED[name]
    model, choices = graph(nodes, inputs, ["y"], constants), Choices()
    advices = []
    while (advice := advice_of(model, choices)) is not None:
        assert advice not in advices
        advices.append(advice)
        more = followed(advice)
        assert more, advice
        values = {**choices.values, **more.values}
        choices = Choices({**choices.shapes, **more.shapes}, values, more.outputs or choices.outputs)
    network = taken(model, choices)
    assert advices
    assert run_float(network, np.ones((2, *network.input_shape), np.float32)).shape[0] == 2


def test_a_constant_of_a_million_numbers_is_taken():
    nodes = [
        ("ConstantOfShape", ["s"], ["c"], {}),
        ("ReduceSum", ["c"], ["t"], {}),
        ("Add", ["x", "t"], ["y"], {}),
    ]
    model = graph(nodes, FIXED, ["y"], {"s": np.array([1 << 10, 1 << 10])})
    assert taken(model).output_shape == (4,)


@pytest.mark.parametrize(
    ("operation", "constants"),
    [
        ("ConstantOfShape", {"s": [1 << 15, 1 << 15]}),
        ("Expand", {"c": np.ones((1, 1 << 15), np.float32), "s": [1 << 15, 1]}),
        ("Expand", {"c": np.ones((1,), np.float32), "s": [1 << 20, 1 << 10]}),
        ("Tile", {"c": np.ones((2, 2), np.float32), "s": [1 << 14, 1 << 14]}),
        ("Pad", {"c": np.ones((1, 1 << 15), np.float32), "s": [(1 << 15) - 1, 0, 0, 0]}),
    ],
)
def test_constants_that_would_fill_the_memory_are_refused_before_they_are_made(
    operation, constants, monkeypatch
):
    monkeypatch.setattr(Operation, "run", lambda *_: pytest.fail("it was made"))
    constants = {name: np.asarray(value) for name, value in constants.items()}
    nodes = [
        (operation, list(constants), ["made"], {}),
        ("ReduceSum", ["made"], ["t"], {}),
        ("Add", ["x", "t"], ["y"], {}),
    ]
    model = graph(nodes, FIXED, ["y"], constants)
    with pytest.raises(NetworkError, match="makes a constant of 1,073,741,824 numbers; the limit is"):
        taken(model)


def test_constants_that_are_not_finite_are_no_shapes():
    """As in the mask of an attention, which no later number may see."""
    mask = np.where(np.tri(4, dtype=bool), 0, -np.inf).astype(np.float32)
    nodes = [
        ("MatMul", ["x", "w"], ["scores"], {}),
        ("Add", ["scores", "mask"], ["masked"], {}),
        ("Softmax", ["masked"], ["y"], {"axis": -1}),
    ]
    model = graph(nodes, {"x": (FLOAT, [1, 4, 4])}, ["y"], {"w": np.eye(4, dtype=np.float32), "mask": mask})
    assert taken(model).output_shape == (4, 4)


def test_a_loop_names_its_node():
    nodes, constants, inputs = REFUSED["Loop"]
    with pytest.raises(UnsupportedNode, match=r"node n1 \(Loop\) repeats"):
        taken(graph(nodes, inputs, ["y"], constants))
