"""Fine-tuning with noise is always reported with fine-tuning without, and counted on the real executors."""

from dataclasses import replace

import numpy as np
import pytest
from libraries import library, skip_without

torch = library("torch", reason="training needs it: pip install 'lightbed[torch]'")
nn = library("torch.nn")
skip_without("numba", reason="executors are compiled")

from lightning.compiler import Options
from lightning.errors import DatasetError, OutOfRange
from lightning.evaluation import Dataset, evaluate
from lightning.execution import open_executor
from lightning.execution.noise import Noise

training = library("lightning.training")
curve_module = library("lightning.training.curve")

STRONG = Noise("per-product-dense", sigma=24.0)


@pytest.fixture(scope="module")
def clouds():
    """Four classes, clouds of points in twelve dimensions that a small network parts without error."""
    generator = np.random.default_rng(0)
    y = np.arange(700) % 4
    centres = generator.random((4, 12)) * 160
    x = np.clip(np.rint(centres[y] + generator.normal(0, 25, (700, 12))) + 40, 0, 255).astype(np.uint8)
    return Dataset("clouds", x[:300], y[:300], x[300:], y[300:])


@pytest.fixture(scope="module")
def module(clouds):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))
    return training.fit(
        net, clouds.train_x, clouds.train_y, seed=0, schedule=training.Schedule(epochs=8, batch=20, rate=2e-3)
    )


@pytest.fixture(scope="module")
def strong(clouds, module):
    return training.fine_tune(
        module,
        clouds,
        shape=(12,),
        noise=STRONG,
        schedule=training.Schedule(epochs=15, batch=20, rate=5e-3),
        seed=1,
    )


@pytest.mark.long
@pytest.mark.slow
def test_noise_in_training_pays_where_noise_is_strong(strong):
    assert strong.plain.float32 > 0.97
    assert strong.plain.noisy < 0.9
    assert strong.gain > 0.04
    assert strong.gain == strong.aware.noisy - strong.plain.noisy


@pytest.mark.slow
def test_accuracies_are_those_of_the_executors(strong, clouds):
    for outcome in (strong.before, strong.plain, strong.aware):
        assert outcome.exact == evaluate(open_executor(outcome.model, "exact"), clouds).accuracy
        noisy = [
            evaluate(open_executor(outcome.model, "noisy", noise=STRONG, seed=seed), clouds).accuracy
            for seed in range(3)
        ]
        assert outcome.noisy == pytest.approx(np.mean(noisy))


def test_the_control_is_the_same_training_without_noise(strong, clouds, module):
    again = training.fit(
        module,
        clouds.train_x,
        clouds.train_y,
        seed=1,
        schedule=training.Schedule(epochs=15, batch=20, rate=5e-3),
    )
    pairs = zip(again.parameters(), strong.plain.module.parameters(), strict=True)

    assert all(torch.equal(first, second) for first, second in pairs)
    assert strong.epochs == 15


def test_the_table_shows_the_control_and_what_the_gain_is_over(strong):
    lines = str(strong).splitlines()

    assert [line.split("  ")[0].strip() for line in lines[1:4]] == [
        "as it was",
        "fine-tuned, no noise",
        "fine-tuned, noise",
    ]
    assert lines[2].split()[-1] == f"{100 * strong.plain.noisy:.2f}"
    assert lines[4].startswith(
        f"gain {100 * strong.gain:+.2f} points (per-product-dense, sigma 24, 15 epochs each"
    )


def test_published_networks_are_fine_tuned_too(clouds):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    found = training.fine_tune(
        net,
        replace(clouds, train_x=clouds.train_x[:200], train_y=clouds.train_y[:200]),
        shape=(12,),
        noise=Noise("per-product", sigma=4.0),
        preprocessing=None,
        schedule=training.Schedule(epochs=5, batch=20, rate=1e-2),
        options=Options(scheme="published"),
    )

    assert found.aware.model.scheme == "published"
    assert found.before.exact < 0.6 < found.aware.exact


def test_data_without_a_training_part_are_refused(clouds, module):
    only_tests = replace(clouds, train_x=clouds.x[:0], train_y=clouds.y[:0])
    with pytest.raises(DatasetError, match="no training part"):
        training.fine_tune(module, only_tests, shape=(12,), noise=STRONG)


def test_the_curve_falls_from_exact_to_below_one_half(strong, clouds):
    curve = training.accuracy_curve(strong.plain.model, clouds, STRONG, seeds=2)

    assert curve.sigmas[:4] == pytest.approx((0, 0.5, 0.5 * 2**0.5, 1.0))
    assert curve.accuracies[0] == strong.plain.exact
    assert curve.accuracies[-1] < 0.5 <= min(curve.accuracies[:-1])
    assert curve.sigmas[-2] <= curve.half_point <= curve.sigmas[-1]


def test_a_curve_that_never_falls_has_no_half_point():
    assert training.Curve((0.0, 1.0), (0.9, 0.8)).half_point == float("inf")


def test_the_curve_of_a_model_that_no_noise_disturbs_ends_at_the_last_sigma(strong, clouds, monkeypatch):
    monkeypatch.setattr("lightning.training.curve.measure_mean_accuracy", lambda *arguments: 1.0)

    assert training.accuracy_curve(strong.plain.model, clouds, STRONG).sigmas[-1] == curve_module.LAST_SIGMA


def test_a_curve_of_no_seeds_is_refused(strong, clouds):
    with pytest.raises(OutOfRange, match="at least one seed of noise"):
        training.accuracy_curve(strong.plain.model, clouds, STRONG, seeds=0)
