"""A job to be simulated or compared: a task graph in a file, or a workload under a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.design.evaluation.simulation import TaskGraph, read_graph
from testbed.design.fabrics.direct import route_job
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import ChosenFabric, FabricOptions, FabricRequest
from testbed.design.model import Topology
from testbed.design.plans.file import Plan, read_plan
from testbed.design.routing.route_sets import RouteSets
from testbed.design.workloads.catalogue import MODELS
from testbed.design.workloads.choice import DEFAULT_DEVICE, WorkloadChoice
from testbed.design.workloads.imports.chakra import is_trace_folder, read_job
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import Traffic, draw_heat_map, traffic, traffic_of
from testbed.design.workloads.mig import device_named, instances_of
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import check_memory, memory_use
from testbed.design.workloads.sharding import Strategy
from testbed.design.workloads.strategies import check_strategy, is_named, strategy_by_name
from testbed.errors import PlanFileError, StrategyError, WorkloadError

GRAPH_SUFFIX = ".npz"
DEFAULT_NODES = 12
DEFAULT_RATE_GBPS = 100.0


@dataclass(frozen=True, slots=True)
class Job:
    """One iteration as a graph, what it sends, and what people want to know `about` it besides.

    `plan` is the one from which the strategy is, when it is from one.
    """

    name: str
    graph: TaskGraph
    traffic: Traffic
    about: Mapping[str, Any]
    plan: Plan | None = None

    @property
    def topology(self) -> Topology | None:
        """The topology of its plan."""
        return self.plan.topology if self.plan else None

    @property
    def routes(self) -> RouteSets | None:
        """The routes of its plan; of a plan without any, those that are found for the job."""
        if self.plan is None or self.plan.topology.nodes < 2:
            return None
        return self.plan.routes or route_job(self.plan.topology, self.graph)

    def links(self, asked: int | None, usual: int) -> int:
        """Return how many links a server has: as asked, else the usual number; those of its plan when it is from one.

        Raises `PlanFileError` when other links are asked for than the plan has: fabrics would not be compared alike.
        """
        if self.plan is None:
            return usual if asked is None else asked
        planned = self.plan.topology.degree
        if asked not in (None, planned):
            raise PlanFileError(
                f"the plan is for {planned} links per server, not {asked}: leave out --degree"
            )
        return planned

    def rate_gbps(self, asked: float | None) -> float:
        """Return the rate of a link: as asked, else that of its plan, else 100 Gbit/s."""
        if asked is not None:
            return asked
        return self.plan.rate_gbps if self.plan else DEFAULT_RATE_GBPS

    def fabric(
        self,
        name: str,
        degree: int,
        rate_gbps: float,
        asked: FabricOptions,
        *,
        equal_cost: bool = False,
    ) -> ChosenFabric:
        """Return a fabric made for the job. Raises `TopologyError` for an unknown name and a fabric that cannot be."""
        chosen = build_fabric(
            FabricRequest(
                name,
                self.graph.nodes,
                degree,
                rate_gbps,
                demand=self.traffic.demand,
                topology=self.topology,
                routes=self.routes if name == "direct" else None,
                equal_cost=equal_cost,
                options=asked,
            )
        )
        fluid = self.plan is not None if asked.fluid is None else asked.fluid
        return chosen.as_fluid() if fluid else chosen

    def draw_heat_map(self, path: str | Path) -> None:
        """Draw who sends how much to whom. Raises `WorkloadError` without matplotlib, `OSError`."""
        try:
            draw_heat_map(self.traffic.matrix, path, title=f"SIMULATED: {self.name}")
        except (ModuleNotFoundError, ValueError) as error:
            raise WorkloadError(f"cannot write the heat map {path}: {error}") from error


def open_job(choice: WorkloadChoice, nodes: int | None = None, strategy: str = "") -> Job:
    """Return the job that is named; `strategy` is a name of `strategy_choice` (empty is `default`), or a plan file.

    Of a plan, whatever the choice does not say is as it was planned for; another size of the job is refused.
    Raises `WorkloadError` and its children, `PlanFileError`, `OSError`.
    """
    is_folder = choice.name not in MODELS and is_trace_folder(choice.name)
    if is_folder or choice.name.endswith(GRAPH_SUFFIX):
        device = choice.device if is_folder and instances_of(choice.device) == 1 else ""
        if nodes or strategy or choice != WorkloadChoice(choice.name, device=device):
            what = "is a folder of traces" if is_folder else "is a task graph"
            raise WorkloadError(
                f"{choice.name} {what}: its servers, sizes and strategy are fixed; leave out --nodes, --preset, "
                "--set, --device, --mig and --strategy"
            )
        return _trace_job(choice) if is_folder else _graph_job(choice.name, read_graph(choice.name))
    return _workload_job(choice, nodes, strategy or "default")


def _graph_job(name: str, graph: TaskGraph) -> Job:
    return Job(Path(name).stem, graph, traffic_of(graph), {"graph": name})


def _trace_job(choice: WorkloadChoice) -> Job:
    """Return the job of Chakra traces; nodes with operations and no time compute on the device that is chosen."""
    device = choice.device or DEFAULT_DEVICE
    traces = read_job(choice.name, device_named(device))
    job = _graph_job(Path(choice.name).resolve().name, traces.graph)
    estimated = {"estimated_nodes": traces.estimated, "device": device} if traces.estimated else {}
    return replace(job, about={"graph": choice.name, **estimated})


def _workload_job(choice: WorkloadChoice, nodes: int | None, strategy: str) -> Job:
    plan = None if is_named(strategy) else read_plan(strategy)
    if plan:
        if choice.device and instances_of(choice.device) != instances_of(plan.workload.device):
            raise PlanFileError(
                f"{strategy}: its servers have the device {plan.workload.device}: leave out --mig"
            )
        choice = _as_planned(choice, plan, strategy)
    choice = replace(choice, device=choice.device or DEFAULT_DEVICE)
    servers = nodes or (plan.topology.nodes if plan else DEFAULT_NODES)
    workload = choice.workload(servers)
    cluster = choice.cluster(servers)
    spread = (
        _of_plan(plan, workload, servers, strategy) if plan else strategy_by_name(strategy, workload, cluster)
    )
    check_memory(workload, spread, cluster)
    graph = iteration(workload, spread, cluster)
    instances = instances_of(choice.device)
    about = {
        **{key: value for key, value in choice.as_json().items() if value and key != "name"},
        **({"servers": -(-servers // instances), "mig": instances} if instances > 1 else {}),
        "workload": choice.name,
        "strategy": strategy,
        "operators": len(workload.operators),
        "batch": workload.batch,
        "memory_bytes": int(np.max(memory_use(workload, spread, cluster))),
        "memory_limit_bytes": cluster.memory_bytes,
    }
    return Job(workload.name, graph, traffic_of(graph), about, plan)


def _as_planned(choice: WorkloadChoice, plan: Plan, source: str) -> WorkloadChoice:
    """Return the workload that the plan is for; on another device or with another profile where the choice says so.

    A file may be elsewhere today: its operators are compared. Raises `PlanFileError` for a job of another size.
    """
    was = plan.workload
    if choice.name != was.name and not (choice.is_file and was.is_file):
        raise _not_for(plan, source, choice.name)
    settings = {f"--set {key}": (value, was.settings.get(key, "")) for key, value in choice.settings.items()}
    for option, (asked, planned) in {"--preset": (choice.preset, was.preset), **settings}.items():
        if asked and asked != planned:
            hint = f"leave out {option}, or make a plan for it"
            raise PlanFileError(
                f"{source}: the plan has {option} {planned or 'the default'}, not {asked}: {hint}"
            )
    device, profile = choice.device or was.device, choice.profile or was.profile
    return replace(was, name=choice.name, device=device, profile=profile)


def _of_plan(plan: Plan, workload: Workload, nodes: int, source: str) -> Strategy:
    """Return the plan's strategy. Raises `PlanFileError` unless it is one for this workload."""
    names = tuple(operator.name for operator in workload.operators)
    if plan.operators != names or plan.topology.nodes != nodes:
        raise _not_for(plan, source, f"{workload.name} with {len(names)} on {nodes}")
    try:
        check_strategy(workload, plan.strategy, nodes)
    except StrategyError as error:
        raise PlanFileError(f"{source}: {error}") from error
    return plan.strategy


