"""Jobs to simulate or compare: a task graph file, a folder of traces, or a workload with a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from testbed.design.evaluation.simulation import TaskGraph, read_graph
from testbed.design.fabrics.direct import route_job
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import (
    MAX_NODES_IN_ROUNDS,
    RANKING_ROUNDING,
    ChosenFabric,
    FabricOptions,
    FabricRequest,
)
from testbed.design.model import Topology
from testbed.design.plans.file import Plan, read_plan
from testbed.design.routing.route_sets import RouteSets
from testbed.design.workloads.catalogue import MODELS
from testbed.design.workloads.checkpoint import divide_checkpoint
from testbed.design.workloads.choice import DEFAULT_DEVICE, WorkloadChoice
from testbed.design.workloads.imports.chakra import is_trace_folder, read_job
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import Traffic, draw_heat_map, sum_graph_traffic, traffic
from testbed.design.workloads.mig import count_instances, find_device
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import check_memory, compute_memory_use
from testbed.design.workloads.sharding import Strategy
from testbed.design.workloads.strategies import check_strategy, is_named, make_named_strategy
from testbed.errors import PlanFileError, StrategyError, WorkloadError

GRAPH_FILE_SUFFIX = ".npz"
DEFAULT_NODES = 12
DEFAULT_RATE_GBPS = 100.0


@dataclass(frozen=True, slots=True)
class Job:
    """One iteration as a graph, with its traffic. `about` holds further facts for reports.

    `plan` is None for a job without a plan. A node has `devices_per_node` devices. `arithmetic_s` is the time that the
    model's operations would take at the peak rate of all devices, None if unknown. `checkpoint` holds the bytes that
    each node writes for a checkpoint, empty if unknown. `regions` are the groups of nodes that share the experts of a
    layer.
    """

    name: str
    graph: TaskGraph
    traffic: Traffic
    about: Mapping[str, Any]
    plan: Plan | None = None
    devices_per_node: int = 1
    arithmetic_s: float | None = None
    checkpoint: tuple[int, ...] = ()
    regions: tuple[tuple[int, ...], ...] = ()

    @property
    def gpus(self) -> int:
        """Number of devices of all nodes."""
        return self.graph.node_count * self.devices_per_node

    @property
    def topology(self) -> Topology | None:
        """Topology of the plan, or None without a plan."""
        return self.plan.topology if self.plan else None

    @property
    def routes(self) -> RouteSets | None:
        """Routes of the plan, computed for this job if the plan has none; None without a plan or for one server."""
        if self.plan is None or self.plan.topology.nodes < 2:
            return None
        return self.plan.routes or route_job(self.plan.topology, self.graph)

    def choose_degree(self, requested_degree: int | None, default_degree: int) -> int:
        """Return the links per server of the plan.

        Without a plan, return `requested_degree`, or `default_degree` in place of None.

        Raises `PlanFileError` if `requested_degree` differs from the plan: the fabrics would not be comparable.
        """
        if self.plan is None:
            return default_degree if requested_degree is None else requested_degree
        planned_degree = self.plan.topology.degree
        if requested_degree not in (None, planned_degree):
            raise PlanFileError(
                f"the plan is for {planned_degree} links per server, not {requested_degree}: leave out --degree"
            )
        return planned_degree

    def choose_rate_gbps(self, requested_gbps: float | None) -> float:
        """Return the rate of a link: `requested_gbps`, otherwise the plan's rate, otherwise 100 Gbit/s."""
        if requested_gbps is not None:
            return requested_gbps
        return self.plan.rate_gbps if self.plan else DEFAULT_RATE_GBPS

    def build_fabric(
        self,
        name: str,
        degree: int,
        rate_gbps: float,
        options: FabricOptions,
        *,
        equal_cost: bool = False,
    ) -> ChosenFabric:
        """Return a fabric for this job. Raises `TopologyError` for an unknown name or an impossible fabric."""
        fabric = build_fabric(
            FabricRequest(
                name,
                self.graph.node_count,
                degree,
                rate_gbps,
                demand=self.traffic.demand,
                topology=self.topology,
                routes=self.routes if name == "direct" else None,
                equal_cost=equal_cost,
                options=options,
                regions=self.regions,
            )
        )
        rings, rounding = self.choose_precision(options)
        if rings == "rounds":
            return fabric
        return replace(fabric.as_fluid(), rounding=rounding / 2, lag=rounding)

    def choose_precision(self, options: FabricOptions) -> tuple[Literal["rounds", "fluid"], float]:
        """Return how AllReduces on rings are simulated, and the rounding of flows, see `FabricOptions`.

        Large jobs are fluid, and their flows may begin and end late by 1 % of their duration. Exact flows would take a
        minute for an all-to-all of 1,024 nodes.
        """
        if options.fluid is not None:
            return ("fluid" if options.fluid else "rounds"), 0.0
        if self.plan is not None:
            return "fluid", 0.0
        return ("fluid", RANKING_ROUNDING) if self.graph.node_count > MAX_NODES_IN_ROUNDS else ("rounds", 0.0)

    def draw_heat_map(self, path: str | Path) -> None:
        """Write a heat map of the bytes between servers. Raises `WorkloadError` without matplotlib, and `OSError`."""
        try:
            draw_heat_map(self.traffic.matrix, path, title=f"SIMULATED: {self.name}")
        except (ModuleNotFoundError, ValueError) as error:
            raise WorkloadError(f"cannot write the heat map {path}: {error}") from error


