"""Local search for the links of a strategy: one small change after the other, judged by the closed form.

TopologyFinder joins the pairs that send most. It considers neither the distances of the other pairs nor which messages
delay the iteration. This search applies two kinds of change, as long as they shorten the iteration:

- Two links of a matching swap their ends: (a, b), (c, d) become (a, d), (c, b).
- Another stride with rings over the same groups replaces a stride.

Rings stay rings and matchings stay matchings. So the graph stays connected, and can still be wired with one switch, or
with one switch per interface, if it could before.

The search starts once for each possible number of links for pairs, because the best number depends on which pairs are
linked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import gcd

from testbed.design.model import Topology
from testbed.design.search.chains import EarlyStop
from testbed.design.search.strategies import FEW_NODES, Proposal, StrategyObjective
from testbed.design.topology.circulants import list_circulant_edges
from testbed.design.topology.demand import Demand
from testbed.design.topology.finder import Finding, plan_topology
from testbed.design.topology.strides import list_direct_strides
from testbed.design.workloads.sharding import Strategy

Edge = tuple[int, int]
Round = tuple[Edge, ...]

MAX_TRIES = 240
"""Maximum number of topologies that a search tries for all strategies. They take 1 s with 12 servers, 3 s with 32."""
MIN_IMPROVEMENT = 5e-3
"""A topology is accepted if it shortens the iteration by more than this fraction, the accuracy of the closed form. The
limit also keeps plans regular where a change would gain little."""


class TrialBudget:
    """Budget of a search. `remaining_tries` is the number of topologies that it may still try."""

    def __init__(self, max_tries: int = MAX_TRIES) -> None:
        self.remaining_tries = max_tries

    def spend_try(self) -> bool:
        """Count one topology, and return whether the budget allows it."""
        self.remaining_tries -= 1
        return self.remaining_tries >= 0


def improve_by_edge_swaps(
    objective: StrategyObjective, proposals: Sequence[Proposal], stop: EarlyStop | None = None
) -> tuple[Proposal, ...]:
    """Return the strategies for which the search found a topology of lower cost in closed form, with that topology.

    All strategies share `MAX_TRIES`: later strategies get what earlier strategies leave. A `stop` ends the search and
    keeps the results so far.
    """
    trial_budget, improved_proposals = TrialBudget(), []
    with EarlyStop() if stop is None else stop:
        for proposal in proposals:
            best_proposal = _choose_best(objective, proposal, trial_budget)
            if best_proposal.closed_form_s < proposal.closed_form_s * (1 - MIN_IMPROVEMENT):
                improved_proposals.append(best_proposal)
    return tuple(improved_proposals)


def propose_starts(objective: StrategyObjective, strategy: Strategy) -> Iterator[Proposal]:
    """Yield the strategy on TopologyFinder's topology for each possible number of links for pairs."""
    problem, point = objective.problem, objective.find_point(strategy)
    demand = objective.compute_demand(point)
    for matching_degree in problem.possible_pair_link_counts if problem.nodes > 1 else ():
        finding = plan_topology(
            demand, problem.degree, simplex=problem.simplex, matching_degree=matching_degree
        )
        yield Proposal(strategy, finding, objective.compute_cost_on(point, finding))


def improve_proposal(objective: StrategyObjective, proposal: Proposal, trial_budget: TrialBudget) -> Proposal:
    """Return the strategy on improved links.

    The search is deterministic: it tries changes in a fixed order and applies each one that helps. It ends when no
    change helps or the tries are spent. It tries nothing if pairs send nothing, or with more than `FEW_NODES` servers.
    """
    point = objective.find_point(proposal.strategy)
    demand = objective.compute_demand(point)
    if objective.problem.nodes > FEW_NODES or not demand.pair_bytes:
        return proposal
    compute_cost_s = partial(objective.compute_cost_on, point)
    finding, cost_s = apply_edge_swaps(
        proposal.finding, proposal.closed_form_s, compute_cost_s, demand, trial_budget
    )
    return Proposal(proposal.strategy, finding, cost_s) if finding != proposal.finding else proposal


