"""Losses in dB add up, and no monitor reads below its floor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.light import DARK_FLOOR_DBM, Attenuator, attenuate_dbm, convert_dbm_to_milliwatt

losses = st.lists(st.floats(0.0, 10.0), max_size=5)
powers = st.floats(-20.0, 10.0)


@given(powers, losses)
def test_losses_in_db_are_factors_in_milliwatts(source_dbm, losses_db):
    expected = convert_dbm_to_milliwatt(source_dbm)
    for loss_db in losses_db:
        expected /= convert_dbm_to_milliwatt(loss_db)
    received = attenuate_dbm(source_dbm, losses_db, floor_dbm=-1000.0)
    assert convert_dbm_to_milliwatt(received) == pytest.approx(expected)


def test_ten_decibels_are_a_factor_of_ten():
    assert [convert_dbm_to_milliwatt(power_dbm) for power_dbm in (-10.0, 0.0, 10.0)] == pytest.approx(
        [0.1, 1.0, 10.0]
    )


@given(powers, st.lists(st.floats(0.0, 100.0), max_size=5))
def test_never_below_the_floor_and_never_above_the_source(source_dbm, losses_db):
    assert DARK_FLOOR_DBM <= attenuate_dbm(source_dbm, losses_db) <= source_dbm


@given(powers, st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(-30.0, 0.0))
def test_an_attenuator_behind_a_loss(power_dbm, loss_db, extra_db, ceiling_dbm):
    attenuator = Attenuator(loss_db, ceiling_dbm)
    behind = attenuator.with_extra_loss(extra_db)
    assert behind.compute_output_dbm(power_dbm) == pytest.approx(
        attenuator.compute_output_dbm(power_dbm - extra_db)
    )
