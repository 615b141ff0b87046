"""From a workload and servers to a plan that can be written, applied and looked at again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.design.model import Topology
from testbed.design.plans.file import Plan
from testbed.design.rates import check_rate
from testbed.design.search import Found, Progress, optimise
from testbed.design.search.strategies import FEW_NODES
from testbed.design.topology.distance import diameter
from testbed.design.topology.hops import hop_table
from testbed.design.workloads.choice import WorkloadChoice


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
    """Return steps of each chain, and chains: the published 4,000 steps, on few servers shared out among four chains.

    There a chain finds in 1,000 steps what it will find, and chains differ by more than that.

    >>> default_walk(12), default_walk(128)
    ((1000, 4), (4000, 1))
    """
    return (1000, 4) if nodes <= FEW_NODES else (4000, 1)


def make_plan(
    choice: WorkloadChoice,
    servers: Servers,
    effort: Effort,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Plan, Found]:
    """Search, and put the result into a plan. Raises as `search.optimise`, and `WorkloadError`."""
    workload = choice.workload(servers.nodes)
    default_steps, default_chains = default_walk(servers.nodes)
    steps = default_steps if effort.steps is None else effort.steps
    chains = default_chains if effort.chains is None else effort.chains
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
    plan = Plan(
        workload=choice,
        topology=found.finding.topology,
        rate_gbps=servers.rate_gbps,
        operators=tuple(operator.name for operator in workload.operators),
        strategy=found.strategy,
        predicted=_predicted(found),
        why=found.why,
        search={
            "seed": effort.seed,
            "steps": steps,
            "chains": chains,
            "done": found.steps,
            "cpu_s": round(found.cpu_s, 2),
        },
        lab=servers.lab,
        hosts=servers.hosts,
    )
    return plan, found


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


def _predicted(found: Found) -> dict[str, Any]:
    predicted, topology = found.predicted, found.finding.topology
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
        "mean_hops": predicted.mean_hops,
        "diameter": diameter(topology) if topology.nodes > 1 else 0,
        "path_lengths": path_lengths(topology),
        "ring_degree": found.finding.ring_degree,
        "matching_degree": found.finding.matching_degree,
    }
