"""Jobs as the figures run them, and the fabrics they run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sim.models.network.execution import Execution, simulate
from sim.models.network.execution.circuits import simulate_circuits
from sim.models.network.fabrics.cost import DEFAULT_READING, MIXNET, Reading
from sim.models.network.taskgraph import TaskGraph
from testbed.design.fabrics.direct import route_job
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.fat_tree import equal_cost_fat_tree_gbps
from testbed.design.fabrics.kind import ChosenFabric, FabricRequest
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MOST_SETS, RouteSets
from testbed.design.topology.finder import find
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.iteration.task_graph import iteration, traffic
from testbed.design.workloads.iteration.totals import Traffic
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import A100_80GB, Cluster
from testbed.design.workloads.sharding import Strategy
from testbed.design.workloads.strategies import default_strategy


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A workload under a strategy: one iteration as a graph, and what it sends."""

    graph: TaskGraph
    traffic: Traffic


def servers(nodes: int) -> Cluster:
    """Return four A100s of 80 GB: CANDLE, copied to every server with gradients and momentum, needs 195 GB there."""
    return Cluster(nodes, A100_80GB)


def job_of(model: Workload, strategy: Strategy, cluster: Cluster) -> Job:
    """Return the job. Raises `StrategyError` for a strategy that does not fit."""
    return Job(iteration(model, strategy, cluster), traffic(model, strategy, cluster))


@cache
def all_to_all_job(nodes: int, batch: int) -> Job:
    """Return DLRM with as many tables as servers, one on each, for so many samples a device."""
    model = workload("dlrm-a2a", nodes, tables=nodes, batch_per_device=batch)
    return job_of(model, default_strategy(model, nodes), servers(nodes))


@cache
def default_job(name: str, nodes: int, preset: str = "fig11") -> Job:
    """Return a model of the paper, data-parallel, embedding tables on one server each."""
    model = workload(name, nodes, preset=preset)
    return job_of(model, default_strategy(model, nodes), servers(nodes))


ROUNDING = 0.01
"""Flows may end by so much of their duration later, and then do so together: what it changes is told in the page."""

NIC_ONCE = "NIC once a server"
READINGS: Mapping[str, Reading] = {
    "Fat-tree": DEFAULT_READING,
    f"Fat-tree, {NIC_ONCE}": Reading(nic_once=True),
    "Fat-tree, MixNet prices": Reading(MIXNET),
    f"Fat-tree, MixNet prices, {NIC_ONCE}": Reading(MIXNET, nic_once=True),
}
"""Fat-trees that cost what TopoOpt does, by how the cost is read; MixNet's table begins at 100 Gbit/s."""

TOPOOPT = "TopoOpt"
Asker = Callable[[int, int, float], FabricRequest]

_OTHERS: Mapping[str, Asker] = {
    "ideal switch": lambda nodes, degree, rate: FabricRequest("ideal", nodes, degree, rate),
    "oversubscribed Fat-tree": lambda nodes, degree, rate: FabricRequest("oversub", nodes, degree, rate),
    "expander": lambda nodes, degree, rate: FabricRequest("expander", nodes, degree, rate),
}


def fabrics_at(rate_gbps: float) -> tuple[str, ...]:
    """Return the fabrics of a figure, by its names, for links of a rate that the prices know.

    The oversubscribed Fat-tree has links of degree times the rate, and half of them above the edge; the ideal switch
    has the same links and never blocks.
    """
    trees = [name for name, reading in READINGS.items() if reading.least_gbps <= rate_gbps]
    return (TOPOOPT, "ideal switch", *trees, "oversubscribed Fat-tree", "expander")


def request(name: str, nodes: int, degree: int, rate_gbps: float) -> FabricRequest:
    """Return what is asked for by the name of a fabric that is not made for a job."""
    if name in READINGS:
        host_gbps = equal_cost_fat_tree_gbps(nodes, degree, rate_gbps, READINGS[name])
        return FabricRequest("fattree", nodes, 1, host_gbps)
    return _OTHERS[name](nodes, degree, rate_gbps)


def run(job: Job, name: str, degree: int, rate_gbps: float) -> Execution:
    """Run one iteration on a fabric of `fabrics_at`, AllReduces as fluid rings."""
    if name == TOPOOPT:
        return run_planned(job, find(job.traffic.demand, degree).topology, rate_gbps)
    return run_on(build_fabric(request(name, job.graph.nodes, degree, rate_gbps)), job.graph)


def run_planned(job: Job, topology: Topology, rate_gbps: float) -> Execution:
    """Run one iteration on a topology with the routes that a plan has: of several sets or one, the faster."""

    def on(routes: RouteSets) -> Execution:
        asked = FabricRequest(
            "direct", topology.nodes, topology.degree, rate_gbps, topology=topology, routes=routes
        )
        return run_on(build_fabric(asked), job.graph)

    return min((on(routes) for routes in plan_routes(job, topology)), key=lambda done: done.iteration_s)


@cache
def plan_routes(job: Job, topology: Topology) -> tuple[RouteSets, ...]:
    """Return the routes among which a plan chooses: over several sets, and over one."""
    return tuple(route_job(topology, job.graph, most_paths=sets) for sets in (MOST_SETS, 1))


def run_on(chosen: ChosenFabric, graph: TaskGraph) -> Execution:
    """Run one iteration, AllReduces as fluid rings: their 2(g-1) rounds as one message a link, latencies added."""
    chosen = chosen.as_fluid()
    if chosen.circuits is not None:
        return simulate_circuits(graph, chosen.circuits, allreduce=chosen.allreduce, rounding=ROUNDING)
    return simulate(graph, chosen.fabric, allreduce=chosen.allreduce, rounding=ROUNDING)


class Wired(NamedTuple):
    """A job on TopoOpt's topologies: with links split between rings and pairs as published, and as is fastest."""

    published: Execution
    fastest: Execution


@cache
def all_to_all_run(nodes: int, batch: int, degree: int, rate_gbps: float) -> Wired:
    """Return the job of `all_to_all_job` on TopoOpt; three figures look at it.

    The published rule splits links by bytes; as the planner does, it is held against rings alone by simulation.
    """
    job = all_to_all_job(nodes, batch)
    split = find(job.traffic.demand, degree).matching_degree
    runs = {count: _match(job, degree, rate_gbps, count) for count in {split, 0}}
    return Wired(runs[split], min(runs.values(), key=lambda done: done.iteration_s))


def _match(job: Job, degree: int, rate_gbps: float, matching_degree: int) -> Execution:
    topology = find(job.traffic.demand, degree, matching_degree=matching_degree).topology
    return run_planned(job, topology, rate_gbps)
