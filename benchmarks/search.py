"""How long a strategy search takes, how far its closed form is to be trusted, and how near it comes to the optimum.

One JSON line each: `speed` (DLRM on 128 servers), `correlation` (closed form against simulator on random strategies),
`gap` (against all strategies on all topologies of six servers), `matchings` (where links for pairs are bought).
Times are processor time of one core: the machine may be doing other things.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from testbed.design.finder import Finding
from testbed.design.search import optimise
from testbed.design.search.chain import Rules, advance, begin
from testbed.design.search.crew import crew
from testbed.design.search.exchange_links import exchanged
from testbed.design.search.exhaustive import all_graphs, optimum
from testbed.design.search.finalists import rank, simulated, wirings
from testbed.design.search.setting import Setting
from testbed.design.search.strategies import StrategyProblem
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import A100_80GB, Cluster

NAMES = ("dlrm", "candle", "moe", "gpt")
STRATEGIES = 200
INSTANCES = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="one part instead of all")
    chosen = parser.parse_args().only
    for name, part in PARTS.items():
        if chosen in {None, name}:
            line = {"benchmark": "search", "part": name, "cores": os.cpu_count(), "results": part()}
            print(json.dumps(line), flush=True)


def setting_of(name: str, nodes: int, degree: int) -> Setting:
    return Setting(workload(name, nodes), Cluster(nodes, A100_80GB), degree, 100)


def speed() -> dict[str, Any]:
    """A chain of 4,000 steps with TopologyFinder in the loop, once all is compiled; then its best 20 simulated."""
    small = StrategyProblem(setting_of("dlrm", 16, 4))
    advance(small, Rules(steps=200), begin(small, 0, 0), 200)
    rows = {}
    for degree in (4, 8):
        setting, rules = setting_of("dlrm", 128, degree), Rules(steps=4000)
        clock = time.process_time()
        problem = StrategyProblem(setting)
        first = begin(problem, 0, 0)
        state = advance(problem, rules, first, rules.steps)
        chain_s = time.process_time() - clock
        ranking = rank(setting, [problem.proposal(visit) for visit in state.best], executor())
        rows[f"dlrm n=128,d={degree}"] = {
            "chain_s": round(chain_s, 1), "asked_chain_s": 60, "accepted": state.accepted,
            "finalists": len(ranking), "finalists_s": round(time.process_time() - clock - chain_s, 1),
            "start_ms": ms(first.at.cost_s), "closed_form_ms": ms(state.best[0].cost_s),
            "simulated_ms": ms(ranking[0].simulated_s),
        }  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return rows | {"peak_memory_gib": round(peak, 2), "asked_peak_memory_gib": 2}


def correlation(nodes: int = 12, degree: int = 4) -> dict[str, Any]:
    """Spearman's coefficient over random strategies, each on a topology of its own; and how far apart the times are."""
    from scipy.stats import spearmanr

    rows = {}
    for name in NAMES:
        problem = StrategyProblem(setting_of(name, nodes, degree))
        pairs = np.array([both(problem, point) for point in random_points(problem)])
        off = np.abs(pairs[:, 0] / pairs[:, 1] - 1)
        rows[name] = {
            "strategies": len(pairs), "spearman": round(float(spearmanr(*pairs.T).statistic), 4),
            "asked_spearman": 0.9, "median_difference": round(float(np.median(off)), 4),
            "p90_difference": round(float(np.quantile(off, 0.9)), 4),
            "simulated_ms": [ms(pairs[:, 1].min()), ms(pairs[:, 1].max())],
        }  # fmt: skip
    return rows | {"nodes": nodes, "degree": degree}


def random_points(problem: StrategyProblem) -> list[tuple[int, ...]]:
    """So many different strategies that fit: the start with 0 to all of its operators changed at random."""
    chance, points = np.random.default_rng(0), {problem.start(): None}
    while len(points) < STRATEGIES:
        point = problem.start()
        for _ in range(int(chance.integers(1 + len(point)))):
            point = problem.neighbour(point, chance)
        if problem.fits(point):
            points[point] = None
    return list(points)


def both(problem: StrategyProblem, point: tuple[int, ...]) -> tuple[float, float]:
    """Closed form and simulator, in seconds."""
    done = simulated(problem.setting, problem.strategy(point), problem.finding(point))
    return problem.cost_s(point, point), done.iteration_s


