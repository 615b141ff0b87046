"""Final choice by simulation: which strategy, and how many links to buy for pairs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass

from sim.models.network.allreduce.fluid import plan_fluid_ring
from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_ideal_switch
from testbed.design.routing.route_sets import RouteSets
from testbed.design.search.chains import EarlyStop
from testbed.design.search.edge_swap import MIN_IMPROVEMENT, TrialBudget, improve_proposal, propose_starts
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import RoutedExecution, simulate_on_quick_routes, simulate_plan_routes
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


def rank_strategies(
    problem: Problem, proposals: Sequence[Proposal], executor: Executor, stop: EarlyStop | None = None
) -> tuple[RankedStrategy, ...]:
    """Return every strategy with its simulated time, fastest first; ties are in the order of the proposals.

    For speed, ends of flows are rounded by up to 1 % of their duration. Only the fastest topology of each strategy is
    kept. A `stop` ends the ranking with the simulations that are complete. If none is complete, the cheapest proposal
    in closed form is simulated, and only another Ctrl-C ends that.
    """
    stop = EarlyStop() if stop is None else stop
    futures: list[Future[RankedStrategy]] = []
    with stop:
        futures.extend(executor.submit(simulate_proposal, problem, proposal, True) for proposal in proposals)
        wait(futures)
        for future in futures:
            future.result()
    for future in futures:
        future.cancel()
    ranked_strategies = [
        entry.result()
        for entry in futures
        if entry.done() and not entry.cancelled() and not entry.exception()
    ]
    if not ranked_strategies:
        cheapest = min(proposals, key=lambda proposal: proposal.closed_form_s)
        ranked_strategies = [simulate_proposal(problem, cheapest, is_rounded=True)]
    fastest_by_strategy: dict[Strategy, RankedStrategy] = {}
    for entry in sorted(ranked_strategies, key=lambda entry: entry.simulated_s):
        fastest_by_strategy.setdefault(entry.strategy, entry)
    return tuple(fastest_by_strategy.values())


def rank_wirings(
    objective: StrategyObjective, best_strategy: RankedStrategy, stop: EarlyStop | None = None
) -> tuple[RankedStrategy, ...]:
    """Return a strategy with each possible number of links for pairs: the best choice, then the others, fastest first.

    The best choice has the fewest links for pairs among the results within `MIN_IMPROVEMENT` of the fastest. So links
    for pairs are bought only if they shorten the simulated iteration (without rounding) enough. For each number,
    the links are TopologyFinder's, unless edge swaps shorten the iteration by more than `MIN_IMPROVEMENT`. A `stop`
    ends the search with the results so far.
    """
    problem, trial_budget, ranked_by_finding = (
        objective.problem,
        TrialBudget(),
        {best_strategy.finding: best_strategy},
    )
    published_findings: list[Finding] = []
    with EarlyStop() if stop is None else stop:
        ranked_by_finding[best_strategy.finding] = simulate_proposal(
            problem, Proposal(best_strategy.strategy, best_strategy.finding, best_strategy.closed_form_s)
        )
        for start in propose_starts(objective, best_strategy.strategy):
            published_findings.append(start.finding)
            for proposal in (start, improve_proposal(objective, start, trial_budget)):
                if proposal.finding not in ranked_by_finding:
                    ranked_by_finding[proposal.finding] = simulate_proposal(problem, proposal)
    fastest_by_degree: dict[int, RankedStrategy] = {}
    for finding in dict.fromkeys([*published_findings, *ranked_by_finding]):
        if finding in ranked_by_finding:
            entry = ranked_by_finding[finding]
            previous = fastest_by_degree.setdefault(finding.matching_degree, entry)
            if entry.simulated_s < previous.simulated_s * (1 - MIN_IMPROVEMENT):
                fastest_by_degree[finding.matching_degree] = entry
    max_sufficient_s = min(entry.simulated_s for entry in fastest_by_degree.values()) * (1 + MIN_IMPROVEMENT)
    best_choice = fastest_by_degree[
        min(degree for degree, entry in fastest_by_degree.items() if entry.simulated_s <= max_sufficient_s)
    ]
    runners_up = sorted(fastest_by_degree.values(), key=lambda entry: entry.simulated_s)
    return (best_choice, *(entry for entry in runners_up if entry is not best_choice))


def simulate_proposal(problem: Problem, proposal: Proposal, is_rounded: bool = False) -> RankedStrategy:
    """Return a proposal with its simulated time on the routes of `find_quick_routes`."""
    return _make_ranked(
        proposal,
        simulate_on_quick_routes(
            problem, proposal.strategy, proposal.finding.topology, is_rounded=is_rounded
        ),
    )


def simulate_on_plan_routes(problem: Problem, best_strategy: RankedStrategy) -> RankedStrategy:
    """Return the strategy simulated on the routes of its plan, see `simulate_plan_routes`."""
    proposal = Proposal(best_strategy.strategy, best_strategy.finding, best_strategy.closed_form_s)
    return _make_ranked(
        proposal, simulate_plan_routes(problem, best_strategy.strategy, best_strategy.finding.topology)
    )


def _make_ranked(proposal: Proposal, routed_execution: RoutedExecution) -> RankedStrategy:
    execution = routed_execution.execution
    return RankedStrategy(*proposal, execution.iteration_s, execution.bandwidth_tax, routed_execution.routes)


def simulate_ideal_switch_s(problem: Problem, strategy: Strategy) -> float:
    """Return the simulated seconds of an iteration on a non-blocking switch, at degree × rate per server."""
    fabric = make_ideal_switch(problem.nodes, problem.degree * problem.rate_gbps)
    graph = iteration(problem.workload, strategy, problem.cluster)
    return simulate(graph, fabric, latency=problem.latency, allreduce=plan_fluid_ring).iteration_s
