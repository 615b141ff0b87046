"""The second topology of the demo: a job that the first topology serves badly, and a plan for it.

The job fine-tunes adapters on a model that no single server can hold. The frozen layers are split over groups of as
many servers as their memory requires: each group reduces activations, forward and backward. The adapters are trained
data parallel: one AllReduce of their gradients spans all servers. If the servers of a group are far apart in the graph,
each byte of the group crosses several links.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.design.evaluation.simulation import simulate_on
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import FabricRequest
from testbed.design.model import Routes, Topology
from testbed.design.search import optimise
from testbed.design.topology.demand import AllReduceDemand
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import sum_graph_traffic
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster

_SEARCH_SEED, _SEARCH_STEPS, _FINALIST_COUNT = 0, 200, 4
_ANNEALING_ALPHA = 0.02
"""Annealing parameter: chains must accept losses of tens of ms, because topologies differ by that much here."""
_MEMORY_FILL = 0.95
"""Share of a group's memory that the layers fill. With a share this high, no smaller group suffices."""
_BATCH_SAMPLES = 16
_ACTIVATION_BYTES = 4 << 20
_ADAPTER_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class SecondTopology:
    """A planned topology, the AllReduces of an iteration (smallest groups first), and why it was chosen."""

    topology: Topology
    demands: tuple[AllReduceDemand, ...]
    reason: str


def plan_second_topology(
    current_topology: Topology, routes: Routes, rate_gbps: float
) -> SecondTopology | None:
    """Plan a topology for fine-tuning in the groups that `current_topology` serves worst, with links of `rate_gbps`.

    Return None if no groups of three or more divide the servers, if `current_topology` links the servers of all
    groups directly, or if the planner keeps `current_topology`.
    """
    group_size = find_farthest_group_size(current_topology.nodes, routes)
    if group_size is None:
        return None
    cluster = Cluster(current_topology.nodes)
    job = make_fine_tuning_workload(current_topology.nodes, group_size, cluster)
    plan = optimise(
        job,
        cluster,
        current_topology.degree,
        rate_gbps,
        simplex=current_topology.simplex,
        seed=_SEARCH_SEED,
        steps=_SEARCH_STEPS,
        finalists=_FINALIST_COUNT,
        alpha=_ANNEALING_ALPHA,
        polish_work=0,
        plan_routes=False,
    )
    if plan.finding.topology.edges == current_topology.edges:
        return None
    graph = iteration(job, plan.strategy, cluster)
    current_fabric = build_fabric(
        FabricRequest(
            "direct", current_topology.nodes, current_topology.degree, rate_gbps, topology=current_topology
        )
    )
    current_iteration_ms = simulate_on(current_fabric.as_fluid(), graph).iteration_s * 1e3
    demands = sorted(sum_graph_traffic(graph).demand.allreduce, key=lambda demand: demand.group_size)
    size_gb = job.parameter_bytes / 1e9
    second_iteration_ms = plan.predicted.iteration_s * 1e3
    durations_text = (
        f"{current_iteration_ms:.1f} ms on the current topology, {second_iteration_ms:.1f} ms here"
    )
    reason_parts = (
        f"Fine-tuning a model of {size_gb:.0f} GB, which no server holds alone.",
        *plan.reasons[:2],
        f"Predicted time of an iteration: {durations_text}.",
    )
    return SecondTopology(plan.finding.topology, tuple(demands), " ".join(reason_parts))


def find_farthest_group_size(node_count: int, routes: Routes) -> int | None:
    """Return the size of the evenly spaced groups whose neighbours are farthest apart.

    Return None if no groups of three or more divide the servers, or if all neighbours are linked directly.
    """
    group_sizes = [
        candidate_size for candidate_size in range(3, node_count) if node_count % candidate_size == 0
    ]
    group_size = max(
        group_sizes,
        key=lambda candidate_size: (routes.count_hops(0, node_count // candidate_size), candidate_size),
        default=None,
    )
    return group_size if group_size and routes.count_hops(0, node_count // group_size) > 1 else None


def make_fine_tuning_workload(node_count: int, group_size: int, cluster: Cluster) -> Workload:
    """Return the workload: adapters on frozen layers that fill the memory of `group_size` servers."""
    layers = Operator(
        name="layers",
        kind="transformer",
        forward_flops=2e10,
        backward_flops=2e10,
        parameter_bytes=int(_MEMORY_FILL * group_size * cluster.memory_bytes),
        output_bytes=1 << 16,
        forward_reduce_bytes=_ACTIVATION_BYTES,
        backward_reduce_bytes=_ACTIVATION_BYTES,
        ways=("tensor",),
        most_shards=group_size,
        evenly_spaced=True,
    )
    adapters = Operator(
        name="adapters",
        kind="dense",
        forward_flops=1e8,
        backward_flops=2e8,
        parameter_bytes=_ADAPTER_BYTES,
        output_bytes=1 << 16,
        gradient_bytes=_ADAPTER_BYTES,
        ways=("data",),
    )
    origin = "LoRA (Hu et al. 2022) on a model larger than a server; sizes are made up"
    return Workload("fine-tuning", (layers, adapters), ((0, 1),), _BATCH_SAMPLES * node_count, origin=origin)
