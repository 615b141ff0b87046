"""The page on `lightning` names what there is."""

from pathlib import Path

import pytest

from lightning import errors
from lightning.kit import connection, profiles
from lightning.kit.config import Configuration

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lightning.md"


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text("utf-8")


def _all_errors(root=errors.LightningError):
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from _all_errors(kind)


def test_every_error_has_a_code_of_its_own():
    found = list(_all_errors())
    assert len(found) > 20
    assert len({kind.code for kind in found}) == len(found)


def test_every_key_with_its_default(page):
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    plain = Configuration()
    shown = {name: row[1] for row in rows for name in row[0].replace("|", "").replace("`", "").split()[:1]}
    for key in ("readouts", "reps", "soft_avgs", "length", "readout_length", "adc_trig_offset"):
        assert shown[key] == str(plain[key])
    assert [key for key in plain if f"`{key}`" not in page and not key[-1].isdigit()] == []


def test_every_profile_with_its_coupling(page):
    for name in profiles.PROFILE_NAMES:
        profile = profiles.load(name)
        assert f"| `{name}` | {profile.dac_coupling}, {profile.adc_coupling} | version" in page


def test_every_scheme(page):
    assert [scheme for scheme in ("sim", "qick", "replay") if f"`{scheme}://" not in page] == []
    assert {"sim", "qick", "replay"} <= set(connection.find_schemes())
