"""Weights in an `.npz`, preprocessing, the float32 reference: what needs numpy only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning.errors import InputError, LightningError, NetworkError, OutOfRange, UnsupportedNode
from lightning.networks import Network, Node, Preprocessing, load_network, preprocess, run_float
from lightning.networks.network import PHOTONIC_OPERATIONS
from lightning.networks.operations.operation_list import OPERATOR_BY_NAME, compute_activations, compute_node
from lightning.networks.patches import compute_output_size, extract_patches
from lightning.networks.work import compute_photonic_share, count_macs

W1, W2 = np.array([[1, -1, 0.5], [0, 2, 0]]), np.array([[1, 1], [-1, 0], [0, 3]])


@pytest.fixture
def saved(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "small.npz", **arrays)
        return tmp_path / "small.npz"

    return save


def test_a_chain_of_weights_by_hand(saved):
    network = load_network(saved(w1=W1, w2=W2, b1=[0.5, -5]))
    assert [node.operation for node in network.nodes] == ["Gemm", "Relu", "Gemm"]
    assert (network.name, network.input_shape, network.output_shape) == ("small", (3,), (3,))
    hidden = [1 - 2 + 1.5 + 0.5, 2 * 2 - 5]  # the second is negative
    assert run_float(network, [[1, 2, 3]]).tolist() == [[hidden[0], -hidden[0], 0]]
    assert count_macs(network) == {"fc1": 6, "fc2": 6}
    assert compute_photonic_share(network) == 1


def test_pixels_are_taken_as_parts_of_255_by_default(saved):
    network = load_network(saved(w1=np.eye(2)))
    assert preprocess(network, np.array([[255, 51]], np.uint8)).tolist() == [[1, pytest.approx(0.2)]]
    plain = load_network(saved(w1=np.eye(2)), Preprocessing(mean=(1, 2), deviation=(2, 4)))
    assert preprocess(plain, [[3, 4]]).tolist() == [[1, 0.5]]


def test_activations_of_every_layer_can_be_asked_for(saved):
    network = load_network(saved(w1=W1, w2=W2))
    found = compute_activations(network, [[1, 0, 0]], ("input", "fc1", "relu1"))
    assert {name: values.tolist() for name, values in found.items()} == {
        "input": [[1, 0, 0]],
        "fc1": [[1, 0]],
        "relu1": [[1, 0]],
    }


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"w2": W2}, "lacks w1"),
        ({"w1": W1, "w3": W2}, "lacks w2"),
        ({"w1": W1, "kernel": W2}, "has kernel"),
        ({"w1": W1, "b2": [1, 2]}, "has b2"),
        ({"w1": W1, "w2": W2.T}, "w2 takes 3 inputs, but the previous layer has 2 outputs"),
        ({"w1": W1, "b1": [1, 2, 3]}, "b1 has 3 entries"),
        ({"w1": W1[0]}, "w1 is float64 (3,)"),
        ({"w1": W1 * np.nan}, "NaN"),
        ({"w1": np.array([["a"]])}, "w1 is <U1"),
        ({"w1": np.zeros((0, 3))}, "w1 is float64 (0, 3)"),
    ],
)
def test_arrays_that_are_no_chain(saved, arrays, words):
    with pytest.raises(NetworkError) as caught:
        load_network(saved(**arrays))
    assert words in str(caught.value)


def test_pickles_are_not_read(tmp_path):
    np.savez(tmp_path / "bad.npz", w1=np.array([object()], dtype=object))
    with pytest.raises(NetworkError, match="cannot be read as arrays"):
        load_network(tmp_path / "bad.npz")


def test_damaged_weights_give_a_network_or_an_error_of_ours(saved, tmp_path):
    whole = saved(w1=W1, w2=W2).read_bytes()
    rng, refused = np.random.default_rng(3), 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= int(rng.integers(1, 256))
        (tmp_path / "d.npz").write_bytes(damaged[: rng.integers(len(whole)) if rng.random() < 0.2 else None])
        try:
            load_network(tmp_path / "d.npz")
        except LightningError:
            refused += 1
    assert refused >= 100


# -------------------------------------------------------------------------------- preprocessing


def network_of(shape, preprocessing):
    node = Node("relu", "Relu", ("x",), "y")
    return Network("n", (node,), {}, "x", "y", {"x": shape, "y": shape}, preprocessing)


def test_channels_last_become_channels_first_with_a_mean_and_a_deviation_each():
    images = np.arange(2 * 2 * 3 * 3).reshape(2, 2, 3, 3)
    network = network_of((3, 2, 3), Preprocessing(0.5, (1, 2, 3), (1, 2, 4), "HWC"))
    expected = (images * 0.5 - [1, 2, 3]) / [1, 2, 4]
    assert preprocess(network, images).tolist() == np.moveaxis(expected, -1, 1).tolist()


@pytest.mark.parametrize(
    ("shape", "raw"),
    [((784,), (5, 28, 28)), ((1, 28, 28), (5, 28, 28)), ((28, 28), (5, 28, 28, 1)), ((1, 4), (5, 4))],
)
def test_axes_of_length_1_and_rows_of_an_image_may_be_missing(shape, raw):
    assert preprocess(network_of(shape, Preprocessing()), np.ones(raw, bool)).shape == (5, *shape)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (np.zeros((2, 5)), r"n takes \(n, 4\), but the data have shape"),
        (np.zeros((4,)), r"n takes \(n, 4\), but the data have shape"),
        (np.float64(1), r"n takes \(n, 4\), but the data have shape"),
        (np.zeros((0, 4)), "empty"),
        ([[1, 2, np.nan, 4]], "NaN"),
        ([[1, 2, np.inf, 4]], "NaN"),
        ([[1, 2, 1e308, 4]], "NaN"),
        (np.zeros((1, 4), complex), "complex"),
        ([["a", "b", "c", "d"]], "type <U1"),
        ([[1, 2], [3]], "the data are not an array"),
        ([[None] * 4], "object"),
    ],
    ids=str,
)
def test_data_that_are_not_taken(raw, words):
    with pytest.raises(InputError, match=words):
        preprocess(network_of((4,), Preprocessing()), raw)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Preprocessing(mean=(1, 2)), "mean has 2 entries"),
        (Preprocessing(deviation=(0.0,)), "other than 0"),
        (Preprocessing(scale=float("nan")), "finite"),
        (Preprocessing(layout="CHW"), "'CHW' is unknown"),
        (Preprocessing(layout="HWC"), "HWC is for images"),
    ],
)
def test_preprocessing_that_cannot_be_applied(saved, given, words):
    with pytest.raises(OutOfRange, match=words):
        load_network(saved(w1=W1), given)


def test_the_reference_wants_preprocessed_inputs_and_known_operations(saved):
    network = load_network(saved(w1=W1))
    with pytest.raises(InputError, match=r"takes \(n, 3\), not \(2, 4\)"):
        run_float(network, np.zeros((2, 4)))
    with pytest.raises(UnsupportedNode, match="node n: Det is not supported"):
        compute_node(Node("n", "Det", ("x",), "y"), {}, {})


def test_light_computes_operations_that_are_known():
    assert set(OPERATOR_BY_NAME) > PHOTONIC_OPERATIONS == {"Gemm", "Conv"}


# -------------------------------------------------------------------------------------- patches

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
counted = {"padded": 0, "dilated": 0, "grouped": 0}


@pytest.mark.slow
@settings(max_examples=100)
@given(st.tuples(st.integers(5, 8), st.integers(5, 8)), pairs, pairs, pairs, st.integers(1, 3), st.data())
def test_patches_hold_what_lies_under_the_window(size, kernel, strides, dilations, groups, data):
    pads = data.draw(st.tuples(*[st.integers(0, 2)] * 4))
    tall, wide = compute_output_size(size, kernel, strides, pads, dilations)
    if min(tall, wide) < 1:
        return
    image = np.arange(1, 2 * 2 * groups * size[0] * size[1] + 1, dtype=np.int16).reshape(2, 2 * groups, *size)
    found = extract_patches(image, kernel, strides, pads, dilations, groups)
    assert found.shape == (2, tall * wide, groups, 2 * kernel[0] * kernel[1])
    assert found.dtype == np.int16
    at, group, channel, row, column = (
        data.draw(st.integers(0, n - 1)) for n in (tall * wide, groups, 2, *kernel)
    )
    y = at // wide * strides[0] + row * dilations[0] - pads[0]
    x = at % wide * strides[1] + column * dilations[1] - pads[1]
    inside = 0 <= y < size[0] and 0 <= x < size[1]
    expected = image[1, group * 2 + channel, y, x] if inside else 0
    assert found[1, at, group, (channel * kernel[0] + row) * kernel[1] + column] == expected
    for name, happened in (("padded", not inside), ("dilated", max(dilations) > 1), ("grouped", groups > 1)):
        counted[name] += happened


@pytest.mark.slow
def test_the_property_above_saw_padding_dilation_and_groups():
    assert counted["padded"] >= 5
    assert counted["dilated"] >= 20
    assert counted["grouped"] >= 20
