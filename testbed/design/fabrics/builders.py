"""Fabrics of the list, built ready to run jobs on: links and routes, and how AllReduces use them.

Routings say which of its paths a message takes:

| routing | Fat-trees | direct connect and expander |
|---|---|---|
| `ideal` | links above the edge are never full | the paths of the design, which load links evenly |
| `spread` | over all up-links alike, packet by packet | in four parts over shortest paths |
| `hash` | a path for each message by a hash, packets in queues | the same, of the shortest paths |

Without the option Fat-trees spread, and direct connect takes the paths of the design.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sim.models.network.allreduce import Algorithm, Chain, ring
from sim.models.network.allreduce.fluid import fluid, position_strides
from sim.models.network.execution import Execution, simulate
from sim.models.network.execution.circuits import CircuitSwitch, simulate_circuits
from sim.models.network.execution.lowering import bytes_by_pair
from sim.models.network.execution.packets import simulate_packets
from sim.models.network.fabrics import (
    Fabric,
    circulant,
    direct_connect,
    equal_cost_rate_gbps,
    expander,
    fat_tree,
    ideal_switch,
    routed,
    shortest_paths,
)
from sim.models.network.fabrics.cost import DEFAULT_READING, Reading, fat_tree_cost, patch_panel_cost
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MOST_SETS, RouteSets
from testbed.design.topology.circulants import circulant_edges
from testbed.design.topology.demand import Demand, demand_of, demand_of_matrix
from testbed.design.topology.finder import find
from testbed.design.topology.strides import directed_strides

SPREAD_PARTS = 4
"""A message on direct connect is divided into so many parts by `spread`."""

RANKED_ROUNDING = 0.01
"""Ends are rounded so while a search ranks its finalists: a hundredth of the computing."""

IDEAL, SPREAD, HASH = ROUTINGS = ("ideal", "spread", "hash")


@dataclass(frozen=True, slots=True)
class ChosenFabric:
    """A fabric, and how jobs run on it. `host_gbps` is what a host can send altogether.

    `topology` is that of direct connect, `circuits` a switch that follows the demand. Flows may end `rounding` of
    their duration late, see `simulate`; circuits that move take no notice of it. `routing` is one of `ROUTINGS`, or
    empty for the fabric's own; `seed` draws the paths of `hash`.
    """

    name: str
    fabric: Fabric
    host_gbps: float
    allreduce: Algorithm
    topology: Topology | None = None
    circuits: CircuitSwitch | None = None
    rounding: float = 0.0
    routing: str = ""
    seed: int = 0

    def as_fluid(self) -> ChosenFabric:
        """Return the same with all rounds of a ring flowing as one.

        Many times faster, see `sim.models.network.allreduce.fluid`.
        """
        return replace(self, allreduce=fluid(self.allreduce))

    def as_ranked(self) -> ChosenFabric:
        """Return the same as a search ranks its finalists: rings fluid, ends rounded by 1 % of a flow's duration."""
        return replace(self.as_fluid(), rounding=RANKED_ROUNDING)

    def run(self, graph: TaskGraph, *, latency: Latency | None = None, trace: bool = False) -> Execution:
        """Run one iteration. Raises `Stalled`, and `ValueError` for a graph of more nodes, and a trace of packets."""
        if self.routing == HASH:
            if trace:
                raise ValueError(
                    "packets are counted, not traced: leave out --trace and --timeline, or take --routing spread"
                )
            return simulate_packets(
                graph, self.fabric, latency=latency, allreduce=self.allreduce, seed=self.seed
            )
        if self.circuits is not None:
            return simulate_circuits(
                graph, self.circuits, latency=latency, allreduce=self.allreduce, trace=trace
            )
        return simulate(
            graph,
            self.fabric,
            latency=latency,
            allreduce=self.allreduce,
            trace=trace,
            rounding=self.rounding,
            parts=SPREAD_PARTS if self.routing == SPREAD and self.fabric.hosts_forward else 1,
        )


