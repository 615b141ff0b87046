"""The reference page says what the models compute."""

from __future__ import annotations

import doctest
import re
from fractions import Fraction
from pathlib import Path

import pytest

from sim.models.photonics.link import Link, compute_budget, compute_standard_error_lsb

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "photonic-kit.md"


def budget_rows():
    """Return rows of the noise budget: the only ones of seven numbers."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if len(row) == 7 and all(re.fullmatch(r"[\d./]+", cell) for cell in row)]


def test_the_page_has_full_half_and_no_light():
    assert {"1", "1/2", "0"} <= {row[0] for row in budget_rows()}


@pytest.mark.parametrize("row", budget_rows(), ids=lambda row: row[0])
def test_the_budget_on_the_page_is_computed(row):
    level = float(Fraction(row[0]))
    b = compute_budget(Link(), level)
    computed = (
        *b.noises_lsb.values(),
        b.converter_lsb,
        b.total_lsb,
        compute_standard_error_lsb(Link(), level),
    )
    assert row[1:] == [f"{value:.3f}" for value in computed]


def test_examples_on_the_page_are_true():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert tried > 2
    assert failed == 0
