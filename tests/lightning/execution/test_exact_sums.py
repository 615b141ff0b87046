"""The integers of light: every way to them gives the same, and the same as a restatement by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning.compiler import CompiledModel, Geometry, PhotonicLayer
from lightning.execution import open_executor
from lightning.execution.interpreter import Interpreter, make_patches, reshape_to_pixels
from lightning.execution.multipliers.exact import CompiledMultiplier, ExactMultiplier
from lightning.networks.network import Network, Node, Preprocessing
from lightning.networks.operations.operation_list import compute_node

KEYS = np.arange(3, dtype=np.uint64)


def by_hand(weights, activations):
    """Return one row, in Python's whole numbers."""
    total = 0
    for weight, activation in zip(weights.tolist(), activations.tolist(), strict=True):
        size = (abs(weight) * abs(activation)) >> 8
        total += size if (weight < 0) == (activation < 0) else -size
    return total


def layer_of(weights):
    groups, rows, _ = weights.shape
    bias, scale = np.zeros((groups, rows), np.int32), np.ones((groups, rows), np.float32)
    return PhotonicLayer("layer", weights.astype(np.int16), bias, 1.0, scale, signed=True)


@pytest.mark.parametrize("zeros", [0.0, 0.99])
def test_sums_are_those_by_hand(zeros):
    pytest.importorskip("numba")
    rng = np.random.default_rng(1)
    weights = rng.integers(-255, 256, (2, 9, 130)) * (rng.random((2, 9, 130)) >= zeros)
    activations = rng.integers(-255, 256, (3, 4, 2, 130)).astype(np.int16)
    layer = layer_of(weights)
    plain = ExactMultiplier().compute_sums(layer, activations, KEYS)
    fast = CompiledMultiplier().compute_sums(layer, activations, KEYS)
    expected = [
        by_hand(weights[group, row], activations[image, position, group])
        for image, position, group, row in np.ndindex(3, 4, 2, 9)
    ]
    assert plain.reshape(-1).tolist() == expected
    assert fast.reshape(-1).tolist() == expected
    assert np.count_nonzero(expected) > 20


@pytest.mark.slow
@given(st.integers(-255, 255), st.integers(-255, 255))
@settings(max_examples=200, deadline=None)
def test_a_product_is_shifted_and_signed(weight, activation):
    layer = layer_of(np.array([[[weight]]]))
    sums = ExactMultiplier().compute_sums(layer, np.array([[[[activation]]]], np.int16), KEYS[:1])
    assert sums.item() == by_hand(np.array([weight]), np.array([activation]))


def test_full_light_times_full_light_is_254():
    layer = layer_of(np.array([[[255], [-255]]]))
    assert ExactMultiplier().compute_sums(layer, np.full((1, 1, 1, 1), 255, np.int16), KEYS[:1]).tolist() == [
        [[[254, -254]]]
    ]


def test_patches_are_what_a_convolution_sees(convolution):
    geometry = convolution.geometry
    rng = np.random.default_rng(5)
    images = rng.integers(-255, 256, (2, 4, 7, 6)).astype(np.int16)
    found = make_patches(images, geometry, 2)
    tall, wide = geometry.output
    assert found.shape == (2, tall * wide, 2, 12)
    padded = np.zeros((2, 4, 7 + 3, 6 + 1), np.int16)
    padded[:, :, 1:8, :6] = images
    for image, down, across, group in np.ndindex(2, tall, wide, 2):
        window = [
            padded[image, 2 * group + channel, 2 * down + y, across + 2 * x]
            for channel in range(2)
            for y in range(3)
            for x in range(2)
        ]
        assert found[image, down * wide + across, group].tolist() == window


