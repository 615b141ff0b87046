"""Levels of the simulated kit against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.twins.rfsoc.kit import KitParameters, PhotonicKit

PEAK = 20000
OFFSET = 0.01 / 0.5
DARK_CURRENT = 5e-9 * 470 / 0.5
FULL = 1e-3 * 470 / 0.5
"""1 mW on 1 A/W through 470 V/A, of 0.5 V: 0.94 of full scale."""
LEAK = 10**-2.7


def opened(word: float, leak: float = LEAK) -> float:
    """Transmission at a gain word, brightest 1."""
    return leak + (1 - leak) * math.sin(math.pi / 2 * word / PEAK) ** 2


def test_in_the_dark_only_two_extinctions_and_the_offset_are_left(kit):
    level = kit(crosstalk_db=200).level(0, 0, 0, 0)
    assert level == pytest.approx(OFFSET + DARK_CURRENT + 2 * FULL * LEAK**2, rel=1e-12)


def test_a_product_of_open_modulators_is_94_hundredths_of_full_scale(kit):
    level = kit(crosstalk_db=200).level(PEAK, PEAK, 0, 0)
    assert level == pytest.approx(OFFSET + DARK_CURRENT + FULL * (1 + LEAK**2), rel=1e-12)


@pytest.mark.parametrize("words", [(PEAK, 10000), (5000, 5000), (0, PEAK), (12345, 6789), (-9000, 3000)])
def test_two_modulators_in_series_multiply(kit, words):
    first, second = words
    for pair in ((first, second, 0, 0), (0, 0, first, second)):
        light = FULL * (opened(first) * opened(second) + LEAK**2)
        assert kit(crosstalk_db=200).level(*pair) == pytest.approx(OFFSET + DARK_CURRENT + light, rel=1e-12)


def test_two_products_add_on_the_detector(kit):
    setup = kit(crosstalk_db=200)
    dark = setup.level(0, 0, 0, 0)
    one = setup.level(11000, 15000, 0, 0) - dark
    other = setup.level(0, 0, 8000, 19000) - dark
    assert setup.level(11000, 15000, 8000, 19000) - dark == pytest.approx(one + other, rel=1e-9)


@pytest.mark.parametrize("dark", [{"laser": False}, {"shutter_open": False}, {"laser_dropped": True}])
def test_without_light_every_level_is_the_offset(kit, dark):
    setup = kit(**dark)
    assert setup.level(PEAK, PEAK, PEAK, PEAK) == pytest.approx(OFFSET + DARK_CURRENT, rel=1e-12)


@pytest.mark.parametrize(
    ("turned", "factor"),
    [
        ({"laser_dbm": 10 - 10 * math.log10(2)}, 0.5),
        ({"path_loss_db": 5.0}, 10**-0.3),
        ({"insertion_loss_db_1": 7.0}, 10**-0.3),
        ({"polarisation_rad": 0.3}, math.cos(0.3) ** 2 + math.sin(0.3) ** 2 / 1000),
        ({"wavelength_nm": 1550.2}, 0.5),
        ({"wavelength_nm": 1549.6}, 2**-4),
        ({"responsivity_a_w": 0.8}, 0.8),
        ({"transimpedance_ohm": 235.0, "dark_current_a": 1e-8}, 0.5),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else f"{value:.3f}",
)
def test_what_takes_light_away(kit, turned, factor):
    setup = kit(crosstalk_db=200, **turned)
    swing = setup.level(PEAK, PEAK, 0, 0) - setup.level(0, 0, 0, 0)
    assert swing == pytest.approx(factor * FULL * (1 - LEAK**2), rel=1e-9)


@pytest.mark.parametrize(("phase_rad", "sign"), [(0.0, 1), (math.pi, -1), (math.pi / 2, 0)])
def test_a_leak_of_20_db_beats_with_a_fifth_of_the_light(kit, phase_rad, sign):
    setup = kit(crosstalk_db=20, crosstalk_phase_rad=phase_rad)
    light = FULL * (2 * 1.01 + sign * 4 * math.sqrt(0.01))
    assert setup.level(PEAK, PEAK, PEAK, PEAK) == pytest.approx(OFFSET + DARK_CURRENT + light, rel=1e-9)


def test_bias_moves_the_operating_point_and_comes_round_after_two_half_waves(kit):
    setup = kit(crosstalk_db=200)
    peak = setup.level(PEAK, PEAK, 0, 0)
    setup.kit.knobs["bias_v_0"] = 3.0 + 5.0
    assert setup.level(0, PEAK, 0, 0) == pytest.approx(peak, rel=1e-12)
    setup.kit.knobs["bias_v_0"] = 3.0 + 10.0
    assert setup.level(PEAK, PEAK, 0, 0) == pytest.approx(peak, rel=1e-12)


def test_twenty_degrees_move_the_null_by_a_tenth_of_a_volt(kit):
    setup = kit(temperature_c=45.0)
    warm = setup.level(0, PEAK, 0, 0)
    setup.kit.knobs["bias_v_0"] = 3.1
    setup.kit.knobs["bias_v_1"] = 3.1
    assert setup.level(0, PEAK, 0, 0) < warm
    cold = kit(null_v_0=3.1, null_v_1=3.1, null_v_2=3.1, null_v_3=3.1)
    assert cold.level(0, PEAK, 0, 0) == pytest.approx(warm, rel=1e-12)


def test_a_half_wave_voltage_of_six_volts_needs_twenty_percent_more(kit):
    setup = kit(v_pi_0=6.0, crosstalk_db=200)
    wanted = kit(crosstalk_db=200).level(PEAK, PEAK, 0, 0)
    assert setup.level(24000, PEAK, 0, 0) == pytest.approx(wanted, rel=1e-12)
    assert setup.level(PEAK, PEAK, 0, 0) < 0.96 * wanted


def test_an_amplifier_that_saturates_compresses(kit):
    linear, soft = kit(offset_v=0.0), kit(offset_v=0.0, saturation_v=0.5)
    volts = linear.level(PEAK, PEAK, 0, 0) * 0.5
    wanted = volts / (1 + (volts / 0.5) ** 8) ** (1 / 8)
    assert soft.level(PEAK, PEAK, 0, 0) * 0.5 == pytest.approx(wanted, rel=1e-12)


volts = st.floats(0.5, 8.0)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-32766, 32766), min_size=4, max_size=4),
    st.lists(st.tuples(volts, volts, st.floats(10, 40), st.floats(0, 8)), min_size=4, max_size=4),
)
def test_any_kit_follows_the_formula_of_the_modulator(words, makes):
    parameters = KitParameters(crosstalk_db=200, noise="off")
    passed = []
    for index, (v_pi, bias_v, extinction_db, loss_db) in enumerate(makes):
        parameters = parameters.with_modulator(
            index, v_pi=v_pi, bias_v=bias_v, extinction_db=extinction_db, insertion_loss_db=loss_db
        )
        leak = 10 ** (-extinction_db / 10)
        phase = math.pi / 2 * (words[index] / 32766 * (5 * 32766 / 20000) + bias_v - 3.0) / v_pi
        passed.append(10 ** (-loss_db / 10) * (leak + (1 - leak) * math.sin(phase) ** 2))
    power_w = 10e-3 * 10**-0.2 * (passed[0] * passed[1] + passed[2] * passed[3])
    got = PhotonicKit(parameters).receive(1, 3.072e9, 10_000, 1, _Held(words))
    assert got.level[0] == pytest.approx(((power_w + 5e-9) * 470 + 0.01) / 0.5, rel=1e-9)


class _Held:
    def __init__(self, words):
        self.words = words

    def get_rate_hz(self, generator):
        return 6.144e9

    def read_samples(self, generator, first, count):
        return np.full(count, self.words[generator] / 32766)


def test_below_the_converters_all_65536_products_are_right_without_noise():
    """Driven by the inverse of each modulator's curve, decoded with the levels of the four corners."""
    makes = [(5.21, 0.11, 26.0, 4.1), (4.83, -0.07, 28.5, 4.4)]
    parameters = KitParameters(noise="off", drift=False, delay_ns=0.0)
    for index, (v_pi, off_v, extinction_db, loss_db) in enumerate(makes):
        parameters = parameters.with_modulator(
            index,
            v_pi=v_pi,
            null_v=3.0 + off_v,
            extinction_db=extinction_db,
            insertion_loss_db=loss_db,
            skew_ns=0.0,
        )
    values = np.arange(256)
    full_scale_v = 5.0 * 32766 / 20000
    drives = [
        (off_v + 2 * v_pi / np.pi * np.arcsin(np.sqrt(values / 255))) / full_scale_v
        for v_pi, off_v, _, _ in makes
    ]
    symbols = 20  # samples each: more than the receiver remembers
    first, second = (np.repeat(drive, symbols) for drive in np.meshgrid(*drives, indexing="ij"))
    received = PhotonicKit(parameters).receive(1, 6.144e9, 0, first.size, _Played(first, second)).level
    level = received[symbols - 1 :: symbols].reshape(256, 256)
    dark, one, other, both = level[0, 0], level[255, 0], level[0, 255], level[255, 255]
    swing = both - one - other + dark
    product = (
        255
        * (level - dark - np.outer(values, [1]) / 255 * (one - dark) - values / 255 * (other - dark))
        / swing
    )
    exact = np.outer(values, values) / 255
    assert np.abs(product - exact).max() < 1e-9
    halves = np.abs(exact % 1 - 0.5).min()
    assert halves > 1e-3  # no product lies on an edge of rounding, so that all are rounded alike
    assert np.array_equal(np.rint(product), np.rint(exact))


class _Played:
    def __init__(self, *waves):
        self.waves = waves

    def get_rate_hz(self, generator):
        return 6.144e9

    def read_samples(self, generator, first, count):
        if generator >= len(self.waves):
            return np.zeros(count)
        places = np.clip(np.arange(first, first + count), 0, len(self.waves[generator]) - 1)
        return self.waves[generator][places]


def test_crosstalk_in_phase_adds_half_a_step_to_two_full_products(kit):
    quiet, loud = (kit(crosstalk_phase_rad=phase).level(PEAK, PEAK, PEAK, PEAK) for phase in (math.pi / 2, 0))
    assert (loud - quiet) / FULL * 255 == pytest.approx(4e-3 * 255, rel=1e-6)
