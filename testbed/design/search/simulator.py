"""Simulator for a search, which runs it thousands of times: graphs, fabrics and results are cached.

Candidates are simulated on routes that are found in milliseconds. A plan gets the best of several sets of routes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from sim.models.network.execution import Execution
from sim.models.network.execution.lowering import lower_graph
from sim.models.network.execution.simulation import Run
from testbed.design.fabrics.direct import find_demand, route_job
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import ChosenFabric, FabricRequest
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MAX_SETS, RouteSets
from testbed.design.search.problem import Problem
from testbed.design.topology.demand import Demand
from testbed.design.topology.hops import make_distance_matrix
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.sharding import Strategy

_CACHED_FABRICS = 64
_CACHED_GRAPHS = 64
ROUTING_WORK = 250
"""Work that one search for routes counts as, in simulated tasks and messages."""

_MAX_NODES_FOR_ALL_SETS = 32
"""Up to this number of servers, `simulate_plan_routes` tries all numbers of route sets."""


class Simulator:
    """Simulated iterations of one problem, with fluid rings, which are exact on links that carry nothing else.

    Each candidate is simulated on routes for its demand, see `find_quick_routes`. `work` counts simulated tasks and
    messages. Unlike seconds, it is the same on every machine.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.work = 0
        self.get_fabric = lru_cache(_CACHED_FABRICS)(self._build_fabric)
        self.get_graph = lru_cache(_CACHED_GRAPHS)(
            partial(iteration, problem.workload, cluster=problem.cluster)
        )
        self._get_hops = lru_cache(_CACHED_FABRICS)(make_distance_matrix)
        self._simulated_s: dict[tuple[Strategy, Topology], float] = {}
        self._demands: dict[tuple[Strategy, tuple[int, ...]], Demand] = {}
        self._exceeded_limit_s: dict[tuple[Strategy, Topology], float] = {}
        self._fullest_link_s: dict[tuple[Strategy, Topology], float] = {}

    def simulate_s(self, strategy: Strategy, topology: Topology, limit_s: float = math.inf) -> float:
        """Return the seconds of an iteration, or infinity if they exceed `limit_s`.

        The simulation ends at `limit_s`, and does not even begin if a single link is busy for longer.
        """
        key = strategy, topology
        if key in self._simulated_s:
            return self._simulated_s[key] if self._simulated_s[key] <= limit_s else math.inf
        if (
            self._exceeded_limit_s.get(key, 0.0) >= limit_s
            or self.compute_lower_bound_s(strategy, topology) > limit_s
        ):
            return math.inf
        simulated_s = self._simulate_until(strategy, topology, limit_s)
        (self._exceeded_limit_s if math.isinf(simulated_s) else self._simulated_s)[key] = min(
            simulated_s, limit_s
        )
        return simulated_s

    def select_fastest(self, max_excess: float) -> list[tuple[float, Strategy, Topology]]:
        """Return the completed simulations that are slower than the fastest by at most the fraction `max_excess`.

        The fastest come first.
        """
        sorted_runs = sorted(
            ((seconds, *key) for key, seconds in self._simulated_s.items()), key=lambda entry: entry[0]
        )
        return [entry for entry in sorted_runs if entry[0] <= sorted_runs[0][0] * (1 + max_excess)]

    def compute_lower_bound_s(self, strategy: Strategy, topology: Topology) -> float:
        """Return a lower bound, in seconds, on the iteration with any routes on the topology.

        It is the larger of two times: for all bytes on shortest paths with all links full, and for the server that
        sends or receives most with all its links full. AllReduces count as rings of one hop per step.
        """
        job_traffic = traffic(self.problem.workload, replace(strategy, microbatches=1), self.problem.cluster)
        byte_s = 8e-9 / self.problem.rate_gbps
        ring_bytes = np.zeros(self.problem.nodes)
        for members, size_bytes in job_traffic.allreduce.items():
            ring_bytes[list(members)] += 2 * (len(members) - 1) / len(members) * size_bytes
        busiest_bytes = (
            max((job_traffic.pairs.sum(axis=axis) + ring_bytes).max() for axis in (0, 1))
            / self.problem.degree
        )
        carried_bytes = (job_traffic.pairs * self._get_hops(topology)).sum() + ring_bytes.sum()
        return float(max(busiest_bytes, carried_bytes / max(len(topology.edges), 1)) * byte_s)

    def compute_fullest_link_s(self, strategy: Strategy, topology: Topology) -> float:
        """Return the seconds for which the fullest link is busy. This compares topologies without a simulation."""
        from testbed.design.routing.balancing import find_quick_balanced_routes

        unsplit_strategy = _use_one_microbatch(strategy)
        if (unsplit_strategy, topology) in self._fullest_link_s:
            return self._fullest_link_s[unsplit_strategy, topology]
        self.work += ROUTING_WORK
        key = unsplit_strategy, topology.strides
        if key not in self._demands:  # the demand depends on the links only by the strides of AllReduce rings
            self._demands[key] = find_demand(topology, self.get_graph(unsplit_strategy), self.problem.latency)
        demand = self._demands[key]
        fullest_bytes = (
            find_quick_balanced_routes(topology, demand).compute_link_bytes(demand).max(initial=0.0)
        )
        self._fullest_link_s[unsplit_strategy, topology] = float(
            fullest_bytes * 8e-9 / self.problem.rate_gbps
        )
        return self._fullest_link_s[unsplit_strategy, topology]

    def run(self, strategy: Strategy, topology: Topology) -> Execution:
        """Return the execution of a whole iteration."""
        return self.get_fabric(_use_one_microbatch(strategy), topology).run(
            self.get_graph(strategy), latency=self.problem.latency
        )

    def _simulate_until(self, strategy: Strategy, topology: Topology, limit_s: float) -> float:
        graph, routed_fabric = (
            self.get_graph(strategy),
            self.get_fabric(_use_one_microbatch(strategy), topology),
        )
        fabric = routed_fabric.fabric
        lowered_graph = lower_graph(graph, fabric, self.problem.latency, routed_fabric.allreduce)
        self.work += graph.task_count
        byte_s, program, lowered_routes = 8 / fabric.capacity_bps, lowered_graph.program, lowered_graph.routes
        hops = np.diff(lowered_routes.first_link)
        path_bytes = np.bincount(
            lowered_routes.path_of_message,
            program.message_bytes * lowered_graph.messages.round_count,
            minlength=hops.size,
        )
        carried_bytes = np.bincount(lowered_routes.links, np.repeat(path_bytes, hops), minlength=byte_s.size)
        if (carried_bytes * byte_s).max(initial=0.0) > limit_s:
            return math.inf
        self.work += graph.task_count + program.message_bytes.size
        run = Run(lowered_graph, fabric.capacity_bps / 8, fabric.never_full)
        return float(run.state.end_s.max(initial=0.0)) if run.run_until(limit_s) else math.inf

    def _build_fabric(self, strategy: Strategy, topology: Topology) -> ChosenFabric:
        routes = find_quick_routes(self.problem, strategy, topology)
        return build_routed_fabric(self.problem, topology, routes).as_fluid()


