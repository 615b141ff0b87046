from concurrent.futures import Executor, Future
from dataclasses import replace

import numpy as np
import pytest

from testbed.design.plans.planning import SearchEffort, Servers, make_plan
from testbed.design.search import optimise
from testbed.design.search.chains import EarlyStop, Rules, make_first_state, run_steps
from testbed.design.search.edge_swap import MIN_IMPROVEMENT, propose_starts
from testbed.design.search.finalists import (
    rank_strategies,
    rank_wirings,
    simulate_ideal_switch_s,
    simulate_proposal,
)
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import simulate_on_quick_routes, simulate_plan_routes
from testbed.design.search.strategies import StrategyObjective
from testbed.design.search.worker_pool import open_worker_pool
from testbed.design.topology.finder import plan_topology
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import make_data_sharding
from testbed.errors import OutOfMemory, SearchError, TopologyError


def dlrm(nodes, output_bytes, gradient_bytes, tables=4):
    """Return tables and what pools their rows can only be placed, the top is copied.

    Bytes between pairs beside a sum.
    """
    operators = [
        Operator(f"t{i}", "embedding", 0.0, 0.0, 1 << 20, output_bytes, ways=("place",))
        for i in range(tables)
    ]
    operators += [
        Operator("pooled", "dense", 1e3, 1e3, 1 << 10, 64, ways=("place",)),
        Operator("top", "dense", 1e6, 2e6, gradient_bytes, 4, gradient_bytes=gradient_bytes),
    ]
    edges = (*((i, tables) for i in range(tables)), (tables, tables + 1))
    return Workload("dlrm", tuple(operators), edges, batch=8 * nodes)


def pure_data(gradient_bytes=10**8):
    operators = [
        Operator(f"d{i}", "dense", 1e9, 2e9, gradient_bytes, 4096, gradient_bytes=gradient_bytes)
        for i in range(3)
    ]
    return Workload("data", tuple(operators), ((0, 1), (1, 2)), batch=96)


def test_twelve_nodes_of_pure_data_parallelism_get_the_plus_minus_one_and_five_circulant():
    found = optimise(pure_data(), Cluster(12), 4, 25, steps=50)
    assert found.finding.topology.strides == (1, 5)
    assert found.finding.matching_degree == 0
    assert set(found.strategy.shardings) == {make_data_sharding(range(12))}
    assert found.predicted.bandwidth_tax == pytest.approx(1.0)
    assert found.predicted.iteration_s < 1.1 * found.predicted.ideal_switch_s


@pytest.mark.long
@pytest.mark.parametrize("simplex", [False, True])
def test_links_for_pairs_are_bought_exactly_when_the_simulated_iteration_gets_shorter(simplex):
    """From hardly any bytes between pairs to hardly any AllReduce: both answers occur, each the faster one.

    What each number of links gives is simulated here once more on what TopologyFinder makes.
    """
    bought = set()
    for table_bytes, gradient_bytes in ((64, 10**8), (1 << 20, 1 << 22)):
        workload = dlrm(8, table_bytes, gradient_bytes, tables=1)
        found = optimise(workload, Cluster(8), 4, 25, steps=0, simplex=simplex)
        demand = traffic(workload, found.strategy, Cluster(8)).demand
        times = {}
        for degree in range(4) if simplex else (0, 2):
            topology = plan_topology(demand, 4, simplex=simplex, matching_degree=degree).topology
            problem = Problem(workload, Cluster(8), 4, 25, simplex)
            times[degree] = simulate_plan_routes(problem, found.strategy, topology).execution.iteration_s
        degree = found.finding.matching_degree
        assert {one.finding.matching_degree for one in found.wirings} == set(times)
        assert (degree > 0) == (min(times[one] for one in times if one) < times[0] * (1 - MIN_IMPROVEMENT))
        assert found.predicted.iteration_s <= min(times.values()) * (1 + 0.005)
        bought.add(degree > 0)
    assert bought == {False, True}


