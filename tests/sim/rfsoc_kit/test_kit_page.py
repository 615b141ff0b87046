"""The page on the simulated kit says what the kit is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.twins.rfsoc.kit import KNOBS, KitParameters

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "photonic-kit.md").read_text(encoding="utf-8")
ROWS = {
    name: (default, about)
    for names, default, about in re.findall(r"^\| (`.*`) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    for name in re.findall(r"`([a-z0-9_]+)`", names)
}


def stated(name: str) -> tuple[str, str]:
    """Default and meaning that the page gives for a knob."""
    knob = KNOBS[name]
    if knob.modulator_index is None:
        return ROWS[name]
    default, about = ROWS[f"{knob.field_name}_0"]
    each = default.split(", ")
    return each[knob.modulator_index % len(each)], about


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_on_the_page_with_its_default_and_meaning(name):
    value = KNOBS[name].read(KitParameters())
    default, about = stated(name)
    assert about == KNOBS[name].about
    if isinstance(value, bool):
        assert default == ("on" if value else "off")
    elif isinstance(value, float):
        assert float(default) == pytest.approx(value, rel=1e-5)
    else:
        assert default == value


def test_the_page_has_no_knob_that_there_is_not():
    assert {name for name in ROWS if not name.startswith("soc")} <= set(KNOBS)


def test_the_table_of_noise_is_what_the_kit_has(kit):
    dark, full = re.search(r"\| together \| ([\d.]+) \| ([\d.]+) \|", PAGE).groups()
    assert float(dark) == pytest.approx(kit().noise(0, 0, 0, 0) / 0.94 * 255, abs=5e-4)
    assert float(full) == pytest.approx(kit().noise(20000, 20000, 0, 0) / 0.94 * 255, abs=5e-4)