@dataclass(frozen=True, slots=True)
class FabricOptions:
    """Options of some fabrics; `reconfiguration_s` is how long circuits that change are dark.

    The rounds of rings are simulated as one (`fluid`), or one by one. Not given, a job of a plan is fluid as in its
    planner's last simulation, so that it takes what was predicted; any other in rounds.
    """

    oversubscription: float = 2.0
    reconfiguration_s: float = 10e-3
    seed: int = 0
    fluid: bool | None = None
    routing: str = ""


DEFAULT_OPTIONS = FabricOptions()


@dataclass(frozen=True, slots=True)
class FabricRequest:
    """A fabric for `nodes` hosts with `degree` links of `rate_gbps`; what else there is matters to some fabrics.

    `demand` is what `direct` is made for (one AllReduce over all when not given), `topology` says it outright, its
    degree too, `routes` are those over it. `equal_cost` asks for the rate at which a fabric costs what `direct` does.
    """

    name: str
    nodes: int
    degree: int
    rate_gbps: float
    demand: Demand | None = None
    topology: Topology | None = None
    routes: RouteSets | None = None
    equal_cost: bool = False
    options: FabricOptions = DEFAULT_OPTIONS

    @property
    def host_gbps(self) -> float:
        """The rate of all links of a host together."""
        if self.equal_cost:
            return equal_cost_fat_tree_gbps(self.nodes, self.degree, self.rate_gbps)
        return self.degree * self.rate_gbps


def ideal(asked: FabricRequest) -> ChosenFabric:
    """Return a switch that never blocks."""
    return ChosenFabric(asked.name, ideal_switch(asked.nodes, asked.host_gbps), asked.host_gbps, ring)


def full_fat_tree(asked: FabricRequest) -> ChosenFabric:
    """Return a Fat-tree with as many links above the edge as below."""
    return _fat_tree(asked, 1.0)


def oversubscribed_fat_tree(asked: FabricRequest) -> ChosenFabric:
    """Return a Fat-tree with fewer links above the edge than below."""
    return _fat_tree(asked, asked.options.oversubscription)


def _fat_tree(asked: FabricRequest, oversubscription: float) -> ChosenFabric:
    balance: Literal["spread", "hash", "ideal"] = "spread"
    if asked.options.routing == HASH:
        balance = "hash"
    elif asked.options.routing == IDEAL:
        balance = "ideal"
    fabric = fat_tree(asked.nodes, asked.host_gbps, oversubscription=oversubscription, balance=balance)
    return ChosenFabric(asked.name, fabric, asked.host_gbps, ring)


def with_routing(chosen: ChosenFabric, options: FabricOptions) -> ChosenFabric:
    """Return a fabric whose messages take the paths that are asked for; `spread` and `hash` know no weights of a plan.

    Raises `ValueError` for an unknown routing, and one of circuits that move: their paths change with them.
    """
    if not options.routing:
        return chosen
    if options.routing not in ROUTINGS:
        raise ValueError(f"--routing {options.routing} is not known: choose {', '.join(ROUTINGS)}")
    if chosen.circuits is not None:
        raise ValueError("circuits that move have no routing to choose: leave out --routing")
    fabric = chosen.fabric
    if fabric.hosts_forward and options.routing != IDEAL:
        alternatives = shortest_paths(fabric.nodes, fabric.sources, fabric.targets, options.seed)
        router = alternatives[1] if options.routing == SPREAD else fabric.router
        fabric = replace(fabric, alternatives=alternatives, router=router, weights=None)
    return replace(chosen, fabric=fabric, routing=options.routing, seed=options.seed)


def direct(asked: FabricRequest) -> ChosenFabric:
    """Return optical circuits as TopologyFinder places them, or as a topology says."""
    found = asked.topology or find(asked.demand or demand_of(asked.nodes), asked.degree).topology
    fabric = fabric_of(found, asked.rate_gbps, routes=asked.routes, seed=asked.options.seed)
    return ChosenFabric(asked.name, fabric, found.degree * asked.rate_gbps, rings_over(found), found)


