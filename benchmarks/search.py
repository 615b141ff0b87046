"""Time of a strategy search, quality of its closed form, and distance of its plans from the optimum.

One JSON line each: `speed` (DLRM on 128 servers), `correlation` (closed form and simulator on random strategies), `gap`
(distance from the best of all strategies on all topologies of six servers), `seeds` (plans of one job from several
seeds), `matchings` (traffic for which links for pairs are used), `baselines` (hill climbing and annealing for the same
time), `finalists` (order of strategies that are almost as fast as the best), `instances` (named problems and their
optima). Iterations are simulated on routes for the traffic of a strategy, as plans install them. Times are processor
time of one core, so the machine need not be idle.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))
from witnesses.exhaustive import all_graphs, optimum, simulated_optimum
from witnesses.instances import INSTANCES as NAMED

from testbed.design.model import Topology
from testbed.design.plans.planning import get_default_steps_and_chains
from testbed.design.search import optimise
from testbed.design.search.annealing import Annealer, Candidate, Cooling, refine_candidates
from testbed.design.search.chains import EarlyStop, Point, Rules, make_first_state, run_steps
from testbed.design.search.finalists import rank_strategies, rank_wirings
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import (
    build_routed_fabric,
    simulate_on_quick_routes,
    simulate_plan_routes,
)
from testbed.design.search.strategies import StrategyObjective
from testbed.design.search.worker_pool import open_worker_pool
from testbed.design.topology.finder import Finding
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import A100_80GB, Cluster
from testbed.design.workloads.sharding import Strategy

NAMES = ("dlrm", "candle", "moe", "gpt")
STRATEGIES = 200
INSTANCES = 6
FINALISTS = 20

Draw = Callable[[StrategyObjective, np.random.Generator], Point]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    only = parser.parse_args().only
    for name, part in PARTS.items():
        if only in {None, name}:
            line = {"benchmark": "search", "part": name, "cores": os.cpu_count(), "results": part()}
            print(json.dumps(line), flush=True)


def problem_of(name: str, nodes: int, degree: int) -> Problem:
    return Problem(workload(name, nodes), Cluster(nodes, A100_80GB), degree, 100)


def speed() -> dict[str, Any]:
    """Measure 4,000 compiled steps with TopologyFinder in the loop, then the simulation of the best 20."""
    small = StrategyObjective(problem_of("dlrm", 16, 4))
    run_steps(small, Rules(steps=200), make_first_state(small, 0, 0), 200)
    rows = {}
    for degree in (4, 8):
        problem, rules = problem_of("dlrm", 128, degree), Rules(steps=4000)
        clock = time.process_time()
        objective = StrategyObjective(problem)
        first = make_first_state(objective, 0, 0)
        state = run_steps(objective, rules, first, rules.steps)
        chain_s = time.process_time() - clock
        ranking = rank_strategies(
            problem, [objective.make_proposal(visit) for visit in state.best], executor()
        )
        rows[f"dlrm n=128,d={degree}"] = {
            "chain_s": round(chain_s, 1), "asked_chain_s": 60, "accepted": state.accepted,
            "finalists": len(ranking), "finalists_s": round(time.process_time() - clock - chain_s, 1),
            "start_ms": ms(first.at.cost_s), "closed_form_ms": ms(state.best[0].cost_s),
            "simulated_ms": ms(ranking[0].simulated_s),
        }  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return rows | {"peak_memory_gib": round(peak, 2), "asked_peak_memory_gib": 2}


def correlation(nodes: int = 12, degree: int = 4) -> dict[str, Any]:
    """Compare closed form and simulator over random strategies, each on its own topology.

    There are two samples: the start with some operators changed, as in a chain, and strategies with all operators
    random.
    """
    rows: dict[str, Any] = {"nodes": nodes, "degree": degree, "asked_spearman": 0.9}
    for name in NAMES:
        objective = StrategyObjective(problem_of(name, nodes, degree))
        rows[name] = {sample: compare(objective, draw) for sample, draw in SAMPLES.items()}
    return rows


def compare(objective: StrategyObjective, draw: Draw) -> dict[str, Any]:
    """Return Spearman's coefficient of closed form and simulator over one sample, and their differences."""
    from scipy.stats import spearmanr

    pairs = np.array([iteration_times(objective, point) for point in random_points(objective, draw)])
    differences = np.abs(pairs[:, 0] / pairs[:, 1] - 1)
    return {
        "strategies": len(pairs), "spearman": round(float(spearmanr(*pairs.T).statistic), 4),
        "median_difference": round(float(np.median(differences)), 4),
        "p90_difference": round(float(np.quantile(differences, 0.9)), 4),
        "simulated_ms": [ms(pairs[:, 1].min()), ms(pairs[:, 1].max())],
    }  # fmt: skip


