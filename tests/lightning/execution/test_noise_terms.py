"""Terms of the variance: declared once, known by every way to compute, and refused where one is not."""

from dataclasses import fields, replace

import numpy as np
import pytest
from libraries import skip_without

skip_without("numba", reason="noise needs numba: pip install 'lightbed[inference]'")

from lightning.errors import OutOfRange
from lightning.execution import Noise, noise, open_executor
from lightning.execution.chain import is_supported
from lightning.execution.kernels import laws
from lightning.execution.multipliers.noisy import NoisyMultiplier, PerReadoutMultiplier
from lightning.execution.noise import VARIANCE_TERMS, VarianceTerm

NONE = Noise(sigma=0.0)
OTHER_NUMBERS = {"mean", "full_scale"}
"""Of `Noise`, that the variance does not depend on."""


def of_one_term(name, deviation=4.0, level=100.0):
    """Return noise of this term alone, with this deviation at this level."""
    term = VARIANCE_TERMS[name]
    return replace(NONE, **{name: deviation if term.is_deviation else deviation**2 / level**term.power})


def test_every_number_of_noise_is_a_term_or_known_to_be_none():
    numbers = {each.name for each in fields(Noise) if each.type == "float"}
    assert numbers == set(VARIANCE_TERMS) | OTHER_NUMBERS


def test_the_variance_is_a_polynomial_of_the_level():
    given = Noise(sigma=3.0, shot=0.5, intensity=0.25)
    assert given.coefficients[:3] == (9.0, 0.5, 0.25)
    assert not any(given.coefficients[3:])
    assert given.compute_variance(2.0) == 11.0
    assert given.compute_variance(np.array([0.0, 4.0])).tolist() == [9.0, 15.0]


@pytest.mark.parametrize("name", VARIANCE_TERMS)
def test_a_term_scales_with_the_deviation(name):
    given = replace(of_one_term(name), mean=0.5)
    assert given.compute_variance(100.0) == pytest.approx(16.0)
    assert given.scale(3.0).compute_variance(100.0) == pytest.approx(9 * 16.0)
    assert given.scale(3.0).mean == 0.5


@pytest.mark.parametrize("name", VARIANCE_TERMS)
@pytest.mark.parametrize("kind", [NoisyMultiplier, PerReadoutMultiplier])
def test_a_term_alone_has_its_deviation_in_every_multiplier(dense_model, kind, name):
    """One product of 100 steps and 4,000 draws: the deviation is 4, within four of its own."""
    model = dense_model([[[200]]])
    activations = np.full((4000, 1, 1, 1), 128, np.int16)
    multiplier = kind(model, of_one_term(name))
    sums = multiplier.compute_sums(model.layers["fc0"], activations, np.arange(4000, dtype=np.uint64))
    assert sums.std() == pytest.approx(4.0, rel=4 / 8000**0.5)


@pytest.mark.parametrize("place", noise.PLACES)
@pytest.mark.parametrize("name", VARIANCE_TERMS)
def test_fused_and_interpreted_draw_the_same_of_every_term(random_model, name, place):
    model = random_model(6, (40, 20, 5), scheme="scaled")
    images = np.random.default_rng(3).integers(0, 256, (8, 40)).astype(np.uint8)
    given = replace(of_one_term(name), place=place)
    assert is_supported(model, given)
    executor = open_executor(model, "noisy", noise=given, seed=5)
    found = executor.run(images).scores.tolist()
    assert found == executor.interpreter.run(images).scores.tolist()
    assert found != open_executor(model).run(images).scores.tolist()


def test_a_term_that_machine_code_does_not_know_is_refused(dense_model, monkeypatch):
    power = laws.HIGHEST_POWER + 1
    monkeypatch.setattr(noise, "VARIANCE_TERMS", {**VARIANCE_TERMS, "intensity": VarianceTerm(power)})
    model, steep = dense_model([[[200]]]), replace(NONE, intensity=1e-6)
    assert steep.compute_variance(2.0) == pytest.approx(1e-6 * 2**power)
    assert not is_supported(model, steep)
    assert is_supported(model, NONE)
    with pytest.raises(OutOfRange, match=f"beyond power {laws.HIGHEST_POWER} of the light"):
        open_executor(model, "noisy", noise=steep)
