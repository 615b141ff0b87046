"""Final choice by simulation: which strategy, and how many links to buy for pairs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass

from sim.models.network.allreduce.fluid import fluid_ring
from sim.models.network.execution import simulate
from sim.models.network.fabrics import ideal_switch
from testbed.design.routing.route_sets import RouteSets
from testbed.design.search.chains import Stop
from testbed.design.search.edge_swap import MIN_IMPROVEMENT, TrialBudget, improve, propose_starts
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import RoutedExecution, install, simulate_on_quick_routes
from testbed.design.search.strategies import Proposal, StrategyObjective
from testbed.design.topology.finder import Finding
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.sharding import Strategy


@dataclass(frozen=True, slots=True)
class RankedStrategy:
    """A strategy on a topology, with its iteration time in closed form and by simulation.

    `bandwidth_tax` is bytes on links over bytes sent. `routes` are the simulated routes, None for a single server.
    """

    strategy: Strategy
    finding: Finding
    closed_form_s: float
    simulated_s: float
    bandwidth_tax: float
    routes: RouteSets | None = None


def rank(
    problem: Problem, proposals: Sequence[Proposal], executor: Executor, stop: Stop | None = None
) -> tuple[RankedStrategy, ...]:
    """Return every strategy with its simulated time, fastest first; ties are in the order of the proposals.

    For speed, ends of flows are rounded by up to 1 % of their duration. Only the fastest topology of each strategy is
    kept. A `stop` ends the ranking with the simulations that are complete. If none is complete, the cheapest proposal
    in closed form is simulated, and only another Ctrl-C ends that.
    """
    stop = Stop() if stop is None else stop
    pending: list[Future[RankedStrategy]] = []
    with stop:
        pending.extend(executor.submit(simulate_proposal, problem, proposal, True) for proposal in proposals)
        wait(pending)
        for future in pending:
            future.result()
    for future in pending:
        future.cancel()
    ranked = [
        entry.result()
        for entry in pending
        if entry.done() and not entry.cancelled() and not entry.exception()
    ]
    if not ranked:
        cheapest = min(proposals, key=lambda proposal: proposal.closed_form_s)
        ranked = [simulate_proposal(problem, cheapest, rounded=True)]
    fastest: dict[Strategy, RankedStrategy] = {}
    for entry in sorted(ranked, key=lambda entry: entry.simulated_s):
        fastest.setdefault(entry.strategy, entry)
    return tuple(fastest.values())


def rank_wirings(
    objective: StrategyObjective, best_strategy: RankedStrategy, stop: Stop | None = None
) -> tuple[RankedStrategy, ...]:
    """Return a strategy with each possible number of links for pairs: the best choice, then the others, fastest first.

    The best choice has the fewest links for pairs among the results within `MIN_IMPROVEMENT` of the fastest. So links
    for pairs are bought only if they shorten the simulated iteration (without rounding) enough. For each number,
    the links are TopologyFinder's, unless edge swaps shorten the iteration by more than `MIN_IMPROVEMENT`. A `stop`
    ends the search with the results so far.
    """
    problem, tries, by_finding = objective.problem, TrialBudget(), {best_strategy.finding: best_strategy}
    published: list[Finding] = []
    with Stop() if stop is None else stop:
        by_finding[best_strategy.finding] = simulate_proposal(
            problem, Proposal(best_strategy.strategy, best_strategy.finding, best_strategy.closed_form_s)
        )
        for start in propose_starts(objective, best_strategy.strategy):
            published.append(start.finding)
            for proposal in (start, improve(objective, start, tries)):
                if proposal.finding not in by_finding:
                    by_finding[proposal.finding] = simulate_proposal(problem, proposal)
    fastest: dict[int, RankedStrategy] = {}
    for finding in dict.fromkeys([*published, *by_finding]):
        if finding in by_finding:
            entry = by_finding[finding]
            previous = fastest.setdefault(finding.matching_degree, entry)
            if entry.simulated_s < previous.simulated_s * (1 - MIN_IMPROVEMENT):
                fastest[finding.matching_degree] = entry
    enough_s = min(entry.simulated_s for entry in fastest.values()) * (1 + MIN_IMPROVEMENT)
    best_choice = fastest[min(degree for degree, entry in fastest.items() if entry.simulated_s <= enough_s)]
    runners_up = sorted(fastest.values(), key=lambda entry: entry.simulated_s)
    return (best_choice, *(entry for entry in runners_up if entry is not best_choice))


def simulate_proposal(problem: Problem, proposal: Proposal, rounded: bool = False) -> RankedStrategy:
    """Return a proposal with its simulated time on the routes of `route_quickly`."""
    return _make_ranked(
        proposal,
        simulate_on_quick_routes(problem, proposal.strategy, proposal.finding.topology, rounded=rounded),
    )


def simulate_on_plan_routes(problem: Problem, best_strategy: RankedStrategy) -> RankedStrategy:
    """Return the strategy simulated on the routes of its plan, see `install`."""
    proposal = Proposal(best_strategy.strategy, best_strategy.finding, best_strategy.closed_form_s)
    return _make_ranked(proposal, install(problem, best_strategy.strategy, best_strategy.finding.topology))


def _make_ranked(proposal: Proposal, installed: RoutedExecution) -> RankedStrategy:
    execution = installed.execution
    return RankedStrategy(*proposal, execution.iteration_s, execution.bandwidth_tax, installed.routes)


def ideal_switch_s(problem: Problem, strategy: Strategy) -> float:
    """Return the simulated seconds of an iteration on a non-blocking switch, at degree × rate per server."""
    fabric = ideal_switch(problem.nodes, problem.degree * problem.rate_gbps)
    graph = iteration(problem.workload, strategy, problem.cluster)
    return simulate(graph, fabric, latency=problem.latency, allreduce=fluid_ring).iteration_s
