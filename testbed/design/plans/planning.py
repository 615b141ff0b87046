"""From a workload and servers to a plan that can be written, applied and looked at again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from sim.models.network.execution import Execution
from testbed.design.fabrics.builders import FabricRequest
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.job_routes import demand_on, route_job
from testbed.design.model import Topology
from testbed.design.plans.file import Plan
from testbed.design.rates import check_rate
from testbed.design.routing.route_sets import MOST_SETS, RouteSets
from testbed.design.search import Found, Progress, optimise
from testbed.design.search.reasons import in_ms
from testbed.design.search.strategies import FEW_NODES
from testbed.design.topology.distance import diameter
from testbed.design.topology.hops import hop_table
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.model import Workload


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers of a job: `hosts` in the order of nodes when a lab is meant, whose name is `lab`.

    Raises `TopologyError` for a rate that no link has.
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
class Effort:
    """Length and means of a search; see `search.optimise`, and `default_walk` for what is not said."""

    seed: int = 0
    steps: int | None = None
    chains: int | None = None
    workers: int = 1
    scheduler: str | None = None
    checkpoint: Path | None = None
    resume: bool = False


def default_walk(nodes: int) -> tuple[int, int]:
    """Return steps of each chain, and chains: the published 4,000 steps, on few servers four chains of 600.

    There annealing by simulation does the rest.

    >>> default_walk(12), default_walk(128)
    ((600, 4), (4000, 1))
    """
    return (600, 4) if nodes <= FEW_NODES else (4000, 1)


def make_plan(
    choice: WorkloadChoice,
    servers: Servers,
    effort: Effort,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Plan, Found]:
    """Search, and put the result into a plan. Raises as `search.optimise`, and `WorkloadError`."""
    begin_s, workload = process_time(), choice.workload(servers.nodes)
    steps, chains = _walk(effort, servers.nodes)
    found = optimise(
        workload,
        choice.cluster(servers.nodes),
        servers.degree,
        servers.rate_gbps,
        simplex=servers.simplex,
        seed=effort.seed,
        steps=steps,
        chains=chains,
        workers=effort.workers,
        scheduler=effort.scheduler,
        checkpoint=effort.checkpoint,
        resume=effort.resume,
        progress=progress,
    )
    routes, simulated = _routed(workload, choice, servers, found)
    plan = Plan(
        workload=choice,
        topology=found.finding.topology,
        rate_gbps=servers.rate_gbps,
        operators=tuple(operator.name for operator in workload.operators),
        strategy=found.strategy,
        predicted=_predicted(found, routes, simulated),
        why=(*found.why, *_on_routes(found, simulated)),
        search={"seed": effort.seed, "steps": steps, "chains": chains, **_spent(found, begin_s)},
        lab=servers.lab,
        hosts=servers.hosts,
        routes=routes,
    )
    return plan, found


def _walk(effort: Effort, nodes: int) -> tuple[int, int]:
    """Return steps and chains as asked for, else the default."""
    steps, chains = default_walk(nodes)
    return (
        steps if effort.steps is None else effort.steps,
        chains if effort.chains is None else effort.chains,
    )


def _spent(found: Found, begin_s: float) -> dict[str, Any]:
    """Return steps and processor time of a search with the routes for what it found."""
    return {"done": found.steps, "cpu_s": round(process_time() - begin_s, 2)}


def _routed(
    workload: Workload, choice: WorkloadChoice, servers: Servers, found: Found
) -> tuple[RouteSets | None, Execution]:
    """Return the routes of the plan and an iteration on them; of one set to several, those on which it is shortest.

    More keep the fullest link emptier, fewer keep the ways shorter. A single server has no routes.
    """
    topology = found.finding.topology
    graph = iteration(workload, found.strategy, choice.cluster(servers.nodes))

    def simulated(routes: RouteSets | None) -> Execution:
        request = FabricRequest(
            "direct", servers.nodes, servers.degree, servers.rate_gbps, topology=topology, routes=routes
        )
        return build_fabric(request).as_fluid().run(graph)

    if servers.nodes == 1:
        return None, simulated(None)
    numbers = range(MOST_SETS, 0, -1) if servers.nodes <= FEW_NODES else (MOST_SETS, 1)
    tried = [route_job(topology, graph, most_paths=sets) for sets in numbers]
    done = [(routes, simulated(routes)) for routes in tried]
    return min(done, key=lambda one: one[1].iteration_s)


def _on_routes(found: Found, simulated: Execution) -> Iterator[str]:
    """Say so where the other sentences, which are from the search, tell another time than is predicted."""
    searched_s, taken = found.predicted.iteration_s, in_ms(simulated.iteration_s)
    if taken != in_ms(searched_s):
        more = simulated.iteration_s / searched_s - 1
        longer = f"{abs(more) * 100:.1f} % {'longer' if more > 0 else 'less'}"
        yield f"On the routes of the plan the simulated iteration takes {taken}, {longer} than in the search."


def path_lengths(topology: Topology) -> dict[str, int]:
    """Return how many ordered pairs of nodes are so many hops apart.

    >>> from testbed.design.topology.circulants import find_topology
    >>> path_lengths(find_topology(12, 4))
    {'1': 48, '2': 60, '3': 24}
    """
    if topology.nodes == 1:
        return {}
    hops = hop_table(topology.nodes, topology.edges)
    lengths, pairs = np.unique(hops[hops > 0], return_counts=True)
    return {str(length): int(count) for length, count in zip(lengths, pairs, strict=True)}


def _predicted(found: Found, routes: RouteSets | None, simulated: Execution) -> dict[str, Any]:
    predicted, topology = found.predicted, found.finding.topology
    graph, bound_s = simulated.graph, predicted.bound.seconds
    gap = routes.gap(demand_on(topology, graph)) if routes else 0.0
    return {
        "iteration_ms": simulated.iteration_s * 1e3,
        "bound_ms": bound_s * 1e3,
        "bound_by": predicted.bound.by,
        "above_bound": simulated.iteration_s / bound_s - 1 if bound_s else 0.0,
        "ideal_switch_ms": predicted.ideal_switch_s * 1e3,
        "closed_form_ms": predicted.closed_form_s * 1e3,
        "bandwidth_tax": simulated.bandwidth_tax,
        "routing_gap": gap if gap > 0 else 0.0,
        "mean_hops": predicted.mean_hops,
        "diameter": diameter(topology) if topology.nodes > 1 else 0,
        "path_lengths": path_lengths(topology),
        "ring_degree": found.finding.ring_degree,
        "matching_degree": found.finding.matching_degree,
    }
