"""The range of activations where noise is expected: how much is cut off so that the rest stands out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning.compiler import Hardware, Options, compile_network, count_layer_readouts
from lightning.compiler.schemes.ranges import RANGE_SHARES, find_best_range, find_rectified_tensors
from lightning.networks.network import Node

errors_of_parts = st.lists(st.floats(1, 5), min_size=len(RANGE_SHARES), max_size=len(RANGE_SHARES))
seen = {"smaller": 0, "not the least error": 0}


def chosen_at(errors, sigma):
    return find_best_range(errors, [(sigma * part) ** 2 for part in RANGE_SHARES])


@settings(max_examples=100)
@given(errors_of_parts, st.floats(0, 5), st.floats(0, 5))
def test_more_noise_never_makes_the_range_larger(errors, sigma, other):
    quiet, loud = (chosen_at(errors, each) for each in sorted((sigma, other)))
    assert quiet <= loud
    seen["smaller"] += quiet < loud


@settings(max_examples=100)
@given(errors_of_parts)
def test_without_noise_it_is_the_largest_range_that_is_no_worse(errors):
    found = chosen_at(errors, 0)
    assert errors[found] <= 1.5 * min(errors)
    assert all(error > 1.5 * min(errors) for error in errors[:found])
    seen["not the least error"] += errors[found] > min(errors)


@pytest.mark.slow
def test_the_properties_above_saw_smaller_ranges_and_errors_that_count_as_equal():
    seen.update(dict.fromkeys(seen, 0))
    test_more_noise_never_makes_the_range_larger()
    test_without_noise_it_is_the_largest_range_that_is_no_worse()
    assert min(seen.values()) >= 10, seen


LIT_TENTH = np.where(np.arange(100) % 10 == 0, 255, 0).astype(np.uint8)
"""Cut off at p, outputs of 0 and 1 are 0 and p: what the mean does not mend is 0.09 (1 - p)^2."""
AS_LARGE = 0.3 / (256 / 255**2)
"""The sigma at which a readout's noise is 0.09 p^2: a step is worth 256 p / 255^2."""


@pytest.mark.parametrize(
    ("weights", "hardware", "part"),
    [
        ([[[1.0]]], Hardware(), 0.5),  # (1 - p)^2 + p^2
        ([[[1.0, 0.0]]], Hardware(), 0.3),  # 2 p^2: the least of 0.1, 0.2, ... beside 1 / 3
        ([[[1.0, 0.0]]], Hardware(skip_zeros=True), 0.5),
        ([[[1.0, 0.0]]], Hardware(wavelengths=2), 0.5),  # both in one readout
        ([[[1.0, -0.01]]], Hardware(wavelengths=2), 0.3),  # signs that cannot share one
        ([[[1.0]], [[1.0]]], Hardware(), 0.9),  # a tenth passes the rectifier: 0.1 p^2, least at 0.91
    ],
)
def test_ranges_by_hand(chain, weights, hardware, part):
    raw = np.zeros((100, len(weights[0][0])), np.uint8)
    raw[:, 0] = LIT_TENTH
    model = compile_network(chain(weights), raw, Options(sigma=AS_LARGE, hardware=hardware))
    assert model.layers["fc1"].input_scale * 255 == pytest.approx(part)


def test_signed_activations_are_read_twice(chain):
    raw = np.concatenate([LIT_TENTH.astype(np.int64), -LIT_TENTH.astype(np.int64)])[:, None]
    single = compile_network(chain([[[1.0]]]), np.abs(raw), Options(sigma=AS_LARGE)).layers["fc1"]
    double = compile_network(chain([[[1.0]]]), raw, Options(sigma=AS_LARGE)).layers["fc1"]
    assert (single.signed, double.signed) == (False, True)
    assert single.input_scale * 255 == pytest.approx(0.5)  # 0.09 of (1 - p)^2, and once the noise
    assert double.input_scale * 255 == pytest.approx(0.4)  # 0.1 of it, and twice: the same at 0.36


def test_noise_and_error_together_are_less_in_a_model_that_was_compiled_for_noise(chain, measured):
    random = np.random.default_rng(6)
    raw = np.clip(random.exponential(30, (600, 40)), 0, 255).astype(np.uint8)
    network = chain([random.normal(0, 0.2, (12, 40))])
    sigma, totals = 8.0, []
    for expected in (0.0, sigma):
        model = compile_network(network, raw[:300], Options(sigma=expected))
        found, layer = measured(model, raw[300:]), model.layers["fc1"]
        noise = count_layer_readouts(layer, model.hardware).counts * (sigma * layer.output_scale) ** 2
        totals.append(float(((found.exact - found.float) ** 2).mean() + noise.mean()))
    assert totals[1] < 0.7 * totals[0]


def test_noise_counts_where_something_else_than_a_rectifier_takes_outputs(chain):
    network = chain([np.ones((2, 3)), np.ones((2, 2))])
    assert find_rectified_tensors(network) == {"fc1"}
    assert find_rectified_tensors(replace(network, output="fc1")) == set()
    beside = Node("sum", "Add", ("fc1", "relu1"), "sum")
    assert find_rectified_tensors(replace(network, nodes=(*network.nodes[:2], beside))) == set()


@pytest.mark.parametrize(("least", "found"), [(0.0, {"fc1"}), (-1.0, set())])
def test_a_clip_that_begins_at_zero_is_a_rectifier(chain, least, found):
    network = chain([np.ones((2, 3)), np.ones((2, 2))])
    clip = replace(network.nodes[1], operation="Clip", attributes={"min": least, "max": 6.0})
    assert find_rectified_tensors(replace(network, nodes=(network.nodes[0], clip, network.nodes[2]))) == found
