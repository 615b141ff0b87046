"""The schedule of products: every one once, one sign a readout, sums that do not depend on the wavelengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lightning.compiler import Hardware, PhotonicLayer, count_layer_readouts, schedule_layer
from lightning.compiler.datapath.schedule import count_passes
from lightning.compiler.lowering import compute_integer_sums

values = st.one_of(st.just(0), st.integers(-255, 255))
matrices = hnp.arrays(np.int16, hnp.array_shapes(min_dims=3, max_dims=3, max_side=9), elements=values)
met = {"holes": 0, "filled": 0, "zeros alone": 0, "both signs": 0}


def layer_of(weights, signed=False):
    weights = np.asarray(weights, np.int16)
    rows = weights.shape[:2]
    return PhotonicLayer("fc", weights, np.zeros(rows, np.int32), 1.0, np.ones(rows, np.float32), signed)


def walked(layer, hardware, activations):
    """Return (vectors, groups, rows) sums, readout by readout, pass by pass, product by product."""
    sums = np.zeros((len(activations), *layer.bias.shape), np.int64)
    parts = [np.maximum(activations, 0)] + ([np.maximum(-activations, 0)] if layer.signed else [])
    assert len(parts) == count_passes(layer)
    for passed, lit in enumerate(parts):
        for group, schedule in enumerate(schedule_layer(layer, hardware)):
            for row, readouts in enumerate(schedule.term_indices):
                for terms, sign in zip(readouts.tolist(), schedule.signs[row].tolist(), strict=True):
                    light = sum(
                        lit[:, group, term].astype(int) * abs(int(layer.weights[group, row, term])) >> 8
                        for term in terms
                        if term >= 0
                    )
                    sums[:, group, row] += (-sign if passed else sign) * light
    return sums


@pytest.mark.slow
@settings(max_examples=100)
@given(matrices, st.sampled_from([1, 2, 4]), st.booleans())
def test_every_product_is_sent_once_and_a_readout_has_one_sign(weights, wavelengths, skip_zeros):
    layer = layer_of(weights)
    hardware = Hardware(wavelengths=wavelengths, skip_zeros=skip_zeros)
    expected = count_layer_readouts(layer, hardware)
    for group, schedule in enumerate(schedule_layer(layer, hardware)):
        assert schedule.readout_counts.tolist() == expected.counts[group].tolist()
        assert schedule.signs.sum(axis=1).tolist() == expected.net_signs[group].tolist()
        for row, readouts in enumerate(schedule.term_indices):
            sent = readouts[readouts >= 0].tolist()
            wanted = np.flatnonzero(weights[group, row]) if skip_zeros else np.arange(weights.shape[2])
            assert sorted(sent) == wanted.tolist()
            for terms, sign in zip(readouts, schedule.signs[row], strict=True):
                own = weights[group, row, terms[terms >= 0]]
                assert (own * sign >= 0).all()
                assert (sign == 0) == (len(own) == 0)
                note_kinds(own, len(terms))
        met["both signs"] += wavelengths > 1 and {-1, 1} <= set(schedule.signs.ravel().tolist())


def note_kinds(own, width):
    met["holes"] += 0 < len(own) < width
    met["filled"] += width > 1 and bool((own == 0).any() and (own != 0).any())
    met["zeros alone"] += width > 1 and len(own) > 0 and not own.any()


@pytest.mark.slow
def test_the_property_above_saw_holes_fillings_and_both_signs():
    met.update(dict.fromkeys(met, 0))
    test_every_product_is_sent_once_and_a_readout_has_one_sign()
    assert min(met.values()) >= 5, met


signs = {"negative activations": 0, "wrong without a second pass": 0}


@pytest.mark.long
@settings(max_examples=100)
@given(matrices, st.booleans(), st.integers(0, 2**32 - 1))
def test_sums_are_the_same_for_one_two_and_four_wavelengths(weights, signed, seed):
    layer = layer_of(weights, signed)
    lowest = -255 if signed else 0
    activations = (
        np.random.default_rng(seed)
        .integers(lowest, 256, (2, weights.shape[0], weights.shape[2]))
        .astype(np.int16)
    )
    exact = np.stack(
        [compute_integer_sums(activations[:, each], rows) for each, rows in enumerate(weights)], axis=1
    )
    for wavelengths in (1, 2, 4):
        for skip_zeros in (False, True):
            hardware = Hardware(wavelengths=wavelengths, skip_zeros=skip_zeros)
            assert walked(layer, hardware, activations).tolist() == exact.tolist()
    signs["negative activations"] += bool((activations < 0).any())
    one_pass = walked(layer_of(weights), Hardware(), activations)
    signs["wrong without a second pass"] += bool((one_pass != exact).any())


@pytest.mark.long
def test_the_property_above_needed_the_second_pass():
    signs.update(dict.fromkeys(signs, 0))
    test_sums_are_the_same_for_one_two_and_four_wavelengths()
    assert min(signs.values()) >= 5, signs


@pytest.mark.parametrize(
    ("wavelengths", "skip_zeros", "count", "net_sign"),
    [(1, False, 7, 3), (1, True, 5, 1), (2, False, 4, 2), (2, True, 3, 1), (4, False, 2, 0), (4, True, 2, 0)],
)
def test_readouts_of_a_row_by_hand(wavelengths, skip_zeros, count, net_sign):
    layer = layer_of([[[9, 0, 8, -7, 0, 6, -5]]])
    found = count_layer_readouts(layer, Hardware(wavelengths=wavelengths, skip_zeros=skip_zeros))
    assert (found.counts.tolist(), found.net_signs.tolist()) == ([[count]], [[net_sign]])


def test_noise_may_ask_for_zeros_that_the_hardware_leaves_out():
    layer = layer_of([[[9, 0, 0, -7]]])
    assert count_layer_readouts(layer, Hardware(skip_zeros=True), sends_zeros=True).counts.tolist() == [[4]]
    assert count_layer_readouts(layer, Hardware(), sends_zeros=False).counts.tolist() == [[2]]


def test_with_one_wavelength_terms_stay_in_their_order():
    (schedule,) = schedule_layer(layer_of([[[3, -1, 0, 4]]]), Hardware())
    assert schedule.term_indices.tolist() == [[[0], [1], [2], [3]]]
    assert schedule.signs.tolist() == [[1, -1, 1, 1]]


def test_rows_of_nothing_but_zeros_need_no_light_when_zeros_are_left_out():
    (schedule,) = schedule_layer(layer_of([[[0, 0], [0, 5]]]), Hardware(wavelengths=2, skip_zeros=True))
    assert schedule.readout_counts.tolist() == [0, 1]
