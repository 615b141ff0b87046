"""The last word is the simulator's: which strategy, and how many links to buy for pairs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from sim.models.network.execution import Execution, simulate
from sim.models.network.fabrics import ideal_switch
from sim.models.network.fluid import fluid_ring, rings_on
from testbed.design.fabric_choice import fabric_of, ring_strides
from testbed.design.finder import Finding, find
from testbed.design.search.setting import Setting
from testbed.design.search.strategies import Proposal, StrategyProblem
from testbed.design.workloads.iteration import iteration
from testbed.design.workloads.layout import Strategy

_ROUNDING = 0.01
"""Flows may end by so much of their duration later: 1 % of the time of an iteration, a hundredth of the computing."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A strategy on a topology: what it costs in closed form and by simulation, and bytes on links over bytes sent."""

    strategy: Strategy
    finding: Finding
    closed_form_s: float
    simulated_s: float
    bandwidth_tax: float


def rank(setting: Setting, proposals: Sequence[Proposal], executor: Executor) -> tuple[Ranked, ...]:
    """Every proposal simulated, the fastest first; of equals the one that came first.

    Ctrl-C ends it with those that are ready, if any are.
    """
    ranked: list[Ranked] = []
    pending: list[Future[Ranked]] = []
    try:
        pending.extend(executor.submit(_ranked, setting, proposal) for proposal in proposals)
        ranked.extend(future.result() for future in pending)
    except KeyboardInterrupt:
        for future in pending:
            future.cancel()
        ranked = [future.result() for future in pending if future.done() and not future.cancelled()]
        if not ranked:
            raise
    return tuple(sorted(ranked, key=lambda one: one.simulated_s))


def wirings(problem: StrategyProblem, best: Ranked) -> tuple[Ranked, ...]:
    """A strategy with every possible number of links for pairs, the fastest first; of equals that with fewest.

    Links for pairs are so bought exactly when the simulated iteration gets shorter.
    """
    setting, point = problem.setting, problem.point(best.strategy)
    ranked = [best]
    demand = problem.demand(point)
    for degree in setting.matching_degrees if setting.nodes > 1 else ():
        finding = find(demand, setting.degree, simplex=setting.simplex, matching_degree=degree)
        if finding != best.finding:
            ranked.append(_ranked(setting, Proposal(best.strategy, finding, problem.cost_on(point, finding))))
    return tuple(sorted(ranked, key=lambda one: (one.simulated_s, one.finding.matching_degree)))


def simulated(setting: Setting, strategy: Strategy, finding: Finding) -> Execution:
    """One iteration on the topology, rings fluid: on links that carry nothing else as exact as in rounds."""
    topology = finding.topology
    fabric = fabric_of(topology, setting.rate_gbps)
    graph = iteration(setting.workload, strategy, setting.cluster)
    rings = rings_on(lambda group: ring_strides(topology, group))
    return simulate(graph, fabric, latency=setting.latency, allreduce=rings, rounding=_ROUNDING)


def ideal_switch_s(setting: Setting, strategy: Strategy) -> float:
    """The same iteration on a switch that never blocks, with one link of degree times the rate a server."""
    fabric = ideal_switch(setting.nodes, setting.degree * setting.rate_gbps)
    graph = iteration(setting.workload, strategy, setting.cluster)
    return simulate(graph, fabric, latency=setting.latency, allreduce=fluid_ring).iteration_s


def _ranked(setting: Setting, proposal: Proposal) -> Ranked:
    done = simulated(setting, proposal.strategy, proposal.finding)
    return Ranked(
        proposal.strategy, proposal.finding, proposal.closed_form_s, done.iteration_s, done.bandwidth_tax
    )