def _use_one_microbatch(strategy: Strategy) -> Strategy:
    return replace(strategy, microbatches=1)


class RoutedExecution(NamedTuple):
    """Routes (None for a single server), and an iteration on them."""

    routes: RouteSets | None
    execution: Execution


def find_quick_routes(problem: Problem, strategy: Strategy, topology: Topology) -> RouteSets | None:
    """Return routes for a candidate, found in milliseconds, or None for a single server.

    They do not depend on the number of microbatches.
    """
    from testbed.design.routing.balancing import find_quick_balanced_routes

    if problem.nodes == 1:
        return None
    graph = iteration(problem.workload, replace(strategy, microbatches=1), problem.cluster)
    return find_quick_balanced_routes(topology, find_demand(topology, graph, problem.latency))


def simulate_on_quick_routes(
    problem: Problem, strategy: Strategy, topology: Topology, *, is_rounded: bool = False
) -> RoutedExecution:
    """Return the iteration on `find_quick_routes`. `is_rounded` lets flows end late by up to 1 % of their duration."""
    routes = find_quick_routes(problem, strategy, topology)
    routed_fabric = build_routed_fabric(problem, topology, routes)
    routed_fabric = routed_fabric.as_ranked() if is_rounded else routed_fabric.as_fluid()
    graph = iteration(problem.workload, strategy, problem.cluster)
    return RoutedExecution(routes, routed_fabric.run(graph, latency=problem.latency))


def simulate_plan_routes(problem: Problem, strategy: Strategy, topology: Topology) -> RoutedExecution:
    """Return the fastest routes for a plan, and the iteration on them.

    It tries several numbers of route sets, since more sets unload the fullest link, but fewer sets keep paths shorter.
    The quick routes, on which candidates are judged, are sometimes the fastest.
    """
    routed_executions = [simulate_on_quick_routes(problem, strategy, topology)]
    graph = routed_executions[0].execution.graph
    set_counts = range(MAX_SETS, 0, -1) if problem.nodes <= _MAX_NODES_FOR_ALL_SETS else (MAX_SETS, 1)
    for set_count in set_counts if problem.nodes > 1 else ():
        routes = route_job(topology, graph, max_paths=set_count, latency=problem.latency)
        routed_fabric = build_routed_fabric(problem, topology, routes).as_fluid()
        routed_executions.append(RoutedExecution(routes, routed_fabric.run(graph, latency=problem.latency)))
    return min(routed_executions, key=lambda entry: entry.execution.iteration_s)


def build_routed_fabric(problem: Problem, topology: Topology, routes: RouteSets | None) -> ChosenFabric:
    """Return the direct-connect fabric of a topology with these routes."""
    return build_fabric(
        FabricRequest(
            "direct", problem.nodes, problem.degree, problem.rate_gbps, topology=topology, routes=routes
        )
    )
