"""Candidates scored, the best scheduled, and what the model predicts of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from testbed.design.sharing.cassini.circle import Rounding
from testbed.design.sharing.cassini.schedule import LOOP_REASON, Scheduler
from testbed.design.sharing.jobs import Burst, LabLinks, SharedJob
from testbed.design.sharing.placement import (
    PlacementRequest,
    compare_shared_to_ideal,
    find_candidates,
    find_host_scheduler,
    place_by_finish_time_fairness,
    place_by_goodput,
)
from testbed.errors import WorkloadError

HOSTS = ("a", "b", "c", "d")
LINKS = LabLinks(HOSTS, 25.0, nics=2)


def job(name: str, fraction: float, *hosts: str, period_ms: float = 300, workers: int = 0) -> SharedJob:
    burst = Burst(period_ms * (1 - fraction), period_ms * fraction, 25.0)
    return SharedJob(name, period_ms, (burst,), hosts, workers or len(hosts))


def fixed(*jobs: SharedJob) -> dict[str, tuple[str, ...]]:
    return {one.name: one.hosts for one in jobs}


def test_two_jobs_of_half_their_time_start_half_a_period_apart():
    jobs = (job("x", 0.5, "a", "b"), job("y", 0.5, "b", "a"))

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs)])

    assert sorted(found.starts_ms.values()) == [0.0, 150.0]
    assert [(link.link, link.jobs, link.score, link.is_proven) for link in found.links] == [
        ("a-b", ("x", "y"), 1.0, True)
    ]
    for one in found.predicted:
        assert (one.solo_ms, one.fair_ms, one.shifted_ms) == pytest.approx((300, 450, 300))


def test_a_link_of_two_jobs_is_scored_with_both():
    """Defect 4 of section 2.6: with the candidate job alone in its graph every score is 1."""
    jobs = (job("x", 0.7, "a", "b"), job("y", 0.7, "a", "b"))

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs)])

    assert found.links[0].jobs == ("x", "y")
    assert found.candidates[0].score == pytest.approx(1 - 0.4)


def test_jobs_that_do_not_fit_hold_a_longer_period_and_still_gain():
    """Bursts of 0.6 each: interleaved an iteration takes 1.2 of its time alone, shared fairly 1.6."""
    jobs = (job("x", 0.6, "a", "b"), job("y", 0.6, "a", "b"))

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs)])

    assert [one.fair_ms for one in found.predicted] == pytest.approx([480, 480])
    assert [one.shifted_ms for one in found.predicted] == pytest.approx([360, 360], rel=0.02)
    assert all(one.slot_ms >= 300 for one in found.predicted)


def test_starts_hold_on_every_link_of_a_chain():
    jobs = (job("x", 0.5, "a", "b"), job("y", 0.5, "a", "b", "c"), job("z", 0.5, "b", "c"))

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs)])

    assert {link.link for link in found.links} == {"a-b", "b-c"}
    assert all(link.score == 1.0 for link in found.links)
    assert [one.shifted_ms for one in found.predicted] == pytest.approx([300] * 3)


def test_links_with_the_same_jobs_are_no_loop():
    jobs = (job("x", 0.5, "a", "b", "c"), job("y", 0.5, "c", "b", "a"))

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs)])

    assert (len(found.links), found.notes, found.candidates[0].dropped) == (3, (), "")
    assert [one.shifted_ms for one in found.predicted] == pytest.approx([300] * 2)


def checkpoint(length_ms: float, every_ms: float, *hosts: str, storage: tuple[str, ...]) -> SharedJob:
    return SharedJob(
        "save", every_ms, (Burst(every_ms - length_ms, length_ms, 25.0),), hosts, len(hosts), "", storage
    )


def test_a_checkpoint_shares_the_links_to_its_storage_hosts_only():
    jobs = (job("x", 0.5, "a", "b", "c"), checkpoint(100, 3000, "a", "c", storage=("b", "d")))

    assert LINKS.find_jobs_by_link(fixed(*jobs), jobs) == {
        "a-b": ("x", "save"),
        "b-c": ("x",),
        "a-c": ("x",),
        "c-d": ("save",),
    }


def test_a_checkpoint_is_shifted_into_the_computation_of_another_job():
    jobs = (job("x", 0.5, "a", "b"), checkpoint(150, 3000, "a", storage=("b",)))

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs)])

    assert found.links[0].score == 1.0
    assert [one.shifted_ms for one in found.predicted] == pytest.approx([300, 3000])


@pytest.mark.parametrize("every_ms", [30_000, 600_000])
def test_a_long_checkpoint_delays_a_job_by_half_of_what_both_send_at_once(every_ms):
    """While 3.84 s are written, each burst of 150 ms takes 300 ms: 12.8 iterations take 450 ms."""
    jobs = (job("x", 0.5, "a", "b"), checkpoint(3840, every_ms, "a", storage=("b",)))

    x, save = Scheduler(jobs, LINKS, Rounding(max_ticks=1_000_000)).schedule([fixed(*jobs)]).predicted

    lost_ms = 12.8 * 150
    assert save.fair_ms == pytest.approx(every_ms + lost_ms, abs=150)
    assert x.fair_ms - 300 == pytest.approx(300 * lost_ms / every_ms, rel=0.1)


@pytest.mark.parametrize("scheduler", ["themis", "pollux"])
def test_host_schedulers_do_not_put_a_checkpoint_on_its_storage_host(scheduler):
    save = replace(checkpoint(100, 3000, storage=("b",)), workers=2)

    for placement in find_candidates(scheduler, PlacementRequest((save,), LINKS)):
        assert "b" not in placement["save"]


def triangle() -> tuple[SharedJob, ...]:
    """Three jobs on three links, two on each: a loop."""
    rings = (("a", "b", "c"), ("b", "c", "d"), ("c", "d", "a"))
    return tuple(job(name, 0.25, *hosts) for name, hosts in zip("xyz", rings, strict=True))


def test_a_candidate_with_a_loop_is_dropped_for_one_without():
    jobs = triangle()
    apart = fixed(*jobs) | {"z": ("a", "b")}

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs), apart])

    assert [one.dropped for one in found.candidates] == [LOOP_REASON, ""]
    assert found.placement == apart
    assert found.notes == ()


def test_when_all_have_loops_the_best_forest_is_scheduled_and_said_so():
    jobs = triangle()

    found = Scheduler(jobs, LINKS).schedule([fixed(*jobs)])

    assert found.candidates[0].dropped == LOOP_REASON
    assert "spanning forest" in found.notes[0]
    for link in found.links:
        assert link.score <= 1.0
        assert link.is_approximate or link.score == 1.0


def test_spread_gives_jobs_on_the_same_hosts_circuits_of_their_own():
    jobs = (job("x", 0.7, "a", "b"), job("y", 0.7, "a", "b"))
    links = LabLinks(HOSTS, 25.0, nics=2, spread=True)

    found = Scheduler(jobs, links).schedule([fixed(*jobs)])

    assert links.find_jobs_by_link(fixed(*jobs), jobs) == {"a-b/1": ("x",), "a-b/2": ("y",)}
    assert (found.links, found.starts_ms) == ((), {"x": 0.0, "y": 0.0})


@pytest.mark.parametrize("scheduler", ["themis", "pollux"])
def test_host_schedulers_keep_jobs_apart_while_there_is_room(scheduler):
    jobs = tuple(job(name, 0.5, workers=2) for name in "xy")

    found = find_candidates(scheduler, PlacementRequest(jobs, LINKS))

    assert len(found) > 1
    for placement in found:
        assert not set(placement["x"]) & set(placement["y"])


def test_fairness_helps_the_worst_and_goodput_the_sum():
    """On three hosts of two jobs each: the estimates that the two functions compare."""
    jobs = {name: job(name, part, workers=2) for name, part in (("x", 0.6), ("y", 0.4), ("z", 0.1))}
    request = PlacementRequest(tuple(jobs.values()), LabLinks(HOSTS[:3], 25.0))

    for scheduler, cost in (
        (place_by_finish_time_fairness, max),
        (place_by_goodput, lambda r: -sum(1 / one for one in r)),
    ):
        best = scheduler(request)[0]
        together = dict.fromkeys(jobs, ("a", "b"))
        assert cost([compare_shared_to_ideal(one, best, jobs) for one in jobs.values()]) < cost(
            [compare_shared_to_ideal(one, together, jobs) for one in jobs.values()]
        )


def test_the_estimate_is_exact_for_two_identical_jobs():
    jobs = {name: job(name, 0.3, "a", "b") for name in "xy"}

    assert compare_shared_to_ideal(jobs["x"], fixed(*jobs.values()), jobs) == pytest.approx(1.3)


def test_another_host_scheduler_comes_by_entry_point(monkeypatch):
    class Entry:
        name = "mine"

        def load(self):
            return lambda request: [{one.name: ("d", "c") for one in request.jobs}]

    monkeypatch.setattr("testbed.design.sharing.placement.entry_points", lambda group: [Entry()])
    jobs = (job("x", 0.5, workers=2),)

    assert find_candidates("mine", PlacementRequest(jobs, LINKS)) == [{"x": ("d", "c")}]
    with pytest.raises(WorkloadError, match="choose from mine, pollux, themis"):
        find_host_scheduler("yours")


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        (
            (job("x", 0.5, "a", "zz"),),
            "job 'x' should run on host 'zz', which the lab does not have; its hosts",
        ),
        (
            (checkpoint(100, 3000, "a", storage=("zz",)),),
            "job 'save' should run on host 'zz', which the lab does not have",
        ),
        ((job("x", 0.5, workers=5),), "job 'x' needs 5 hosts, but the lab has 4: give fewer workers"),
    ],
)
def test_hosts_that_there_are_not_are_named(jobs, words):
    with pytest.raises(WorkloadError, match=words):
        find_candidates("themis", PlacementRequest(jobs, LINKS))


@pytest.mark.long
def test_a_thousand_jobs_on_256_links_are_mostly_solved_to_the_proof():
    draw = random.Random(7)
    hosts = tuple(f"h{number}" for number in range(257))
    jobs = []
    for number in range(1000):
        first = draw.randrange(256) if number >= 256 else number
        chain = (first, first + 1)
        period_ms = draw.choice([120, 160, 200, 240])
        names = tuple(hosts[place] for place in chain)
        jobs.append(job(f"j{number}", draw.choice([0.1, 0.2, 0.25, 0.3]), *names, period_ms=period_ms))
    scheduler = Scheduler(jobs, LabLinks(hosts, 25.0))

    found = scheduler.schedule([fixed(*jobs)])

    assert len(found.links) > 200
    assert sum(link.is_proven for link in found.links) / len(found.links) > 0.5
