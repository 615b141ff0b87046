"""The layer that was made weak is found, and so is the noise that it bears."""

import numpy as np
import pytest
from libraries import skip_without

skip_without("numba", reason="noise needs numba: pip install 'lightbed[inference]'")

from lightning.errors import OutOfRange
from lightning.evaluation import load_dataset
from lightning.evaluation.accuracy import evaluate
from lightning.evaluation.models import load_model_and_data
from lightning.evaluation.sensitivity import measure_sensitivity, open_single_noisy_layer
from lightning.execution import Noise, open_executor

NOISE = Noise(sigma=10.0)


@pytest.fixture
def looked_at(weak, bright_blocks):
    def look(layer, **options):
        model, data = load_model_and_data(weak(layer), load_dataset(str(bright_blocks)))
        return measure_sensitivity(model, data, options.pop("noise", NOISE), **options)

    return look


@pytest.mark.long
@pytest.mark.parametrize(("planted", "other"), [("fc1", "fc2"), ("fc2", "fc1")])
def test_the_planted_weak_layer_is_found(planted, other, looked_at):
    found = looked_at(planted)
    assert found.exact_accuracy == 1
    assert [each.layer for each in found.layer_losses] == ["fc1", "fc2"]
    losses = {each.layer: each.loss for each in found.layer_losses}
    assert found.most_sensitive_layer.layer == planted
    assert losses[planted] > 20
    assert losses[other] < losses[planted] / 5


def test_the_sigma_found_is_borne_and_a_little_more_is_not(looked_at, weak, bright_blocks):
    found = looked_at("fc1")
    model, data = load_model_and_data(weak("fc1"), load_dataset(str(bright_blocks)))

    def lost(sigma):
        accuracies = [
            evaluate(open_executor(model, "noisy", noise=Noise(sigma=sigma), seed=seed), data).accuracy
            for seed in range(3)
        ]
        return round(100 * (found.exact_accuracy - np.mean(accuracies)), 9)

    assert 0 < found.max_sigma < NOISE.sigma
    assert lost(found.max_sigma) <= found.allowed_loss < lost(1.1 * found.max_sigma)


def test_averaging_buys_what_a_smaller_sigma_buys(looked_at):
    found = looked_at("fc1")
    assert [each.average for each in found.averaging_trials] == [
        2**power for power in range(len(found.averaging_trials))
    ]
    assert found.min_average_count == found.averaging_trials[-1].average
    needed = (NOISE.sigma / found.max_sigma) ** 2
    assert needed / 2.5 < found.min_average_count < needed * 2.5


@pytest.mark.slow
def test_a_network_that_bears_everything_and_one_that_bears_nothing(looked_at):
    strong = looked_at("fc1", noise=Noise(sigma=1e-3))
    assert strong.min_average_count == 1
    assert strong.max_noise_factor > 100
    # Mean errors do not average away, nor shrink with sigma.
    spoilt = looked_at("fc2", noise=Noise(sigma=1.0, mean=-200.0))
    assert (spoilt.max_noise_factor, spoilt.max_sigma, spoilt.min_average_count) == (0, 0, None)


def test_no_noise_and_no_loss_are_refused(looked_at):
    with pytest.raises(OutOfRange, match="no noise"):
        looked_at("fc1", noise=Noise(sigma=0.0))
    with pytest.raises(OutOfRange, match=r"the allowed loss, 0\.0 points, must be positive"):
        looked_at("fc1", allowed_loss=0.0)


def test_noise_in_one_layer_is_the_same_draws_as_in_all(weak, bright_blocks):
    """A chain of one layer: noise in it alone is noise in all."""
    path = weak("fc1")
    with np.load(path) as weights:
        np.savez(path, w1=weights["w1"])
    model, data = load_model_and_data(path, load_dataset(str(bright_blocks)))
    one = open_single_noisy_layer(model, "fc1", NOISE, 5).run(data.x).scores
    assert (one == open_executor(model, "noisy", noise=NOISE, seed=5).run(data.x).scores).all()
    assert (one != open_single_noisy_layer(model, "none", NOISE, 5).run(data.x).scores).any()
