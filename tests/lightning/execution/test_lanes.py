"""Batches that go through as lanes give the numbers of one image after another: scores, noise and counters."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import skip_without

skip_without("numba", reason="lanes are machine code")

from hypothesis import given, settings
from hypothesis import strategies as st

from lightning.execution import Noise, open_executor
from lightning.execution.chain import MIN_LANE_IMAGES, order_lane_weights
from lightning.execution.quirks import Quirks

IMAGES = 2 * 64 + 5
SIZES = (600, 30, 12, 5)
NOISES = [None, Noise("per-output"), Noise("per-product"), Noise("per-product-dense", mean=1.0)]


def opened(model, noise, last_normalised=False):
    quirks = Quirks(last_layer_normalised=last_normalised)
    if noise is None:
        return open_executor(model, quirks=quirks)
    return open_executor(model, "noisy", noise=noise, seed=5, quirks=quirks)


def images_of(rng, count=IMAGES):
    return rng.integers(0, 256, (count, SIZES[0])).astype(np.uint8)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.place if noise else "exact")
@pytest.mark.parametrize("scheme", ["published", "scaled"])
def test_lanes_give_the_numbers_of_the_interpreter(random_model, noise, scheme):
    perfect = scheme == "published"
    model = random_model(6, SIZES, zeros=0.9, scheme=scheme, wrap=True, perfect_scaling=perfect)
    executor, images = opened(model, noise, perfect), images_of(np.random.default_rng(3))
    assert executor.chain.uses_lanes
    lanes, interpreted = executor.run(images), executor.interpreter.run(images)
    assert lanes.scores.tolist() == interpreted.scores.tolist()
    assert lanes.counters == interpreted.counters
    alone = [executor.run(images[place : place + 1], [place]).scores[0].tolist() for place in (0, 64, 132)]
    assert alone == lanes.scores[[0, 64, 132]].tolist()


@pytest.mark.slow
def test_random_chains_and_batches_agree(random_model):
    clipped = 0

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 2**16),
        zeros=st.sampled_from([0.8, 0.9, 0.97, 1.0]),
        scheme=st.sampled_from(["published", "scaled"]),
        count=st.integers(MIN_LANE_IMAGES, 200),
    )
    def check(seed, zeros, scheme, count):
        nonlocal clipped
        model = random_model(seed, SIZES, zeros=zeros, scheme=scheme)
        executor, images = opened(model, None), images_of(np.random.default_rng(seed), count)
        assert executor.chain.uses_lanes
        lanes, interpreted = executor.run(images), executor.interpreter.run(images)
        assert lanes.scores.tolist() == interpreted.scores.tolist()
        assert lanes.counters == interpreted.counters
        clipped += lanes.counters["clipped_activations"] > 0

    check()
    assert clipped >= 5


def test_600_of_the_largest_products_in_a_row_fit(random_model):
    model = random_model(1, SIZES, zeros=0.95, scheme="scaled", wrap=True)
    next(iter(model.layers.values())).weights[0, 0] = 255
    next(iter(model.layers.values())).weights[0, 1] = -255
    images = np.full((MIN_LANE_IMAGES, SIZES[0]), 255, np.uint8)
    executor = opened(model, None)
    assert executor.chain.uses_lanes
    lanes, interpreted = executor.run(images), executor.interpreter.run(images)
    assert lanes.scores.tolist() == interpreted.scores.tolist()
    assert lanes.counters == interpreted.counters
    assert lanes.counters["wrapped_sums"] >= 2 * MIN_LANE_IMAGES


def test_dense_weights_signs_and_growing_noise_do_not_take_lanes(random_model):
    assert not opened(random_model(6, SIZES, zeros=0.0), None).chain.uses_lanes
    assert not opened(random_model(6, SIZES, zeros=0.9, scheme="scaled", signed=(1,)), None).chain.uses_lanes
    growing = Noise("per-product", shot=0.01, intensity=1e-4)
    assert not opened(random_model(6, SIZES, zeros=0.9), growing).chain.uses_lanes


def test_rows_are_filled_up_to_fours_with_weights_of_0(random_model):
    layer = next(iter(random_model(6, SIZES, zeros=0.9).layers.values()))
    found = order_lane_weights([layer])
    assert (found.part_offsets % 4 == 0).all()
    assert found.part_offsets[0, 0] == 0
    assert found.part_offsets[-1, 2] == len(found.term_indices) == len(found.magnitudes)
    assert np.count_nonzero(found.magnitudes) == np.count_nonzero(layer.weights)
