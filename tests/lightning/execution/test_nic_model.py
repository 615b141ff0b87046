"""Models for the smartNIC: its answers are those of the exact executor, and what does not fit is refused by name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fpga
from fpga.smartnic import NicProgram, compute_scores, pack_memory
from lightning.compiler import CompiledModel, Hardware, Options, compile_network, make_nic_model
from lightning.errors import CompileError
from lightning.execution import open_executor
from lightning.networks.network import Network, Node, Preprocessing

SIZES = [(5, 3), (16, 16, 7), (40, 33, 20, 4), (17, 90, 2)]


def assert_equal_answers(model, images):
    nic = make_nic_model(model, "under test")
    expected = open_executor(model, "exact").run(images).scores.reshape(len(images), -1)
    for raw, row in zip(images.reshape(len(images), -1), expected, strict=True):
        found, place = compute_scores(nic, raw)
        assert found.dtype == np.float32
        assert found.view(np.uint32).tolist() == row.view(np.uint32).tolist()
        assert place == row.argmax()
    assert len(pack_memory(NicProgram((nic,)))) == nic.word_count
    return expected


def random_images(seed, model, count=20):
    return np.random.default_rng(seed).integers(0, 256, (count, *model.network.input_shape), np.uint8)


def with_biases(model, seed):
    random = np.random.default_rng(seed)
    layers = {
        name: replace(layer, bias=random.integers(-2000, 2000, layer.bias.shape, np.int32))
        for name, layer in model.layers.items()
    }
    return replace(model, layers=layers)


@pytest.mark.parametrize(("wrap", "perfect"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", SIZES)
def test_published_chains(random_model, sizes, wrap, perfect):
    model = random_model(len(sizes), sizes, wrap=wrap, perfect_scaling=perfect)
    assert np.ptp(assert_equal_answers(model, random_images(1, model))) > 0


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_scaled_chains_with_and_without_biases(random_model, sizes, wrap):
    model = random_model(7, sizes, zeros=0.2, scheme="scaled", wrap=wrap)
    images = random_images(2, model)
    plain = assert_equal_answers(model, images)
    assert (plain != assert_equal_answers(with_biases(model, 3), images)).any()


def test_sums_that_wrap_and_published_sums_beyond_16_bits(dense_model):
    random = np.random.default_rng(4)
    weights = [random.integers(200, 256, (6, 400)), random.integers(-255, 256, (3, 6))]
    whole, wrapped = (dense_model(weights, wrap=wrap) for wrap in (False, True))
    images = random_images(5, whole)
    assert (assert_equal_answers(whole, images) != assert_equal_answers(wrapped, images)).any()


@pytest.mark.parametrize("scheme", ["published", "scaled"])
def test_a_relu_at_the_end(random_model, scheme):
    found = assert_equal_answers(*with_relu_at_the_end(random_model(8, (30, 20, 9), scheme=scheme)))
    assert (found == 0).any()
    assert (found > 0).any()


def with_relu_at_the_end(model):
    network = model.network
    relu = Node("last", "Relu", (network.output,), "rectified")
    shapes = {**network.shapes, "rectified": network.shapes[network.output]}
    ended = replace(network, nodes=(*network.nodes, relu), output="rectified", shapes=shapes)
    rectified = replace(model, network=ended)
    return rectified, random_images(9, rectified)


def test_a_compiled_network_with_preprocessing_and_flatten():
    random = np.random.default_rng(10)
    constants = {
        "w1": random.normal(0, 0.1, (24, 48)), "b1": random.normal(0, 0.5, 24),
        "w2": random.normal(0, 0.2, (5, 24)), "b2": random.normal(0, 0.5, 5),
    }  # fmt: skip
    nodes = (
        Node("flat", "Flatten", ("image",), "f", {"axis": 1}),
        Node("fc1", "Gemm", ("f", "w1", "b1"), "h"),
        Node("relu", "Relu", ("h",), "r"),
        Node("fc2", "Gemm", ("r", "w2", "b2"), "scores"),
    )
    shapes = {"image": (1, 6, 8), "f": (48,), "h": (24,), "r": (24,), "scores": (5,)}
    network = Network(
        "digits", nodes, {key: each.astype(np.float32) for key, each in constants.items()}, "image", "scores",
        shapes, Preprocessing(1 / 200, (-0.02,), (1.1,)),
    )  # fmt: skip
    images = random.integers(0, 256, (80, 1, 6, 8), np.uint8)
    model = compile_network(network, images[:40])
    assert_equal_answers(model, images)


@pytest.mark.skipif(
    not os.environ.get("LIGHTBED_DATA"), reason="needs LIGHTBED_DATA: the folder with mnist/ and lenet/"
)
@pytest.mark.parametrize("wrap", [False, True])
def test_lenet(dense_model, wrap):
    import gzip

    from fpga.photonic_mac import quantise

    data = Path(os.environ["LIGHTBED_DATA"])
    with np.load(data / "lenet" / "lenet_w.npz") as weights:
        layers = quantise([weights[name] for name in ("w1", "w2", "w3")]).layers
    images = gzip.decompress((data / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    assert_equal_answers(
        dense_model(layers, wrap=wrap), np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784)[:30]
    )


def reason_of(model: CompiledModel) -> str:
    with pytest.raises(CompileError) as refusal:
        make_nic_model(model, "under test")
    assert refusal.value.hint
    return refusal.value.problem


def test_a_convolution_is_refused(convolving):
    assert reason_of(convolving) == (
        "Conv conv of conv is a convolution; the smartNIC takes chains of dense layers"
    )


@pytest.mark.long
@pytest.mark.torch
def test_resnet_8_is_refused():
    pytest.importorskip("torch", reason="needs torch: pip install 'lightbed[training]'")
    import runpy

    from lightning.networks import from_torch

    networks = runpy.run_path(str(Path(fpga.__file__).parents[1] / "examples" / "digits" / "networks.py"))
    network = from_torch(networks["ResNet8"](), (1, 8, 8), Preprocessing(1 / 255))
    images = np.random.default_rng(0).integers(0, 256, (4, 1, 8, 8), np.uint8)
    reason = reason_of(compile_network(network, images))
    first = network.nodes[0]
    assert reason.startswith(f"Conv {first.name} of {network.name} is a convolution; the smartNIC takes")


def test_digital_operations_are_refused(random_model):
    reason = reason_of(random_model(1, (5, 3), tail=("Softmax",)))
    assert reason.startswith("Softmax Softmax of dense is digital; ")


def test_signed_activations_are_refused(random_model):
    reason = reason_of(random_model(1, (5, 4, 3), signed=(1,)))
    assert reason == "Gemm fc1 of dense takes signed activations; the smartNIC sends light for 0 to 255"


def test_a_branch_is_refused(random_model):
    model = random_model(1, (5, 5, 5))
    nodes = list(model.network.nodes)
    nodes[-1] = replace(nodes[-1], inputs=("x", *nodes[-1].inputs[1:]))
    branched = replace(model, network=replace(model.network, nodes=tuple(nodes)))
    assert "Gemm fc1 of dense does not read the node before it" in reason_of(branched)


def test_a_relu_before_the_first_layer_is_refused(random_model):
    model = random_model(1, (5, 3))
    relu = Node("early", "Relu", ("x",), "positive")
    first = replace(model.network.nodes[0], inputs=("positive", "w0"))
    early = replace(model.network, nodes=(relu, first), shapes={**model.network.shapes, "positive": (5,)})
    assert reason_of(replace(model, network=early)).startswith("Relu early of dense comes before")


def test_a_network_without_layers_is_refused(random_model):
    model = random_model(1, (5, 3))
    assert "dense is not a chain" in reason_of(
        replace(model, network=replace(model.network, nodes=()), layers={})
    )


def test_several_vectors_are_refused(random_model):
    model = random_model(1, (5, 3))
    sequence = {"fc0": replace(model.layers["fc0"], vectors=4)}
    assert "Gemm fc0 of dense has 4 vectors of activations" in reason_of(replace(model, layers=sequence))


@pytest.mark.parametrize("hardware", [Hardware(lanes=8), Hardware(wavelengths=2), Hardware(cores=3)])
def test_other_hardware_is_refused(random_model, hardware):
    assert "is compiled for" in reason_of(random_model(1, (5, 3), hardware=hardware))


def test_skipped_zeros_are_refused(random_model):
    assert "skipped zeros" in reason_of(random_model(1, (5, 3), hardware=Hardware(skip_zeros=True)))


def test_preprocessing_that_differs_per_input_is_refused(random_model):
    model = random_model(1, (3, 2), scheme="scaled")
    for preprocessing, words in (
        (Preprocessing(1 / 255, (0.1, 0.2, 0.3)), "differently"),
        (Preprocessing(1 / 255, layout="HWC"), "HWC"),
    ):
        network = replace(model.network, preprocessing=preprocessing)
        assert words in reason_of(replace(model, network=network))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((1025, 3), "fc0 has 1025 inputs; the NIC takes up to 1024"),
        ((3, 1025, 3), "fc0 has 1025 outputs; the NIC takes up to 1024 activations"),
        ((3, 357), "fc0 has 357 outputs; the NIC takes up to 356 scores"),
        ((2,) * 17, "16 layers; the NIC takes 1 to 15"),
    ],
)
def test_what_is_too_large_is_refused(random_model, sizes, words):
    reason = reason_of(random_model(1, sizes))
    assert reason.startswith("dense does not fit the smartNIC: under test: ")
    assert words in reason


def test_biases_and_scales_that_do_not_fit_are_refused(random_model):
    model = random_model(1, (5, 3), scheme="scaled")
    layer = model.layers["fc0"]
    for change, words in (
        ({"bias": np.full((1, 3), 2**23 - 2, np.int32)}, "sum and bias may reach"),
        ({"bias": np.full((1, 3), -(2**23), np.int32)}, "fc0: biases must be less than 8388608"),
        ({"output_scale": np.full((1, 3), 1e-40, np.float32)}, "fc0: scales must be positive normal"),
        ({"output_scale": np.full((1, 3), 3e38, np.float32)}, "beyond float32"),
    ):
        assert words in reason_of(replace(model, layers={"fc0": replace(layer, **change)}))


def test_published_chains_with_biases_are_refused(random_model):
    assert "biases must be 0" in reason_of(with_biases(random_model(1, (5, 3)), 1))


def test_a_published_compilation_fits(dense_model):
    random = np.random.default_rng(12)
    network = dense_model([random.integers(0, 9, (8, 20))]).network
    network = replace(network, constants={"w0": random.normal(0, 0.4, (8, 20)).astype(np.float32)})
    model = compile_network(network, options=Options("published", wrap=True))
    assert_equal_answers(model, random_images(13, model))
