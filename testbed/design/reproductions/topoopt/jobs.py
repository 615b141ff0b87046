"""Jobs of the figures, and the fabrics that they run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sim.models.network.execution import Execution, simulate
from sim.models.network.execution.circuits import simulate_circuits
from sim.models.network.fabrics.cost import DEFAULT_ASSUMPTIONS, MIXNET, CostAssumptions
from sim.models.network.taskgraph import TaskGraph
from testbed.design.fabrics.direct import route_job
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.fat_tree import compute_equal_cost_gbps
from testbed.design.fabrics.kind import ChosenFabric, FabricOptions, FabricRequest
from testbed.design.model import Topology
from testbed.design.routing.route_sets import MAX_SETS, RouteSets
from testbed.design.topology.finder import plan_topology
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.iteration.task_graph import iteration, traffic
from testbed.design.workloads.iteration.totals import Traffic
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import A100_80GB, Cluster
from testbed.design.workloads.sharding import Strategy
from testbed.design.workloads.strategies import default_strategy


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One iteration of a workload under a strategy, as a task graph and as traffic totals."""

    graph: TaskGraph
    traffic: Traffic


def make_cluster(node_count: int) -> Cluster:
    """Return servers with four A100s of 80 GB each.

    A copy of CANDLE with gradients and momentum needs 195 GB per server.
    """
    return Cluster(node_count, A100_80GB)


def make_job(model: Workload, strategy: Strategy, cluster: Cluster) -> Job:
    """Return the job of a workload. Raises `StrategyError` if the strategy does not fit the workload."""
    return Job(iteration(model, strategy, cluster), traffic(model, strategy, cluster))


@cache
def make_all_to_all_job(node_count: int, batch: int) -> Job:
    """Return DLRM with one table on each server, for `batch` samples per device."""
    model = workload("dlrm-a2a", node_count, tables=node_count, batch_per_device=batch)
    return make_job(model, default_strategy(model, node_count), make_cluster(node_count))


@cache
def make_default_job(name: str, node_count: int, preset: str = "fig11") -> Job:
    """Return the data-parallel job of a model of the paper, with each embedding table on one server."""
    model = workload(name, node_count, preset=preset)
    return make_job(model, default_strategy(model, node_count), make_cluster(node_count))


ROUNDING = 0.01
"""Fraction of its duration by which the simulation may delay the end of a flow, so that several end together."""

NIC_ONCE = "NIC once a server"
READINGS: Mapping[str, CostAssumptions] = {
    "Fat-tree": DEFAULT_ASSUMPTIONS,
    f"Fat-tree, {NIC_ONCE}": CostAssumptions(has_one_nic_per_server=True),
    "Fat-tree, MixNet prices": CostAssumptions(MIXNET),
    f"Fat-tree, MixNet prices, {NIC_ONCE}": CostAssumptions(MIXNET, has_one_nic_per_server=True),
}
"""Readings of the cost by name of the Fat-tree that costs as much as TopoOpt. MixNet's prices begin at 100 Gbit/s."""

TOPOOPT = "TopoOpt"
SIP_ML = "SiP-ML"
_FAST_CIRCUITS = FabricOptions(reconfiguration_s=20e-6)
"""Options of SiP-ML's circuits: a dark time of 20 us, as in its released scripts."""
RequestFactory = Callable[[int, int, float], FabricRequest]

_REQUEST_FACTORIES: Mapping[str, RequestFactory] = {
    "ideal switch": lambda nodes, degree, rate: FabricRequest("ideal", nodes, degree, rate),
    "oversubscribed Fat-tree": lambda nodes, degree, rate: FabricRequest("oversub", nodes, degree, rate),
    "expander": lambda nodes, degree, rate: FabricRequest("expander", nodes, degree, rate),
    SIP_ML: lambda nodes, degree, rate: FabricRequest("sip-ocs", nodes, degree, rate, options=_FAST_CIRCUITS),
}


