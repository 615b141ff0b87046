import math
from dataclasses import replace

import numpy as np
import pytest

from testbed.design.search.chains import Rules, Visit, make_first_state, merge_visit, run_steps
from testbed.errors import SearchError


def test_a_chain_finds_the_bottom_of_a_valley(valley):
    state = run_steps(valley, Rules(steps=2000), make_first_state(valley, seed=0, chain_number=0), 2000)
    assert state.step == 2000
    assert state.best[0] == Visit(0.010, valley.lowest, valley.lowest)


@pytest.mark.parametrize("cuts", [(1,) * 30, (7, 23), (30,), (29, 1, 99)])
def test_how_a_chain_is_cut_into_legs_makes_no_difference(valley, cuts):
    rules = Rules(steps=30)
    state = make_first_state(valley, seed=3, chain_number=1)
    for steps in cuts:
        state = run_steps(valley, rules, state, steps)
    assert state == run_steps(valley, rules, make_first_state(valley, seed=3, chain_number=1), 30)


def test_chains_differ_by_seed_and_by_number(valley):
    rules = Rules(steps=10)
    ways = {
        run_steps(valley, rules, make_first_state(valley, seed, number), 10).best
        for seed in range(3)
        for number in range(3)
    }
    assert len(ways) == 9


def test_the_best_are_sorted_different_and_include_the_last_improvement(valley):
    state = run_steps(valley, Rules(steps=500, keep=20), make_first_state(valley, 0, 0), 500)
    costs = [visit.cost_s for visit in state.best]
    assert costs == sorted(costs)
    assert len({f"{cost:.12g}" for cost in costs}) == len({visit.point for visit in state.best}) == 20
    assert all(visit.cost_s == valley.compute_cost_s(visit.point, visit.origin) for visit in state.best)


def test_slower_is_accepted_as_often_as_metropolis_says():
    """On two levels 3 ms apart, up is taken with exp(-0.2 * 3), down always."""

    class Levels:
        def get_start_point(self):
            return (0,)

        def draw_neighbour(self, point, chance):
            return (1 - point[0],)

        def compute_cost_s(self, point, origin):
            return 0.003 * point[0] + 0.001

    rules = Rules(steps=10**6, alpha=0.2)
    state, ups, tries = make_first_state(Levels(), 0, 0), 0, 0
    for _ in range(4000):
        low = state.at.point == (0,)
        state = run_steps(Levels(), rules, state, 1)
        tries += low
        ups += low and state.at.point == (1,)
    assert tries > 1000
    assert abs(ups / tries - math.exp(-0.6)) < 4 * math.sqrt(0.25 / tries)


def test_alpha_per_thousandth_makes_chains_alike_however_long_an_iteration_takes(valley):
    class Slower(type(valley)):
        def compute_cost_s(self, point, origin):
            return 64 * super().compute_cost_s(point, origin)

    walks = {}
    for per in ("ms", "permille"):
        rules = Rules(steps=300, per=per)
        chains = [
            run_steps(objective, rules, make_first_state(objective, 0, 0), 300)
            for objective in (valley, Slower())
        ]
        walks[per] = [(chain.accepted, chain.at.point, chain.best[0].point) for chain in chains]
    assert walks["permille"][0] == walks["permille"][1]
    assert walks["ms"][0] != walks["ms"][1]


def test_the_topology_follows_an_accepted_strategy_and_after_patience_without_any():
    class Stubborn:
        """Any other point is impossible; a topology for the point that is kept would be better."""

        asked = 0

        def get_start_point(self):
            return (0,)

        def draw_neighbour(self, point, chance):
            return (1,)

        def compute_cost_s(self, point, origin):
            self.asked += point == origin == (0,)
            return 1.0 if point == (0,) else math.inf

    objective = Stubborn()
    state = make_first_state(objective, 0, 0)
    assert objective.asked == 1
    state = run_steps(objective, Rules(steps=1000, patience=50), state, 49)
    assert (objective.asked, state.unchanged, state.accepted) == (1, 49, 0)
    state = run_steps(objective, Rules(steps=1000, patience=50), state, 1)
    assert (objective.asked, state.unchanged) == (2, 0)


def test_a_chain_returns_to_its_best_every_hundredth_of_its_steps(valley):
    rules = Rules(steps=1000, alpha=1e-9, topology_alpha=1e-9)  # takes everything
    state = make_first_state(valley, 0, 0)
    for _ in range(20):
        state = run_steps(valley, rules, state, rules.reset_every)
    wandered = replace(state, at=Visit(1.0, (9, 9, 9), (9, 9, 9)))
    returned = run_steps(valley, rules, wandered, 1)
    assert sum(a != b for a, b in zip(returned.at.point, state.best[0].point, strict=True)) <= 1


def test_merging_keeps_one_of_equal_cost_and_the_cheaper_topology_of_a_point():
    first = Visit(1.0, (0,), (0,))
    assert merge_visit((first,), Visit(1.0 + 1e-15, (1,), (1,)), 5) == (first,)
    assert merge_visit((first,), Visit(0.5, (0,), (1,)), 5) == (Visit(0.5, (0,), (1,)),)
    assert merge_visit((first,), Visit(2.0, (0,), (1,)), 5) == (first,)
    assert merge_visit((first,), Visit(2.0, (1,), (1,)), 1) == (first,)
    assert merge_visit((first,), Visit(0.5, (1,), (1,)), 1) == (Visit(0.5, (1,), (1,)),)


@pytest.mark.parametrize(
    "numbers",
    [{"steps": -1}, {"alpha": 0.0}, {"topology_alpha": np.nan}, {"keep": 0}, {"patience": 0}, {"per": "s"}],
)
def test_rules_that_make_no_chain_are_refused(numbers):
    with pytest.raises(SearchError, match=r"give|choose"):
        Rules(**numbers)


def test_a_start_that_cannot_be_is_told(valley, monkeypatch):
    monkeypatch.setattr(type(valley), "compute_cost_s", lambda *_: math.inf)
    with pytest.raises(SearchError, match="the initial strategy does not run: give more servers or memory"):
        make_first_state(valley, 0, 0)