def test_no_links_for_pairs_are_bought_for_nothing(little, monkeypatch):
    """An iteration shorter by less than a thousandth is no reason for a patch, by more it is."""
    objective = StrategyObjective(Problem(little, Cluster(8), 4, 25))
    best = simulate_proposal(objective.problem, objective.make_proposal(make_first_state(objective, 0, 0).at))
    for gain, bought in ((0.5 * MIN_IMPROVEMENT, 0), (2 * MIN_IMPROVEMENT, 2)):

        def simulated(problem, proposal, rounded=False, gain=gain):
            shorter = gain if proposal.finding.matching_degree else 0.0
            return replace(best, finding=proposal.finding, simulated_s=1.0 - shorter)

        monkeypatch.setattr("testbed.design.search.finalists.simulate_proposal", simulated)
        wired = rank_wirings(objective, best)
        assert [one.finding.matching_degree for one in wired] == [bought, 2 - bought]


@pytest.mark.long
def test_the_search_is_never_worse_than_its_start(random_workload):
    workload = random_workload(np.random.default_rng([2, 0]), layers=2)
    start, found = (optimise(workload, Cluster(4), 2, 25, steps=steps, seed=1) for steps in (0, 60))
    assert found.predicted.iteration_s < 0.99 * start.predicted.iteration_s
    simulated = [one.simulated_s for one in found.ranking]
    assert simulated == sorted(simulated)
    assert len({one.strategy for one in found.ranking}) == len(simulated)


@pytest.mark.long
def test_a_plan_is_no_slower_than_on_what_topology_finder_makes_for_its_strategy(pairs_alone):
    for number in (0, 4):
        workload, cluster = pairs_alone(number), Cluster(8)
        found = optimise(workload, cluster, 3, 25, steps=20, finalists=2, polish_work=0)
        objective = StrategyObjective(Problem(workload, cluster, 3, 25))
        plain = [
            simulate_on_quick_routes(
                objective.problem, found.strategy, start.finding.topology
            ).execution.iteration_s
            for start in propose_starts(objective, found.strategy)
        ]
        assert found.predicted.iteration_s <= min(plain) * (1 + MIN_IMPROVEMENT)


def test_ctrl_c_while_the_best_are_simulated_keeps_those_that_are_ready(little, four):
    problem = Problem(little, four, 2, 25)
    objective = StrategyObjective(problem)
    state = run_steps(objective, Rules(steps=200), make_first_state(objective, 0, 0), 200)
    proposals = [objective.make_proposal(visit) for visit in state.best]
    assert len(proposals) >= 4

    class Pressed(Executor):
        left = 2

        def submit(self, call, /, *arguments):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            future = Future()
            future.set_result(call(*arguments))
            return future

    with open_worker_pool() as here:
        assert set(rank_strategies(problem, proposals, Pressed())) == set(
            rank_strategies(problem, proposals[:2], here)
        )
    nobody = Pressed()
    nobody.left = 0
    stop = EarlyStop()
    (only,) = rank_strategies(problem, proposals, nobody, stop)
    assert (only.strategy, stop.reason) == (proposals[0].strategy, "Ctrl-C")