def list_fabrics(rate_gbps: float) -> tuple[str, ...]:
    """Return the names of the fabrics, without those Fat-trees that have no prices at this rate.

    Each server of the oversubscribed Fat-tree has degree times the rate, with half of that above the edge. The ideal
    switch has the same links and never blocks. SiP-ML is SiP-OCS with as many circuit switches as links.
    """
    trees = [name for name, assumptions in READINGS.items() if assumptions.min_rate_gbps <= rate_gbps]
    return (TOPOOPT, "ideal switch", *trees, "oversubscribed Fat-tree", "expander", SIP_ML)


def make_fabric_request(name: str, node_count: int, degree: int, rate_gbps: float) -> FabricRequest:
    """Return the request for a fabric of `list_fabrics`, except TopoOpt, which depends on the job."""
    if name in READINGS:
        host_gbps = compute_equal_cost_gbps(node_count, degree, rate_gbps, READINGS[name])
        return FabricRequest("fattree", node_count, 1, host_gbps)
    return _REQUEST_FACTORIES[name](node_count, degree, rate_gbps)


def simulate_job(job: Job, name: str, degree: int, rate_gbps: float) -> Execution:
    """Simulate one iteration on a fabric of `list_fabrics`, with AllReduces as fluid rings."""
    if name == TOPOOPT:
        return simulate_planned_routes(job, plan_topology(job.traffic.demand, degree).topology, rate_gbps)
    return simulate_on_fabric(
        build_fabric(make_fabric_request(name, job.graph.node_count, degree, rate_gbps)), job.graph
    )


def simulate_planned_routes(job: Job, topology: Topology, rate_gbps: float) -> Execution:
    """Simulate one iteration on a topology with each of its planned routes, and return the fastest execution."""

    def simulate_routes(routes: RouteSets) -> Execution:
        fabric_request = FabricRequest(
            "direct", topology.nodes, topology.degree, rate_gbps, topology=topology, routes=routes
        )
        return simulate_on_fabric(build_fabric(fabric_request), job.graph)

    return min(
        (simulate_routes(routes) for routes in plan_routes(job, topology)),
        key=lambda execution: execution.iteration_s,
    )


@cache
def plan_routes(job: Job, topology: Topology) -> tuple[RouteSets, ...]:
    """Return the two candidates for a plan's routes: several sets, and a single one."""
    return tuple(route_job(topology, job.graph, max_paths=max_paths) for max_paths in (MAX_SETS, 1))


def simulate_on_fabric(chosen_fabric: ChosenFabric, graph: TaskGraph) -> Execution:
    """Simulate one iteration. AllReduces are fluid rings: one message per link, with the latencies added."""
    chosen_fabric = chosen_fabric.as_fluid()
    if chosen_fabric.circuits is not None:
        return simulate_circuits(
            graph, chosen_fabric.circuits, allreduce=chosen_fabric.allreduce, rounding=ROUNDING
        )
    return simulate(graph, chosen_fabric.fabric, allreduce=chosen_fabric.allreduce, rounding=ROUNDING)


class TopoOptRuns(NamedTuple):
    """Executions of a job on TopoOpt's topologies.

    `published_execution` splits links between rings and pairs by the published rule. `fastest_execution` is the faster
    of this split and rings alone, so both may be the same execution.
    """

    published_execution: Execution
    fastest_execution: Execution


@cache
def simulate_all_to_all(node_count: int, batch: int, degree: int, rate_gbps: float) -> TopoOptRuns:
    """Simulate `make_all_to_all_job` on TopoOpt, for three figures.

    The published rule splits links by bytes. Like the planner, `fastest_execution` also tries rings alone.
    """
    job = make_all_to_all_job(node_count, batch)
    split_degree = plan_topology(job.traffic.demand, degree).matching_degree
    execution_by_matching_degree = {
        matching_degree: _run_with_degree(job, degree, rate_gbps, matching_degree)
        for matching_degree in {split_degree, 0}
    }
    return TopoOptRuns(
        execution_by_matching_degree[split_degree],
        min(execution_by_matching_degree.values(), key=lambda execution: execution.iteration_s),
    )


def _run_with_degree(job: Job, degree: int, rate_gbps: float, matching_degree: int) -> Execution:
    topology = plan_topology(job.traffic.demand, degree, matching_degree=matching_degree).topology
    return simulate_planned_routes(job, topology, rate_gbps)
