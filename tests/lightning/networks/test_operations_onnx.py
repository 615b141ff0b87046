"""Every operation at its variants against ONNX Runtime: as imported, and as written back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import skip_without

from lightning.errors import NetworkError, UnsupportedNode

skip_without("onnx", reason="pip install 'lightbed[inference]'")

seen = {"conv": set(), "pool": set()}


def floats(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@st.composite
def convolutions(draw):
    axes, groups = draw(st.sampled_from([1, 2, 2])), draw(st.sampled_from([1, 1, 2, 3]))
    pair = lambda low, high: draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes))
    attributes = {"group": groups, "strides": pair(1, 3), "dilations": pair(1, 2)}
    padding = draw(st.sampled_from(["pads", "none", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if padding == "pads":
        attributes["pads"] = pair(0, 3) + pair(0, 3)
    elif padding != "none":
        attributes |= {"auto_pad": padding, "dilations": [1] * axes}
    channels, rows, kernel = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3)), pair(1, 3)
    return attributes, channels, rows, kernel, pair(6, 9), draw(st.booleans()), padding


@pytest.mark.slow
@settings(max_examples=120)
@given(convolutions())
def test_convolutions(agree, onnx_model, case):
    attributes, channels, rows, kernel, size, bias, padding = case
    constants = {"w": floats(rows, channels // attributes["group"], *kernel)}
    if bias:
        constants["b"] = floats(rows, seed=2)
    model = onnx_model([("Conv", ["x", *constants], "y", attributes)], constants, (channels, *size))
    network = agree(model)
    assert [node.operation for node in network.nodes if node.operation != "Reshape"] == ["Conv"]
    seen["conv"] |= {padding, f"axes {len(kernel)}", f"groups {attributes['group']}"}
    seen["conv"] |= {name for name in ("strides", "dilations") if max(attributes[name]) > 1}


@pytest.mark.slow
def test_the_property_above_saw_every_padding_stride_dilation_and_group():
    assert seen["conv"] >= {"pads", "none", "VALID", "SAME_UPPER", "SAME_LOWER", "axes 1", "axes 2"}
    assert seen["conv"] >= {"groups 1", "groups 2", "groups 3", "strides", "dilations"}


@st.composite
def poolings(draw):
    axes = draw(st.sampled_from([1, 2, 2]))
    pair = lambda low, high: draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes))
    kernel = pair(1, 3)
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    attributes = {"kernel_shape": kernel, "strides": pair(1, 3), "ceil_mode": draw(st.integers(0, 1))}
    operation = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    same = draw(st.sampled_from([None, None, None, "SAME_UPPER", "SAME_LOWER"]))
    if same:  # ONNX Runtime refuses a window smaller than its stride here
        strides = [min(pair) for pair in zip(attributes["strides"], kernel, strict=True)]
        attributes |= {"auto_pad": same, "ceil_mode": 0, "strides": strides}
    else:
        attributes["pads"] = pads
    if operation == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    elif not same:
        attributes["dilations"] = pair(1, 2)
    return operation, attributes, pair(6, 9)


@pytest.mark.slow
@settings(max_examples=150)
@given(poolings())
def test_poolings(agree, onnx_model, case):
    operation, attributes, size = case
    network = agree(onnx_model([(operation, ["x"], "y", attributes)], {}, (2, *size), opset=19))
    given_excess = any(
        node.attributes["excess"] != (0, 0) for node in network.nodes if "excess" in node.attributes
    )
    seen["pool"] |= {operation, f"{operation} incomplete"} if given_excess else {operation}


@pytest.mark.slow
def test_the_property_above_saw_incomplete_windows():
    assert seen["pool"] >= {"MaxPool", "AveragePool", "MaxPool incomplete", "AveragePool incomplete"}


@pytest.mark.parametrize("size", [6, 7, 8, 9])
@pytest.mark.parametrize("pads", [(1, 1), (0, 2), (2, 0), (0, 1)], ids=str)
def test_padding_counts_in_a_mean_and_what_lies_behind_it_does_not(agree, onnx_model, size, pads):
    attributes = {"kernel_shape": [3], "strides": [2], "pads": pads, "ceil_mode": 1, "count_include_pad": 1}
    agree(onnx_model([("AveragePool", ["x"], "y", attributes)], {}, (2, size), opset=19))


UNARY = [
    ("Relu", {}),
    ("LeakyRelu", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {"alpha": 0.7}),
    ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}),
    ("HardSwish", {}),
    ("Mish", {}),
    ("Sigmoid", {}),
    ("Softplus", {}),
    ("Tanh", {}),
    ("Erf", {}),
    ("Exp", {}),
    ("Abs", {}),
    ("Neg", {}),
    ("Reciprocal", {}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Softmax", {}),
    ("Softmax", {"axis": 1}),
    ("LogSoftmax", {"axis": -2}),
    ("Flatten", {}),
    ("Flatten", {"axis": -3}),
    ("Transpose", {"perm": [0, 3, 1, 2]}),
    ("GlobalAveragePool", {}),
    ("GlobalMaxPool", {}),
    ("ReduceMean", {}),
    ("Identity", {}),
]


@pytest.mark.parametrize(("operation", "attributes"), UNARY, ids=str)
def test_operations_of_one_activation(agree, onnx_model, operation, attributes):
    nodes = [(operation, ["x"], "y", attributes)]
    constants = {}
    if operation == "ReduceMean":
        nodes, constants = [("ReduceMean", ["x", "axes"], "y", {"keepdims": 0})], {"axes": np.array([-1, 2])}
    if operation == "Identity":
        nodes.append(("Abs", ["y"], "z", {}))
    network = agree(onnx_model(nodes, constants, (3, 4, 5), opset=20))
    assert network.input_shape == (3, 4, 5)


BINARY = [
    ("Add", (5,), 1),
    ("Add", (1, 3, 1, 1), 0),
    ("Sub", (4, 1), 1),
    ("Sub", (), 0),
    ("Mul", (1, 1, 4, 5), 1),
    ("Div", (3, 1, 1), 1),
    ("Div", (5,), 0),
    ("PRelu", (3, 1, 1), 1),
    ("Max", (5,), 1),
    ("Min", (3, 4, 5), 0),
    ("Sum", (5,), 1),
]


@pytest.mark.parametrize(("operation", "shape", "place"), BINARY, ids=str)
def test_operations_with_a_constant_that_is_broadcast(agree, onnx_model, operation, shape, place):
    inputs = ["x", "c"] if place else ["c", "x"]
    agree(onnx_model([(operation, inputs, "y", {})], {"c": floats(*shape) + 3}, (3, 4, 5)))


def test_powers_and_roots(agree, onnx_model):
    nodes = [
        ("Pow", ["x", "two"], "p", {}),
        ("Add", ["p", "two"], "q", {}),
        ("Sqrt", ["q"], "r", {}),
        ("Log", ["r"], "y", {}),
    ]
    agree(onnx_model(nodes, {"two": np.float32(2)}, (7,)))


def test_operations_of_two_activations(agree, onnx_model):
    for operation in ("Add", "Sub", "Mul", "Max", "Min", "Div"):
        nodes = [("Exp", ["x"], "e", {}), (operation, ["x", "e"], "y", {})]
        network = agree(onnx_model(nodes, {}, (4, 3)))
        assert network.nodes[-1].operation == operation


@pytest.mark.parametrize("bounds", [("low", "high"), ("", "high"), ("low",), ()], ids=str)
def test_clip_between_two_bounds_one_or_none(agree, onnx_model, bounds):
    constants = {"low": np.float32(-0.5), "high": np.float32(0.7)}
    agree(onnx_model([("Clip", ["x", *bounds], "y", {})], constants, (9,)), images=20)


def test_layer_normalisation_over_one_axis_and_over_two(agree, onnx_model):
    for axis, shape in ((-1, (5,)), (2, (4, 5))):
        constants = {"s": floats(*shape), "b": floats(*shape, seed=3)}
        attributes = {"axis": axis, "epsilon": 1e-3}
        agree(onnx_model([("LayerNormalization", ["x", "s", "b"], "y", attributes)], constants, (3, 4, 5)))
        agree(onnx_model([("LayerNormalization", ["x", "s"], "y", attributes)], constants, (3, 4, 5)))


def test_slices_forwards_backwards_and_beyond_the_end(agree, onnx_model):
    far = np.iinfo(np.int64).max
    for start, stop, axis, step in ((1, far, 1, 1), (-2, far, 2, 1), (4, -far, -1, -2), (0, -1, 2, 2)):
        constants = {name: np.array([v]) for name, v in zip("abcd", (start, stop, axis, step), strict=True)}
        agree(onnx_model([("Slice", ["x", "a", "b", "c", "d"], "y", {})], constants, (3, 4, 5)))


def test_gather_of_one_entry_and_of_several(agree, onnx_model):
    for places in (np.array(0), np.array([2, 0, -1])):
        network = agree(onnx_model([("Gather", ["x", "i"], "y", {"axis": 1})], {"i": places}, (3, 4)))
        assert network.output_shape == (4,) if places.ndim == 0 else (3, 4)


def test_split_evenly_unevenly_and_by_sizes(agree, onnx_model):
    import onnx

    for opset, attributes, sizes in ((17, {}, [2, 4]), (18, {"num_outputs": 2}, None), (13, {}, None)):
        constants = {"sizes": np.array(sizes)} if sizes else {}
        model = onnx_model(
            [("Split", ["x", *constants], "a", attributes | {"axis": 1})], constants, (6, 2), opset
        )
        model.graph.node[0].output.append("b")
        model.graph.node.append(onnx.helper.make_node("Concat", ["b", "a"], ["y"], axis=1))
        model.graph.output[0].name = "y"
        assert [node.operation for node in agree(model).nodes] == ["Slice", "Slice", "Concat"]


def test_padding_of_all_axes_and_of_some(agree, onnx_model):
    amounts = {"p": np.array([0, 0, 1, 2, 0, 1, 0, 3]), "v": np.float32(1.5)}
    agree(onnx_model([("Pad", ["x", "p", "v"], "y", {})], amounts, (2, 4, 5)))
    some = {"p": np.array([1, 2, 3, 0]), "axes": np.array([-1, 2])}
    agree(onnx_model([("Pad", ["x", "p", "", "axes"], "y", {})], some, (2, 4, 5), opset=18))


def test_squeeze_unsqueeze_and_expand(agree, onnx_model):
    constants = {"one": np.array([1]), "many": np.array([1, 1, 3, 4, 6]), "last": np.array([4])}
    nodes = [
        ("Unsqueeze", ["x", "one"], "u", {}),
        ("Unsqueeze", ["u", "last"], "v", {}),
        ("Expand", ["v", "many"], "e", {}),
        ("Squeeze", ["e", "one"], "y", {}),
    ]
    network = agree(onnx_model(nodes, constants, (3, 4)))
    assert network.output_shape == (3, 4, 6)


@pytest.mark.parametrize("target", [(2, 1, 3), (1, 1, 3), (2, 3)])
def test_an_expansion_that_mixes_images_is_refused(onnx_model, target):
    from lightning.networks.imports.onnx.file import from_bytes

    model = onnx_model([("Expand", ["x", "t"], "y", {})], {"t": np.array(target)}, (3,))
    with pytest.raises(UnsupportedNode, match="repeats images to"):
        from_bytes(model if isinstance(model, bytes) else model.SerializeToString(), "expanded")


def test_an_activation_that_is_too_large_is_refused(onnx_model):
    from lightning.networks.imports.onnx.file import from_bytes

    around = {"p": np.array([0, 0, 8_193, 8_193, 0, 0, 8_193, 8_193])}
    model = onnx_model([("Pad", ["x", "p"], "y", {})], around, (1, 2, 2))
    with pytest.raises(NetworkError, match="Pad_y: an activation cannot have the shape"):
        from_bytes(model if isinstance(model, bytes) else model.SerializeToString(), "padded")


def test_a_constant_condition_chooses_as_attention_masks_do(agree, onnx_model):
    mask = np.tril(np.ones((4, 4), bool))
    constants = {"m": mask, "far": np.float32(-1e9)}
    nodes = [("Where", ["m", "x", "far"], "w", {}), ("Softmax", ["w"], "y", {})]
    agree(onnx_model(nodes, constants, (4, 4)))