def open_job(
    choice: WorkloadChoice,
    node_count: int | None = None,
    strategy: str = "",
    hb_domain: int = 1,
    *,
    exchanges_by_pair: bool = False,
) -> Job:
    """Return the job of a workload, of a folder of traces or of a task graph file, as `choice.name` says.

    `strategy` is a strategy's name (default: `default`) or a plan file. A plan sets what the choice leaves open. With
    `hb_domain` above 1, each server has that many GPUs, and each GPU is a node of the job. In jobs of more than
    `MAX_NODES_IN_ROUNDS` nodes without a plan, each all-to-all is a single task, unless `exchanges_by_pair`.
    Raises `WorkloadError` and its subclasses, `PlanFileError` for a plan of another job, and `OSError`.
    """
    is_folder = choice.name not in MODELS and is_trace_folder(choice.name)
    if is_folder or choice.name.endswith(GRAPH_FILE_SUFFIX):
        device = choice.device if is_folder and count_instances(choice.device) == 1 else ""
        if node_count or strategy or choice != WorkloadChoice(choice.name, device=device):
            kind = "is a folder of traces" if is_folder else "is a task graph"
            raise WorkloadError(
                f"{choice.name} {kind}: its servers, sizes and strategy are fixed; leave out --nodes, --preset, "
                "--set, --device, --mig, --profile, --skew and --strategy"
            )
        return _read_trace_job(choice) if is_folder else _make_graph_job(choice.name, read_graph(choice.name))
    return _make_workload_job(
        choice, node_count, strategy or "default", hb_domain, exchanges_by_pair=exchanges_by_pair
    )


def _make_graph_job(name: str, graph: TaskGraph) -> Job:
    return Job(Path(name).stem, graph, sum_graph_traffic(graph), {"graph": name})


def _read_trace_job(choice: WorkloadChoice) -> Job:
    """Return the job of Chakra traces. Times that a trace lacks are estimated for the chosen device."""
    device = choice.device or DEFAULT_DEVICE
    traces = read_job(choice.name, find_device(device))
    job = _make_graph_job(Path(choice.name).resolve().name, traces.graph)
    estimated_fields = (
        {"estimated_nodes": traces.estimated_count, "device": device} if traces.estimated_count else {}
    )
    notes = {"notes": traces.notes} if traces.notes else {}
    return replace(job, about={"graph": choice.name, **estimated_fields, **notes})


