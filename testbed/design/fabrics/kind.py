"""Kinds of fabrics, the parts that builders share, and the fabric that a job runs on.

A kind of fabric is a `FabricKind` in a file of its own, with the function that builds it, and a line in the table of
`fabric_list`.

Routings say which of its paths a message takes:

| routing | Fat-trees | direct connect and expander |
|---|---|---|
| `ideal` | links above the edge are never full | the paths of the design, which load links evenly |
| `spread` | over all up-links alike, packet by packet | in four parts over shortest paths |
| `hash` | a path for each message by a hash, packets in queues | the same, of the shortest paths |

Without the option Fat-trees spread, and direct connect takes the paths of the design.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sim.models.network.allreduce import Algorithm, ring
from sim.models.network.allreduce.fluid import fluid
from sim.models.network.execution import Execution, simulate
from sim.models.network.execution.circuits import CircuitSwitch, simulate_circuits
from sim.models.network.execution.packets import simulate_packets
from sim.models.network.fabrics import Fabric, direct_connect, shortest_paths
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph
from testbed.design.model import Topology
from testbed.design.routing.route_sets import RouteSets
from testbed.design.topology.demand import Demand

SPREAD_PARTS = 4
"""A message on direct connect is divided into so many parts by `spread`."""

RANKED_ROUNDING = 0.01
"""Ends are rounded so while a search ranks its finalists: a hundredth of the computing."""

BALANCED, SPREAD, HASH = ROUTINGS = ("ideal", "spread", "hash")


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
                    "packets are counted, not traced: leave out --trace and --timeline, or use --routing spread"
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
        return self.degree * self.rate_gbps


@dataclass(frozen=True, slots=True)
class FabricKind:
    """A kind of fabric: `build` makes it, `sentence` says in pages what it is, its servers have D links of a rate R.

    `options` are those of `FabricOptions` that `build` reads. `is_switched`: of packet switches, so that a host has
    one link, and nobody forwards for others. `has_equal_cost`: may be given the rate at which it costs as much as
    direct connect.
    """

    sentence: str
    build: Callable[[FabricRequest], ChosenFabric]
    options: tuple[str, ...] = ()
    is_switched: bool = False
    has_equal_cost: bool = False


def alone(request: FabricRequest) -> ChosenFabric:
    """Return a fabric without links: a single host has nobody to send to."""
    fabric = direct_connect(1, (), request.rate_gbps, name=request.name)
    return ChosenFabric(request.name, fabric, request.host_gbps, ring)


def with_routing(chosen: ChosenFabric, options: FabricOptions) -> ChosenFabric:
    """Return a fabric whose messages take the paths of `options.routing`: `spread` and `hash` ignore weights.

    Raises `ValueError` for an unknown routing, and one of circuits that move: their paths change with them.
    """
    if not options.routing:
        return chosen
    if options.routing not in ROUTINGS:
        raise ValueError(f"--routing {options.routing} is not known: choose from {', '.join(ROUTINGS)}")
    if chosen.circuits is not None:
        raise ValueError("moving circuits have no routing to choose: leave out --routing")
    fabric = chosen.fabric
    if fabric.hosts_forward and options.routing != BALANCED:
        alternatives = shortest_paths(fabric.nodes, fabric.sources, fabric.targets, options.seed)
        router = alternatives[1] if options.routing == SPREAD else fabric.router
        fabric = replace(fabric, alternatives=alternatives, router=router, weights=None)
    return replace(chosen, fabric=fabric, routing=options.routing, seed=options.seed)
