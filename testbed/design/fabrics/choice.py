"""Fabrics by name, ready to run jobs on: their links and routes, how AllReduces use them, what they cost.

| name | each host has | what it is |
|---|---|---|
| `ideal` | one link of d * R | a switch that never blocks |
| `fattree` | one link of d * R, or of the rate that costs as much as `direct` | a full-bisection Fat-tree |
| `oversub` | one link of d * R | a Fat-tree with half the links (or less) above the edge |
| `direct` | d links of R | optical circuits as TopologyFinder places them for the demand; hosts forward |
| `expander` | d links of R | links to random others; hosts forward |
| `circuits` | d circuits of R | an optical switch that follows the demand within an iteration |
| `circuits-forwarding` | d circuits of R | the same with one circuit in a ring, over which hosts forward |

d is the degree, R the rate of a link. Direct connect pays for a look-ahead plane of patch panels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.models.network.collectives import Algorithm, Chain, ring
from sim.models.network.collectives.fluid import fluid, position_strides
from sim.models.network.execution import Execution, simulate
from sim.models.network.execution.circuits import CircuitSwitch, simulate_circuits
from sim.models.network.fabrics import (
    Fabric,
    circulant,
    direct_connect,
    equal_cost_rate_gbps,
    expander,
    fat_tree,
    ideal_switch,
)
from sim.models.network.fabrics.cost import fat_tree_cost, patch_panel_cost
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph
from testbed.design.fabrics.names import FABRICS, SWITCHED
from testbed.design.model import Topology
from testbed.design.rates import check_rate
from testbed.design.topology.circulants import circulant_edges
from testbed.design.topology.demand import Demand, demand_of
from testbed.design.topology.finder import find
from testbed.design.topology.strides import directed_strides
from testbed.errors import TopologyError

RANKED_ROUNDING = 0.01
"""Ends are rounded so while a search ranks its finalists: a hundredth of the computing."""


@dataclass(frozen=True, slots=True)
class ChosenFabric:
    """A fabric, and how jobs run on it. `host_gbps` is what a host can send altogether.

    `topology` is that of direct connect, `circuits` a switch that follows the demand. Flows may end `rounding` of
    their duration late, see `simulate`; circuits that move take no notice of it.
    """

    name: str
    fabric: Fabric
    host_gbps: float
    allreduce: Algorithm
    topology: Topology | None = None
    circuits: CircuitSwitch | None = None
    rounding: float = 0.0

    def as_fluid(self) -> ChosenFabric:
        """The same with all rounds of a ring flowing as one: many times faster, see its module `fluid`."""
        return replace(self, allreduce=fluid(self.allreduce))

    def as_ranked(self) -> ChosenFabric:
        """The same as a search ranks its finalists: rings fluid, ends rounded by 1 % of a flow's duration."""
        return replace(self.as_fluid(), rounding=RANKED_ROUNDING)

    def run(self, graph: TaskGraph, *, latency: Latency | None = None, trace: bool = False) -> Execution:
        """One iteration. Raises `Stalled`, and `ValueError` for a graph of more nodes."""
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
        )