@pytest.mark.long
@pytest.mark.parametrize(
    "where",
    [
        "testbed.design.search.finalists.propose_starts",
        "testbed.design.search.planner.simulate_ideal_switch_s",
    ],
)
def test_ctrl_c_after_the_chains_gives_a_plan_and_says_so(little, four, monkeypatch, where):
    """The first Ctrl-C ends what goes on, the second the program."""
    whole = optimise(little, four, 2, 25, steps=20)
    name = where.rsplit(".", 1)[1]
    real = propose_starts if name == "propose_starts" else simulate_ideal_switch_s
    pressed = []

    def press(*about):
        pressed.append(name)
        if len(pressed) == 1:
            raise KeyboardInterrupt
        return real(*about)

    monkeypatch.setattr(where, press)
    found = optimise(little, four, 2, 25, steps=20)
    assert (whole.stopped, found.stopped) == (False, True)
    assert found.strategy == whole.ranking[0].strategy
    assert found.reasons[-1] == "The search was cut short by Ctrl-C after 20 of 20 steps: more may be found."

    def always(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("testbed.design.search.planner.simulate_ideal_switch_s", always)
    with pytest.raises(KeyboardInterrupt):
        optimise(little, four, 2, 25, steps=20)


def test_one_server_needs_no_link():
    found = optimise(pure_data(), Cluster(1), 4, 25, steps=20)
    assert found.finding.topology.edges == ()
    assert found.predicted.iteration_s == pytest.approx(found.predicted.ideal_switch_s)
    assert "One server" in found.reasons[0]


@pytest.mark.slow
def test_two_and_a_prime_number_of_servers_are_searched():
    """Nobody forwards for others, and two servers are as fast as on a switch: the whole of it is links between them."""
    two = optimise(pure_data(), Cluster(2), 1, 25, steps=10)
    assert two.finding.topology.edges == ((0, 1), (1, 0))
    seven = optimise(pure_data(), Cluster(7), 4, 25, steps=10)
    assert len(seven.finding.topology.strides) == len(set(seven.finding.topology.strides)) == 2
    for found in (two, seven):
        assert found.predicted.bandwidth_tax == pytest.approx(1.0)
        assert found.predicted.iteration_s < 1.1 * found.predicted.ideal_switch_s


@pytest.mark.slow
def test_reasons_name_strides_links_and_the_switch():
    found = optimise(dlrm(8, 1 << 12, 10**7), Cluster(8), 4, 25, steps=20, finalists=3)
    text = " ".join(found.reasons)
    assert "operators" in text
    assert "rings of strides ±1" in text
    assert "links for pairs the simulated iteration takes" in text
    assert "a switch that never blocks, with 100 Gb/s a server" in text


def test_what_does_not_fit_or_cannot_be_is_named():
    with pytest.raises(OutOfMemory):
        optimise(pure_data(gradient_bytes=10**12), Cluster(4), 2, 25, steps=1)
    with pytest.raises(TopologyError):
        optimise(pure_data(), Cluster(4), 1, 25, steps=1)
    with pytest.raises(SearchError, match="rate_gbps"):
        optimise(pure_data(), Cluster(4), 2, 0, steps=1)
    with pytest.raises(SearchError, match="0 or more steps"):
        optimise(pure_data(), Cluster(4), 2, 25, steps=-1)
    with pytest.raises(SearchError, match="resuming needs a checkpoint: give its file"):
        optimise(pure_data(), Cluster(4), 2, 25, steps=1, resume=True)


@pytest.mark.long
def test_a_plan_of_few_servers_comes_from_several_chains_unless_told_otherwise(monkeypatch):
    asked, found = [], []

    def quick(*about, steps, chains, **more):
        asked.append((steps, chains))
        if not found:
            found.append(
                optimise(*about, **more | {"steps": 2, "chains": 1, "finalists": 1, "polish_work": 0})
            )
        return found[0]

    monkeypatch.setattr("testbed.design.plans.planning.optimise", quick)
    choice = WorkloadChoice("candle", settings={"batch_per_device": "2"})
    for effort in (SearchEffort(), SearchEffort(steps=0), SearchEffort(chains=1)):
        plan, _ = make_plan(choice, Servers(4, 2, 25), effort)
        assert asked[-1] == (plan.search["steps"], plan.search["chains"])
    assert asked == [(250, 4), (0, 4), (250, 1)]


@pytest.mark.parametrize(
    ("degree", "simplex", "degrees"),
    [(4, False, (0, 2)), (5, False, (0, 1, 3)), (1, False, (0,)), (3, True, (0, 1, 2)), (1, True, (0,))],
)
def test_so_many_links_can_go_to_pairs(degree, simplex, degrees):
    assert Problem(pure_data(), Cluster(12), degree, 25, simplex).possible_pair_link_counts == degrees
