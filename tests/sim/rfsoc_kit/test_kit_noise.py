"""How much noise the simulated kit says there is, in steps of 255 of a full product."""

from __future__ import annotations

import math

import numpy as np
import pytest

PEAK = 20000
STEP = 0.94 / 255
QUIET = {"rin_db_hz": -250.0, "thermal_a_rthz": 0.0, "adc_enob": 24.0, "jitter_s": 0.0}


@pytest.fixture
def noise(kit):
    """Standard deviation at gain words, in steps, of a kit with some knobs turned."""

    def measured(words=(PEAK, PEAK, 0, 0), **settings) -> float:
        return kit(**settings).noise(*words) / STEP

    return measured


def test_by_default_a_full_product_has_1_70_steps_within_5_percent_of_the_measured_1_657(noise):
    assert noise() == pytest.approx(math.sqrt(0.288**2 + 0.323**2 + 1.613**2 + 0.306**2), abs=0.003)
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
    louder = np.flatnonzero(jittery.noise > calm.noise * 1.001)
    assert 1 <= len(louder) < 6
    assert louder[0] == pytest.approx(30e-9 * 3.072e9, abs=2)
    assert np.array_equal(jittery.level, calm.level)