def _make_workload_job(
    choice: WorkloadChoice, node_count: int | None, strategy: str, hb_domain: int, *, exchanges_by_pair: bool
) -> Job:
    plan = None if is_named(strategy) else read_plan(strategy)
    if plan:
        if hb_domain > 1:
            raise PlanFileError(f"{strategy}: the plan is for whole servers: leave out --hb-domain")
        if choice.device and count_instances(choice.device) != count_instances(plan.workload.device):
            raise PlanFileError(
                f"{strategy}: its servers have the device {plan.workload.device}: leave out --mig"
            )
        choice = _fill_from_plan(choice, plan, strategy)
    choice = replace(choice, device=choice.device or DEFAULT_DEVICE)
    server_count = node_count or (plan.topology.nodes if plan else DEFAULT_NODES)
    if hb_domain > 1:
        choice = replace(choice, settings={"devices_per_server": str(hb_domain), **choice.settings})
    workload = choice.make_workload(server_count)
    cluster = choice.make_cluster(server_count)
    if hb_domain > 1:
        cluster = cluster.split()
    checked_strategy = (
        _check_planned_strategy(plan, workload, server_count, strategy)
        if plan
        else make_named_strategy(strategy, workload, cluster)
    )
    check_memory(workload, checked_strategy, cluster)
    is_large = plan is None and cluster.nodes > MAX_NODES_IN_ROUNDS
    graph = iteration(workload, checked_strategy, cluster, whole_exchanges=is_large and not exchanges_by_pair)
    instances_per_server = count_instances(choice.device)
    description = {
        **{key: value for key, value in choice.as_json().items() if value and key != "name"},
        **(
            {"servers": -(-server_count // instances_per_server), "mig": instances_per_server}
            if instances_per_server > 1
            else {}
        ),
        **({"servers": server_count} if hb_domain > 1 else {}),
        "workload": choice.name,
        "strategy": strategy,
        "operators": len(workload.operators),
        "batch": workload.batch,
        "memory_bytes": int(np.max(compute_memory_use(workload, checked_strategy, cluster))),
        "memory_limit_bytes": cluster.memory_bytes,
    }
    operator_flops = (
        operator.forward_flops + operator.backward_flops * workload.training
        for operator in workload.operators
    )
    arithmetic_s = workload.batch * sum(operator_flops) / (cluster.gpus * cluster.device.peak_flops)
    checkpoint_bytes = divide_checkpoint(workload, checked_strategy, cluster.nodes)
    return Job(
        workload.name,
        graph,
        sum_graph_traffic(graph),
        description,
        plan,
        cluster.devices_per_server,
        arithmetic_s,
        checkpoint_bytes,
        _find_regions(checked_strategy),
    )


def _find_regions(strategy: Strategy) -> tuple[tuple[int, ...], ...]:
    """Return the groups of nodes that share the experts of a layer."""
    grids = [sharding.grid for sharding in dict.fromkeys(strategy.shardings) if sharding.way == "expert"]
    return tuple(dict.fromkeys(row for grid in grids for row in grid if len(row) > 1))


def _fill_from_plan(choice: WorkloadChoice, plan: Plan, source: str) -> WorkloadChoice:
    """Return the plan's workload with the device, profile and skew of `choice`, if `choice` has them.

    Workload files may have different names, since a file may have moved: `_check_planned_strategy` compares operators.
    Raises `PlanFileError` if `choice` names another workload, preset or setting.
    """
    planned_choice = plan.workload
    if choice.name != planned_choice.name and not (choice.is_file and planned_choice.is_file):
        raise _make_mismatch_error(plan, source, choice.name)
    settings = {
        f"--set {key}": (value, planned_choice.settings.get(key, ""))
        for key, value in choice.settings.items()
    }
    for option, (requested_value, planned_value) in {
        "--preset": (choice.preset, planned_choice.preset),
        **settings,
    }.items():
        if requested_value and requested_value != planned_value:
            hint = f"leave out {option}, or make a plan for it"
            raise PlanFileError(
                f"{source}: the plan has {option} {planned_value or 'the default'}, not {requested_value}: {hint}"
            )
    device, profile = choice.device or planned_choice.device, choice.profile or planned_choice.profile
    skew = choice.skew or planned_choice.skew
    return replace(planned_choice, name=choice.name, device=device, profile=profile, skew=skew)


def _check_planned_strategy(plan: Plan, workload: Workload, node_count: int, source: str) -> Strategy:
    """Return the plan's strategy. Raises `PlanFileError` if it does not fit this workload."""
    names = tuple(operator.name for operator in workload.operators)
    if plan.operators != names or plan.topology.nodes != node_count:
        raise _make_mismatch_error(
            plan, source, f"{workload.name} with {len(names)} operators on {node_count} servers"
        )
    try:
        check_strategy(workload, plan.strategy, node_count)
    except StrategyError as error:
        raise PlanFileError(f"{source}: {error}") from error
    return plan.strategy


def _make_mismatch_error(plan: Plan, source: str, actual: str) -> PlanFileError:
    planned = f"{plan.workload.name} with {len(plan.operators)} operators on {plan.topology.nodes} servers"
    return PlanFileError(f"{source}: the plan is for {planned}, not for {actual}")


def make_plan_routes(plan: Plan) -> RouteSets | None:
    """Return the routes of a plan. If it has none, compute them for its workload; the result is deterministic.

    Return None for a plan without routes if it has a single server or its workload cannot be built here.
    """
    return plan.routes or find_routes_for(plan, plan.topology)


def find_routes_for(plan: Plan, topology: Topology) -> RouteSets | None:
    """Return routes for the workload of a plan on another topology, for example a repaired one.

    Return None for a single server, and if the workload cannot be built here.
    """
    try:
        return route_job(topology, build_plan_graph(plan)) if topology.nodes > 1 else None
    except (WorkloadError, PlanFileError, OSError):
        return None


def build_plan_graph(plan: Plan) -> TaskGraph:
    """Return one iteration of a plan. Raises `WorkloadError`, `PlanFileError` or `OSError` if it cannot be built."""
    nodes = plan.topology.nodes
    workload, cluster = plan.workload.make_workload(nodes), plan.workload.make_cluster(nodes)
    return iteration(workload, _check_planned_strategy(plan, workload, nodes, plan.workload.name), cluster)


def sum_bytes_by_pair(plan: Plan) -> NDArray[np.float64] | None:
    """Return the bytes of one iteration from row to column, without AllReduces, shape (nodes, nodes).

    Return None if the workload cannot be built here, for example because its file is on another machine.
    """
    node_count = plan.topology.nodes
    try:
        workload, cluster = plan.workload.make_workload(node_count), plan.workload.make_cluster(node_count)
        return traffic(
            workload, _check_planned_strategy(plan, workload, node_count, plan.workload.name), cluster
        ).pairs
    except (WorkloadError, PlanFileError, OSError):
        return None
