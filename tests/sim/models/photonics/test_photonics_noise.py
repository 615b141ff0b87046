"""Every formula of noise against a simulation of what makes the noise: electrons one by one, light that flickers,
white currents, all through the pole of the detector. Variance of at least 100,000 samples against theory, fixed seeds.

The streams are sampled far above the pole, so that the noise-equivalent bandwidth is put to the test and not assumed.
Neighbours are then alike: of 2^20 samples some 10^5 are independent, and the variance is known to 0.45 % (one sigma).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics import noise, pole
from sim.models.photonics.constants import BOLTZMANN_J_K, ELEMENTARY_CHARGE_C
from sim.models.photonics.detector import Detector

pytestmark = pytest.mark.board

BAND_HZ = 4e9
POLE_HZ = pole.compute_pole_hz(BAND_HZ)
RATE_HZ = 64 * POLE_HZ
SAMPLES = 1 << 20
BOUND = 0.02  # more than four sigma, and the 0.1 % of the finite rate
# Every comparison is relative alone: pytest's own absolute tolerance, 1e-12, is as large as a variance in A^2.


def behind_the_pole(samples):
    return pole.filter_staircase(samples, pole.compute_decay(POLE_HZ, RATE_HZ))[1000:]


def electrons_a(generator, current_a):
    """Return current of electrons that arrive independently: (samples,) their charge per sampling interval."""
    mean = np.broadcast_to(np.asarray(current_a), SAMPLES) / (ELEMENTARY_CHARGE_C * RATE_HZ)
    return generator.poisson(mean) * ELEMENTARY_CHARGE_C * RATE_HZ


def white(generator, density):
    """White noise of a one-sided density (unit per square root of Hz), sampled."""
    return density * math.sqrt(RATE_HZ / 2) * generator.standard_normal(SAMPLES)


def flicker(generator, rin_db_hz):
    """Relative power of a laser."""
    return 1.0 + white(generator, 10 ** (rin_db_hz / 20))


@pytest.mark.parametrize("current_a", [1e-3, 1e-5, 1e-7])
def test_shot_noise_is_that_of_single_electrons(current_a):
    stream = behind_the_pole(electrons_a(np.random.default_rng(1), current_a))
    assert stream.mean() == pytest.approx(current_a, rel=0.02)
    assert stream.var() == pytest.approx(noise.compute_shot_noise_a2(current_a, BAND_HZ), rel=BOUND, abs=0)


def test_thermal_noise_is_a_white_current_behind_the_pole():
    stream = behind_the_pole(white(np.random.default_rng(2), 20e-12))
    assert stream.var() == pytest.approx(noise.compute_thermal_noise_a2(20e-12, BAND_HZ), rel=BOUND, abs=0)


def test_a_resistor_with_a_capacitor_holds_half_a_kt():
    """Equipartition: the voltage on a capacitor has the variance k T / C, whatever the resistor."""
    resistance, capacitance, temperature = 50.0, 1.25e-12, 290.0
    own_pole_hz = 1 / (2 * math.pi * resistance * capacitance)
    density = noise.compute_resistor_noise_a_rthz(resistance, temperature)
    assert own_pole_hz == pytest.approx(POLE_HZ, rel=1e-3)  # so that the stream has the right pole
    stream = resistance * behind_the_pole(white(np.random.default_rng(3), density))
    assert stream.var() == pytest.approx(BOLTZMANN_J_K * temperature / capacitance, rel=BOUND, abs=0)
    formula = (
        noise.compute_thermal_noise_a2(density, pole.compute_noise_bandwidth_hz(own_pole_hz)) * resistance**2
    )
    assert formula == pytest.approx(BOLTZMANN_J_K * temperature / capacitance, rel=1e-12, abs=0)


def test_an_amplifier_behind_a_resistor_adds_its_noise_figure():
    quiet, noisy = (
        noise.compute_resistor_noise_a_rthz(50.0),
        noise.compute_resistor_noise_a_rthz(50.0, noise_figure_db=3.0),
    )
    generator = np.random.default_rng(4)
    added = math.sqrt(quiet**2 * (10**0.3 - 1))
    stream = behind_the_pole(white(generator, quiet) + white(generator, added))
    assert stream.var() == pytest.approx(noise.compute_thermal_noise_a2(noisy, BAND_HZ), rel=BOUND, abs=0)


@pytest.mark.parametrize("rin_db_hz", [-140.0, -155.0])
def test_intensity_noise_is_light_that_flickers(rin_db_hz):
    stream = behind_the_pole(1e-3 * flicker(np.random.default_rng(5), rin_db_hz))
    assert stream.var() == pytest.approx(
        noise.compute_intensity_noise_a2(1e-3, rin_db_hz, BAND_HZ), rel=BOUND, abs=0
    )


@pytest.mark.slow
@pytest.mark.parametrize("power_w", [1e-3, 1e-4, 1e-6, 0.0])
def test_the_sum_is_that_of_electrons_from_flickering_light_and_the_amplifier(power_w):
    detector = Detector(responsivity_a_w=0.9, dark_current_a=1e-6)
    generator = np.random.default_rng(6)
    light_a = detector.responsivity_a_w * power_w * flicker(generator, -140.0)
    stream = electrons_a(generator, light_a + detector.dark_current_a)
    stream = behind_the_pole(stream + white(generator, detector.thermal_a_rthz))
    theory = noise.compute_receiver_noise_a2(detector, -140.0, detector.responsivity_a_w * power_w)
    assert stream.var() == pytest.approx(theory, rel=BOUND, abs=0)


def test_dark_current_has_shot_noise_without_any_light():
    detector = Detector(dark_current_a=1e-5, thermal_a_rthz=0.0)
    stream = behind_the_pole(electrons_a(np.random.default_rng(11), detector.dark_current_a))
    assert stream.var() == pytest.approx(
        noise.compute_receiver_noise_a2(detector, -140.0, 0.0), rel=BOUND, abs=0
    )


def deviations(make):
    """Return deviations at 0.1 mA and at four times that, each with numbers of its own."""
    return [behind_the_pole(make(np.random.default_rng(seed), i)).std() for seed, i in ((7, 1e-4), (8, 4e-4))]


@pytest.mark.parametrize(
    ("make", "ratio"),
    [
        (electrons_a, 2.0),
        (lambda generator, i: i + white(generator, 20e-12), 1.0),
        (lambda generator, i: i * flicker(generator, -140.0), 4.0),
    ],
    ids=["shot: square root", "thermal: constant", "intensity: linear"],
)
def test_how_the_measured_noise_grows_with_four_times_the_light(make, ratio):
    low, high = deviations(make)
    assert high / low == pytest.approx(ratio, rel=BOUND, abs=0)


@given(st.floats(1e-9, 1e-2), st.floats(1.0, 1e3), st.floats(-170.0, -120.0))
def test_how_the_formulas_grow_with_light(current_a, factor, rin_db_hz):
    brighter = current_a * factor
    shot = noise.compute_shot_noise_a2(brighter, BAND_HZ) / noise.compute_shot_noise_a2(current_a, BAND_HZ)
    intensity = noise.compute_intensity_noise_a2(
        brighter, rin_db_hz, BAND_HZ
    ) / noise.compute_intensity_noise_a2(current_a, rin_db_hz, BAND_HZ)
    assert math.sqrt(shot) == pytest.approx(math.sqrt(factor))
    assert math.sqrt(intensity) == pytest.approx(factor)


@given(st.floats(1e8, 1e11), st.floats(1.0, 100.0))
def test_every_variance_is_proportional_to_the_bandwidth(band_hz, factor):
    for variance in (
        lambda band: noise.compute_shot_noise_a2(1e-3, band),
        lambda band: noise.compute_thermal_noise_a2(20e-12, band),
        lambda band: noise.compute_intensity_noise_a2(1e-3, -140.0, band),
    ):
        assert variance(band_hz * factor) == pytest.approx(factor * variance(band_hz), rel=1e-9, abs=0)


def test_arrays_are_taken_element_by_element():
    currents = np.array([0.0, 1e-4, 1e-3])
    together = noise.compute_receiver_noise_a2(Detector(), -140.0, currents)
    assert together.tolist() == [
        noise.compute_receiver_noise_a2(Detector(), -140.0, float(i)) for i in currents
    ]


@pytest.mark.parametrize("correlation", [0.0, 0.00547, 0.3, 0.9])
def test_drawn_noise_has_variance_one_and_the_correlation_asked_for(correlation):
    drawn = noise.draw_correlated_normals(np.random.default_rng(9), (2000, 500), correlation)
    assert drawn.var() == pytest.approx(1.0, abs=0.02)
    for lag in (1, 2, 3):
        assert np.mean(drawn[:, lag:] * drawn[:, :-lag]) == pytest.approx(correlation**lag, abs=0.02)
    assert np.mean(drawn[1:] * drawn[:-1]) == pytest.approx(0.0, abs=0.02)  # rows know nothing of each other
    assert np.var(drawn[:, 0]) == pytest.approx(1.0, abs=0.15)  # stationary from the first sample on


@pytest.mark.parametrize("shape", [(0,), (3, 0), (1,)])
def test_short_shapes_are_drawn_too(shape):
    assert noise.draw_correlated_normals(np.random.default_rng(0), shape, 0.5).shape == shape


@pytest.mark.parametrize("correlation", [-0.1, 1.0, math.nan])
def test_what_is_no_correlation_is_refused(correlation):
    with pytest.raises(ValueError, match="correlation is"):
        noise.draw_correlated_normals(np.random.default_rng(0), (3,), correlation)


@pytest.mark.parametrize("correlation", [0.0, 0.00547, 0.5])
def test_the_mean_of_eight_samples(correlation):
    drawn = noise.draw_correlated_normals(np.random.default_rng(10), (125_000, 8), correlation)
    theory = pole.compute_standard_error(1.0, correlation, 8)
    assert drawn.mean(axis=1).std() == pytest.approx(theory, rel=0.01)  # five sigma
