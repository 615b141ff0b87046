"""All strategies on all topologies, where they can be enumerated: the proven optimum that a search is measured by.

Optimal under the closed-form cost, or by simulation on the routes that are installed, over every legal sharding of
every operator and every connected graph in which each server has exactly its number of duplex links, parallel ones
included. AllReduces run as the planner runs them: on the strides that a graph holds as rings, or over its shortest
paths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from testbed.design.model import Topology
from testbed.design.search.annealing import Annealer
from testbed.design.search.chains import Point
from testbed.design.search.cost import Costs, build_paths
from testbed.design.search.problem import Problem
from testbed.design.search.program import Program
from testbed.design.search.simulator import Simulator, simulate_plan_routes
from testbed.design.search.strategies import StrategyObjective
from testbed.design.topology.hops import make_hop_table
from testbed.design.workloads.sharding import Strategy
from testbed.errors import SearchError

MOST = 2_000_000
"""Pairs of a strategy and a topology that are tried at most: some minutes."""

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Optimum:
    """The cheapest pair of all that were tried."""

    cost_s: float
    point: Point
    topology: Topology
    tried: int


def optimum(problem: Problem) -> Optimum:
    """Return the cheapest strategy and topology of all.

    Raises `SearchError` for one-way links, where there is no graph, and for more than `MOST` pairs to try.
    """
    if problem.simplex:
        raise SearchError("all topologies are listed for duplex links only: leave simplex out")
    objective = StrategyObjective(problem)
    points = [
        point
        for point in product(*(range(len(known)) for known in objective.shardings))
        if objective.fits_memory(point)
    ]
    graphs = list(all_graphs(problem.nodes, problem.degree))
    if not graphs:
        raise SearchError(
            f"no connected graph has {problem.nodes} servers with {problem.degree} duplex links each: take 2 or more "
            f"servers, an even number of ends, and 2 links or more where there are more than 2 servers"
        )
    tried = len(points) * len(graphs)
    if tried > MOST:
        raise SearchError(
            f"{len(points)} strategies on {len(graphs)} topologies are more than {MOST} to try: take fewer servers "
            f"or operators"
        )
    best = Optimum(math.inf, objective.get_start_point(), graphs[0], tried)
    for topology in graphs:
        costs = Costs(problem, build_paths(topology, problem.rate_gbps))
        for point in points:
            cost_s = costs.compute_seconds(objective.get_program(point))
            if cost_s < best.cost_s:
                best = Optimum(cost_s, point, topology, tried)
    return best


def all_graphs(nodes: int, degree: int) -> Iterator[Topology]:
    """Yield every connected duplex graph in which each node has exactly `degree` links, parallel ones included.

    >>> [len(list(all_graphs(nodes, 2))) for nodes in (3, 4, 5)]  # cycles through all nodes: (n-1)!/2
    [1, 3, 12]
    """
    for links in _completed(nodes, [degree] * nodes, 0, 1):
        edges = tuple(sorted([*links, *((target, source) for source, target in links)]))
        if make_hop_table(nodes, edges).min() >= 0:
            yield Topology(nodes, degree, simplex=False, strides=_strides(nodes, edges), edges=edges)


def _completed(nodes: int, free: list[int], node: int, other: int) -> Iterator[tuple[Edge, ...]]:
    """Yield all ways to use up the links that are `free`, from the pair (node, other) on."""
    if node == nodes - 1 or other == nodes:
        if node == nodes - 1:
            if not free[node]:
                yield ()
        elif not free[node]:
            yield from _completed(nodes, free, node + 1, node + 2)
        return
    for count in range(min(free[node], free[other]) + 1):
        left = list(free)
        left[node] -= count
        left[other] -= count
        for links in _completed(nodes, left, node, other + 1):
            yield ((node, other),) * count + links


def _strides(nodes: int, edges: tuple[Edge, ...]) -> tuple[int, ...]:
    """Return the strides that the graph holds from every node, parallel ones as often."""
    copies = Counter(edges)
    held: list[int] = []
    for stride in range(1, nodes // 2 + 1):
        held += [stride] * min(copies[node, (node + stride) % nodes] for node in range(nodes))
    return tuple(held)


@dataclass(frozen=True, slots=True)
class SimulatedOptimum:
    """The fastest of all strategies on all topologies, on the routes that would be installed; how many were tried."""

    seconds: float
    strategy: Strategy
    topology: Topology
    tried: int


NEAR = 0.1
"""What is slower by more than this on quick routes is not simulated on others."""
_CLOSEST = 40


def simulated_optimum(problem: Problem) -> SimulatedOptimum:
    """Return the fastest by simulation, of every number of microbatches that a search tries.

    What no routing makes as fast as the best so far is not simulated, all else is. Raises as `optimum`.
    """
    annealer, simulator = Annealer(problem), Simulator(problem)
    candidates = sorted(_candidates(annealer), key=lambda one: one[0])
    best_s = math.inf
    near: list[tuple[float, Strategy, Topology]] = []
    for _, strategy, topology in candidates:
        taken_s = simulator.simulate_s(strategy, topology, best_s * (1 + NEAR))
        if math.isfinite(taken_s):
            best_s = min(best_s, taken_s)
            near.append((taken_s, strategy, topology))
    near.sort(key=lambda one: one[0])
    timed = [
        (simulate_plan_routes(problem, strategy, topology).execution.iteration_s, strategy, topology)
        for taken_s, strategy, topology in near[:_CLOSEST]
        if taken_s <= best_s * (1 + NEAR)
    ]
    return SimulatedOptimum(*min(timed, key=lambda one: one[0]), len(candidates))


def _candidates(annealer: Annealer) -> Iterator[tuple[float, Strategy, Topology]]:
    """Yield what there is, with its time in closed form: what is fast comes first, and is the measure of the others."""
    problem = annealer.problem
    spread: list[tuple[Program, Strategy]] = []
    for count in annealer.list_microbatch_counts():
        objective = annealer.get_objective(count)
        for point in product(*(range(len(known)) for known in objective.shardings)):
            if objective.fits_memory(point):
                spread += [(objective.get_program(point), objective.make_strategy(point))]
    for topology in all_graphs(problem.nodes, problem.degree):
        costs = Costs(problem, build_paths(topology, problem.rate_gbps))
        for program, strategy in spread:
            yield costs.compute_seconds(program), strategy, topology
