"""The training loop: what it learns, that a seed repeats it, and that it leaves everything else alone."""

import numpy as np
import pytest
from libraries import library

torch = library("torch", reason="training needs it: pip install 'lightbed[torch]'")
nn = library("torch.nn")

from lightning.errors import OutOfRange
from lightning.execution.noise import Noise
from lightning.training import Emulation

training = library("lightning.training")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.random((200, 6)).astype(np.float32)
Y = (X[:, 0] > X[:, 1]).astype(np.int64)
NOISY = Emulation(Noise("per-product-dense", sigma=5.0))


def small():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def accuracy(module):
    with torch.no_grad():
        return float((module(torch.from_numpy(X)).argmax(1).numpy() == Y).mean())


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.long
@pytest.mark.parametrize("emulation", [None, Emulation(Noise(sigma=2.0))])
def test_it_learns_with_and_without_light(emulation):
    schedule = training.Schedule(epochs=20, batch=20, rate=1e-2)
    found = training.fit(small(), X, Y, seed=0, schedule=schedule, emulation=emulation)

    assert accuracy(small().eval()) < 0.75
    assert accuracy(found) > 0.9
    assert not found.training


@pytest.mark.parametrize("emulation", [None, NOISY])
def test_a_seed_repeats_a_training_and_leaves_the_module_and_torch_alone(emulation):
    module, schedule = small(), training.Schedule(epochs=2)
    before, generator = state(module), torch.get_rng_state()
    first, again, other = (
        training.fit(module, X, Y, seed=seed, schedule=schedule, emulation=emulation) for seed in (1, 1, 2)
    )

    assert same(state(first), state(again))
    assert not same(state(first), state(other))
    assert same(before, state(module))
    assert module.training
    assert torch.equal(torch.get_rng_state(), generator)


def test_frozen_statistics_do_not_move_while_weights_do():
    module = small()
    found = training.fit(module, X, Y, seed=0, schedule=training.Schedule(epochs=1, frozen_statistics=True))
    moved = training.fit(module, X, Y, seed=0, schedule=training.Schedule(epochs=1))

    assert torch.equal(found[1].running_mean, module[1].running_mean)
    assert not torch.equal(moved[1].running_mean, module[1].running_mean)
    assert not torch.equal(found[0].weight, module[0].weight)


def test_a_loss_of_ones_own_is_taken():
    called = []

    def loss(scores, labels):
        called.append(scores.shape)
        return nn.functional.multi_margin_loss(scores, labels)

    training.fit(small(), X, Y, seed=0, schedule=training.Schedule(epochs=1, batch=150, loss=loss))

    assert called == [(150, 2), (50, 2)]


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": 0}, {"rate": 0.0}])
def test_no_training_is_refused(wrong):
    with pytest.raises(OutOfRange, match="training needs positive values"):
        training.Schedule(**wrong)
