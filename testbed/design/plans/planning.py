"""Planning: makes a plan, which can be written and applied, from a workload and servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from testbed.design.fabrics.direct import find_demand, route_job
from testbed.design.model import Topology, check_rate
from testbed.design.plans.file import Plan
from testbed.design.routing.route_sets import RouteSets
from testbed.design.search import Progress, SearchResult, optimise
from testbed.design.search.strategies import FEW_NODES
from testbed.design.topology.hops import compute_diameter, make_hop_table
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.model import Workload
from testbed.design.workloads.sharding import Strategy


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers of a job. If they belong to a lab, `lab` is its name, and `hosts` names the host of each node.

    Raises `TopologyError` for a rate out of range, see `check_rate`.
    """

    nodes: int
    degree: int
    rate_gbps: float
    simplex: bool = False
    lab: str = ""
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_rate(self.rate_gbps)


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """Effort of a search, see `search.optimise`. None stands for the value of `get_default_steps_and_chains`."""

    seed: int = 0
    steps: int | None = None
    chains: int | None = None
    workers: int = 1
    scheduler: str | None = None
    checkpoint: Path | None = None
    resume: bool = False


def get_default_steps_and_chains(node_count: int) -> tuple[int, int]:
    """Return the default number of steps per chain, and of chains.

    The default is one chain of the published 4,000 steps. On few servers it is 4 chains of 250 steps, because slower
    steps by simulation improve the result there.

    >>> get_default_steps_and_chains(12), get_default_steps_and_chains(128)
    ((250, 4), (4000, 1))
    """
    return (250, 4) if node_count <= FEW_NODES else (4000, 1)


def make_plan(
    choice: WorkloadChoice,
    servers: Servers,
    effort: SearchEffort,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Plan, SearchResult]:
    """Search for a plan, and return it with the result of the search.

    Raises the errors of `search.optimise`, and `WorkloadError`.
    """
    begin_s, workload = process_time(), choice.make_workload(servers.nodes)
    step_count, chain_count = get_default_steps_and_chains(servers.nodes)
    step_count = step_count if effort.steps is None else effort.steps
    chain_count = chain_count if effort.chains is None else effort.chains
    result = optimise(
        workload,
        choice.make_cluster(servers.nodes),
        servers.degree,
        servers.rate_gbps,
        simplex=servers.simplex,
        seed=effort.seed,
        steps=step_count,
        chains=chain_count,
        workers=effort.workers,
        scheduler=effort.scheduler,
        checkpoint=effort.checkpoint,
        resume=effort.resume,
        progress=progress,
    )
    routes = result.wirings[0].routes
    plan = Plan(
        workload=choice,
        topology=result.finding.topology,
        rate_gbps=servers.rate_gbps,
        operators=tuple(operator.name for operator in workload.operators),
        strategy=result.strategy,
        predicted={**_make_predicted_figures(result, workload, choice), "batch": workload.batch},
        reasons=result.reasons,
        search={
            "seed": effort.seed,
            "steps": step_count,
            "chains": chain_count,
            "done": result.steps,
            "cpu_s": round(process_time() - begin_s, 2),
        },
        lab=servers.lab,
        hosts=servers.hosts,
        routes=routes,
    )
    return plan, result


def count_path_lengths(topology: Topology) -> dict[str, int]:
    """Return the number of ordered pairs of nodes at each distance in hops.

    >>> from testbed.design.topology.circulants import find_topology
    >>> count_path_lengths(find_topology(12, 4))
    {'1': 48, '2': 60, '3': 24}
    """
    if topology.nodes == 1:
        return {}
    hops = make_hop_table(topology.nodes, topology.edges)
    lengths, pair_counts = np.unique(hops[hops > 0], return_counts=True)
    return {str(length): int(count) for length, count in zip(lengths, pair_counts, strict=True)}


def _make_predicted_figures(
    result: SearchResult, workload: Workload, choice: WorkloadChoice
) -> dict[str, Any]:
    predicted, topology, routes = result.predicted, result.finding.topology, result.wirings[0].routes
    return {
        "iteration_ms": predicted.iteration_s * 1e3,
        "bound_ms": predicted.bound.seconds * 1e3,
        "bound_by": predicted.bound.by,
        "above_bound": predicted.iteration_s / predicted.bound.seconds - 1
        if predicted.bound.seconds
        else 0.0,
        "ideal_switch_ms": predicted.ideal_switch_s * 1e3,
        "closed_form_ms": predicted.closed_form_s * 1e3,
        "bandwidth_tax": predicted.bandwidth_tax,
        "routing_gap": _compute_routing_gap(routes, result.strategy, workload, choice) if routes else 0.0,
        "mean_hops": predicted.mean_hops,
        "diameter": compute_diameter(topology) if topology.nodes > 1 else 0,
        "path_lengths": count_path_lengths(topology),
        "ring_degree": result.finding.ring_degree,
        "matching_degree": result.finding.matching_degree,
    }


def _compute_routing_gap(
    routes: RouteSets, strategy: Strategy, workload: Workload, choice: WorkloadChoice
) -> float:
    """Return the relative excess of the fullest link over the lower bound for all routings, or 0 without a bound."""
    graph = iteration(workload, strategy, choice.make_cluster(routes.topology.nodes))
    demand = find_demand(routes.topology, graph)
    if not routes.bound_bytes:
        routes = replace(routes, bound_bytes=route_job(routes.topology, graph, try_count=1).bound_bytes)
    return max(routes.compute_gap(demand), 0.0) if routes.bound_bytes else 0.0