def random_points(objective: StrategyObjective, draw: Draw) -> list[Point]:
    """Return `STRATEGIES` different random strategies that fit into memory."""
    chance, points = np.random.default_rng(0), {objective.get_start_point(): None}
    while len(points) < STRATEGIES:
        point = draw(objective, chance)
        if objective.fits_memory(point):
            points[point] = None
    return list(points)


def some_changed(objective: StrategyObjective, chance: np.random.Generator) -> Point:
    """Return the start after a random number of changes, up to one per operator."""
    point = objective.get_start_point()
    for _ in range(int(chance.integers(1 + len(point)))):
        point = objective.draw_neighbour(point, chance)
    return point


def all_drawn(objective: StrategyObjective, chance: np.random.Generator) -> Point:
    """Return a random sharding for every operator."""
    return tuple(int(chance.integers(len(shardings))) for shardings in objective.shardings)


def iteration_times(objective: StrategyObjective, point: tuple[int, ...]) -> tuple[float, float]:
    """Return the iteration time by the closed form and by the simulator, in s."""
    topology = objective.get_finding(point).topology
    execution = simulate_on_quick_routes(
        objective.problem, objective.make_strategy(point), topology
    ).execution
    return objective.compute_cost_s(point, point), execution.iteration_s


def gap() -> dict[str, Any]:
    """Compare plans of `optimise` with proven optima, for random workloads on six servers and few steps.

    `closed_form` compares the lowest closed-form time among the simulated candidates with all strategies on all graphs.
    `simulated` compares the plan with its strategy on every graph, both simulated.
    """
    rows = {}
    for degree, tables, steps in ((2, 2, 400), (3, 1, 100)):
        graphs = [Finding(graph, 0, 0, (), ()) for graph in all_graphs(6, degree)]
        closed, timed, strategies, seconds = [], [], [], []
        for number in range(INSTANCES):
            problem = Problem(random_workload(number, tables), Cluster(6), degree, 25)
            best, clock = optimum(problem), time.process_time()
            plan = optimise(
                problem.workload, problem.cluster, degree, 25, steps=steps // 2, chains=2, seed=number
            )
            seconds.append(time.process_time() - clock)
            strategies.append(best.tried // len(graphs))
            closed_form_times = [
                plan.predicted.closed_form_s,
                *(one.closed_form_s for one in (*plan.ranking, *plan.wirings)),
            ]
            closed.append(min(closed_form_times) / best.cost_s - 1)
            least_s = min(
                simulate_plan_routes(problem, plan.strategy, graph.topology).execution.iteration_s
                for graph in graphs
            )
            timed.append(plan.predicted.iteration_s / least_s - 1)
        rows[f"n=6,d={degree}"] = {
            "workloads": INSTANCES, "strategies": [min(strategies), max(strategies)], "graphs": len(graphs),
            "steps": steps, "asked_gap": 0.02, "closed_form": gaps_summary(closed), "simulated": gaps_summary(timed),
            "search_s": round(statistics.median(seconds), 2),
        }  # fmt: skip
    return rows


def gaps_summary(gaps: list[float]) -> dict[str, Any]:
    """Return the mean and the largest gap, and the number of gaps that are zero."""
    return {
        "mean": round(statistics.mean(gaps), 4), "worst": round(max(gaps), 4), "none": sum(one < 1e-9 for one in gaps)
    }  # fmt: skip


def seeds() -> dict[str, Any]:
    """Plan DLRM on 12 hosts, the job of the how-to, from five seeds: in one long chain, and as the command does."""
    job, rows = workload("dlrm", 12, preset="testbed"), {}
    for steps, chains in ((4000, 1), get_default_steps_and_chains(12)):
        clock, times = time.process_time(), []
        for seed in range(5):
            plan = optimise(job, Cluster(12), 4, 25, steps=steps, chains=chains, seed=seed)
            times.append(ms(plan.predicted.iteration_s))
        rows[f"{chains} of {steps} steps"] = {
            "iteration_ms": times, "spread": round(max(times) / min(times) - 1, 4),
            "search_s": round((time.process_time() - clock) / len(times), 1),
        }  # fmt: skip
    return rows


def random_workload(number: int, tables: int) -> Workload:
    """Return a workload of two layers of random sizes; tables also feed the second layer."""
    chance = np.random.default_rng([17, number])

    def size(low: float, high: float) -> int:
        return int(2 ** chance.uniform(low, high))

    def layer(place: int) -> Operator:
        weights, output, flops = size(18, 25), size(11, 16), float(size(24, 33))
        return Operator(
            f"layer{place}", "dense", flops, 2 * flops, weights, output, gradient_bytes=weights,
            forward_reduce_bytes=output, backward_reduce_bytes=output, ways=("data", "tensor"),
        )  # fmt: skip

    operators = [
        *(
            Operator(f"table{place}", "embedding", 1e6, 1e6, 1 << 20, size(10, 16), ways=("place",))
            for place in range(tables)
        ),
        *map(layer, range(2)),
    ]
    last = len(operators) - 1
    edges = [
        *((place, last) for place in range(tables)),
        *((place, place + 1) for place in range(tables, last)),
    ]
    return Workload("random", tuple(operators), tuple(edges), batch=size(6, 9))


def baselines(seeds: int = 10) -> dict[str, Any]:
    """Plan the testbed's DLRM from ten seeds, and run two simple searches for the same processor time.

    The same simulator evaluates all three, on the routes of a plan.
    """
    problem = Problem(workload("dlrm", 12, preset="testbed"), Cluster(12), 4, 25)
    steps, chains = get_default_steps_and_chains(12)
    times: dict[str, list[float]] = {"search": [], "hill climbing": [], "annealing": []}
    cpu_s = []
    for seed in range(seeds):
        plan = optimise(problem.workload, problem.cluster, 4, 25, steps=steps, chains=chains, seed=seed)
        times["search"].append(ms(plan.predicted.iteration_s))
        cpu_s.append(round(plan.cpu_s, 1))
        for name, baseline in (("hill climbing", hill_climbing), ("annealing", annealing)):
            best = baseline(Annealer(problem), seed, plan.cpu_s)
            times[name].append(ms(planned_s(problem, best)))
    rows = {name: {"iteration_ms": each, **summary_of(each)} for name, each in times.items()}
    return rows | {"cpu_s": cpu_s, "asked_cpu_s": 30, "asked_mean_ms": 66, "asked_spread": 0.04}


def planned_s(problem: Problem, best: Candidate) -> float:
    """Return the iteration time of a candidate on the routes of a plan, in s."""
    objective = StrategyObjective(replace(problem, microbatches=best.microbatches))
    return simulate_plan_routes(
        problem, objective.make_strategy(best.point), best.finding.topology
    ).execution.iteration_s


def finalists(seeds: int = 3) -> dict[str, Any]:
    """Simulate strategies within 25 % of the best of a search again: on the routes of a plan, and with rings in rounds.

    One strategy is taken from each equal part of that range of times, because most strategies that a search knows are
    within 0.1 % of its best, where their order is meaningless. `spearman` correlates the times of the search with those
    on the routes of a plan, `rounds_spearman` with those in rounds.
    """
    from scipy.stats import spearmanr

    problem = Problem(workload("dlrm", 12, preset="testbed"), Cluster(12), 4, 25)
    rows: dict[str, Any] = {"asked_spearman": 0.9}
    for seed in range(seeds):
        annealer = Annealer(problem)
        objective = annealer.get_objective(1)
        start = Candidate(objective.get_start_point(), 1, objective.get_finding(objective.get_start_point()))
        refine_candidates(annealer, [start], np.random.default_rng(seed), 800_000, EarlyStop())
        known = annealer.simulator.select_fastest(0.25)
        selection = spread_by_time(known, FINALISTS)
        table = [
            (search_s, *simulate_again(problem, strategy, topology))
            for search_s, strategy, topology in selection
        ]
        searched, planned, rounds = (list(column) for column in zip(*table, strict=True))
        rows[f"seed {seed}"] = {
            "finalists": len(selection), "of": len(known), "spread": round(searched[-1] / searched[0] - 1, 3),
            "spearman": round(float(spearmanr(searched, planned).statistic), 3),
            "rounds_spearman": round(float(spearmanr(searched, rounds).statistic), 3),
        }  # fmt: skip
    return rows


def spread_by_time(
    known: list[tuple[float, Strategy, Topology]], count: int
) -> list[tuple[float, Strategy, Topology]]:
    """Return the fastest strategy in each of `count` equal parts of the range of times; some parts may be empty."""
    first, last = known[0][0], known[-1][0]
    parts: dict[int, tuple[float, Strategy, Topology]] = {}
    for one in known:
        parts.setdefault(min(int((one[0] - first) / (last - first) * count), count - 1), one)
    return list(parts.values())


def simulate_again(problem: Problem, strategy: Strategy, topology: Topology) -> tuple[float, float]:
    """Return the iteration time on the routes of a plan in s, with fluid rings and with rings in rounds."""
    routes, execution = simulate_plan_routes(problem, strategy, topology)
    rounds = build_routed_fabric(problem, topology, routes).run(execution.graph, latency=problem.latency)
    return execution.iteration_s, rounds.iteration_s


def instances() -> dict[str, Any]:
    """Compare plans of the named problems for six servers with the best of all strategies on all topologies."""
    rows: dict[str, Any] = {"asked_optimal": len(NAMED), "tie": 0.001}
    for name, problem in NAMED.items():
        best, microbatches = simulated_optimum(problem), problem.microbatches
        plan = optimise(
            problem.workload, problem.cluster, problem.degree, problem.rate_gbps, steps=200, chains=4,
            microbatches=microbatches,
        )  # fmt: skip
        rows[name] = {
            "tried": best.tried, "optimum_ms": ms(best.seconds), "plan_ms": ms(plan.predicted.iteration_s),
            "search_s": round(plan.cpu_s, 1),
        }  # fmt: skip
        rows[name]["optimal"] = plan.predicted.iteration_s <= best.seconds * 1.001
    return rows | {"optimal": sum(row["optimal"] for row in rows.values() if isinstance(row, dict))}


def summary_of(times: list[float]) -> dict[str, float]:
    """Return the mean time, and the relative distance of the slowest from the fastest."""
    return {"mean_ms": round(statistics.mean(times), 2), "spread": round(max(times) / min(times) - 1, 4)}


def hill_climbing(annealer: Annealer, seed: int, cpu_s: float) -> Candidate:
    """Return the best of hill climbing with random restarts, each after 150 useless changes in a row."""
    end_s, chance = time.process_time() + cpu_s, np.random.default_rng(seed)
    objective = annealer.get_objective(1)
    at = candidate = Candidate(
        objective.get_start_point(), 1, objective.get_finding(objective.get_start_point())
    )
    best, best_s = at, annealer.simulate_s(at)
    now_s, useless = best_s, 0
    while time.process_time() < end_s:
        if useless == 150:
            at, now_s, useless = shuffled(annealer, candidate, chance), math.inf, 0
        other = changed(annealer, at, chance)
        other_s = annealer.simulate_s(other, now_s) if annealer.fits_memory(other) else math.inf
        useless = useless + 1 if other_s >= now_s else 0
        if other_s < now_s:
            at, now_s = other, other_s
            best, best_s = (at, now_s) if now_s < best_s else (best, best_s)
    return best


def shuffled(annealer: Annealer, start: Candidate, chance: np.random.Generator) -> Candidate:
    """Return the start after up to twenty random changes."""
    for _ in range(20):
        other = changed(annealer, start, chance)
        start = other if annealer.fits_memory(other) else start
    return start


def changed(annealer: Annealer, at: Candidate, chance: np.random.Generator) -> Candidate:
    """Return a candidate with one operator sharded differently; sometimes with other microbatches, or new links."""
    objective, drawn = annealer.get_objective(at.microbatches), chance.random()
    if drawn < 0.05:
        return at._replace(finding=objective.get_finding(at.point))
    if drawn < 0.1:
        return at._replace(microbatches=int(chance.choice([1, 2, 4, 8, 16])))
    return at._replace(point=objective.draw_neighbour(at.point, chance))


def annealing(annealer: Annealer, seed: int, cpu_s: float) -> Candidate:
    """Return the best of annealing with class moves; every step is simulated, and it cools from 5 % to 0.05 %."""
    begin_s, chance = time.process_time(), np.random.default_rng(seed)
    objective = annealer.get_objective(1)
    at = Candidate(objective.get_start_point(), 1, objective.get_finding(objective.get_start_point()))
    best, scale_s = at, annealer.simulate_s(at)
    best_s = now_s = scale_s
    cooling = Cooling(first_fraction=0.05, last_fraction=0.0005)
    while (spent := (time.process_time() - begin_s) / cpu_s) < 1:
        other = annealer.propose_neighbour(at, chance)
        if other == at or not annealer.fits_memory(other):
            continue
        bar_s = now_s - scale_s * cooling.compute_temperature(spent) * math.log1p(-chance.random())
        other_s = annealer.simulate_s(other, bar_s)
        if math.isfinite(other_s):
            at, now_s = other, other_s
            best, best_s = (at, now_s) if now_s < best_s else (best, best_s)
    return best


def matchings() -> dict[str, Any]:
    """Measure the links for pairs and the simulated times of data-parallel layers fed by larger and larger tables."""
    rows = {}
    for exponent in range(10, 24, 2):
        table = Operator("table", "embedding", 0.0, 0.0, 1 << 20, 1 << exponent, ways=("place",))
        pooled = Operator("pooled", "dense", 1e3, 1e3, 1 << 10, 64, ways=("place",))
        top = Operator("top", "dense", 1e6, 2e6, 1 << 26, 4, gradient_bytes=1 << 26)
        problem = Problem(Workload("mixed", (table, pooled, top), ((0, 1), (1, 2)), 96), Cluster(12), 4, 25)
        objective = StrategyObjective(problem)
        start = objective.get_start_point()
        visit = make_first_state(objective, 0, 0).at
        best = rank_strategies(problem, [objective.make_proposal(visit)], executor())[0]
        ranking = rank_wirings(objective, best)
        rows[f"pair MB {(1 << exponent) * 96 * 2 / 1e6:.1f}"] = {
            "bought": ranking[0].finding.matching_degree,
            "published_split": objective.split_as_published(start).matching_degree,
            "simulated_ms": {one.finding.matching_degree: ms(one.simulated_s) for one in ranking},
        }
    return rows


def executor() -> Executor:
    """Return the executor that works in this process."""
    with open_worker_pool() as pool:
        return pool


def ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


SAMPLES: dict[str, Draw] = {"some changed": some_changed, "all drawn": all_drawn}
PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "speed": speed, "correlation": correlation, "gap": gap, "seeds": seeds,
    "matchings": matchings, "baselines": baselines, "finalists": finalists, "instances": instances,
}  # fmt: skip

if __name__ == "__main__":
    main()
