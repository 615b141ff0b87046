"""A modulator's curve, its inverse, and where its bias stands."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics.modulator import (
    BiasPoint,
    Modulator,
    compute_bias_v,
    compute_encoding_v,
    compute_slope_per_v,
    compute_transmission,
)

modulators = st.builds(
    Modulator,
    half_wave_v=st.floats(1.0, 10.0),
    null_v=st.floats(-5.0, 5.0),
    extinction_db=st.floats(10.0, 40.0),
    insertion_loss_db=st.floats(0.0, 8.0),
)
values = st.floats(0.0, 1.0)


@given(modulators, values)
def test_encoding_undoes_the_transmission(modulator, value):
    passes = float(compute_transmission(modulator, compute_encoding_v(modulator, value)))
    span = modulator.peak_transmission - modulator.null_transmission
    assert (passes - modulator.null_transmission) / span == pytest.approx(value, abs=1e-9)


@given(modulators, st.floats(-20.0, 20.0), st.integers(-3, 3))
def test_the_curve_repeats_every_two_half_wave_voltages(modulator, voltage_v, turns):
    again = voltage_v + 2 * turns * modulator.half_wave_v
    assert float(compute_transmission(modulator, again)) == pytest.approx(
        float(compute_transmission(modulator, voltage_v))
    )


@given(modulators, st.floats(-20.0, 20.0))
def test_the_curve_stays_between_floor_and_top(modulator, voltage_v):
    passes = float(compute_transmission(modulator, voltage_v))
    assert modulator.null_transmission * (1 - 1e-12) <= passes <= modulator.peak_transmission * (1 + 1e-12)


@given(modulators, st.floats(-10.0, 10.0))
def test_the_slope_is_the_derivative(modulator, voltage_v):
    h = 1e-5
    ahead, behind = (
        compute_transmission(modulator, voltage_v + h),
        compute_transmission(modulator, voltage_v - h),
    )
    assert float(compute_slope_per_v(modulator, voltage_v)) == pytest.approx(
        float(ahead - behind) / (2 * h), abs=1e-7
    )


@given(modulators)
def test_bias_points_stand_where_their_names_say(modulator):
    null, quadrature, peak = (
        float(compute_transmission(modulator, compute_bias_v(modulator, point))) for point in BiasPoint
    )
    assert null == pytest.approx(modulator.null_transmission)
    assert peak == pytest.approx(modulator.peak_transmission)
    assert quadrature == pytest.approx((modulator.null_transmission + modulator.peak_transmission) / 2)


def test_extinction_and_insertion_loss_are_ratios_of_the_curve():
    modulator = Modulator(extinction_db=27.0, insertion_loss_db=3.5)
    curve = compute_transmission(modulator, np.linspace(0.0, 10.0, 10_001))
    assert 10 * math.log10(curve.max() / curve.min()) == pytest.approx(27.0)
    assert -10 * math.log10(curve.max()) == pytest.approx(3.5)


def test_two_in_series_multiply():
    """By hand: 100 / 255 and 50 / 255 of perfect modulators give 19.6 of 255."""
    perfect = Modulator(extinction_db=200.0, insertion_loss_db=0.0)
    first, second = (compute_transmission(perfect, compute_encoding_v(perfect, x / 255)) for x in (100, 50))
    assert float(first * second) * 255 == pytest.approx(100 * 50 / 255)


def test_drift_of_a_quarter_percent_of_v_pi_costs_one_step_at_quadrature():
    perfect = Modulator(half_wave_v=5.0, extinction_db=200.0, insertion_loss_db=0.0)
    quadrature = compute_bias_v(perfect, BiasPoint.QUADRATURE)
    moved = compute_transmission(perfect, quadrature + 0.0025 * 5.0) - compute_transmission(
        perfect, quadrature
    )
    assert float(moved) * 255 == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        {"half_wave_v": 0.0},
        {"half_wave_v": math.nan},
        {"null_v": math.inf},
        {"extinction_db": -1.0},
        {"insertion_loss_db": -0.1},
    ],
)
def test_modulators_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Modulator(**wrong)


@pytest.mark.parametrize("value", [-1e-9, 1.0 + 1e-9, math.nan])
def test_values_outside_the_curve_are_refused(value):
    with pytest.raises(ValueError, match="outside 0 to 1"):
        compute_encoding_v(Modulator(), [0.5, value])