def random_links(asked: FabricRequest) -> ChosenFabric:
    """Return links to random others."""
    if asked.nodes == 1:
        return _alone(asked)
    fabric = expander(asked.nodes, asked.degree, asked.rate_gbps, seed=asked.options.seed)
    return ChosenFabric(asked.name, fabric, asked.host_gbps, spread_rings(asked.degree))


def circuits(asked: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand within an iteration."""
    return _circuits(asked, forwarding=False)


def circuits_forwarding(asked: FabricRequest) -> ChosenFabric:
    """Return the same with one circuit in a ring, over which hosts forward."""
    return _circuits(asked, forwarding=True)


def _circuits(asked: FabricRequest, *, forwarding: bool) -> ChosenFabric:
    if asked.nodes == 1:
        return _alone(asked)
    # The demand is looked at every 50 ms, or less often where moving the circuits takes that long.
    period_s = max(50e-3, 2 * asked.options.reconfiguration_s)
    switch = CircuitSwitch(
        asked.nodes,
        asked.degree,
        asked.rate_gbps,
        period_s,
        asked.options.reconfiguration_s,
        forwarding=forwarding,
    )
    return ChosenFabric(asked.name, switch.fabric(), asked.host_gbps, ring, circuits=switch)


def _alone(asked: FabricRequest) -> ChosenFabric:
    """Return a fabric without links: a single host has nobody to send to."""
    fabric = direct_connect(1, (), asked.rate_gbps, name=asked.name)
    return ChosenFabric(asked.name, fabric, asked.host_gbps, ring)


def fabric_of(
    topology: Topology, rate_gbps: float, *, routes: RouteSets | None = None, seed: int = 0
) -> Fabric:
    """Return direct connect as a topology says, on `routes`; without, those of a circulant load all strides alike."""
    nodes = topology.nodes
    if routes is not None:
        return routed(nodes, topology.edges, rate_gbps, routes.onward, routes.weight)
    steps = directed_strides(nodes, topology.strides, simplex=topology.simplex) if nodes > 1 else ()
    if steps and topology.edges == circulant_edges(nodes, steps):
        return circulant(nodes, steps, rate_gbps)
    return direct_connect(nodes, topology.edges, rate_gbps, seed=seed)


def equal_cost_fat_tree_gbps(
    nodes: int, degree: int, rate_gbps: float, reading: Reading = DEFAULT_READING
) -> float:
    """Return the rate of a host's link at which a full-bisection Fat-tree costs what direct connect does."""
    budget = patch_panel_cost(nodes, degree, rate_gbps, reading).total_usd
    return equal_cost_rate_gbps(budget, lambda rate: fat_tree_cost(nodes, rate, reading=reading))


def ring_strides(topology: Topology, members: Sequence[int]) -> tuple[int, ...]:
    """Return strides over the positions of an ascending group, on whose rings its AllReduces are split.

    Links of the topology where it has such rings, see `position_strides`; else one ring, each way when duplex.

    >>> from testbed.design.topology.circulants import find_topology
    >>> ring_strides(find_topology(12, 4), range(12)), ring_strides(find_topology(12, 4), (0, 1, 5))
    ((1, 11, 5, 7), (1, 2))
    """
    steps = directed_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    strides = position_strides(topology.nodes, steps, tuple(members)) or (1,)
    one_way = topology.simplex or len(members) == 2 or len(strides) > 1
    return strides if one_way else (1, len(members) - 1)


def rings_over(topology: Topology) -> Algorithm:
    """Return AllReduce split evenly over the rings that a topology has for the group."""

    def run(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        ordered = sorted(members)
        return ring(ordered, size_bytes, strides=ring_strides(topology, ordered)) if len(ordered) > 1 else ()

    return run


def spread_rings(count: int) -> Algorithm:
    """Return AllReduce split over up to `count` rings of different strides, where links follow no stride."""

    def run(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        size = len(members)
        strides = [stride for stride in range(1, size) if math.gcd(stride, size) == 1][:count]
        return ring(sorted(members), size_bytes, strides=strides or (1,))

    return run


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
