"""Sentences that explain a plan to the operator who patches it, and compare optics with packet switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lightbed.wording import format_count
from sim.models.network.allreduce.fluid import plan_fluid_ring
from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_fat_tree
from testbed.design.fabrics.fat_tree import compute_equal_cost_gbps
from testbed.design.fabrics.kind import RANKING_ROUNDING
from testbed.design.search.finalists import RankedStrategy
from testbed.design.search.problem import Problem
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.sharding import Sharding, Strategy

_MIN_SHOWN_DIFFERENCE = 5e-4
"""Times with a smaller relative difference count as equal: it would be printed as 0.0 %."""

EQUAL_TIME_TOLERANCE = 0.01
"""Simulated times with a smaller relative difference count as equal: ends of flows are rounded by up to this."""


def explain_plan(problem: Problem, wirings: Sequence[RankedStrategy], ideal_s: float) -> tuple[str, ...]:
    """Return sentences on the plan's strategy, links and time. The first of the simulated `wirings` is the plan's."""
    best_strategy = wirings[0]
    if problem.nodes == 1:
        time_text = format_time(best_strategy.simulated_s)
        return (f"One server computes everything in {time_text}: nothing is sent, no link is needed.",)
    return (
        _describe_strategy(best_strategy),
        *_describe_links(problem, wirings),
        _describe_time(problem, best_strategy, ideal_s),
    )


def _describe_strategy(best_strategy: RankedStrategy) -> str:
    layouts = Counter(_describe_sharding(sharding) for sharding in best_strategy.strategy.shardings)
    parts = [f"{count} {words}" for words, count in layouts.most_common()]
    return (
        f"Strategy for {_format_noun(len(best_strategy.strategy.shardings), 'operator')}: {'; '.join(parts)}."
    )


def _describe_sharding(sharding: Sharding) -> str:
    copies_text = f", in {sharding.replicas} copies" if sharding.replicas > 1 else ""
    return {
        "data": f"data parallel on {sharding.replicas} servers",
        "tensor": f"cut over {sharding.shards} servers{copies_text}",
        "place": f"cut over {sharding.shards} servers" if sharding.shards > 1 else "on 1 server each",
        "expert": f"with its experts spread over {sharding.shards} servers{copies_text}",
    }[sharding.way]


def _describe_links(problem: Problem, wirings: Sequence[RankedStrategy]) -> Iterator[str]:
    best_strategy, finding = wirings[0], wirings[0].finding
    strides = ", ".join(f"{'+' if problem.simplex else '±'}{stride}" for stride in finding.topology.strides)
    pair_link_count = finding.matching_degree
    yield (
        f"{finding.ring_degree} of {_format_noun(problem.degree, 'link')} a server "
        f"{'makes' if finding.ring_degree == 1 else 'make'} rings of strides {strides}; "
        f"{pair_link_count or 'none'} {'joins' if pair_link_count == 1 else 'join'} the pairs that send most."
    )
    for wiring in wirings[1:]:
        if wiring.finding.matching_degree != pair_link_count:
            excess = wiring.simulated_s / best_strategy.simulated_s - 1
            yield (
                f"With {_format_noun(wiring.finding.matching_degree, 'link')} for pairs the simulated iteration takes "
                f"{format_time(wiring.simulated_s)}, {_format_difference(excess)}."
            )


def _describe_time(problem: Problem, best_strategy: RankedStrategy, ideal_s: float) -> str:
    excess = best_strategy.simulated_s / ideal_s - 1 if ideal_s else 0.0
    return (
        f"The simulated iteration takes {format_time(best_strategy.simulated_s)}; a switch that never blocks, with "
        f"{problem.degree * problem.rate_gbps:g} Gb/s a server, would need {format_time(ideal_s)}. Each byte passes "
        f"{best_strategy.bandwidth_tax:.2f} links"
        + (
            f", which makes it {_format_difference(excess)} than on the switch."
            if excess >= _MIN_SHOWN_DIFFERENCE
            else "."
        )
    )


def _format_difference(excess: float) -> str:
    if abs(excess) < _MIN_SHOWN_DIFFERENCE:
        return "as long"
    return f"{abs(excess) * 100:.1f} % {'longer' if excess > 0 else 'less'}"


def _format_noun(number: int, noun: str) -> str:
    return format_count(number, noun) if number else f"no {noun}s"


def format_time(seconds: float) -> str:
    """Return a time as text, in ms below 1 s, otherwise in s."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.4g} s"


def compare_with_fat_tree(problem: Problem, strategy: Strategy, planned_s: float) -> tuple[str, ...]:
    """Return a sentence that compares the plan with a Fat-tree of equal cost, or nothing for a single server."""
    if problem.nodes == 1:
        return ()
    try:
        rate_gbps = compute_equal_cost_gbps(problem.nodes, problem.degree, problem.rate_gbps)
    except ValueError:
        return ("No Fat-tree costs as little (prices recalled): there is none to compare with.",)
    execution = simulate(
        iteration(problem.workload, strategy, problem.cluster),
        make_fat_tree(problem.nodes, rate_gbps),
        latency=problem.latency,
        allreduce=plan_fluid_ring,
        rounding=RANKING_ROUNDING,
    )
    return (describe_fat_tree(planned_s, execution.iteration_s, rate_gbps),)


def describe_fat_tree(planned_s: float, fat_tree_s: float, rate_gbps: float) -> str:
    """Return a sentence that tells whether optics pay off compared with a Fat-tree of equal cost.

    >>> describe_fat_tree(0.1, 0.058, 92.5)
    'A Fat-tree of equal cost (92.5 Gb/s a server, prices recalled) would need 58 ms, 42 % less: optics do not pay \
for this job.'
    """
    saving = 1 - fat_tree_s / planned_s if planned_s else 0.0
    if abs(saving) <= EQUAL_TIME_TOLERANCE:
        verdict = "as long: optics pay no more than switches do"
    elif saving > 0:
        verdict = f"{saving:.0%} less: optics do not pay for this job".replace("%", " %")
    else:
        verdict = f"{fat_tree_s / planned_s - 1:.0%} longer: optics pay".replace("%", " %")
    tree = f"A Fat-tree of equal cost ({rate_gbps:.4g} Gb/s a server, prices recalled)"
    return f"{tree} would need {fat_tree_s * 1e3:.3g} ms, {verdict}."