def test_pixels_come_back_in_their_places():
    geometry = Geometry(1, 2, 3, (1, 1))
    sums = np.arange(2 * 6 * 2 * 2, dtype=np.float32).reshape(2, 6, 2, 2)
    back = reshape_to_pixels(sums, geometry)
    assert back.shape == (2, 4, 2, 3)
    for image, group, row, place in np.ndindex(2, 2, 2, 6):
        assert back[image, 2 * group + row, place // 3, place % 3] == sums[image, place, group, row]


def restated(model, image):
    """Return a chain of the scaled scheme by hand, in the order that model.py states."""
    real = image.astype(np.float32) * np.float32(1 / 255)
    for place, layer in enumerate(model.layers.values()):
        lowest = -255 if layer.signed else 0
        steps = np.clip(np.rint(real / np.float32(layer.input_scale)), lowest, 255).astype(int)
        sums = np.array([by_hand(row, steps) for row in layer.weights[0]])
        real = (sums + layer.bias[0]).astype(np.float32) * layer.output_scale[0]
        if any(node.name == f"relu{place}" for node in model.network.nodes):
            real = np.maximum(real, 0)
    return real


@pytest.mark.parametrize("signed", [(), (1,)])
def test_a_scaled_chain_is_the_one_by_hand(random_model, signed):
    model = random_model(7, (40, 30, 20, 6), scheme="scaled", signed=signed, bias=-50)
    images = np.random.default_rng(2).integers(0, 256, (6, 40)).astype(np.uint8)
    walked = Interpreter(model, ExactMultiplier()).run(images)
    opened = open_executor(model).run(images)
    expected = np.array([restated(model, image) for image in images])
    assert walked.scores.tolist() == expected.tolist()
    assert opened.scores.tolist() == expected.tolist()
    assert opened.counters["clipped_activations"] == walked.counters["clipped_activations"] > 0


def test_bytes_and_floats_answer_alike(random_model):
    model = random_model(3, (30, 10, 4), scheme="scaled")
    images = np.random.default_rng(2).integers(0, 256, (5, 30)).astype(np.uint8)
    executor = open_executor(model)
    assert executor.run(images).scores.tolist() == executor.run(images.astype(np.float32)).scores.tolist()


def test_bytes_of_channels_with_means_of_their_own_answer_as_floats_do():
    rng = np.random.default_rng(5)
    layer = replace(layer_of(rng.integers(-255, 256, (1, 5, 12))), name="fc", input_scale=0.004)
    nodes = (Node("flat", "Flatten", ("x",), "f", {"axis": 1}), Node("fc", "Gemm", ("f", "w"), "y"))
    given = Preprocessing(1 / 255, mean=(0.1, 0.5, 0.9), deviation=(1.0, 0.5, 0.7))
    network = Network("flat", nodes, {}, "x", "y", {"x": (3, 2, 2), "f": (12,), "y": (5,)}, given)
    executor = open_executor(CompiledModel(network, {"fc": layer}))
    images = rng.integers(0, 256, (6, 3, 2, 2)).astype(np.uint8)
    found, walked = executor.run(images), executor.run(images.astype(np.float64))
    real = (images / 255 - np.reshape(given.mean, (3, 1, 1))) / np.reshape(given.deviation, (3, 1, 1))
    steps = np.clip(np.rint(real.reshape(6, 12) / 0.004), -255, 255).astype(int)
    assert found.scores.tolist() == [[by_hand(row, each) for row in layer.weights[0]] for each in steps]
    assert found.scores.tolist() == walked.scores.tolist()
    assert found.counters["clipped_activations"] == walked.counters["clipped_activations"] > 0
    assert (steps < 0).any()


def test_what_is_digital_at_the_end_is_done_in_both_ways(random_model):
    model = random_model(4, (30, 10, 4), scheme="scaled", tail=("Softmax",))
    images = np.random.default_rng(2).integers(0, 256, (5, 30)).astype(np.uint8)
    scores = open_executor(model).run(images).scores
    assert scores.sum(axis=1) == pytest.approx(1, abs=1e-6)
    assert scores.tolist() == Interpreter(model, ExactMultiplier()).run(images).scores.tolist()


def test_what_is_below_0_counts_as_clipped_where_a_layer_takes_no_signs(random_model):
    model = random_model(3, (30, 10, 4), scheme="scaled")
    images = np.random.default_rng(2).integers(1, 256, (5, 30))
    assert Interpreter(model, ExactMultiplier()).run(images).counters["clipped_activations"] < 150
    found = Interpreter(model, ExactMultiplier()).run(-images)
    assert found.counters["clipped_activations"] == 150
    dark = replace(model, network=replace(model.network, preprocessing=Preprocessing(1 / 255, mean=(1.01,))))
    for executor in (open_executor(dark), Interpreter(dark, ExactMultiplier())):
        assert executor.run(images.astype(np.uint8)).counters == {"clipped_activations": 150}


def test_what_is_below_0_between_layers_counts_too(random_model):
    model = random_model(3, (30, 10, 4), scheme="scaled", signed=(1,))
    layers = {**model.layers, "fc1": replace(model.layers["fc1"], signed=False)}
    images = np.random.default_rng(2).integers(0, 256, (5, 30)).astype(np.uint8)
    unsigned = replace(model, layers=layers)
    found = open_executor(unsigned).run(images)
    walked = Interpreter(unsigned, ExactMultiplier()).run(images)
    signed = open_executor(model).run(images)
    assert found.counters == walked.counters
    assert found.counters["clipped_activations"] > signed.counters["clipped_activations"]


def test_what_nobody_reads_is_no_part_of_the_answer(random_model):
    model = random_model(4, (6, 5), scheme="scaled")
    dead = Node("dead", "Softmax", ("fc0",), "dead", {"axis": 1})
    network = replace(model.network, nodes=(*model.network.nodes, dead))
    network = replace(network, shapes={**network.shapes, "dead": (5,)})
    images = np.random.default_rng(2).integers(0, 256, (3, 6)).astype(np.uint8)
    found = open_executor(replace(model, network=network)).run(images)
    assert found.scores.tolist() == open_executor(model).run(images).scores.tolist()


TAILS = {
    "Softmax": lambda tensor, at: Node(at, "Softmax", (tensor,), at, {"axis": 1}),
    "skip": lambda tensor, at: Node(at, "Add", (tensor, "x"), at),
    "hidden": lambda tensor, at: Node(at, "Mul", (tensor, "r0"), at),
    "sums": lambda tensor, at: Node(at, "Add", (tensor, "fc1"), at),
    "constant": lambda tensor, at: Node(at, "Mul", (tensor, "two"), at),
    "twice": lambda tensor, at: Node(at, "Concat", (tensor, tensor), at, {"axis": 1}),
    "cut": lambda tensor, at: Node(at, "Slice", (tensor,), at, {"axis": 1, "start": 0, "stop": 6, "step": 1}),
    "mean": lambda tensor, at: Node(at, "ReduceMean", (tensor,), at, {"axes": (1,), "keepdims": 1}),
    "row": lambda tensor, at: Node(at, "Reshape", (tensor,), at, {"shape": (1, 6)}),
    "abs": lambda tensor, at: Node(at, "Abs", (tensor,), at),
}


def ended(model, names):
    """Return the model with these operations behind it, as far as they fit, and which those are."""
    network, fitting = replace(model.network, constants={"two": np.full((1, 1), 2, np.float32)}), []
    for place, name in enumerate(names):
        node = TAILS[name](network.output, f"t{place}")
        empty = {key: np.zeros((1, *shape), np.float32) for key, shape in network.shapes.items()}
        try:
            shape = compute_node(node, empty, network.constants).shape[1:]
        except ValueError:
            continue
        shapes = {**network.shapes, node.output: shape}
        network = replace(network, nodes=(*network.nodes, node), output=node.output, shapes=shapes)
        fitting.append(name)
    return replace(model, network=network), tuple(fitting)


def test_whatever_is_digital_at_the_end_both_ways_answer_alike(random_model):
    pytest.importorskip("numba", reason="the fused way is made by numba")
    model, fused, walked = random_model(4, (6, 6, 6), scheme="scaled"), set(), set()
    images = np.random.default_rng(2).integers(0, 256, (3, 6)).astype(np.uint8)
    for names in [(), *itertools.product(TAILS, repeat=1), *itertools.product(TAILS, repeat=2)]:
        tailed, fitting = ended(model, names)
        executor = open_executor(tailed)
        expected = Interpreter(tailed, ExactMultiplier()).run(images)
        found = executor.run(images)
        assert found.scores.tolist() == expected.scores.tolist(), names
        assert found.counters == expected.counters, names
        (walked if isinstance(executor, Interpreter) else fused).add(fitting)
    assert {(), ("Softmax",), ("constant", "abs")} <= fused
    assert {("skip",), ("hidden",), ("twice",), ("mean",), ("row", "Softmax")} <= walked
    assert len(fused) >= 8


def test_images_go_through_in_parts_that_do_not_matter(random_model, monkeypatch):
    model = random_model(5, (30, 10, 4))
    images = np.random.default_rng(2).integers(0, 256, (7, 30)).astype(np.float32)
    whole = Interpreter(model, ExactMultiplier()).run(images).scores
    monkeypatch.setattr("lightning.execution.interpreter.MAX_IMAGES", 2)
    assert Interpreter(model, ExactMultiplier()).run(images).scores.tolist() == whole.tolist()


def test_the_cycles_of_an_image_are_those_of_the_datapath(random_model):
    from fpga.photonic_mac import calculate_cycles, sum_cycles

    model = random_model(5, (50, 10, 4))
    answers = open_executor(model).run(np.zeros((1, 50), np.uint8))
    assert answers.cycles == sum_cycles(calculate_cycles([(10, 50), (4, 10)]))


def test_a_convolution_is_the_one_by_hand(convolution, convolving):
    images = np.random.default_rng(2).integers(-255, 256, (2, 4, 7, 6)).astype(np.int16)
    scores = open_executor(convolving).run(images).scores
    padded = np.pad(images, ((0, 0), (0, 0), (1, 2), (0, 1)))
    for image, row, down, across in np.ndindex(scores.shape):
        group, place = divmod(row, 3)
        window = padded[image, 2 * group : 2 * group + 2, 2 * down : 2 * down + 3, across : across + 3 : 2]
        total = by_hand(convolution.weights[group, place], window.reshape(-1))
        expected = max(0.0, (total + int(convolution.bias[group, place])) * 0.5)
        assert scores[image, row, down, across] == expected
    assert np.count_nonzero(scores) > scores.size / 4


def test_every_pixel_of_every_image_has_noise_of_its_own(convolving):
    pytest.importorskip("numba")
    images = np.random.default_rng(2).integers(-255, 256, (3, 4, 7, 6)).astype(np.float32)
    executor = open_executor(convolving, "noisy", seed=4)
    whole = executor.run(images).scores
    alone = np.concatenate([executor.run(images[key : key + 1], [key]).scores for key in range(3)])
    assert alone.tolist() == whole.tolist()
    added = (whole - open_executor(convolving).run(images).scores)[whole > 0]
    assert len(np.unique(added)) > 10
    assert added.std() > 1
