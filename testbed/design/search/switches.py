"""A plan beside a network of packet switches that costs as much: whether optics pay for the job."""

from __future__ import annotations

from sim.models.network.allreduce.fluid import fluid_ring
from sim.models.network.execution import simulate
from sim.models.network.fabrics import fat_tree
from testbed.design.fabrics.builders import RANKED_ROUNDING, equal_cost_fat_tree_gbps
from testbed.design.search.problem import Problem
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.sharding.sharding import Strategy

ALIKE = 0.01
"""Less than so much apart is as long: ends of flows are rounded so."""


def beside_fat_tree(problem: Problem, strategy: Strategy, planned_s: float) -> tuple[str, ...]:
    """Return a sentence on the Fat-tree of equal cost, with the same strategy; nothing for a single server."""
    if problem.nodes == 1:
        return ()
    try:
        rate_gbps = equal_cost_fat_tree_gbps(problem.nodes, problem.degree, problem.rate_gbps)
    except ValueError:
        return ("No Fat-tree costs as little (prices recalled): there is none to compare with.",)
    done = simulate(
        iteration(problem.workload, strategy, problem.cluster),
        fat_tree(problem.nodes, rate_gbps),
        latency=problem.latency,
        allreduce=fluid_ring,
        rounding=RANKED_ROUNDING,
    )
    return (fat_tree_sentence(planned_s, done.iteration_s, rate_gbps),)


def fat_tree_sentence(planned_s: float, fat_tree_s: float, rate_gbps: float) -> str:
    """Return what an operator should know before fibres are patched.

    >>> fat_tree_sentence(0.1, 0.058, 92.5)
    'A Fat-tree of equal cost (92.5 Gb/s a server, prices recalled) would need 58 ms, 42 % less: optics do not pay \
for this job.'
    """
    less = 1 - fat_tree_s / planned_s if planned_s else 0.0
    if abs(less) <= ALIKE:
        told = "as long: optics pay no more than switches do"
    elif less > 0:
        told = f"{less:.0%} less: optics do not pay for this job".replace("%", " %")
    else:
        told = f"{fat_tree_s / planned_s - 1:.0%} longer: optics pay".replace("%", " %")
    tree = f"A Fat-tree of equal cost ({rate_gbps:.4g} Gb/s a server, prices recalled)"
    return f"{tree} would need {fat_tree_s * 1e3:.3g} ms, {told}."
