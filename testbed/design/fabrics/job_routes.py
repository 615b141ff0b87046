"""Routes for a job: found for the bytes that its iteration sends, AllReduces as the rings of its topology send them."""

from __future__ import annotations

from sim.models.network.execution.lowering import bytes_by_pair
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph
from testbed.design.fabrics.builders import rings_over
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MOST_SETS, RouteSets
from testbed.design.topology.demand import Demand, demand_of_matrix


def demand_on(topology: Topology, graph: TaskGraph, latency: Latency | None = None) -> Demand:
    """Return what an iteration sends between pairs on a topology, whose rings its AllReduces take."""
    return demand_of_matrix(bytes_by_pair(graph, latency or Latency(), rings_over(topology)))


def route_job(
    topology: Topology,
    graph: TaskGraph,
    *,
    most_paths: int = MOST_SETS,
    latency: Latency | None = None,
    tries: int = 3,
) -> RouteSets:
    """Return routes on which the fullest link carries little of an iteration. Raises `TopologyError` as `route`."""
    from testbed.design.routing.balancing import route

    return route(topology, demand_on(topology, graph, latency), most_paths=most_paths, tries=tries)