def fabric_by_name(
    name: str,
    nodes: int,
    degree: int,
    rate_gbps: float,
    *,
    demand: Demand | None = None,
    topology: Topology | None = None,
    equal_cost: bool = False,
    oversubscription: float = 2.0,
    reconfiguration_s: float = 10e-3,
    seed: int = 0,
) -> ChosenFabric:
    """A fabric for `nodes` hosts with `degree` links of `rate_gbps`; `.fabric` is the simulator's.

    `demand` is what `direct` is made for (one AllReduce over all when not given), `topology` says it outright, its
    degree too. `equal_cost` gives `fattree` the rate at which it costs what `direct` does. `reconfiguration_s` is how
    long circuits that change are dark. Raises `TopologyError` for an unknown name and a fabric that cannot be.
    """
    check_rate(rate_gbps)
    if equal_cost and name != "fattree":
        raise TopologyError(f"fabric {name!r} at equal cost: only a Fat-tree is, take 'fattree'")
    try:
        if name in SWITCHED:
            host_gbps = (
                equal_cost_fat_tree_gbps(nodes, degree, rate_gbps) if equal_cost else degree * rate_gbps
            )
            return ChosenFabric(name, _switched(name, nodes, host_gbps, oversubscription), host_gbps, ring)
        if name == "direct":
            found = topology or find(demand or demand_of(nodes), degree).topology
            fabric = fabric_of(found, rate_gbps, seed=seed)
            return ChosenFabric(name, fabric, found.degree * rate_gbps, rings_over(found), found)
        if name == "expander" and nodes > 1:
            fabric = expander(nodes, degree, rate_gbps, seed=seed)
            return ChosenFabric(name, fabric, degree * rate_gbps, spread_rings(degree))
        if name in FABRICS:
            return _circuits(name, nodes, degree, rate_gbps, reconfiguration_s)
    except ValueError as error:
        raise TopologyError(f"no fabric {name!r} of {nodes} nodes, degree {degree}: {error}") from error
    raise TopologyError(f"unknown fabric {name!r}: choose {', '.join(FABRICS)}")


def fabric_of(topology: Topology, rate_gbps: float, *, seed: int = 0) -> Fabric:
    """Direct connect as a topology says; of a circulant the routes load all strides alike."""
    nodes = topology.nodes
    steps = directed_strides(nodes, topology.strides, simplex=topology.simplex) if nodes > 1 else ()
    if steps and topology.edges == circulant_edges(nodes, steps):
        return circulant(nodes, steps, rate_gbps)
    return direct_connect(nodes, topology.edges, rate_gbps, seed=seed)


def equal_cost_fat_tree_gbps(nodes: int, degree: int, rate_gbps: float) -> float:
    """The rate of a host's link at which a full-bisection Fat-tree costs what direct connect does."""
    budget = patch_panel_cost(nodes, degree, rate_gbps).total_usd
    return equal_cost_rate_gbps(budget, lambda rate: fat_tree_cost(nodes, rate))


def ring_strides(topology: Topology, members: Sequence[int]) -> tuple[int, ...]:
    """Strides over the positions of an ascending group, on whose rings its AllReduces are split.

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
    """AllReduce split evenly over the rings that a topology has for the group."""

    def run(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        ordered = sorted(members)
        return ring(ordered, size_bytes, strides=ring_strides(topology, ordered)) if len(ordered) > 1 else ()

    return run


def spread_rings(count: int) -> Algorithm:
    """AllReduce split over up to `count` rings of different strides, where links follow no stride."""

    def run(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        size = len(members)
        strides = [stride for stride in range(1, size) if math.gcd(stride, size) == 1][:count]
        return ring(sorted(members), size_bytes, strides=strides or (1,))

    return run


def _switched(name: str, nodes: int, host_gbps: float, oversubscription: float) -> Fabric:
    if name == "ideal":
        return ideal_switch(nodes, host_gbps)
    return fat_tree(nodes, host_gbps, oversubscription=oversubscription if name == "oversub" else 1.0)


def _circuits(name: str, nodes: int, degree: int, rate_gbps: float, reconfiguration_s: float) -> ChosenFabric:
    if nodes == 1:  # nobody to talk to: a fabric without links
        return ChosenFabric(name, direct_connect(1, (), rate_gbps, name=name), degree * rate_gbps, ring)
    # The demand is looked at every 50 ms, or less often where moving the circuits takes that long.
    period_s = max(50e-3, 2 * reconfiguration_s)
    switch = CircuitSwitch(
        nodes, degree, rate_gbps, period_s, reconfiguration_s, forwarding=name.endswith("-forwarding")
    )
    return ChosenFabric(name, switch.fabric(), degree * rate_gbps, ring, circuits=switch)
