"""Algorithm 1: the vectors worked out by hand from the paper's formulas, and what holds for any metrics."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import OffloadError
from testbed.offload.policy import Candidate, Metrics, decide


def metrics(gthp, lthp, rates=(), overheads=(), pcycle=1.0, workers=1):
    names = ("p1", "p2", "p3")
    candidates = {n: Candidate(r, o * pcycle) for n, r, o in zip(names, rates, overheads, strict=False)}
    return Metrics(gthp, lthp, pcycle, candidates, workers)


# (G, L; R of p1, p2, p3; O/P of each) -> candidate, ratio, Lower and so the number of workers.
VECTORS = [
    ((100, 95), (), (), None, 0.0, 0),
    ((100, 50), (40, 70, 65), (0.4, 0.2, 0.1), "p2", 0.7, 1),  # Lower 60 < Upper 70
    ((100, 50), (20, 30, 35), (0.4, 0.2, 0.1), "p3", 35 / 85, 2),  # Lower 55 >= Upper 35
    ((100, 20), (60, 99, 100), (0.5, 0.2, 0.05), "p3", 1.0, 1),  # Lower 84 < Upper 100
    ((100, 60), (45, 42, 41), (0.9, 0.1, 0.05), "p3", 41 / 101, 2),  # Lower 42 >= Upper 41
]


@pytest.mark.parametrize(("rates", "remote", "overheads", "candidate", "ratio", "workers"), VECTORS)
def test_vectors_of_the_algorithm(rates, remote, overheads, candidate, ratio, workers):
    found = decide(metrics(*rates, remote, overheads))
    assert (found.candidate, found.workers) == (candidate, workers)
    assert found.ratio == pytest.approx(ratio, abs=1e-12)


def test_the_default_threshold_is_the_papers():
    """A gain below 10 % is left alone, one of 10 % is not; the released code's 1.3 can be asked for."""
    remote, overheads = (90, 90, 90), (0.1, 0.1, 0.1)
    assert decide(metrics(109.9, 100, remote, overheads)).candidate is None
    assert decide(metrics(110.0, 100, remote, overheads)).candidate is not None
    assert decide(metrics(110.0, 100, remote, overheads), threshold=1.3).candidate is None


def test_a_candidate_that_costs_more_than_it_saves_keeps_its_negative_share():
    """1 - O/P = -0.5: p1 promises 70 - 25 = 45, p2 46 at O/P = 1; clamping at 0 would have taken p1."""
    found = decide(metrics(100, 50, (70, 46), (1.5, 1.0)))
    assert found.candidate == "p2"
    assert "no gain is expected" in found.reasons[-1]


def test_workers_are_counted_by_the_rate_of_one():
    """Lower 84; two workers gave 40 together, so one gives 20 and five are needed."""
    assert decide(metrics(100, 20, (40,), (0.05,), workers=2)).workers == 5


def test_reasons_name_every_candidate_and_the_choice():
    reasons = decide(metrics(100, 50, (40, 70, 65), (0.4, 0.2, 0.1))).reasons
    assert reasons[0] == "the model takes 100 per second and its pipeline delivers 50, a factor of 2"
    assert [line[:2] for line in reasons[1:4]] == ["p1", "p2", "p3"]
    assert reasons[4:] == (
        "p2 has the highest estimate",
        "workers deliver 70 and 60 is missing: they get as much as they can process",
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: metrics(math.nan, 1), "gthp is nan"),
        (lambda: metrics(1, -1), "lthp is -1"),
        (lambda: metrics(1, 1, pcycle=0.0), "pcycle is 0"),
        (lambda: Metrics("a", 1, 1), "gthp is 'a': give a measured number, 0 or more"),
        (lambda: Candidate(1, None), "ocycle is None: give a measured number, 0 or more"),
        (lambda: Metrics(1, 1, 1, {"p4": Candidate(1, 1)}), "unknown candidate 'p4'; known"),
        (lambda: metrics(1, 1, workers=0), "0 workers"),
        (lambda: Candidate(math.inf, 1), "rthp is inf"),
        (lambda: decide(metrics(1, 1), threshold=0.9), r"threshold 0\.9"),
    ],
)
def test_what_is_not_a_measurement_is_refused(build, message):
    with pytest.raises(OffloadError, match=message):
        build()


rate = st.floats(0, 1e6)
share = st.floats(0, 3)


@st.composite
def measured(draw):
    count = draw(st.integers(0, 3))
    lists = st.lists(rate, min_size=count, max_size=count)
    shares = st.lists(share, min_size=count, max_size=count)
    return draw(rate), draw(rate), draw(lists), draw(shares), draw(st.integers(1, 20))


@pytest.mark.slow
def test_what_holds_for_any_metrics():
    chosen = {None: 0, "p1": 0, "p2": 0, "p3": 0}
    scaled = 0

    @settings(max_examples=400, deadline=None)
    @given(measured(), st.integers(-8, 8), st.integers(-8, 8))
    def hold(drawn, rate_power, cycle_power):
        nonlocal scaled
        gthp, lthp, rates, overheads, workers = drawn
        found = decide(metrics(gthp, lthp, rates, overheads, workers=workers))
        chosen[found.candidate] += 1
        assert 0 <= found.ratio <= 1
        assert found.workers >= (found.candidate is not None)
        assert found.reasons
        if gthp <= lthp:
            assert found.candidate is None
        if found.candidate is None:
            assert (found.ratio, found.workers) == (0, 0)
        # A power of two scales without rounding, unless it makes what is not zero too small to be exact.
        values = [gthp, lthp, *rates]
        if all(value == 0 or value > 1e-200 for value in [*values, *overheads]):
            by, cycles = 2.0**rate_power, 2.0**cycle_power
            other = decide(metrics(gthp * by, lthp * by, [r * by for r in rates], overheads, cycles, workers))
            assert (other.candidate, other.ratio, other.workers) == (
                found.candidate,
                found.ratio,
                found.workers,
            )
            scaled += 1

    hold()
    assert min(chosen.values()) >= 5, chosen
    assert scaled >= 200
