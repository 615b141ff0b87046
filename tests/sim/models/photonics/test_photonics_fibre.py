"""Delays by fractions of a sample, crosstalk, beating, and the light itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics import pole, wavelengths
from sim.models.photonics.fibre import Fibre, FractionalDelay, compute_kernel_taps
from sim.models.photonics.laser import Laser
from sim.models.photonics.wavelengths import Demultiplexer, combine_powers_w, compute_crosstalk_matrix

KERNELS = ("sinc", "cubic", "linear")
delays = st.floats(-50.0, 50.0)
kernels = st.sampled_from(KERNELS)


def delayed(function, delay_samples, kernel, count=200):
    """Return what comes out at samples 0..count-1 when `function` of the sample's number went in."""
    late = FractionalDelay(delay_samples, kernel)
    first, needed = late.find_input_span(0, count)
    return late.apply(function(np.arange(first, first + needed, dtype=float)))


@pytest.mark.parametrize(
    ("kernel", "frequency", "bound"),
    [
        ("sinc", 0.05, 2e-4),
        ("sinc", 0.25, 2e-4),
        ("sinc", 0.42, 2e-4),
        ("cubic", 0.05, 4e-4),
        ("cubic", 0.1, 4e-3),
        ("linear", 0.05, 0.0125),
    ],
)
def test_sines_come_late_by_exactly_the_delay(kernel, frequency, bound):
    worst = 0.0
    for delay in np.linspace(3.05, 3.95, 19):
        out = delayed(lambda n: np.sin(2 * math.pi * frequency * n + 0.3), delay, kernel)
        true = np.sin(2 * math.pi * frequency * (np.arange(200) - delay) + 0.3)
        worst = max(worst, float(np.abs(out - true).max()))
    assert worst < bound
    assert worst > bound / 1000  # the bound is near what is there


@given(delays, kernels, st.floats(-5.0, 5.0))
def test_a_level_that_stands_is_not_changed(delay, kernel, level):
    assert delayed(lambda n: np.full(len(n), level), delay, kernel, 10) == pytest.approx(level, rel=1e-14)


@given(delays, kernels)
def test_a_ramp_is_late_by_the_delay(delay, kernel):
    bound = 1e-2 if kernel == "sinc" else 1e-9  # a ramp is no band-limited signal
    assert np.abs(delayed(lambda n: n, delay, kernel, 20) - (np.arange(20) - delay)).max() < bound


@given(st.integers(-50, 50), kernels)
def test_whole_delays_are_exact(delay, kernel):
    out = delayed(lambda n: np.where(n == 5, 1.0, 0.0), float(delay), kernel, 200)
    expected = np.zeros(200)
    if 0 <= 5 + delay < 200:
        expected[5 + delay] = 1.0
    assert out.tolist() == expected.tolist()


@given(delays, kernels, st.integers(-20, 20), st.integers(1, 40), st.integers(0, 30))
def test_a_stretch_asked_for_in_parts_is_the_same(delay, kernel, first, count, extra):
    """Samples on a time line do not depend on the window through which it is looked at."""
    late = FractionalDelay(delay, kernel)

    def signal(begin, length):
        return np.sin(0.37 * np.arange(begin, begin + length))

    short = late.apply(signal(*late.find_input_span(first, count)))
    long = late.apply(signal(*late.find_input_span(first, count + extra)))
    assert len(short) == count
    assert short.tolist() == pytest.approx(long[:count].tolist(), abs=1e-12)


@given(st.floats(0.0, 1.0), kernels)
def test_weights_sum_to_one(fraction, kernel):
    assert compute_kernel_taps(kernel, fraction).sum() == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize(
    ("kernel", "low", "high"), [("sinc", 0.08, 0.14), ("cubic", 0.05, 0.07), ("linear", 0.0, 0.0)]
)
def test_how_far_each_kernel_overshoots_a_step(kernel, low, high):
    over = max(
        float(delayed(lambda n: (n > 90).astype(float), d, kernel).max()) - 1.0
        for d in np.linspace(3.05, 3.95, 19)
    )
    assert low <= over <= high


