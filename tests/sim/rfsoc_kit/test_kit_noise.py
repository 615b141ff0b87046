"""Noise that the simulated kit reports, in LSB of a full product."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sim.models.photonics.link import Link, compute_budget

PEAK = 20000
STEP = 0.94 / 255
QUIET = {"rin_db_hz": -250.0, "thermal_a_rthz": 0.0, "adc_enob": 24.0, "jitter_s": 0.0}


@pytest.fixture
def noise(kit):
    """Return standard deviation at gain words, in steps, of a kit with some knobs turned."""

    def measured(words=(PEAK, PEAK, 0, 0), **settings) -> float:
        return kit(**settings).noise(*words) / STEP

    return measured


def test_by_default_a_full_product_has_1_676_steps_within_5_percent_of_the_measured_1_657(noise):
    assert noise() == pytest.approx(compute_budget(Link()).total_lsb, abs=5e-4)
    assert noise() == pytest.approx(1.676, abs=5e-4)
    assert noise() == pytest.approx(1.657, rel=0.05)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ({"rin_db_hz": -140.0}, 255 * math.sqrt(1e-14 * 4e9)),
        ({"thermal_a_rthz": 20e-12}, 255 * 20e-12 * math.sqrt(4e9) / 1e-3),
        ({"adc_enob": 9.0}, 255 / 0.94 * 2 / 2**9 / math.sqrt(12)),
        ({}, 255 * math.sqrt(2 * 1.602176634e-19 * 4e9 / 1e-3)),
    ],
    ids=["intensity", "thermal", "converter", "shot"],
)
def test_each_source_alone(noise, source, wanted):
    shot = 255 * math.sqrt(2 * 1.602176634e-19 * 4e9 / 1e-3)
    alone = math.sqrt(max(0.0, noise(**(QUIET | source)) ** 2 - (shot**2 if source else 0.0)))
    assert alone == pytest.approx(wanted, rel=0.005)


@pytest.mark.parametrize(
    ("source", "power"), [({"rin_db_hz": -130.0}, 1.0), ({"thermal_a_rthz": 2e-9}, 0.0), ({}, 0.5)]
)
def test_how_noise_grows_with_light(noise, source, power):
    settings = QUIET | {"dark_current_a": 0.0} | source
    full, tenth = noise(**settings), noise(**settings, laser_dbm=0.0)
    assert math.log10(full / tenth) == pytest.approx(power, abs=0.01)


def test_noise_off_is_none_at_all(kit):
    assert kit(noise="off").noise(PEAK, PEAK, PEAK, PEAK) == 0.0


@pytest.mark.parametrize("words", [(0, 0, 0, 0), (PEAK, PEAK, 0, 0)])
def test_constant_noise_is_that_of_the_published_emulation_whatever_the_light(noise, words):
    assert noise(words, noise="constant") == pytest.approx(1.6569279459762971, rel=1e-12)


def test_constant_noise_is_not_correlated_and_physical_noise_a_little(kit, played):
    outputs = played()
    assert kit(noise="constant").receive(outputs, 0, 5).correlation == 0.0
    assert kit().receive(outputs, 0, 5).correlation == pytest.approx(math.exp(-4 * 4e9 / 3.072e9))


def test_jitter_makes_noise_of_edges_only(kit, played):
    edge = played(rest={0: PEAK / 32766, 1: PEAK / 32766})
    quiet = QUIET | {"delay_ns": 30.0}
    calm, jittery = (kit(**quiet | {"jitter_s": t}).receive(edge, 0, 400) for t in (0.0, 1e-12))
    louder = np.flatnonzero(jittery.converter_noise > calm.converter_noise * 1.001)
    assert 1 <= len(louder) < 6
    assert louder[0] == pytest.approx(30e-9 * 3.072e9, abs=2)
    assert np.array_equal(jittery.level, calm.level)
    assert np.array_equal(jittery.noise, calm.noise)


@pytest.mark.parametrize("saturation_v", [0.4, 0.3, 0.2])
def test_where_light_saturates_the_amplifier_noise_passes_as_a_small_signal_does(kit, played, saturation_v):
    """The slope is taken from the levels at a thousandth more and less light; full light is 0.47 V."""
    rest = played(rest={0: PEAK / 32766, 1: PEAK / 32766})
    linear = kit().receive(rest, 10_000, 1)
    more, less = (
        kit(laser_dbm=10 + d, saturation_v=saturation_v, offset_v=0.0).receive(rest, 10_000, 1).level[0]
        for d in (0.00434294, -0.00434294)
    )
    slope = (more - less) / (0.002 * (linear.level[0] - 0.02))
    saturated = kit(saturation_v=saturation_v).receive(rest, 10_000, 1)
    assert slope < 0.2
    assert saturated.noise[0] == pytest.approx(linear.noise[0] * slope, rel=2e-3)
    assert saturated.converter_noise[0] == pytest.approx(linear.converter_noise[0], rel=1e-9)


def test_of_an_edge_beyond_saturation_jitter_makes_less_noise(kit, played):
    edge = played(rest={0: PEAK / 32766, 1: PEAK / 32766})
    settings = QUIET | {"delay_ns": 30.0, "jitter_s": 1e-12, "bandwidth_hz": 1e9}
    linear, saturated = (
        kit(**settings | extra).receive(edge, 0, 400) for extra in ({}, {"saturation_v": 0.2})
    )
    bright = (linear.level > 0.8) & (linear.converter_noise > 1e-5)
    assert bright.any()
    assert (saturated.converter_noise[bright] < 0.05 * linear.converter_noise[bright]).all()
