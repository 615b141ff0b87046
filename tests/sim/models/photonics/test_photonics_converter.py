"""Rounding, effective bits, jitter; gain, saturation and noise of amplifiers; decibels."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics import amplifier, converter, decibels, pole
from sim.models.photonics.amplifier import Amplifier, amplify_v
from sim.models.photonics.constants import BOLTZMANN_J_K
from sim.models.photonics.converter import Converter, compute_voltages_v, quantise_voltages

SAMPLES = 200_000


def ideal(bits, full_scale_v=2.0):
    return Converter(bits=bits, full_scale_v=full_scale_v, effective_bits=float(bits))


def sine(frequency, count=SAMPLES):
    return np.sin(2 * math.pi * frequency * np.arange(count))


@pytest.mark.parametrize("bits", [6, 8, 12, 14])
def test_rounding_errors_have_a_twelfth_of_a_step_squared(bits):
    whole_steps = 1.0 - 4 * ideal(bits).step_v
    volts = np.random.default_rng(60).uniform(-whole_steps, whole_steps, SAMPLES)
    error = compute_voltages_v(ideal(bits), quantise_voltages(ideal(bits), volts)) - volts
    assert error.var() == pytest.approx(converter.compute_quantisation_noise_v2(ideal(bits)), rel=0.01)
    assert abs(error).max() <= ideal(bits).step_v / 2 * (1 + 1e-9)


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_a_full_sine_has_six_decibels_a_bit(bits):
    """A sine dwells at its ends; of fewer bits its error is no longer spread evenly (6 bits: 0.5 dB better)."""
    adc = ideal(bits)
    wave = (1 - adc.step_v) * sine(0.1234567891)
    error = compute_voltages_v(adc, quantise_voltages(adc, wave)) - wave
    snr_db = 10 * math.log10(wave.var() / error.var())
    assert snr_db == pytest.approx(converter.compute_ideal_snr_db(bits), abs=0.3)


@given(st.floats(1.0, 20.0))
def test_bits_and_decibels_are_inverse(bits):
    assert converter.compute_effective_bits(converter.compute_ideal_snr_db(bits)) == pytest.approx(bits)
    assert converter.compute_ideal_snr_db(bits) == pytest.approx(6.02 * bits + 1.76, abs=0.02)


@pytest.mark.parametrize("effective_bits", [7.0, 9.0, 10.5, 12.0])
def test_rounding_and_added_noise_make_the_effective_bits(effective_bits):
    adc = Converter(bits=12, full_scale_v=2.0, effective_bits=effective_bits)
    generator = np.random.default_rng(61)
    volts = generator.uniform(-0.9, 0.9, SAMPLES)
    noisy = volts + math.sqrt(converter.compute_excess_noise_v2(adc)) * generator.standard_normal(SAMPLES)
    error = compute_voltages_v(adc, quantise_voltages(adc, noisy)) - volts
    assert error.var() == pytest.approx(converter.compute_converter_noise_v2(adc), rel=0.015)


@pytest.mark.parametrize(("frequency_hz", "jitter_s"), [(1e9, 1e-12), (1e9, 100e-15), (250e6, 2e-12)])
def test_jitter_of_a_sine_costs_what_the_formula_says(frequency_hz, jitter_s):
    generator = np.random.default_rng(62)
    instants = generator.uniform(0.0, 1e-6, SAMPLES)
    late = jitter_s * generator.standard_normal(SAMPLES)
    omega = 2 * math.pi * frequency_hz
    error = np.sin(omega * (instants + late)) - np.sin(omega * instants)
    assert 10 * math.log10(0.5 / error.var()) == pytest.approx(
        converter.compute_jitter_snr_db(frequency_hz, jitter_s), abs=0.05
    )
    adc = Converter(jitter_s=jitter_s)
    assert converter.compute_jitter_noise_v2(adc, omega * np.cos(omega * instants)).mean() == pytest.approx(
        error.var(), rel=0.02
    )


@given(st.floats(1e6, 1e10), st.floats(1e-15, 1e-12), st.floats(1.0, 10.0))
def test_ten_times_the_frequency_or_jitter_costs_twenty_decibels(frequency_hz, jitter_s, factor):
    lost = converter.compute_jitter_snr_db(frequency_hz, jitter_s) - converter.compute_jitter_snr_db(
        factor * frequency_hz, jitter_s
    )
    assert lost == pytest.approx(20 * math.log10(factor), abs=1e-9)


@given(st.integers(2, 16), st.floats(-3.0, 3.0))
def test_codes_are_nearest_or_clipped(bits, volts):
    adc = ideal(bits)
    code = int(quantise_voltages(adc, volts))
    half = 1 << (bits - 1)
    assert -half <= code < half
    if converter.is_clipped(adc, volts):
        assert code in {-half, half - 1}
    else:
        assert abs(code * adc.step_v - volts) <= adc.step_v / 2 * (1 + 1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": 0},
        {"bits": 33},
        {"full_scale_v": 0.0},
        {"effective_bits": 13.0},
        {"effective_bits": 0.0},
        {"jitter_s": -1.0},
    ],
)
def test_converters_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Converter(**wrong)


amplifiers = st.builds(
    Amplifier, gain=st.floats(0.5, 50.0), saturation_v=st.floats(0.5, 20.0), sharpness=st.floats(1.0, 10.0)
)


@given(amplifiers, st.floats(-10.0, 10.0), st.floats(0.0, 1.0))
def test_saturation_is_odd_monotone_and_bounded(device, volts, more):
    out = float(amplify_v(device, volts))
    assert out == -float(amplify_v(device, -volts))
    assert abs(out) <= device.saturation_v * (1 + 1e-12)
    assert float(amplify_v(device, volts + more)) >= out - 1e-12


@given(amplifiers, st.floats(-2.0, 2.0))
def test_a_small_signal_passes_an_amplifier_with_the_slope_of_its_output(device, over):
    place, little = over * device.saturation_v / device.gain, 1e-6 * device.saturation_v / device.gain
    up, down = (amplify_v(device, place + sign * little) for sign in (1, -1))
    assert amplifier.compute_small_signal_gain(device, place) == pytest.approx(
        (up - down) / (2 * little), rel=1e-5, abs=1e-7 * abs(device.gain)
    )


@given(amplifiers, st.floats(0.1, 6.0))
def test_at_its_compression_point_the_gain_has_fallen_by_that(device, compression_db):
    out = amplifier.compute_compression_point_v(device, compression_db)
    linear = out / decibels.convert_db_to_voltage_ratio(-compression_db)
    assert float(amplify_v(device, linear / device.gain)) == pytest.approx(out)


def test_small_signals_see_the_gain_alone():
    assert float(amplify_v(Amplifier(gain=12.0), 1e-3)) == pytest.approx(0.012, rel=1e-9)


@pytest.mark.parametrize(("gain", "noise_figure_db"), [(1.0, 3.0), (12.0, 10.0)])
def test_noise_of_an_amplifier_is_that_of_a_warmer_source(gain, noise_figure_db):
    """A source of (F - 1) T0, half of whose voltage falls on the matched input; through a pole of 4 GHz of noise."""
    band_hz, resistance = 4e9, 50.0
    pole_hz = pole.compute_pole_hz(band_hz)
    rate_hz, count = 64 * pole_hz, 1 << 20
    warmer_k = 290.0 * (10 ** (noise_figure_db / 10) - 1)
    density = 0.5 * math.sqrt(4 * BOLTZMANN_J_K * warmer_k * resistance)
    white = density * math.sqrt(rate_hz / 2) * np.random.default_rng(63).standard_normal(count)
    output = gain * pole.filter_staircase(white, pole.compute_decay(pole_hz, rate_hz))[1000:]
    device = Amplifier(gain=gain, noise_figure_db=noise_figure_db)
    assert output.var() == pytest.approx(
        amplifier.compute_output_noise_v2(device, band_hz, resistance), rel=0.02
    )


@given(st.floats(0.0, 20.0), st.floats(0.0, 30.0))
def test_a_noiseless_stage_changes_no_noise_figure(figure_db, gain_db):
    assert amplifier.compute_cascade_noise_figure_db((figure_db, gain_db), (0.0, 10.0)) == pytest.approx(
        figure_db, abs=1e-9
    )
    assert amplifier.compute_cascade_noise_figure_db((0.0, gain_db), (figure_db, 0.0)) <= figure_db + 1e-9


@pytest.mark.parametrize(
    "wrong", [{"saturation_v": 0.0}, {"sharpness": -1.0}, {"gain": math.nan}, {"noise_figure_db": -1.0}]
)
def test_amplifiers_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Amplifier(**wrong)


@given(st.floats(-200.0, 60.0))
def test_decibels_there_and_back(value_db):
    assert decibels.convert_power_ratio_to_db(decibels.convert_db_to_power_ratio(value_db)) == pytest.approx(
        value_db, abs=1e-9
    )
    assert decibels.convert_watts_to_dbm(decibels.convert_dbm_to_watts(value_db)) == pytest.approx(
        value_db, abs=1e-9
    )
    assert decibels.convert_loss_to_transmission(value_db) * decibels.convert_db_to_power_ratio(
        value_db
    ) == pytest.approx(1.0)
    assert decibels.convert_db_to_voltage_ratio(value_db) ** 2 == pytest.approx(
        decibels.convert_db_to_power_ratio(value_db)
    )


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan])
def test_what_has_no_decibels_is_refused(ratio):
    with pytest.raises(ValueError, match="no decibels"):
        decibels.convert_power_ratio_to_db(ratio)


@pytest.mark.process
def test_the_models_need_numpy_alone():
    program = (
        "import pkgutil, sys, importlib, sim.models.photonics as p\n"
        "names = [m.name for m in pkgutil.iter_modules(p.__path__)]\n"
        "[importlib.import_module(f'sim.models.photonics.{name}') for name in names]\n"
        "print(len(names), sorted({'scipy', 'numba', 'qick', 'matplotlib', 'lightning'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    count, loaded = done.stdout.split(maxsplit=1)
    assert int(count) >= 14
    assert loaded.strip() == "[]"
