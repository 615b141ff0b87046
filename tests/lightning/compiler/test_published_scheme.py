"""The scheme of the published datapath: its integers, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fpga.photonic_mac.network import layer_results, quantise
from lightning.compiler import Options, compile_network
from lightning.compiler.lowering import compute_integer_sums
from lightning.errors import CompileError
from lightning.networks.network import Node, Preprocessing

PUBLISHED = Options("published")
RANDOM = np.random.default_rng(5)
WEIGHTS = [RANDOM.normal(0, 0.6, (6, 8)), RANDOM.normal(0, 0.9, (3, 6))]


def test_weights_are_those_of_the_datapath_s_own_quantisation(chain):
    model = compile_network(chain(WEIGHTS), options=PUBLISHED)
    expected = quantise([each.astype(np.float32) for each in WEIGHTS]).layers
    assert [each.weights[0].tolist() for each in model.layers.values()] == [
        each.tolist() for each in expected
    ]
    assert model.shift_normalised
    assert not any(each.bias.any() or each.signed for each in model.layers.values())


def test_sums_of_the_first_layer_are_those_of_the_datapath(chain):
    model = compile_network(chain(WEIGHTS), options=PUBLISHED)
    images = RANDOM.integers(0, 256, (20, 8))
    network = quantise([each.astype(np.float32) for each in WEIGHTS])
    found = compute_integer_sums(images.astype(np.int16), model.layers["fc1"].weights[0])
    assert found.tolist() == layer_results(network, images)[0].tolist()


def test_raw_bytes_are_sent_as_they_are_whatever_the_scale(chain):
    for scale in (1 / 255, 1.0, 0.02):
        model = compile_network(chain(WEIGHTS, preprocessing=Preprocessing(scale)), options=PUBLISHED)
        assert [each.input_scale for each in model.layers.values()] == [scale, 1.0]


def test_a_last_softmax_and_a_first_flatten_are_taken(chain):
    network = chain(WEIGHTS)
    flat = Node("flat", "Flatten", ("picture",), "input", {"axis": 1})
    soft = Node("soft", "Softmax", (network.output,), "share", {"axis": 1})
    shapes = {**network.shapes, "picture": (2, 4), "share": (3,)}
    longer = replace(
        network, nodes=(flat, *network.nodes, soft), input="picture", output="share", shapes=shapes
    )
    assert list(compile_network(longer, options=PUBLISHED).layers) == ["fc1", "fc2"]


def test_biases_that_are_all_zero_are_none(chain):
    assert compile_network(chain(WEIGHTS, [np.zeros(6), None]), options=PUBLISHED).layers


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda chain: chain(WEIGHTS, [np.ones(6), None]), "Gemm fc1 has a bias"),
        (
            lambda chain: chain(WEIGHTS, rectified=False),
            "reads values that no Relu has rectified; the published datapath always",
        ),
        (
            lambda chain: chain(WEIGHTS, preprocessing=Preprocessing(1, (3.0,))),
            "network chain shifts or inverts its inputs; the published datapath sends",
        ),
        (
            lambda chain: chain(WEIGHTS, preprocessing=Preprocessing(-1)),
            "network chain shifts or inverts its inputs; the published datapath sends",
        ),
        (lambda chain: then(chain(WEIGHTS), "Relu"), "Relu last ends the network"),
        (
            lambda chain: then(chain(WEIGHTS), "Tanh"),
            "is not supported by the published datapath, which has Gemm and Relu",
        ),
        (lambda chain: replace(chain(WEIGHTS), nodes=()), "has no Gemm"),
        (lambda chain: vectors(chain(WEIGHTS)), "Gemm fc1 takes several vectors"),
        (lambda chain: branched(chain(WEIGHTS)), "is not part of the chain of layers"),
        (lambda chain: chain([np.array([[np.nan, 1.0]])]), "Gemm fc1: w1 holds values that are not finite"),
    ],
)
def test_other_networks_are_refused_by_the_name_of_the_node(chain, change, words):
    with pytest.raises(CompileError, match=words) as caught:
        compile_network(change(chain), options=PUBLISHED)
    assert caught.value.hint


def then(network, operation):
    last = Node("last", operation, (network.output,), "end")
    return replace(
        network,
        nodes=(*network.nodes, last),
        output="end",
        shapes={**network.shapes, "end": network.output_shape},
    )


def branched(network):
    side = Node("side", "Gemm", ("input", "w1"), "aside")
    return replace(network, nodes=(*network.nodes, side), shapes={**network.shapes, "aside": (6,)})


def vectors(network):
    return replace(network, shapes={**network.shapes, "input": (4, 8)})