def test_linear_is_the_mean_over_a_sample_of_a_converter_that_holds():
    held = np.repeat([0.0, 1.0, 0.25], 100)
    out = FractionalDelay(0.3, "linear").apply([0.0, 1.0, 0.25])
    windows = [held[100 - 30 : 200 - 30].mean(), held[200 - 30 : 300 - 30].mean()]
    assert out.tolist() == pytest.approx(windows)


def test_ten_metres_of_fibre():
    fibre = Fibre(length_m=10.0)
    assert fibre.delay_s == pytest.approx(48.97e-9, rel=1e-4)
    assert fibre.transmission == pytest.approx(10 ** (-0.0002), rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fibre(length_m=-1.0),
        lambda: Fibre(group_index=0.5),
        lambda: FractionalDelay(math.nan),
        lambda: compute_kernel_taps("sinc", 1.5),
        lambda: Demultiplexer(channel_count=0),
        lambda: Demultiplexer(adjacent_isolation_db=-3.0),
        lambda: Laser(power_w=-1e-3),
        lambda: Laser(wavelength_m=0.0),
        lambda: Laser(rin_db_hz=10.0),
        lambda: combine_powers_w(1.0, 1.0, 0.0, visibility=1.1),
    ],
)
def test_what_cannot_be_built_is_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


@given(st.integers(1, 8), st.floats(15.0, 50.0), st.floats(15.0, 50.0))
def test_crosstalk_is_symmetric_and_each_keeps_its_own(channels, adjacent_db, other_db):
    x = compute_crosstalk_matrix(Demultiplexer(channels, adjacent_db, other_db))
    assert x.shape == (channels, channels)
    assert (x == x.T).all()
    assert np.diagonal(x).tolist() == [1.0] * channels
    if channels > 1:
        assert -10 * math.log10(x[0, 1]) == pytest.approx(adjacent_db)
    if channels > 2:
        assert -10 * math.log10(x[0, 2]) == pytest.approx(other_db)


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(-10.0, 10.0))
def test_equal_wavelengths_add_as_fields(first_w, second_w, phase):
    field = math.sqrt(first_w) + math.sqrt(second_w) * complex(math.cos(phase), math.sin(phase))
    assert float(combine_powers_w(first_w, second_w, phase)) == pytest.approx(abs(field) ** 2, abs=1e-12)
    assert float(combine_powers_w(first_w, second_w, phase, 0.0)) == pytest.approx(first_w + second_w)


def test_a_leak_of_the_same_wavelength_swings_by_four_roots_of_it():
    phases = np.linspace(0.0, 2 * math.pi, 1001)
    power = combine_powers_w(1.0, 10**-2.5, phases)
    assert np.ptp(power) == pytest.approx(4 * math.sqrt(10**-2.5), rel=1e-6)


def test_coherence_is_that_of_a_phase_that_diffuses():
    """A Lorentzian line is a phase of which the variance grows with 2 pi linewidth |t|."""
    linewidth_hz, late_s = 10e6, 20e-9
    moved = math.sqrt(2 * math.pi * linewidth_hz * late_s) * np.random.default_rng(50).standard_normal(
        200_000
    )
    assert abs(np.mean(np.exp(1j * moved))) == pytest.approx(
        wavelengths.compute_coherence(linewidth_hz, late_s), abs=0.005
    )


def test_a_beat_far_above_the_pole_is_smaller_by_the_poles_gain():
    pole_hz, offset_hz, rate_hz = 1e9, 5e9, 1e12
    beat = np.cos(2 * math.pi * offset_hz * np.arange(20_000) / rate_hz)
    through = pole.filter_staircase(beat, pole.compute_decay(pole_hz, rate_hz))[10_000:]
    assert through.max() == pytest.approx(wavelengths.compute_beat_transmission(offset_hz, pole_hz), rel=5e-3)
