import numpy as np
import pytest

from lightning.kit.calibration.noise import NoiseModel, fit_noise

BANDWIDTH_HZ = 4e9
ELECTRON_C = 1.602176634e-19
COUNTS_PER_AMPERE = 15.4e6
FULL = 15_400.0


def measured(seed, rin_db_hz, thermal, shot=True, readings=4_000):
    """Sample variances of readings of single samples, from the formulas of shot, thermal and intensity noise."""
    rng = np.random.default_rng(seed)
    levels = np.linspace(0, FULL, 24)
    current = levels / COUNTS_PER_AMPERE
    variance = thermal**2 * BANDWIDTH_HZ + 10 ** (rin_db_hz / 10) * BANDWIDTH_HZ * current**2
    if shot:
        variance = variance + 2 * ELECTRON_C * current * BANDWIDTH_HZ
    drawn = rng.standard_normal((24, readings)) * np.sqrt(variance)[:, None] * COUNTS_PER_AMPERE
    return levels, drawn.var(axis=1, ddof=1), readings


def test_the_fit_recovers_rin_shot_and_thermal_noise():
    levels, variances, readings = measured(1, -140.0, 20e-12, readings=40_000)
    found = fit_noise(levels, variances, readings)
    assert found.compute_rin_db_hz(BANDWIDTH_HZ) == pytest.approx(-140.0, abs=0.2)
    counts_per_ampere = found.shot / (2 * ELECTRON_C * BANDWIDTH_HZ)  # shot noise is a known current, 2 q I B
    assert counts_per_ampere == pytest.approx(COUNTS_PER_AMPERE, rel=0.15)
    assert np.sqrt(found.constant / BANDWIDTH_HZ) / counts_per_ampere == pytest.approx(20e-12, rel=0.15)
    assert found.compute_sigma(FULL) * 255 / FULL == pytest.approx(
        np.sqrt(1.61**2 + 0.29**2 + 0.32**2), rel=0.02
    )


def test_each_kind_alone_differs_from_the_others():
    levels, variances, readings = measured(2, -400.0, 20e-12, shot=False)
    constant = fit_noise(levels, variances, readings)
    assert constant.compute_variance(FULL) == pytest.approx(constant.constant, rel=0.05)
    levels, variances, readings = measured(3, -135.0, 1e-15, shot=False)
    intensity = fit_noise(levels, variances, readings)
    assert intensity.rin * FULL**2 == pytest.approx(intensity.compute_variance(FULL), rel=0.05)
    levels, variances, readings = measured(4, -400.0, 1e-15)
    shot = fit_noise(levels, variances, readings)
    assert shot.shot * FULL == pytest.approx(shot.compute_variance(FULL), rel=0.08)


def test_no_coefficient_is_ever_negative():
    rng = np.random.default_rng(5)
    found_zero = 0
    for _ in range(50):
        found = fit_noise(np.linspace(0, 1e4, 12), rng.uniform(1, 100, 12), 10)
        assert min(found.constant, found.shot, found.rin) >= 0
        found_zero += min(found.constant, found.shot, found.rin) == 0
    assert found_zero >= 10


def test_no_noise_is_fitted_as_none():
    found = fit_noise(np.linspace(0, 1e4, 12), np.zeros(12), 100)
    assert found.compute_variance(1e4) == 0.0
    assert found.compute_rin_db_hz(1e9) == -np.inf


def test_too_little_is_refused():
    with pytest.raises(ValueError, match="6 levels with 3 readings each"):
        fit_noise(np.arange(5), np.ones(5), 100)


def test_scaling_with_the_level():
    model = NoiseModel(constant=4.0, shot=0.0, rin=1e-6, mean=0.0, window=1)
    assert model.compute_sigma(0.0) == 2.0
    assert model.compute_sigma(-50.0) == 2.0
    assert model.compute_variance(2e3) - 4.0 == pytest.approx(4 * (model.compute_variance(1e3) - 4.0))
