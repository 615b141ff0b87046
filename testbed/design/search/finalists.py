"""The last word is the simulator's: which strategy, and how many links to buy for pairs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from sim.models.network.execution import Execution, simulate
from sim.models.network.fabrics import ideal_switch
from sim.models.network.fluid import fluid_ring
from testbed.design.fabric_choice import fabric_by_name
from testbed.design.finder import Finding
from testbed.design.search.exchange_links import Tries, improved, starts
from testbed.design.search.setting import Setting
from testbed.design.search.strategies import Proposal, StrategyProblem
from testbed.design.workloads.iteration import iteration
from testbed.design.workloads.layout import Strategy


@dataclass(frozen=True, slots=True)
class Ranked:
    """A strategy on a topology: what it costs in closed form and by simulation, and bytes on links over bytes sent."""

    strategy: Strategy
    finding: Finding
    closed_form_s: float
    simulated_s: float
    bandwidth_tax: float


def rank(setting: Setting, proposals: Sequence[Proposal], executor: Executor) -> tuple[Ranked, ...]:
    """Every strategy simulated, the fastest first; of equals the one that came first.

    A strategy that is proposed on several topologies counts on the fastest of them.

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
    fastest: dict[Strategy, Ranked] = {}
    for one in sorted(ranked, key=lambda one: one.simulated_s):
        fastest.setdefault(one.strategy, one)
    return tuple(fastest.values())


def wirings(problem: StrategyProblem, best: Ranked) -> tuple[Ranked, ...]:
    """A strategy with every possible number of links for pairs, the fastest first; of equals that with fewest.

    Links for pairs are so bought exactly when the simulated iteration gets shorter. With each number the pairs are
    those that send most, or others when the simulated iteration is then shorter.
    """
    tries, known = Tries(), {best.finding: best}
    for start in starts(problem, best.strategy):
        for proposal in (start, improved(problem, start, tries)):
            if proposal.finding not in known:
                known[proposal.finding] = _ranked(problem.setting, proposal)
    fastest: dict[int, Ranked] = {}
    for one in sorted(known.values(), key=lambda one: (one.simulated_s, one.finding.matching_degree)):
        fastest.setdefault(one.finding.matching_degree, one)
    return tuple(fastest.values())


def simulated(setting: Setting, strategy: Strategy, finding: Finding) -> Execution:
    """One iteration on the topology, rings fluid: on links that carry nothing else as exact as in rounds."""
    nodes, topology = setting.nodes, finding.topology
    chosen = fabric_by_name("direct", nodes, setting.degree, setting.rate_gbps, topology=topology)
    graph = iteration(setting.workload, strategy, setting.cluster)
    return chosen.as_planned().run(graph, latency=setting.latency)


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
