"""Jobs of the figures, and the fabrics that they run on."""

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
from testbed.design.fabrics.kind import ChosenFabric, FabricOptions, FabricRequest
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MAX_SETS, RouteSets
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
    """A workload under a strategy: one iteration as a graph, and its traffic."""

    graph: TaskGraph
    traffic: Traffic


def servers(nodes: int) -> Cluster:
    """Return servers of four A100s with 80 GB: a copy of CANDLE with gradients and momentum needs 195 GB per server."""
    return Cluster(nodes, A100_80GB)


def job_of(model: Workload, strategy: Strategy, cluster: Cluster) -> Job:
    """Return the job of a workload. Raises `StrategyError` for a strategy that does not fit."""
    return Job(iteration(model, strategy, cluster), traffic(model, strategy, cluster))


@cache
def all_to_all_job(nodes: int, batch: int) -> Job:
    """Return DLRM with one table on each server, for `batch` samples per device."""
    model = workload("dlrm-a2a", nodes, tables=nodes, batch_per_device=batch)
    return job_of(model, default_strategy(model, nodes), servers(nodes))


@cache
def default_job(name: str, nodes: int, preset: str = "fig11") -> Job:
    """Return a model of the paper, data parallel, with each embedding table on one server."""
    model = workload(name, nodes, preset=preset)
    return job_of(model, default_strategy(model, nodes), servers(nodes))


ROUNDING = 0.01
"""Fraction of their duration by which flows may end later, so that several end together; the page gives the effect."""

NIC_ONCE = "NIC once a server"
READINGS: Mapping[str, Reading] = {
    "Fat-tree": DEFAULT_READING,
    f"Fat-tree, {NIC_ONCE}": Reading(nic_once=True),
    "Fat-tree, MixNet prices": Reading(MIXNET),
    f"Fat-tree, MixNet prices, {NIC_ONCE}": Reading(MIXNET, nic_once=True),
}
"""Fat-trees that cost as much as TopoOpt, by the reading of the cost; MixNet's table begins at 100 Gbit/s."""

TOPOOPT = "TopoOpt"
SIP_ML = "SiP-ML"
_FAST_CIRCUITS = FabricOptions(reconfiguration_s=20e-6)
"""Circuits of SiP-ML, single-shot for each layer, dark for the 20 us of its released scripts."""
RequestFactory = Callable[[int, int, float], FabricRequest]

_OTHERS: Mapping[str, RequestFactory] = {
    "ideal switch": lambda nodes, degree, rate: FabricRequest("ideal", nodes, degree, rate),
    "oversubscribed Fat-tree": lambda nodes, degree, rate: FabricRequest("oversub", nodes, degree, rate),
    "expander": lambda nodes, degree, rate: FabricRequest("expander", nodes, degree, rate),
    SIP_ML: lambda nodes, degree, rate: FabricRequest("sip-ocs", nodes, degree, rate, options=_FAST_CIRCUITS),
}


def fabrics_at(rate_gbps: float) -> tuple[str, ...]:
    """Return the names of a figure's fabrics for which there are prices at this rate.

    The oversubscribed Fat-tree has links of degree times the rate, and half of them above the edge; the ideal switch
    has the same links and never blocks. SiP-ML is SiP-OCS with as many circuit switches as links.
    """
    trees = [name for name, reading in READINGS.items() if reading.least_gbps <= rate_gbps]
    return (TOPOOPT, "ideal switch", *trees, "oversubscribed Fat-tree", "expander", SIP_ML)


def request(name: str, nodes: int, degree: int, rate_gbps: float) -> FabricRequest:
    """Return the request for a fabric of `fabrics_at` that does not depend on the job: any but TopoOpt."""
    if name in READINGS:
        host_gbps = equal_cost_fat_tree_gbps(nodes, degree, rate_gbps, READINGS[name])
        return FabricRequest("fattree", nodes, 1, host_gbps)
    return _OTHERS[name](nodes, degree, rate_gbps)


def run(job: Job, name: str, degree: int, rate_gbps: float) -> Execution:
    """Return the execution of one iteration on a fabric of `fabrics_at`, with AllReduces as fluid rings."""
    if name == TOPOOPT:
        return run_planned(job, find(job.traffic.demand, degree).topology, rate_gbps)
    return run_on(build_fabric(request(name, job.graph.nodes, degree, rate_gbps)), job.graph)


def run_planned(job: Job, topology: Topology, rate_gbps: float) -> Execution:
    """Return the execution of one iteration on a topology, on the faster one of its `plan_routes`."""

    def run_with(routes: RouteSets) -> Execution:
        fabric_request = FabricRequest(
            "direct", topology.nodes, topology.degree, rate_gbps, topology=topology, routes=routes
        )
        return run_on(build_fabric(fabric_request), job.graph)

    return min(
        (run_with(routes) for routes in plan_routes(job, topology)),
        key=lambda execution: execution.iteration_s,
    )


@cache
def plan_routes(job: Job, topology: Topology) -> tuple[RouteSets, ...]:
    """Return the routes from which a plan chooses: in several sets, and in one."""
    return tuple(route_job(topology, job.graph, max_paths=sets) for sets in (MAX_SETS, 1))


def run_on(chosen: ChosenFabric, graph: TaskGraph) -> Execution:
    """Return the execution of one iteration with AllReduces as fluid rings: one message per link, latencies added."""
    chosen = chosen.as_fluid()
    if chosen.circuits is not None:
        return simulate_circuits(graph, chosen.circuits, allreduce=chosen.allreduce, rounding=ROUNDING)
    return simulate(graph, chosen.fabric, allreduce=chosen.allreduce, rounding=ROUNDING)


class Wired(NamedTuple):
    """Executions of a job on TopoOpt's topologies: with links split between rings and pairs as published, and fastest.

    These are the same execution if the published split is the fastest.
    """

    published: Execution
    fastest: Execution


@cache
def all_to_all_run(nodes: int, batch: int, degree: int, rate_gbps: float) -> Wired:
    """Return the executions of `all_to_all_job` on TopoOpt, which three figures use.

    The published rule splits links by bytes; like the planner, `fastest` compares it with rings alone by simulation.
    """
    job = all_to_all_job(nodes, batch)
    split = find(job.traffic.demand, degree).matching_degree
    runs = {count: _run_with_degree(job, degree, rate_gbps, count) for count in {split, 0}}
    return Wired(runs[split], min(runs.values(), key=lambda execution: execution.iteration_s))


def _run_with_degree(job: Job, degree: int, rate_gbps: float, matching_degree: int) -> Execution:
    topology = find(job.traffic.demand, degree, matching_degree=matching_degree).topology
    return run_planned(job, topology, rate_gbps)
