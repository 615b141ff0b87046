"""Cost of designs, against the accepted numbers in `fpga/rtl/synthesis.json`."""

import json

import pytest
from libraries import skip_without

skip_without("pyosys", reason="needs pyosys: pip install 'lightbed[hdl]'")
skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")

from fpga.hdl.synthesis import BASELINE, estimate, find_growth, list_designs

QUICK = {"count_action_beat"}
"""Designs that are estimated in every run. `make test-long` estimates all: several seconds each."""


@pytest.fixture(scope="module")
def baseline():
    return json.loads(BASELINE.read_text(encoding="ascii"))


@pytest.mark.slow
def test_the_baseline_has_every_design(baseline):
    assert {design.top for design in list_designs()} == set(baseline)


@pytest.mark.long
@pytest.mark.process
def test_a_block_of_the_core_has_not_grown(baseline):
    now = estimate([design for design in list_designs() if design.top in QUICK])
    assert set(now) == QUICK
    assert find_growth(now, baseline) == ()


@pytest.mark.long
@pytest.mark.process
def test_nothing_has_grown(baseline):
    assert find_growth(estimate(list_designs(), timeout_s=3000), baseline) == ()


def test_growth_is_reported():
    before = {"a": {"lut": 100, "ff": 10}, "b": {"lut": 0, "ff": 1}}
    assert find_growth({"a": {"lut": 110, "ff": 12}, "b": {"lut": 2, "ff": 1}}, before) == ()
    assert find_growth({"a": {"lut": 111, "ff": 10}}, before) == ("a: lut 100 -> 111",)
    assert find_growth({"c": {"lut": 1, "ff": 1}}, before) == ("c is not in the baseline",)
