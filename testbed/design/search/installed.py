"""Routes of a strategy on a topology, found for what it sends: a search ranks on those that a plan installs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sim.models.network.execution import Execution
from testbed.design.fabrics.builders import ChosenFabric, FabricRequest
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.job_routes import demand_on, route_job
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MOST_SETS, RouteSets
from testbed.design.search.problem import Problem
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.sharding.sharding import Strategy

_FEW_NODES = 32
"""Up to here all numbers of sets are tried."""


class Installed(NamedTuple):
    """Routes, None for a single server, and an iteration on them."""

    routes: RouteSets | None
    execution: Execution


def quick_routes(problem: Problem, strategy: Strategy, topology: Topology) -> RouteSets | None:
    """Return routes for a candidate of a search, in some milliseconds; microbatches make no difference."""
    from testbed.design.routing.balancing import quick_route

    if problem.nodes == 1:
        return None
    graph = iteration(problem.workload, replace(strategy, microbatches=1), problem.cluster)
    return quick_route(topology, demand_on(topology, graph, problem.latency))


def on_quick_routes(
    problem: Problem, strategy: Strategy, topology: Topology, *, rounded: bool = False
) -> Installed:
    """Return an iteration on `quick_routes`; with `rounded` ends of flows are up to 1 % of their duration late."""
    routes = quick_routes(problem, strategy, topology)
    chosen = fabric_on(problem, topology, routes)
    chosen = chosen.as_ranked() if rounded else chosen.as_fluid()
    graph = iteration(problem.workload, strategy, problem.cluster)
    return Installed(routes, chosen.run(graph, latency=problem.latency))


def installed(problem: Problem, strategy: Strategy, topology: Topology) -> Installed:
    """Return the routes that a plan gets, and an iteration on them: of some, those on which it is shortest.

    More sets keep the fullest link emptier, fewer keep the ways shorter, and quick ones, on which candidates are
    judged, are sometimes the luckier ones.
    """
    found = [on_quick_routes(problem, strategy, topology)]
    graph = found[0].execution.graph
    numbers = range(MOST_SETS, 0, -1) if problem.nodes <= _FEW_NODES else (MOST_SETS, 1)
    for sets in numbers if problem.nodes > 1 else ():
        routes = route_job(topology, graph, most_paths=sets, latency=problem.latency)
        chosen = fabric_on(problem, topology, routes).as_fluid()
        found.append(Installed(routes, chosen.run(graph, latency=problem.latency)))
    return min(found, key=lambda one: one.execution.iteration_s)


def fabric_on(problem: Problem, topology: Topology, routes: RouteSets | None) -> ChosenFabric:
    """Return the topology with these routes."""
    return build_fabric(
        FabricRequest(
            "direct", problem.nodes, problem.degree, problem.rate_gbps, topology=topology, routes=routes
        )
    )
