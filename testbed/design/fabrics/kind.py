"""Description of a fabric, the parts that builders share, and the fabric that a job runs on.

Each fabric is a `FabricKind` in its own module, with the function that builds it, listed in `fabric_list`.

The routing selects the paths of a message:

| routing | Fat-trees | direct connect and expander |
|---|---|---|
| `ideal` | links above the edge are never full | the paths of the design, which load links evenly |
| `spread` | evenly over all up-links, packet by packet | in four parts over shortest paths |
| `hash` | one path per message by a hash; packets queue | one shortest path per message by a hash; packets queue |

The default is `spread` on Fat-trees, and the paths of the design on direct connect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sim.models.network.allreduce import Algorithm, plan_rings
from sim.models.network.allreduce.domains import reduce_over_domains
from sim.models.network.allreduce.fluid import make_fluid
from sim.models.network.execution import Execution, simulate
from sim.models.network.execution.circuits import CircuitSwitch, simulate_circuits
from sim.models.network.execution.packets import simulate_packets
from sim.models.network.fabrics import (
    Fabric,
    find_shortest_paths,
    join_domains,
    make_direct_fabric,
    share_hosts,
)
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph
from testbed.design.fabrics import HB_GBPS
from testbed.design.model import Topology
from testbed.design.routing.route_sets import RouteSets
from testbed.design.topology.demand import Demand

SPREAD_PART_COUNT = 4
"""Number of parts of a message on direct connect with `spread`."""

RANKING_ROUNDING = 0.01
"""Rounding of flows while a search ranks its finalists, as a fraction of their duration; saves 99 % of the work."""

MAX_NODES_IN_ROUNDS = 256
"""By default, the rings of jobs with at most this number of nodes are simulated round by round."""

BALANCED, SPREAD, HASH = ROUTINGS = ("ideal", "spread", "hash")


@dataclass(frozen=True, slots=True)
class ChosenFabric:
    """A fabric, and how jobs run on it. `host_gbps` is the total rate at which a host can send.

    Direct connect has a `topology`, a switch that follows the demand has `circuits`. Flows may end late by the fraction
    `rounding` of their duration, and rates may be updated late by the fraction `lag`, see `simulate`. `routing` is one
    of `ROUTINGS`, or "" for the fabric's default. `seed` determines the paths of `hash`.
    """

    name: str
    fabric: Fabric
    host_gbps: float
    allreduce: Algorithm
    topology: Topology | None = None
    circuits: CircuitSwitch | None = None
    rounding: float = 0.0
    lag: float = 0.0
    routing: str = ""
    seed: int = 0

    def as_fluid(self) -> ChosenFabric:
        """Return the fabric with all rounds of a ring simulated as one flow, which is many times faster.

        See `sim.models.network.allreduce.fluid`.
        """
        return replace(self, allreduce=make_fluid(self.allreduce))

    def as_ranked(self) -> ChosenFabric:
        """Return the fabric with fluid rings, and flows rounded by 1 % of their duration, to rank finalists."""
        return replace(self.as_fluid(), rounding=RANKING_ROUNDING)

    def run(self, graph: TaskGraph, *, latency: Latency | None = None, trace: bool = False) -> Execution:
        """Return the execution of one iteration.

        Raises `StalledError`, and `ValueError` for a graph with more nodes than the fabric or for a trace with routing
        `hash`.
        """
        if self.routing == HASH:
            if trace:
                raise ValueError(
                    "routing by hash simulates packets, without a trace: leave out --trace and --timeline, or use "
                    "--routing spread"
                )
            return simulate_packets(
                graph, self.fabric, latency=latency, allreduce=self.allreduce, seed=self.seed
            )
        if self.circuits is not None:
            return simulate_circuits(
                graph,
                self.circuits,
                latency=latency,
                allreduce=self.allreduce,
                trace=trace,
                rounding=self.rounding,
            )
        return simulate(
            graph,
            self.fabric,
            latency=latency,
            allreduce=self.allreduce,
            trace=trace,
            rounding=self.rounding,
            lag=self.lag,
            part_count=SPREAD_PART_COUNT if self.routing == SPREAD and self.fabric.hosts_forward else 1,
        )


@dataclass(frozen=True, slots=True)
class FabricOptions:
    """Options of fabrics. A fabric reads only some options.

    - `reconfiguration_s`: how long circuits are dark while they move.
    - `controller`, `hysteresis`, `look_ahead`: when circuits move (default: the fabric's controller), see
      `sim.models.network.execution.circuits.Controller`.
    - `wavelengths`: number per node of SiP-ML; with 0, their total rate equals that of a node's links on other fabrics.
    - `fluid`: simulate all rounds of a ring as one flow. By default, a job of a plan is fluid, as in the planner, so
      that it takes the predicted time. Jobs of more than `MAX_NODES_IN_ROUNDS` nodes are fluid, too, and their flows
      begin and end up to 1 % late. Other jobs run in rounds.
    - `hb_domain`: if above 1, nodes are GPUs, and this number of consecutive GPUs form a high-bandwidth domain, in
      which each GPU sends at `hb_gbps`.
    """

    oversubscription: float = 2.0
    reconfiguration_s: float = 10e-3
    seed: int = 0
    fluid: bool | None = None
    routing: str = ""
    hb_domain: int = 1
    hb_gbps: float = HB_GBPS
    controller: str = ""
    hysteresis: float = 0.0
    look_ahead: int = 0
    wavelengths: int = 0


DEFAULT_OPTIONS = FabricOptions()


@dataclass(frozen=True, slots=True)
class FabricRequest:
    """Request for a fabric of `nodes` hosts with `degree` links of `rate_gbps`. Some fabrics use further fields.

    `direct` uses `topology` and `routes`; without a topology, one is found for `demand` (default: one AllReduce over
    all nodes). With `equal_cost`, the fabric gets the rate at which it costs as much as `direct`. `regions` are the
    groups of nodes that share the experts of a layer.
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
    regions: tuple[tuple[int, ...], ...] = ()

    @property
    def host_gbps(self) -> float:
        """Total rate of all links of a host."""
        return self.degree * self.rate_gbps


@dataclass(frozen=True, slots=True)
class FabricKind:
    """Description of a fabric.

    - `description`: describes the fabric in documentation, for servers with D links of rate R.
    - `build`: returns the fabric of a request.
    - `option_names`: the fields of `FabricOptions` that the fabric depends on.
    - `is_switched`: the fabric consists of packet switches, so a host has one link.
    - `has_gpu_nodes`: its hosts are GPUs in high-bandwidth domains.
    - `has_equal_cost`: it can be built at the cost of direct connect.
    - `max_compared_hosts`: a comparison of all fabrics skips the fabric if there are more hosts than this.
    """

    description: str
    build: Callable[[FabricRequest], ChosenFabric]
    option_names: tuple[str, ...] = ()
    is_switched: bool = False
    has_gpu_nodes: bool = False
    has_equal_cost: bool = False
    max_compared_hosts: int | None = None


def make_single_host_fabric(request: FabricRequest) -> ChosenFabric:
    """Return a fabric without links, for a single host."""
    fabric = make_direct_fabric(1, (), request.rate_gbps, name=request.name)
    return ChosenFabric(request.name, fabric, request.host_gbps, plan_rings)


def add_domains(chosen_fabric: ChosenFabric, options: FabricOptions) -> ChosenFabric:
    """Return a switched fabric whose hosts are GPUs, with the high-bandwidth domains that `options` describe."""
    fabric = join_domains(chosen_fabric.fabric, options.hb_domain, options.hb_gbps)
    return replace(chosen_fabric, fabric=fabric, allreduce=reduce_over_domains(options.hb_domain))


def share_host_links(chosen_fabric: ChosenFabric, options: FabricOptions) -> ChosenFabric:
    """Return a fabric whose hosts have several GPUs. The GPUs are the nodes of jobs and share their host's links."""
    allreduce = reduce_over_domains(options.hb_domain, chosen_fabric.allreduce)
    circuits = chosen_fabric.circuits
    if circuits is not None:
        circuits = replace(circuits, domain_size=options.hb_domain, domain_gbps=options.hb_gbps)
        fabric = circuits.make_fabric()
    else:
        fabric = share_hosts(chosen_fabric.fabric, options.hb_domain, options.hb_gbps)
    host_gbps = chosen_fabric.host_gbps / options.hb_domain
    return replace(chosen_fabric, fabric=fabric, circuits=circuits, allreduce=allreduce, host_gbps=host_gbps)


def apply_routing(chosen_fabric: ChosenFabric, options: FabricOptions) -> ChosenFabric:
    """Return the fabric with the paths of `options.routing`. `spread` and `hash` ignore the weights of a plan.

    Raises `ValueError` for an unknown routing, and for any routing on moving circuits, whose paths change.
    """
    if not options.routing:
        return chosen_fabric
    if options.routing not in ROUTINGS:
        raise ValueError(f"--routing {options.routing} is not known: choose from {', '.join(ROUTINGS)}")
    if chosen_fabric.circuits is not None:
        raise ValueError("moving circuits have no routing to choose: leave out --routing")
    fabric = chosen_fabric.fabric
    if fabric.hosts_forward and options.routing != BALANCED:
        alternatives = find_shortest_paths(fabric.node_count, fabric.sources, fabric.targets, options.seed)
        router = alternatives[1] if options.routing == SPREAD else fabric.router
        fabric = replace(fabric, alternatives=alternatives, router=router, weights=None)
    return replace(chosen_fabric, fabric=fabric, routing=options.routing, seed=options.seed)
