"""Algorithm 1: on graphs without loops every link keeps the shifts that were found for it."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from testbed.design.sharing.cassini.schedule import Forest, build_spanning_forest, compute_starts, has_loop

PERIODS = (40, 60, 90, 100, 120)


def random_forest(draw: random.Random) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return shifts on links and periods of jobs, of a graph without a loop."""
    periods = {f"j{number}": draw.choice(PERIODS) for number in range(draw.randint(2, 9))}
    forest = Forest()
    shifts = {}
    for number in range(draw.randint(1, 6)):
        members = draw.sample(sorted(periods), min(draw.randint(2, 4), len(periods)))
        jobs = [job for job in members if forest.join(job, f"l{number}")]
        shifts[f"l{number}"] = {job: draw.randrange(periods[job]) for job in jobs}
    return shifts, periods


def test_500_random_graphs_keep_every_pair_on_every_link():
    draw, pairs, negative = random.Random(19), 0, 0
    for _ in range(500):
        shifts, periods = random_forest(draw)
        assert not has_loop(shifts)
        found = compute_starts(shifts, periods)
        for jobs in shifts.values():
            for one, other in itertools.combinations(jobs, 2):
                apart = (found[one] - found[other]) - (jobs[one] - jobs[other])
                assert apart % math.gcd(periods[one], periods[other]) == 0
                pairs += 1
                negative += jobs[one] < jobs[other]
        assert all(0 <= found[job] < period for job, period in periods.items())
    assert pairs > 1000
    assert negative > 300


@pytest.mark.slow
def test_500_random_graphs_turn_every_link_as_a_whole():
    """Section 2.4: starts on a link are a common rotation of its shifts, each modulo the job's period."""
    draw, links = random.Random(20), 0
    for _ in range(500):
        shifts, periods = random_forest(draw)
        found = compute_starts(shifts, periods)
        for jobs in shifts.values():
            whole = math.lcm(*(periods[job] for job in jobs)) if jobs else 1
            assert any(
                all((found[job] - shift - turn) % periods[job] == 0 for job, shift in jobs.items())
                for turn in range(whole)
            )
            links += len(jobs) > 1
    assert links > 800


@pytest.mark.parametrize(
    ("users", "loop"),
    [
        ({"l": ("a", "b"), "m": ("b", "c")}, False),
        ({"l": ("a", "b"), "m": ("a", "b")}, True),
        ({"l": ("a", "b"), "m": ("b", "c"), "n": ("c", "a")}, True),
        ({}, False),
    ],
)
def test_loops_are_seen(users, loop):
    assert has_loop(users) is loop


def test_a_spanning_forest_keeps_the_links_that_gain_most_whole():
    users = {"l": ("a", "b"), "m": ("b", "c"), "n": ("c", "a")}

    kept = build_spanning_forest(users, {"l": 0.1, "m": 0.3, "n": 0.2})

    assert (kept["m"], kept["n"]) == (("b", "c"), ("c", "a"))
    assert not has_loop(kept)
    assert len(kept["l"]) == 1
