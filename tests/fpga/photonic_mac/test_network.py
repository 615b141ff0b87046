"""The integers of the photonic datapath: facts, and a second opinion in plain Python."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga.photonic_mac import Network, Optics, accuracy, layer_results, quantise
from fpga.photonic_mac.network import compute_noise, normalise, simulate_noisy_results


def layer(*rows):
    return np.array(rows, np.int32)


@pytest.mark.parametrize(
    ("weights", "image", "result"),
    [
        ([255], [255], 254),  # (255 * 255) >> 8
        ([-255], [255], -254),
        ([-1], [255], 0),  # the floor is taken of the magnitude, before the sign
        ([16, -16], [16, 16], 0),
        ([255] * 200, [255] * 200, 200 * 254 - 65536),  # 16 bits wrap
        ([-255] * 200, [255] * 200, 65536 - 200 * 254),
    ],
)
def test_one_output(weights, image, result):
    assert layer_results(Network((layer(weights),)), image)[0].tolist() == [[result]]


def plain(network, image):
    """Return the same, one product at a time."""
    found = []
    activations = [int(pixel) for pixel in image]
    for weights in network.layers:
        sums = []
        for row in weights.tolist():
            total = sum(
                (abs(w) * a >> 8) * (1 if w >= 0 else -1) for w, a in zip(row, activations, strict=True)
            )
            sums.append((total + 32768) % 65536 - 32768)
        found.append(sums)
        highest = max(0, *sums).bit_length() - 1
        shift = max(highest, 0) - 7
        activations = [max(s, 0) >> shift if shift >= 0 else max(s, 0) << -shift for s in sums]
    return found


@st.composite
def small_networks(draw):
    sizes = draw(st.lists(st.integers(1, 20), min_size=2, max_size=4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([255, 255, 40]))
    layers = [random.integers(-most, most + 1, (out, into)).astype(np.int32) for into, out in pairwise(sizes)]
    return Network(tuple(layers)), random.integers(0, 256, sizes[0])


@given(small_networks())
def test_the_model_is_the_plain_computation(case):
    network, image = case
    assert [results[0].tolist() for results in layer_results(network, image)] == plain(network, image)


@given(small_networks())
def test_ideal_optics_change_nothing(case):
    network, image = case
    ideal = simulate_noisy_results(network, image, Optics(sparsity=True), [0] * len(network.layers))
    assert [results.tolist() for results in ideal] == plain(network, image)


def test_normalisation_brings_the_highest_bit_to_bit_7():
    cases = np.array([[255, 3], [256, 3], [32767, 256], [1, 0], [0, -5], [-3, -9]], np.int16)
    assert normalise(cases).tolist() == [[255, 3], [128, 1], [255, 2], [128, 0], [0, 0], [0, 0]]


def test_quantisation_rounds_ties_to_even_and_keeps_zero():
    assert quantise([[[0.5 / 255, 1.5 / 255, 0.0, -1.0]]]).layers[0].tolist() == [[0, 2, 0, -255]]


def test_one_scale_holds_for_all_layers():
    first, second = quantise([[[2.0], [1.0]], [[-1.0, 4.0]]]).layers
    assert (first.tolist(), second.tolist()) == ([[128], [64]], [[-64, 255]])


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "a network needs at least one layer"),
        ([[[256]]], "−255 .. 255"),
        ([[[1, 2]], [[1, 2]]], "1 outputs do not match 2 inputs"),
    ],
)
def test_what_is_no_network_is_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        Network(tuple(np.array(each, np.int32) for each in layers))


@pytest.mark.parametrize("image", [[1, 2], [[1, 2, 256]], [[1, 2, -1]]])
def test_an_image_that_does_not_fit_is_refused(image):
    with pytest.raises(
        ValueError, match=r"images must have shape \(batch, 3\) and values 0 to 255, not shape \(1,"
    ):
        layer_results(Network((layer([1, 2, 3]),)), image)


def test_the_noise_is_triangular_with_the_deviation_of_the_page():
    drawn = compute_noise(seed=7, cycle_count=4000)
    assert (drawn.min(), drawn.max()) == (-3, 3)
    assert drawn.mean() == pytest.approx(0, abs=0.02)
    assert drawn.std() == pytest.approx(np.sqrt(2.5), abs=0.01)
    lanes = np.corrcoef(drawn.T)
    assert np.abs(lanes - np.eye(16)).max() < 0.07


@pytest.mark.parametrize("settings", [{"delay": 16}, {"shift": -1}, {"gain": 512}, {"seed": 2**32}])
def test_optics_that_the_core_has_not_are_refused(settings):
    with pytest.raises(ValueError, match="not"):
        Optics(**settings)


@pytest.mark.slow
def test_lenet_recognises_what_the_published_datapath_recognises(lenet, mnist):
    images, labels = mnist
    assert lenet.shapes == ((300, 784), (100, 300), (10, 100))
    assert accuracy(layer_results(lenet, images)[-1], labels) == 0.9598
