"""The rate of a simulated lab's links: chosen from what the machine has, in steps, and only where it was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import LabStartError
from testbed.lab.inventory import parse_lab, render_lab
from testbed.lab.simulated import lifecycle, link_rate
from testbed.lab.simulated.link_rate import (
    RATE_STEPS,
    Machine,
    compute_idle_share,
    fit_rate,
    read_quota,
    read_ticks,
)

TWO = Machine(processors=2, free=2, copy_mbps=37_000)


def fitted(text):
    return text.replace("rate_mbps: 100,", "rate_mbps: 100, fit_rate: true,")


@pytest.mark.parametrize(
    ("machine", "rate"),
    [
        (TWO, 100),
        (replace(TWO, free=1.7), 100),
        (replace(TWO, free=1), 50),
        (replace(TWO, free=0), 50),
        (replace(TWO, processors=1, free=1), 50),
        (replace(TWO, processors=1, free=0), 25),
        (replace(TWO, copy_mbps=9_000), 25),
        (replace(TWO, processors=64, free=64), 100),
    ],
)
def test_the_rate_of_twelve_hosts_with_four_nics(machine, rate):
    assert fit_rate(100, machine, nic_count=48).rate_mbps == rate


@given(st.floats(0, 8), st.floats(0, 8), st.floats(1_000, 100_000), st.integers(1, 400))
def test_more_of_a_machine_never_gives_a_lower_rate(free, more, copy_mbps, nics):
    small = fit_rate(100, Machine(8, min(free, more), copy_mbps), nics)
    large = fit_rate(100, Machine(8, max(free, more), copy_mbps), nics)
    assert small.rate_mbps <= large.rate_mbps
    assert {small.rate_mbps, large.rate_mbps} <= {100 * step for step in RATE_STEPS}
    assert small.rate_mbps <= small.carried_mbps or small.rate_mbps == 100 * RATE_STEPS[-1]


def test_the_choice_is_described_with_its_reason():
    lowered = fit_rate(100, replace(TWO, free=1), nic_count=48)
    assert lowered.is_lowered
    assert lowered.describe() == (
        "links at 50 Mbit/s instead of 100: 1.0 of 2 processors free, which carry 62 Mbit/s on every NIC at once"
    )
    assert (
        fit_rate(100, TWO, nic_count=48)
        .describe()
        .startswith("links at 100 Mbit/s: 2.0 of 2 processors free")
    )


def test_ticks_are_read_for_each_processor():
    stat = "cpu  99 0 99 99 9 0 0 0 0 0\ncpu0 10 1 20 60 5 1 2 1 0 0\ncpu3 0 0 0 50 0 0 0 0 7 7\nctxt 12\n"
    assert read_ticks(stat) == {0: (65, 100), 3: (50, 50)}


def test_a_processor_whose_ticks_stood_still_is_idle():
    assert compute_idle_share((5, 10), (5, 10)) == 1.0
    assert compute_idle_share((0, 0), (25, 100)) == 0.25


@pytest.mark.parametrize(
    ("text", "quota"), [("150000 100000\n", 1.5), ("max 100000\n", float("inf")), ("", float("inf"))]
)
def test_the_quota_of_the_control_group(tmp_path, text, quota):
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert read_quota(path) == quota
    assert read_quota(tmp_path / "none") == float("inf")


def test_a_lab_file_that_fixes_its_rate_keeps_it(small_lab_text, monkeypatch):
    monkeypatch.setattr(link_rate, "measure_machine", lambda: replace(TWO, free=0, copy_mbps=1))
    assert lifecycle.choose_link_rate(parse_lab(small_lab_text(), "x.yaml"), "kernel") is None
    lab = parse_lab(fitted(small_lab_text()), "x.yaml")
    assert lifecycle.choose_link_rate(lab, "kernel").rate_mbps == 25
    assert lifecycle.choose_link_rate(lab, "model") is None
    assert lifecycle.choose_link_rate(lifecycle.set_link_rate(lab, 70), "kernel") is None
    assert lifecycle.set_link_rate(lab, 70).link.rate_mbps == 70
    assert lifecycle.set_link_rate(lab, 70).link.scale == 25_000 / 70


def test_the_wish_for_a_fitted_rate_is_written_back(small_lab_text):
    lab = parse_lab(fitted(small_lab_text()), "x.yaml")
    assert lab.link.fit_rate
    assert parse_lab(render_lab(lab), lab.path).link == lab.link


def test_the_links_of_a_real_lab_have_the_rate_that_they_have(small_lab_text):
    with pytest.raises(LabStartError, match="lab 'small' is real: the rate of its links is fixed"):
        lifecycle.set_link_rate(parse_lab(small_lab_text(simulated=False), "x.yaml"), 50)
