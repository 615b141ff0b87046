"""Floats as magnitudes of 8 bits and a sign, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lightning.compiler.lowering import compute_integer_sums
from lightning.compiler.schemes.scaled import (
    compute_output_scales,
    compute_weight_scales,
    make_rounding_table,
    quantise,
    quantise_weights,
    round_weights,
)

weights = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=3, max_dims=3, max_side=5),
    elements=st.floats(-1e3, 1e3, width=32).map(lambda v: v if abs(v) > 1e-3 else 0.0),
)
seen = {"nothing": 0, "several scales": 0, "negative": 0}


@pytest.mark.slow
@settings(max_examples=100)
@given(weights, st.booleans())
def test_weights_come_back_within_half_a_step_and_keep_sign_and_zero(values, per_channel):
    scales = compute_weight_scales(values, per_channel=per_channel)
    steps = quantise_weights(values, scales)
    assert scales.shape == values.shape[:2]
    assert np.abs(steps).max() <= 255
    assert (np.abs(steps * scales[..., None] - values) <= scales[..., None] * 0.5000001).all()
    assert (steps[values == 0] == 0).all()
    assert (steps * values >= 0).all()
    largest = np.abs(steps).max(axis=2)
    assert set(np.unique(largest[np.abs(values).max(axis=2) > 0]).tolist()) <= {255} or not per_channel
    seen["nothing"] += bool((np.abs(values).max(axis=2) == 0).any())
    seen["several scales"] += per_channel and len(np.unique(scales)) > 1
    seen["negative"] += bool((steps < 0).any())


@pytest.mark.long
def test_the_property_above_saw_empty_rows_several_scales_and_signs():
    seen.update(dict.fromkeys(seen, 0))
    test_weights_come_back_within_half_a_step_and_keep_sign_and_zero()
    assert min(seen.values()) >= 10, seen


@pytest.mark.parametrize(
    ("is_signed", "expected"), [(True, [-255, -3, 0, 2, 255]), (False, [0, 0, 0, 2, 255])]
)
def test_activations_end_at_the_range(is_signed, expected):
    assert quantise(np.array([-9.0, -0.03, 0.0, 0.02, 9.0]), 0.01, is_signed=is_signed).tolist() == expected


def test_a_sum_is_worth_256_steps_of_both_scales():
    assert compute_output_scales(0.5, np.array([[0.25, 2.0]])).tolist() == [[32.0, 256.0]]


@given(
    hnp.arrays(np.int16, (3, 7), elements=st.integers(-255, 255)),
    hnp.arrays(np.int16, (4, 7), elements=st.integers(-255, 255)),
)
def test_sums_are_those_of_products_that_lose_eight_bits_before_their_sign(activations, rows):
    expected = [
        [
            sum((1 if a * w >= 0 else -1) * (abs(a) * abs(w) >> 8) for a, w in zip(vector, row, strict=True))
            for row in rows.tolist()
        ]
        for vector in activations.tolist()
    ]
    assert compute_integer_sums(activations, rows).tolist() == expected


def test_a_table_for_full_activations_makes_up_for_the_lost_bits():
    table = make_rounding_table(np.array([0, 255], np.int16))
    assert [int(table[8 * each]) for each in (0, 1, 100, 255)] == [0, 2, 101, 255]


def test_without_activations_weights_are_rounded_to_the_nearest():
    table = make_rounding_table(np.zeros(5, np.int16))
    assert round_weights(table, np.array([-254.6, -0.2, 0.0, 3.4, 300.0])).tolist() == [-255, 0, 0, 3, 255]


def test_fitted_rounding_loses_less_than_rounding_to_the_nearest():
    random = np.random.default_rng(1)
    activations = np.clip(random.normal(0, 60, 4000), 0, 255).astype(np.int64)
    table = make_rounding_table(activations.astype(np.int16))
    for steps in random.uniform(1, 200, 20):
        losses = []
        for weight in (round_weights(table, np.array([steps]))[0], round(steps)):
            products = (activations * int(weight)) >> 8
            losses.append(float(np.var(products - activations * steps / 256)))
        assert losses[0] <= losses[1] * 1.02 + 1e-4
