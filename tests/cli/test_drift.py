"""`testbed drift` as its users have it: one reading, a series, bad input."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("typer")
skip_without("pydantic")
skip_without("sqlalchemy")

LAB = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"


@pytest.fixture
def patched(testbed, lab_file, tmp_path):
    """Provide the file of the lab, patched as planned by somebody else."""
    assert testbed("apply", lab_file, "--runs-dir", tmp_path / "others").code == 0
    return lab_file


def test_one_reading_is_kept_and_judged(testbed, patched, runs):
    first = testbed("drift", patched, "--hosts", "model", "--json")
    second = testbed("drift", patched, "--hosts", "model")

    assert (first.code, first.json["ok"], first.json["findings"]) == (0, True, [])
    assert len(first.json["series"]) == 2 * 48
    assert first.json["series"][0]["place"] == "laser?+a/nic1:transmit"
    assert (second.code, second.out.splitlines()[-1]) == (0, "no light is lost")
    assert ": 96 places (96 learning), 2 readings; nothing stored or named" in second.out.splitlines()[0]
    assert (runs / "lightbed.sqlite").exists()


def test_every_goes_on_until_it_is_interrupted(testbed, patched, monkeypatch):
    waits = []

    def two_waits(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("testbed.cli.parameters.sleep", two_waits)
    ran = testbed("drift", patched, "--hosts", "model", "--every", "5m", "--json")

    readings = [json.loads(line)["series"][0]["readings"] for line in ran.out.splitlines()]
    assert (ran.code, readings) == (128 + signal.SIGINT, [1, 2])
    assert all(0 < seconds < 300 for seconds in waits)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--every", "often"), "'often' is not an interval (examples: 30s, 5m, 1h)"),
        (("--every", "0s"), "'0s' is not an interval"),
        (("--since", "yesterday"), "'yesterday' is not a time (example: 2026-05-01T12:00"),
    ],
)
def test_bad_times_are_refused_before_anything_is_read(testbed, words, said):
    ran = testbed("drift", LAB, *words)
    assert ran.code == 1
    assert said in ran.err
