"""From vectors to samples, without a device: packing, symbols, alignment, envelopes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning.errors import OutOfRange
from lightning.kit.calibration.document import Timing
from lightning.kit.calibration.encoder import Encoder
from lightning.kit.dot.packing import check_operands, pack_products
from lightning.kit.dot.symbol import (
    EDGE_TICKS,
    GATE_INDICES,
    HALF_STEP_WORDS,
    REACH_TICKS,
    Alignment,
    Coding,
    Symbol,
    Tile,
    make_envelopes,
)

RAMP = Encoder(np.arange(256) * 70 + 50, np.arange(256) / 255, 0.0, 1.0)
CODING = Coding((RAMP, RAMP, RAMP, RAMP))
TOGETHER = Alignment((0, 0, 0, 0), (0, 0, 0, 0), 147)

values = st.integers(-255, 255)
matrices = st.integers(1, 70).flatmap(
    lambda n: st.lists(
        st.tuples(
            st.lists(values, min_size=n, max_size=n),
            st.lists(st.sampled_from([0, 1, -1, 255, -40]), min_size=n, max_size=n),
        ),
        min_size=1,
        max_size=5,
    )
)
split = {"rows": 0, "signs": 0}


@pytest.mark.slow
@given(matrices, st.integers(1, 9))
def test_tiles_hold_every_product_once_with_its_sign(rows, most):
    weights, inputs = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    packed = pack_products(weights, inputs, most)
    assert packed.values.shape[1] <= most
    assert packed.values.min(initial=0) >= 0
    products = (
        packed.values[:, :, 0] * packed.values[:, :, 1] + packed.values[:, :, 2] * packed.values[:, :, 3]
    )
    total = np.zeros(len(rows), dtype=np.int64)
    np.add.at(total, packed.row_indices, packed.signs * products.sum(axis=1))
    assert total.tolist() == (weights * inputs).sum(axis=1).tolist()
    lit = (packed.values[..., 0::2] * packed.values[..., 1::2] > 0).sum()
    assert lit == (weights * inputs != 0).sum()
    split["rows"] += bool((np.bincount(packed.row_indices, minlength=1) > 2).any())
    split["signs"] += len(set(packed.signs.tolist())) == 2


@pytest.mark.slow
def test_the_property_above_saw_rows_of_several_tiles_and_of_both_signs():
    split.update(rows=0, signs=0)
    test_tiles_hold_every_product_once_with_its_sign()
    assert split["rows"] >= 10
    assert split["signs"] >= 10


@pytest.mark.parametrize(
    ("length", "symbols", "tiles"),
    [(1, 1, 1), (63, 32, 1), (64, 32, 1), (65, 32, 2), (128, 32, 2), (129, 32, 3)],
)
def test_tiling_of_positive_vectors_at_the_edges(length, symbols, tiles):
    packed = pack_products(np.full((1, length), 9), np.full((1, length), 5), 32)
    assert packed.values.shape == (tiles, symbols, 4)
    assert (packed.values[..., 0] > 0).sum() + (packed.values[..., 2] > 0).sum() == length


def test_both_pairs_carry_products_of_the_same_symbol():
    packed = pack_products(np.array([[1, 2, 3, 4]]), np.array([[5, 6, 7, 8]]), 32)
    assert packed.values[0].tolist() == [[1, 5, 2, 6], [3, 7, 4, 8]]


def test_a_row_without_products_needs_no_light():
    packed = pack_products(np.array([[0, 3, 0]]), np.array([[7, 0, 0]]), 32)
    assert packed.values.shape == (0, 0, 4)


@pytest.mark.parametrize(
    ("weights", "inputs", "reported"),
    [
        ([1, 2], [1, 2, 3], "vectors of 2 and 3 entries have no dot product"),
        ([], [], "empty"),
        ([1, float("nan")], [1, 2], "weights are not all numbers"),
        ([1, 2], [1, float("inf")], "inputs are not all numbers"),
        ([1, 256], [1, 2], "must be integers from -255 to 255"),
        ([1, 2], [-256, 2], "must be integers from -255 to 255"),
        ([1, 2], [1.5, 2], "must be integers from -255 to 255"),
        (["1", "2"], [1, 2], "weights are not all numbers"),
        (3, [3], "weights are a single number"),
        (np.ones((2, 4)), np.ones((3, 4)), "weights of shape (2, 4) and inputs of shape (3, 4) do not match"),
    ],
)
def test_bad_vectors_are_named(weights, inputs, reported):
    with pytest.raises(OutOfRange) as raised:
        check_operands(weights, inputs)
    assert reported in str(raised.value)


def test_leading_axes_broadcast():
    first, second = check_operands(np.ones((3, 1, 4)), np.ones((5, 4)))
    assert first.shape == second.shape == (3, 5, 4)


@pytest.mark.parametrize(("samples", "guard"), [(8, 3), (32, 0), (32, 15)])
def test_a_symbol_without_room_between_its_guards_is_refused(samples, guard):
    with pytest.raises(OutOfRange, match="leaves"):
        Symbol(samples, guard)


def test_the_default_symbol_in_figures():
    symbol = Symbol()
    assert (symbol.sample_count, symbol.guard_sample_count, symbol.open_sample_count) == (32, 4, 24)
    tile = Tile(392, symbol, 16)
    assert (tile.lit_ticks, tile.ticks, tile.window_ticks) == (784, 824, 804)
    assert tile.offset_ticks + tile.window_ticks + REACH_TICKS == tile.ticks


def test_alignment_makes_all_light_arrive_in_the_same_sample():
    arrival = (145.974, 146.131, 140.009, 146.991)
    found = Alignment.from_timing(Timing(arrival, 2.6, 0), 16)
    samples = [
        16 * (ticks + delay) + shift
        for ticks, delay, shift in zip(arrival, found.delay_ticks, found.shift_samples, strict=True)
    ]
    assert max(samples) - min(samples) <= 1.0
    assert abs(np.mean(samples) - 16 * found.arrival_ticks) <= 0.5
    assert all(0 <= shift < 16 for shift in found.shift_samples)


def test_the_gate_is_open_only_while_its_partner_rests():
    rng = np.random.default_rng(1)
    tile = Tile(9, Symbol(), 16)
    words = CODING.encode(rng.integers(1, 256, (2, 9, 4)))
    made = make_envelopes(words, CODING.dark_words, tile, TOGETHER).astype(int)
    assert made.shape == (4, 2, tile.sample_count)
    moves = np.diff(made, axis=-1) != 0
    for gate in GATE_INDICES:
        open_now = made[gate] != CODING.dark_words[gate] + HALF_STEP_WORDS
        assert open_now.sum() == 2 * 9 * Symbol().open_sample_count
        near = np.zeros_like(open_now)
        for shift in range(-3, 4):
            near |= np.roll(open_now, shift, axis=-1)
        assert not (near[:, 1:] & moves[gate - 1]).any()


def test_samples_carry_the_words_of_the_symbols_in_order():
    tile = Tile(3, Symbol(), 16)
    chosen = np.array([[[10, 20, 30, 40], [50, 60, 70, 80], [90, 100, 110, 120]]])
    words = CODING.encode(chosen)
    made = make_envelopes(words, CODING.dark_words, tile, TOGETHER).astype(int)
    centres = EDGE_TICKS * 16 + 16 + 32 * np.arange(3)
    assert (made[:, 0, centres].T - HALF_STEP_WORDS).tolist() == words[0].tolist()
    edge = EDGE_TICKS * 16
    assert (made[:, :, :edge] == 50 + HALF_STEP_WORDS).all()
    assert (made[:, :, -edge:] == 50 + HALF_STEP_WORDS).all()


def test_a_shift_moves_an_envelope_by_samples_and_changes_nothing_else():
    tile = Tile(5, Symbol(), 16)
    words = CODING.encode(np.random.default_rng(3).integers(0, 256, (1, 5, 4)))
    plain = make_envelopes(words, CODING.dark_words, tile, TOGETHER)
    shifted = make_envelopes(words, CODING.dark_words, tile, Alignment((0, 0, 0, 0), (0, 15, 3, 1), 147))
    for index, by in enumerate((0, 15, 3, 1)):
        assert np.array_equal(np.roll(plain[index], by, axis=-1), shifted[index])