def _not_for(plan: Plan, source: str, other: str) -> PlanFileError:
    planned = f"{plan.workload.name} with {len(plan.operators)} operators on {plan.topology.nodes} servers"
    return PlanFileError(f"{source}: it is for {planned}, not for {other}")


def routes_of(plan: Plan) -> RouteSets | None:
    """Return the routes of a plan; of one without, those that are found for its workload now.

    They are the same each time. None for a single server, and when its workload cannot be built here.
    """
    return plan.routes or routes_for(plan, plan.topology)


def routes_for(plan: Plan, topology: Topology) -> RouteSets | None:
    """Return routes for the workload of a plan on another topology, say one that was repaired.

    None when its workload cannot be built here.
    """
    try:
        return route_job(topology, graph_of(plan)) if topology.nodes > 1 else None
    except (WorkloadError, PlanFileError, OSError):
        return None


def graph_of(plan: Plan) -> TaskGraph:
    """Return an iteration of a plan. Raises `WorkloadError`, `PlanFileError` and `OSError` when it cannot be built."""
    nodes = plan.topology.nodes
    workload, cluster = plan.workload.workload(nodes), plan.workload.cluster(nodes)
    return iteration(workload, _of_plan(plan, workload, nodes, plan.workload.name), cluster)


def sum_by_pairs(plan: Plan) -> NDArray[np.float64] | None:
    """Return bytes of one iteration that row sends to column beside AllReduce, (nodes, nodes).

    None when its workload cannot be built here, say because its file is on another machine.
    """
    nodes = plan.topology.nodes
    try:
        workload, cluster = plan.workload.workload(nodes), plan.workload.cluster(nodes)
        return traffic(workload, _of_plan(plan, workload, nodes, plan.workload.name), cluster).pairs
    except (WorkloadError, PlanFileError, OSError):
        return None
