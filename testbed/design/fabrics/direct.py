"""Direct connect: optical circuits as TopologyFinder places them, with their routes and the rings of AllReduces.

The cost includes a second plane of patch panels, on which the next topology is prepared.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.models.network.allreduce import Algorithm, Chain, plan_rings
from sim.models.network.allreduce.fluid import choose_position_strides
from sim.models.network.execution.lowering import count_bytes_by_pair
from sim.models.network.fabrics import Fabric, make_circulant, make_direct_fabric, make_routed_fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MAX_SETS, RouteSets
from testbed.design.topology.circulants import list_circulant_edges
from testbed.design.topology.demand import Demand, make_demand, make_matrix_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.topology.strides import list_direct_strides


def build(request: FabricRequest) -> ChosenFabric:
    """Return optical circuits on the request's topology. TopologyFinder chooses a topology if the request has none."""
    topology = (
        request.topology
        or plan_topology(request.demand or make_demand(request.nodes), request.degree).topology
    )
    fabric = build_direct_fabric(
        topology, request.rate_gbps, routes=request.routes, seed=request.options.seed
    )
    return ChosenFabric(
        request.name, fabric, topology.degree * request.rate_gbps, make_ring_allreduce(topology), topology
    )


DIRECT = FabricKind(
    "optical circuits as TopologyFinder places them for the demand; D links of R, hosts forward",
    build,
    option_names=("seed",),
)


def build_direct_fabric(
    topology: Topology, rate_gbps: float, *, routes: RouteSets | None = None, seed: int = 0
) -> Fabric:
    """Return the direct-connect fabric of a topology with `routes`.

    Without `routes`, a circulant gets routes that load all strides evenly, and any other graph gets shortest paths.
    """
    node_count = topology.nodes
    if routes is not None:
        return make_routed_fabric(node_count, topology.edges, rate_gbps, routes.next_edge, routes.weight)
    direct_strides = (
        list_direct_strides(node_count, topology.strides, simplex=topology.simplex) if node_count > 1 else ()
    )
    if direct_strides and topology.edges == list_circulant_edges(node_count, direct_strides):
        return make_circulant(node_count, direct_strides, rate_gbps)
    return make_direct_fabric(node_count, topology.edges, rate_gbps, seed=seed)


def list_ring_strides(topology: Topology, members: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of the rings that share a group's AllReduces, counted in positions of the sorted group.

    If the topology's links form rings over the group, these rings are used, see `choose_position_strides`. Otherwise
    there is one ring, in both directions if the links are duplex.

    >>> from testbed.design.topology.circulants import find_topology
    >>> list_ring_strides(find_topology(12, 4), range(12)), list_ring_strides(find_topology(12, 4), (0, 1, 5))
    ((1, 11, 5, 7), (1, 2))
    """
    direct_strides = list_direct_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    strides = choose_position_strides(topology.nodes, direct_strides, tuple(members)) or (1,)
    is_one_way = topology.simplex or len(members) == 2 or len(strides) > 1
    return strides if is_one_way else (1, len(members) - 1)


def make_ring_allreduce(topology: Topology) -> Algorithm:
    """Return an AllReduce algorithm that splits evenly over the topology's rings of a group (`list_ring_strides`)."""

    def reduce_over_rings(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        sorted_members = sorted(members)
        return (
            plan_rings(sorted_members, size_bytes, strides=list_ring_strides(topology, sorted_members))
            if len(sorted_members) > 1
            else ()
        )

    return reduce_over_rings


def find_demand(topology: Topology, graph: TaskGraph, latency: Latency | None = None) -> Demand:
    """Return the bytes of an iteration between pairs on a topology, including the rings of its AllReduces."""
    return make_matrix_demand(count_bytes_by_pair(graph, latency or Latency(), make_ring_allreduce(topology)))


def route_job(
    topology: Topology,
    graph: TaskGraph,
    *,
    max_paths: int = MAX_SETS,
    latency: Latency | None = None,
    try_count: int = 3,
) -> RouteSets:
    """Return routes that keep the load of the fullest link low.

    Raises `TopologyError` as `find_balanced_routes` does.
    """
    from testbed.design.routing.balancing import find_balanced_routes

    return find_balanced_routes(
        topology, find_demand(topology, graph, latency), max_paths=max_paths, try_count=try_count
    )