def gap() -> dict[str, Any]:
    """A chain of 2,000 steps against the proven optimum under the closed form, on random instances of six servers.

    With and without the exchange of links at its end. The plan that is then made is simulated beside its strategy on
    every graph.
    """
    rows = {}
    for degree in (2, 3):
        gaps, of_chains, of_plans, tried, seconds = [], [], [], 0, []
        for number in range(INSTANCES // 2):
            setting = Setting(random_workload(number), Cluster(6), degree, 25)
            best = optimum(setting)
            clock, problem = time.process_time(), StrategyProblem(setting)
            state = advance(problem, Rules(steps=2000), begin(problem, 0, 0), 2000)
            others = exchanged(problem, [problem.proposal(visit) for visit in state.best])
            seconds.append(time.process_time() - clock)
            cost_s = min([state.best[0].cost_s, *(other.closed_form_s for other in others)])
            gaps.append(cost_s / best.cost_s - 1)
            of_chains.append(state.best[0].cost_s / best.cost_s - 1)
            of_plans.append(topology_gap(setting))
            tried += best.tried
        rows[f"n=6,d={degree}"] = {
            "instances": len(gaps), "strategies_on_topologies_tried": tried,
            "mean_gap": round(statistics.mean(gaps), 4), "worst_gap": round(max(gaps), 4), "asked_worst_gap": 0.02,
            "optimum_found": sum(one < 1e-9 for one in gaps),
            "mean_gap_without_exchange": round(statistics.mean(of_chains), 4),
            "worst_gap_without_exchange": round(max(of_chains), 4),
            "worst_simulated_gap_of_topology": round(max(of_plans), 4), "chain_s": round(statistics.median(seconds), 2),
        }  # fmt: skip
    return rows


def topology_gap(setting: Setting) -> float:
    """How much longer a plan's iteration is than the shortest of its strategy on any graph, both simulated."""
    found = optimise(setting.workload, setting.cluster, setting.degree, setting.rate_gbps, steps=600)
    graphs = (Finding(graph, 0, 0, (), ()) for graph in all_graphs(setting.nodes, setting.degree))
    least_s = min(simulated(setting, found.strategy, graph).iteration_s for graph in graphs)
    return found.predicted.iteration_s / least_s - 1


def random_workload(number: int) -> Workload:
    """A table and two layers of random sizes; the table feeds the second layer."""
    chance = np.random.default_rng([17, number])

    def size(low: float, high: float) -> int:
        return int(2 ** chance.uniform(low, high))

    def layer(name: str) -> Operator:
        weights, output, flops = size(18, 25), size(11, 16), float(size(24, 33))
        return Operator(
            name, "dense", flops, 2 * flops, weights, output, gradient_bytes=weights,
            forward_reduce_bytes=output, backward_reduce_bytes=output, ways=("data", "tensor"),
        )  # fmt: skip

    table = Operator("table", "embedding", 1e6, 1e6, 1 << 20, size(10, 16), ways=("place",))
    return Workload("random", (table, layer("bottom"), layer("top")), ((0, 2), (1, 2)), batch=size(6, 9))


def matchings() -> dict[str, Any]:
    """Data parallel layers fed by tables, from little to much between pairs: links for pairs, and simulated times."""
    rows = {}
    for exponent in range(10, 24, 2):
        table = Operator("table", "embedding", 0.0, 0.0, 1 << 20, 1 << exponent, ways=("place",))
        pooled = Operator("pooled", "dense", 1e3, 1e3, 1 << 10, 64, ways=("place",))
        top = Operator("top", "dense", 1e6, 2e6, 1 << 26, 4, gradient_bytes=1 << 26)
        setting = Setting(Workload("mixed", (table, pooled, top), ((0, 1), (1, 2)), 96), Cluster(12), 4, 25)
        problem = StrategyProblem(setting)
        start = problem.start()
        visit = begin(problem, 0, 0).at
        best = rank(setting, [problem.proposal(visit)], executor())[0]
        found = wirings(problem, best)
        rows[f"pair MB {(1 << exponent) * 96 * 2 / 1e6:.1f}"] = {
            "bought": found[0].finding.matching_degree,
            "published_split": problem.published(start).matching_degree,
            "simulated_ms": {one.finding.matching_degree: ms(one.simulated_s) for one in found},
        }
    return rows


def executor() -> Executor:
    """Whoever works in this process."""
    with crew() as here:
        return here


def ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "speed": speed, "correlation": correlation, "gap": gap, "matchings": matchings
}  # fmt: skip

if __name__ == "__main__":
    main()
