"""A vector as a waveform: every product by itself."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick")

import lightning
from lightning.errors import OutOfRange
from lightning.kit.dot import inspect
from lightning.kit.dot.inspection import SYMBOL, count_max_products, find_settled_samples
from lightning.kit.dot.program import TileReader

pytestmark = pytest.mark.board


@pytest.fixture(scope="module")
def kit(calibration):
    return lightning.connect("sim://kit?noise=off&adc_bits=16"), calibration


@pytest.mark.long
def test_an_acquisition_shows_64_products_of_either_pair_each_by_itself(kit):
    weights, inputs = np.random.default_rng(1).integers(0, 256, (2, 128))
    seen = inspect(*kit, weights, inputs, round_count=1)
    truth = (weights * inputs / 255).reshape(64, 2).sum(axis=1)
    assert seen.sums.shape == (64,)
    assert np.abs(seen.sums - truth).max() <= 0.5


@pytest.mark.slow
def test_the_buffer_holds_66_products_of_either_pair(kit):
    assert count_max_products(TileReader(*kit)) == 132
    with pytest.raises(OutOfRange, match="up to 132 entries"):
        inspect(*kit, np.ones(133), np.ones(133))


def test_an_odd_vector_leaves_the_last_symbol_half_dark(kit):
    seen = inspect(*kit, [100, 200, 255], [255, 255, 51], round_count=1)
    assert np.abs(seen.sums - [300, 51]).max() <= 0.5


def test_only_the_settled_sample_of_a_symbol_is_sure(kit):
    weights = np.array([255, 255, 0, 0] * 16)
    seen = inspect(*kit, weights, weights, round_count=1)
    settled = seen.counts[seen.settled_indices].reshape(-1, 2)
    assert np.ptp(settled, axis=0).max() <= 0.003 * settled.max()
    beside = seen.counts[seen.settled_indices[1:-1] + SYMBOL.sample_count // 32]
    assert np.abs(np.diff(beside)).max() < 0.9 * np.ptp(settled)


def test_more_rounds_average_the_noise(kit):
    device, calibration = lightning.connect("sim://kit?seed=2"), kit[1]
    weights = np.full(132, 255)
    spread = [
        np.std(inspect(device, calibration, weights, weights, round_count=rounds).sums) for rounds in (1, 16)
    ]
    assert 2.5 <= spread[0] / spread[1] <= 6.0


def test_settled_samples_lie_in_the_middle_of_their_symbols(kit):
    tile = TileReader(*kit).make_tile(2, SYMBOL)
    assert (tile.window_ticks, find_settled_samples(tile).tolist()) == (50, [17, 32])