def apply_edge_swaps(
    finding: Finding,
    cost_s: float,
    compute_cost_s: Callable[[Finding], float],
    demand: Demand,
    trial_budget: TrialBudget,
) -> tuple[Finding, float]:
    """Apply each change that lowers the cost by more than `MIN_IMPROVEMENT`. Return the new links and their cost."""
    simplex = finding.topology.simplex
    pairs = zip(demand.source.tolist(), demand.target.tolist(), strict=True)
    demanded_links = frozenset(_make_link(pair, simplex=simplex) for pair in pairs)
    position, failure_count = 0, 0
    neighbours = list(list_neighbours(finding, demanded_links))
    while failure_count < len(neighbours) and trial_budget.spend_try():
        candidate = neighbours[position % len(neighbours)]
        other_cost = compute_cost_s(candidate)
        position, failure_count = position + 1, failure_count + 1
        if other_cost < cost_s * (1 - MIN_IMPROVEMENT):
            finding, cost_s, failure_count = candidate, other_cost, 0
            neighbours = list(list_neighbours(finding, demanded_links))
    return finding, cost_s


def _choose_best(objective: StrategyObjective, proposal: Proposal, trial_budget: TrialBudget) -> Proposal:
    results = [
        improve_proposal(objective, start, trial_budget)
        for start in (proposal, *propose_starts(objective, proposal.strategy))
    ]
    return min(results, key=lambda result: result.closed_form_s)


def _make_link(pair: Edge, *, simplex: bool) -> Edge:
    """Return the pair as a link, with the smaller node first if duplex."""
    return pair if simplex else (min(pair), max(pair))


def list_neighbours(finding: Finding, demanded_links: frozenset[Edge]) -> Iterator[Finding]:
    """Yield all topologies that differ by one edge swap or one stride, in a fixed order."""
    simplex = finding.topology.simplex
    rounds = tuple(
        (*pair_links, *filler_links)
        for pair_links, filler_links in zip(finding.matchings, finding.fillers, strict=True)
    )
    for round_index, links in enumerate(rounds):
        for swapped_links in _swap_ends(links, simplex=simplex):
            yield _replace_links(
                finding,
                finding.topology.strides,
                (*rounds[:round_index], swapped_links, *rounds[round_index + 1 :]),
                demanded_links,
            )
    for strides in _vary_strides(finding.topology):
        yield _replace_links(finding, strides, rounds, demanded_links)


def _swap_ends(links: Round, *, simplex: bool) -> Iterator[Round]:
    """Yield the links after each swap of the ends of two links: one way to swap if simplex, two if duplex."""
    for first_index, second_index in combinations(range(len(links)), 2):
        (first_source, first_target), (second_source, second_target) = links[first_index], links[second_index]
        exchanges = (
            [((first_source, second_target), (second_source, first_target))]
            if simplex
            else [
                ((first_source, second_target), (first_target, second_source)),
                ((first_source, second_source), (first_target, second_target)),
            ]
        )
        remaining_links = [
            link for index, link in enumerate(links) if index not in (first_index, second_index)
        ]
        for new_links in exchanges:
            if all(source != target for source, target in new_links):
                yield (*remaining_links, *(_make_link(link, simplex=simplex) for link in new_links))


def _vary_strides(topology: Topology) -> Iterator[tuple[int, ...]]:
    """Yield the strides after each replacement of one stride by another with rings over the same groups."""
    nodes, strides = topology.nodes, topology.strides
    max_stride = nodes - 1 if topology.simplex else nodes // 2
    for index, stride in enumerate(strides):
        for replacement in range(1, max_stride + 1):
            if replacement not in strides and gcd(replacement, nodes) == gcd(stride, nodes):
                yield tuple(sorted((*strides[:index], replacement, *strides[index + 1 :])))


def _replace_links(
    finding: Finding, strides: tuple[int, ...], rounds: tuple[Round, ...], demanded_links: frozenset[Edge]
) -> Finding:
    """Return the finding with these strides and rounds of links for pairs."""
    old_topology = finding.topology
    ring_edges = list_circulant_edges(
        old_topology.nodes, list_direct_strides(old_topology.nodes, strides, simplex=old_topology.simplex)
    )
    pair_edges = [link for links in rounds for link in links]
    if not old_topology.simplex:
        pair_edges += [(target, source) for source, target in pair_edges]
    return replace(
        finding,
        topology=replace(old_topology, strides=strides, edges=tuple(sorted((*ring_edges, *pair_edges)))),
        matchings=tuple(tuple(sorted(link for link in links if link in demanded_links)) for links in rounds),
        fillers=tuple(
            tuple(sorted(link for link in links if link not in demanded_links)) for links in rounds
        ),
    )
