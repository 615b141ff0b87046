"""Every fibre of random labs is found or named as dead, in few rounds: a floor on each says that labs were hard."""

from __future__ import annotations

from collections import Counter

import pytest
from random_labs import RandomLab

from testbed.operate.discovery.model import Problem
from testbed.operate.discovery.planner import compute_code_length, compute_max_rounds, plan_rounds

SEEDS = 4
# name: the labs, and the most rounds that they may take
LABS = {
    "power monitors": ({}, 20),
    "power monitors, many dead": ({"dead": 20}, 20),
    "power monitors, cables of three switches": ({"switches": 3, "dead": 6, "whole_cables": 2}, 20),
    "power monitors, free ports and light of others": ({"spare": 16, "strangers": 3}, 20),
    "no power monitors": ({"monitors": False}, 20),
    "no power monitors, many dead": ({"monitors": False, "dead": 20}, 24),
    "no power monitors, three switches": ({"monitors": False, "switches": 3, "dead": 6}, 20),
    "no power monitors, light of others": ({"monitors": False, "spare": 16, "strangers": 3}, 24),
    "two hosts": ({"hosts": 2, "degree": 1, "dead": 1}, 8),
    "two hosts, no power monitors": ({"hosts": 2, "degree": 1, "dead": 1, "monitors": False}, 12),
}
DAILY = {"power monitors, cables of three switches", "no power monitors, light of others", "two hosts"}


def discover(lab):
    """Run the planner on a lab in memory; return the results and what every round was for."""
    rounds = plan_rounds(lab.problem, max_rounds=compute_max_rounds(lab.problem))
    purposes = []
    try:
        round_ = next(rounds)
        while True:
            purposes.append(round_.purpose)
            round_ = rounds.send(lab.show(round_))
    except StopIteration as end:
        return end.value.make_results(), purposes


def wrong(lab, results):
    """Return fibres of which discovery says something that is not so; uncertain ones say nothing."""
    return [
        (nic.nic, way)
        for nic in results
        for way in ("transmit", "receive")
        if getattr(nic, way).verdict != "uncertain" and getattr(nic, way) != lab.truth(way, nic.nic)
    ]


def uncertain(results):
    return [nic.nic for nic in results if "uncertain" in (nic.transmit.verdict, nic.receive.verdict)]


def may_be_uncertain(lab, nic):
    """Return True for a NIC without a good fibre: the light of others, which never goes off, might be its own."""
    return bool(lab.foreign) and {("transmit", nic), ("receive", nic)} <= lab.dead_ends


def check_all_found(draws, most):
    found = Counter()
    for lab in draws:
        results, purposes = discover(lab)
        assert wrong(lab, results) == []
        assert [nic for nic in uncertain(results) if not may_be_uncertain(lab, nic)] == []
        assert len(purposes) <= min(most, compute_max_rounds(lab.problem))
        found.update(fibre.verdict for nic in results for fibre in (nic.transmit, nic.receive))
        found["named"] += "names" in purposes
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DAILY else pytest.mark.long) for name in LABS]
)
def test_every_fibre_is_found_or_dead(name):
    options, most = LABS[name]
    found = check_all_found((RandomLab(seed, **options) for seed in range(SEEDS)), most)
    assert found["dead"] >= SEEDS * options.get("dead", 3) - 2, "dead fibres must have been met"
    assert found["found"] >= SEEDS
    assert found["named"] >= SEEDS // 4, "the last rounds must have been needed"


@pytest.mark.slow
def test_power_monitors_take_eight_rounds_for_twelve_hosts():
    """One of all, six of the lasers' code of 48 numbers, one for what dead fibres have hidden."""
    assert {len(discover(RandomLab(seed))[1]) for seed in range(SEEDS)} == {8}


def test_the_code_of_lasers_leaves_the_circuits_as_they_are():
    lab = RandomLab(1)
    seen = []
    rounds = plan_rounds(lab.problem, max_rounds=40)
    round_ = next(rounds)
    with pytest.raises(StopIteration):
        while True:
            seen.append(round_)
            round_ = rounds.send(lab.show(round_))
    coded = [one for one in seen if one.purpose == "lasers"]
    assert len(coded) == compute_code_length(48) == 6
    assert {tuple(one.circuits.items()) for one in coded} == {tuple(seen[0].circuits.items())}


@pytest.mark.slow
@pytest.mark.parametrize("monitors", [True, False])
def test_lasers_that_do_not_follow_their_interface_mislead_nobody(monitors):
    """A transmitter beside a dead receiver cannot speak; where its light says nothing either, it stays uncertain."""
    left = 0
    for seed in range(SEEDS):
        lab = RandomLab(seed, follow=False, monitors=monitors)
        results, purposes = discover(lab)
        assert wrong(lab, results) == []
        assert len(purposes) <= 20
        for nic in uncertain(results):
            assert ("receive", nic) in lab.dead_ends
            left += 1
    assert left >= SEEDS // 3


def test_many_more_ports_than_fibres_are_tried_within_the_bound():
    lab = RandomLab(3, hosts=4, degree=2, spare=40)
    results, purposes = discover(lab)
    assert (wrong(lab, results), uncertain(results)) == ([], [])
    assert len(purposes) <= compute_max_rounds(lab.problem)


def test_a_limit_ends_it_and_what_is_open_is_uncertain():
    lab = RandomLab(2)
    rounds = plan_rounds(lab.problem, max_rounds=2)
    round_ = next(rounds)
    round_ = rounds.send(lab.show(round_))
    with pytest.raises(StopIteration) as end:
        rounds.send(lab.show(round_))
    results = end.value.value.make_results()
    assert wrong(lab, results) == []
    assert uncertain(results)


def test_nothing_sought_takes_no_round():
    rounds = plan_rounds(Problem((), (("ocs1", 1),), (("ocs1", 2),)), max_rounds=10)
    with pytest.raises(StopIteration):
        next(rounds)


def test_no_free_port_takes_no_round_and_says_nothing_is_known():
    rounds = plan_rounds(Problem((("a", "nic1"),), (), ()), max_rounds=10)
    with pytest.raises(StopIteration):
        next(rounds)


@pytest.mark.long
@pytest.mark.parametrize("name", LABS)
def test_every_fibre_of_many_labs_is_found_or_dead(name):
    options, most = LABS[name]
    found = check_all_found((RandomLab(seed, **options) for seed in range(1000, 1200)), most)
    assert found["dead"] >= 200
