"""The noise budget: its figures, and the whole chain simulated from electrons to codes."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics import converter as adc
from sim.models.photonics import pole
from sim.models.photonics.constants import ELEMENTARY_CHARGE_C
from sim.models.photonics.link import Link, compute_budget, compute_snr_db, compute_standard_error_lsb

MEASURED_SIGMA = 1.6569279459762971  # of 255, published with the prototype's emulation

FINE = 32  # steps of the simulation to a sample of the converter


@functools.cache
def codes_of_the_chain(level, samples=120_000):
    """Return codes in LSB: flickering light, electrons, amplifier, pole, effective bits, rounding to 12 bits."""
    link, generator = Link(), np.random.default_rng(20)
    rate_hz = FINE * link.rate_hz
    white = math.sqrt(rate_hz / 2)
    count = FINE * samples
    light_a = (
        level
        * link.full_light_current_a
        * (1 + 10 ** (link.rin_db_hz / 20) * white * generator.standard_normal(count))
    )
    electrons = generator.poisson((light_a + link.detector.dark_current_a) / (ELEMENTARY_CHARGE_C * rate_hz))
    current_a = electrons * (ELEMENTARY_CHARGE_C * rate_hz)
    current_a += link.detector.thermal_a_rthz * white * generator.standard_normal(count)
    received_a = pole.filter_staircase(current_a, pole.compute_decay(link.detector.pole_hz, rate_hz))[::FINE]
    converter = adc.Converter(bits=12, full_scale_v=255.0, effective_bits=link.effective_bits)
    volts = 255.0 * (received_a / link.full_light_current_a - 0.5)
    volts += math.sqrt(adc.compute_excess_noise_v2(converter)) * generator.standard_normal(samples)
    # Full light is the end of the converter's range: a simulation of its noise looks at a wider one.
    wide = adc.Converter(bits=13, full_scale_v=510.0, effective_bits=10.0)
    return adc.compute_voltages_v(wide, adc.quantise_voltages(wide, volts))[100:]


def test_defaults_give_the_figures_of_the_specification():
    full = compute_budget(Link())
    assert round(full.noises_lsb["intensity"], 2) == 1.61
    assert round(full.total_lsb, 3) == 1.676
    assert round(full.noises_lsb["shot"], 2) == 0.29
    assert round(full.noises_lsb["thermal"], 2) == 0.32
    assert round(full.converter_lsb, 2) == 0.14
    assert full.total_lsb == pytest.approx(MEASURED_SIGMA, rel=0.05)
    assert full.accuracy_percent > 99.25
    assert round(full.equivalent_bits, 2) == 5.46


@pytest.mark.parametrize(
    ("level", "one_sample", "mean_of_eight"), [(1.0, 1.676, 0.595), (0.5, 0.904, 0.321), (0.0, 0.353, 0.125)]
)
def test_one_sample_and_the_mean_of_eight_at_full_half_and_no_light(level, one_sample, mean_of_eight):
    assert round(compute_budget(Link(), level).total_lsb, 3) == one_sample
    assert round(compute_standard_error_lsb(Link(), level), 3) == mean_of_eight


@pytest.mark.long
@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_the_simulated_chain_has_the_noise_of_the_budget(level):
    """119,900 samples: a deviation is known to 0.2 %, one of means of eight to 0.6 % (one sigma)."""
    codes = codes_of_the_chain(level)
    assert codes.std() == pytest.approx(compute_budget(Link(), level).total_lsb, rel=0.012)
    means = codes[: len(codes) // 8 * 8].reshape(-1, 8).mean(axis=1)
    assert means.std() == pytest.approx(compute_standard_error_lsb(Link(), level), rel=0.025)


@pytest.mark.slow
def test_neighbouring_samples_of_the_chain_hardly_know_each_other():
    codes = codes_of_the_chain(1.0)
    codes = codes - codes.mean()
    measured = np.mean(codes[1:] * codes[:-1]) / codes.var()
    assert round(Link().correlation, 5) == 0.00547
    assert measured == pytest.approx(Link().correlation, abs=4 / math.sqrt(len(codes)))


@pytest.mark.parametrize(
    ("power_w", "rin_db_hz", "expected"),
    [
        (1e-3, -150.0, (0.29, 0.32, 0.51, 0.14, 0.68)),
        (1e-3, -140.0, (0.29, 0.32, 1.61, 0.14, 1.68)),
        (1e-4, -150.0, (0.91, 3.23, 0.51, 0.14, 3.39)),
    ],
)
def test_the_table_of_powers_and_lasers(power_w, rin_db_hz, expected):
    b = compute_budget(Link(power_w=power_w, rin_db_hz=rin_db_hz))
    assert tuple(round(v, 2) for v in (*b.noises_lsb.values(), b.converter_lsb, b.total_lsb)) == expected


@given(st.floats(0.01, 1.0))
def test_in_steps_of_255_each_source_has_its_shape(level):
    full, here = compute_budget(Link()), compute_budget(Link(), level)
    assert here.noises_lsb["intensity"] == pytest.approx(full.noises_lsb["intensity"] * level)
    # the dark current stays
    assert here.noises_lsb["shot"] == pytest.approx(full.noises_lsb["shot"] * math.sqrt(level), rel=1e-3)
    assert here.noises_lsb["thermal"] == full.noises_lsb["thermal"]
    assert here.converter_lsb == full.converter_lsb


def test_half_of_the_range_doubles_the_converters_part_alone():
    whole, half = compute_budget(Link()), compute_budget(Link(used_range_share=0.5))
    assert half.converter_lsb == 2 * whole.converter_lsb
    assert half.noises_lsb == whole.noises_lsb


def test_a_mean_of_one_is_a_sample():
    assert compute_standard_error_lsb(Link(), 0.7, count=1) == pytest.approx(
        compute_budget(Link(), 0.7).total_lsb
    )


def test_signal_to_noise_of_full_light():
    assert compute_snr_db(Link()) == pytest.approx(20 * math.log10(255 / compute_budget(Link()).total_lsb))


@pytest.mark.parametrize(
    "wrong",
    [
        {"power_w": 0.0},
        {"used_range_share": 1.5},
        {"rin_db_hz": 3.0},
        {"effective_bits": math.inf},
        {"rate_hz": -1.0},
    ],
)
def test_links_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Link(**wrong)


def test_levels_and_counts_that_are_none_are_refused():
    with pytest.raises(ValueError, match="level"):
        compute_budget(Link(), 1.01)
    with pytest.raises(ValueError, match="count"):
        compute_standard_error_lsb(Link(), 1.0, count=0)
