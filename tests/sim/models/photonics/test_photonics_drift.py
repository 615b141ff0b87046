"""Biases and polarisations wander as their formulas say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics import polarisation
from sim.models.photonics.drift import (
    BiasDrift,
    OrnsteinUhlenbeck,
    advance_process,
    compute_null_v,
    simulate_path,
)
from sim.models.photonics.polarisation import Polariser

pytestmark = pytest.mark.board

PROCESS = OrnsteinUhlenbeck(deviation=0.05, time_constant_s=10.0, mean=0.3)


@pytest.fixture(scope="module")
def long_path():
    """Return 400,000 steps of a twentieth of the time constant: some 20,000 independent stretches."""
    normals = np.random.default_rng(30).standard_normal(400_000)
    return simulate_path(PROCESS, PROCESS.mean, 0.5, normals)[1000:]


def test_mean_and_variance_stand(long_path):
    assert long_path.mean() == pytest.approx(0.3, abs=0.05 * 4 * math.sqrt(40 / 400_000))
    assert long_path.var() == pytest.approx(0.05**2, rel=0.04)


@pytest.mark.parametrize("lag", [1, 5, 20, 40])
def test_autocorrelation_is_exponential(long_path, lag):
    away = long_path - 0.3
    measured = np.mean(away[lag:] * away[:-lag]) / away.var()
    assert measured == pytest.approx(math.exp(-lag * 0.5 / 10.0), abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("interval_s", [0.01, 1.0, 100.0])
def test_many_walkers_have_the_exact_variance_after_any_interval(interval_s):
    """From one place, variance s^2 (1 - exp(-2 dt / tau)); an Euler step would have 2 s^2 dt / tau."""
    normals = np.random.default_rng(31).standard_normal(200_000)
    after = np.array([advance_process(PROCESS, 0.5, interval_s, n) for n in normals.tolist()])
    left = math.exp(-interval_s / 10.0)
    assert after.mean() == pytest.approx(0.3 + 0.2 * left, abs=0.001)
    assert after.var() == pytest.approx(0.05**2 * (1 - left**2), rel=0.02)


@given(st.floats(0.001, 100.0), st.floats(0.001, 100.0))
def test_two_steps_are_one_of_their_sum(first_s, second_s):
    """In mean and variance, which is all there is to a normal number."""
    mean = advance_process(PROCESS, advance_process(PROCESS, 0.9, first_s, 0.0), second_s, 0.0)
    assert mean == pytest.approx(advance_process(PROCESS, 0.9, first_s + second_s, 0.0))
    deviation = math.hypot(
        (advance_process(PROCESS, 0.3, first_s, 1.0) - 0.3) * math.exp(-second_s / 10.0),
        advance_process(PROCESS, 0.3, second_s, 1.0) - 0.3,
    )
    assert deviation == pytest.approx(advance_process(PROCESS, 0.3, first_s + second_s, 1.0) - 0.3)


@given(st.lists(st.floats(-4.0, 4.0), max_size=50), st.floats(0.0, 30.0), st.floats(-1.0, 1.0))
def test_a_path_is_its_steps(normals, interval_s, start):
    value, expected = start, []
    for normal in normals:
        value = advance_process(PROCESS, value, interval_s, normal)
        expected.append(value)
    assert simulate_path(PROCESS, start, interval_s, normals).tolist() == pytest.approx(expected)


def test_no_time_no_move():
    assert advance_process(PROCESS, 0.7, 0.0, 3.0) == 0.7
    with pytest.raises(ValueError, match="elapsed_s"):
        advance_process(PROCESS, 0.7, -1.0, 0.0)


def test_temperature_moves_the_null_in_proportion():
    drift = BiasDrift(volt_per_kelvin=-0.03, reference_temperature_c=20.0)
    assert compute_null_v(drift, 1.0, 0.1, 20.0) == pytest.approx(1.1)
    assert compute_null_v(drift, 1.0, 0.1, 30.0) == pytest.approx(0.8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OrnsteinUhlenbeck(deviation=-1.0, time_constant_s=1.0),
        lambda: OrnsteinUhlenbeck(deviation=1.0, time_constant_s=0.0),
        lambda: OrnsteinUhlenbeck(deviation=1.0, time_constant_s=1.0, mean=math.nan),
        lambda: BiasDrift(volt_per_kelvin=math.inf),
        lambda: Polariser(extinction_db=-3.0),
        lambda: Polariser(diffusion_rad2_s=math.nan),
    ],
)
def test_processes_that_are_none_are_refused(make):
    with pytest.raises(ValueError, match="must be a finite number"):
        make()


def test_a_polarisation_walk_has_a_variance_that_grows_with_time():
    polariser = Polariser(diffusion_rad2_s=1e-4)
    normals = np.random.default_rng(32).standard_normal((4, 100_000))
    angles = np.zeros(100_000)
    for row, elapsed_s in zip(normals, (10.0, 30.0, 100.0, 60.0), strict=True):
        angles = angles + polarisation.rotate_polarisation(polariser, 0.0, elapsed_s, 1.0) * row
    assert angles.var() == pytest.approx(1e-4 * 200.0, rel=0.02)
    measured = polarisation.compute_transmission(polariser, 0.4 + angles).mean()
    assert measured == pytest.approx(polarisation.compute_mean_transmission(polariser, 0.4, 200.0), abs=0.002)


@given(st.floats(-10.0, 10.0), st.floats(0.0, 60.0))
def test_malus_between_aligned_and_crossed(angle_rad, extinction_db):
    polariser = Polariser(extinction_db=extinction_db)
    passes = float(polarisation.compute_transmission(polariser, angle_rad))
    assert 10 ** (-extinction_db / 10) * (1 - 1e-12) <= passes <= 1.0 + 1e-12
    crossed = float(polarisation.compute_transmission(polariser, math.pi / 2))
    assert crossed == pytest.approx(10 ** (-extinction_db / 10))
    assert float(polarisation.compute_transmission(polariser, 0.0)) == 1.0
