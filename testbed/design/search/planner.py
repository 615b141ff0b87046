"""Planner: finds a strategy and a topology for a workload, predicts their times, and gives reasons."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time

import numpy as np

from sim.models.network.latency import Latency
from testbed.design.search import checkpoint as checkpoints
from testbed.design.search.annealing import Annealer, Candidate, refine_candidates
from testbed.design.search.bound import Bound, compute_bound
from testbed.design.search.chains import AlphaUnit, ChainState, EarlyStop, Rules, Visit, merge_visit
from testbed.design.search.edge_swap import improve_by_edge_swaps
from testbed.design.search.finalists import (
    RankedStrategy,
    rank_strategies,
    rank_wirings,
    simulate_ideal_switch_s,
    simulate_on_plan_routes,
    simulate_proposal,
)
from testbed.design.search.problem import Problem
from testbed.design.search.reasons import compare_with_fat_tree, explain_plan
from testbed.design.search.strategies import Proposal, StrategyObjective, StrategyObjectiveFactory
from testbed.design.search.worker_pool import (
    ChainTask,
    InProcessExecutor,
    make_first_states,
    open_worker_pool,
    run_chains,
)
from testbed.design.topology.finder import Finding
from testbed.design.topology.hops import compute_mean_hops
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import Strategy
from testbed.errors import SearchError

POLISH_WORK = 850
"""Tasks and messages that polishing may simulate per step of a chain: about 15 s for 1,000 steps."""
MAX_POLISH_WORK = 1_600_000
"""Tasks and messages that polishing may simulate in one search, with any number of steps."""
_POLISH_SEED, _MAX_POLISHED = 1 << 20, 6
_FINALISTS_BEFORE_POLISH = 3
"""Number of finalists of the chains that are simulated if polishing follows."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a search: `steps` of `total` steps are done, summed over all chains.

    `best_s` is the least cost so far in closed form.
    """

    steps: int
    total: int
    best_s: float


@dataclass(frozen=True, slots=True)
class StrategyPrediction:
    """Predictions for a plan.

    - `iteration_s`, `closed_form_s`: time of an iteration by simulation and in closed form.
    - `bandwidth_tax`: bytes on links over bytes sent.
    - `mean_hops`: mean distance of two servers.
    - `ideal_switch_s`: time on a non-blocking switch, with one link of degree times the rate per server.
    - `bound`: lower bound on the time of every plan of the workload.
    """

    iteration_s: float
    closed_form_s: float
    bandwidth_tax: float
    mean_hops: float
    ideal_switch_s: float
    bound: Bound


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search: a strategy, a topology for it, predicted times, and reasons.

    `ranking` holds the best strategies by simulated time, fastest first, each on its best topology. `wirings` holds the
    chosen strategy on topologies with more and fewer links for pairs. `stopped` tells whether the search ended before
    its budget was spent or all finalists were simulated.
    """

    strategy: Strategy
    finding: Finding
    predicted: StrategyPrediction
    reasons: tuple[str, ...]
    ranking: tuple[RankedStrategy, ...]
    wirings: tuple[RankedStrategy, ...]
    steps: int
    stopped: bool
    cpu_s: float = field(default=0.0, compare=False)


def optimise(
    workload: Workload,
    cluster: Cluster,
    degree: int,
    rate_gbps: float,
    *,
    simplex: bool = False,
    seed: int = 0,
    steps: int = 4000,
    chains: int = 1,
    workers: int = 1,
    scheduler: str | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    until: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    finalists: int = 20,
    microbatches: int = 1,
    polish_work: int = POLISH_WORK,
    alpha: float = 0.2,
    alpha_per: AlphaUnit = "ms",
    latency: Latency | None = None,
    plan_routes: bool = True,
) -> SearchResult:
    """Return the best strategy and topology found for a workload on `cluster.nodes` servers of `degree` links each.

    The search has three stages:

    1. `chains` walk `steps` steps each: in this process, in `workers` processes, or on the workers of a Dask
       `scheduler` ("tcp://..."). With a larger `alpha`, chains accept fewer slower iterations. It counts per ms or,
       with `alpha_per="permille"`, per thousandth of the first strategy's time.
    2. The best `finalists` (at most three if stage 3 follows) are simulated, also with edges swapped.
    3. Annealing by simulation improves the best, see `refine_candidates`, with `polish_work` tasks and messages per
       step of the chains. It also searches for the number of microbatches, unless `microbatches` is set to another
       number than 1.

    The best strategy is then simulated with every possible number of links for pairs, and on the plan's routes unless
    `plan_routes` is false. With 0 steps the result is the first strategy: data parallel, with tables placed so that
    memory suffices. The result depends only on workload, servers, options, `seed` and `chains`.

    The search writes `checkpoint`, and `resume` continues from it. `until` ends each chain at that step, to be resumed
    later. Ctrl-C and a loss of workers end the search early with the best result so far. If nothing was simulated by
    then, the best strategy in closed form is simulated, and only another Ctrl-C ends that.

    Raises `SearchError` for invalid options, unusable checkpoints and lost workers, `OutOfMemory` if nothing fits, and
    `TopologyError` if no topology of this degree exists.
    """
    begin_s = process_time()
    problem = Problem(workload, cluster, degree, rate_gbps, simplex, microbatches, latency or Latency())
    rules = Rules(steps=steps, alpha=alpha, keep=finalists, per=alpha_per)
    if resume and not checkpoint:
        raise SearchError("resuming needs a checkpoint: give its file")
    objective = StrategyObjective(problem)
    fingerprint = checkpoints.compute_fingerprint(problem, rules, seed, chains, objective.shardings)
    task = ChainTask(fingerprint, StrategyObjectiveFactory(problem), rules)

    def report(current_states: Sequence[ChainState]) -> None:
        if checkpoint:
            checkpoints.write(checkpoint, fingerprint, current_states)
        if progress:
            progress(
                Progress(
                    steps=sum(state.step for state in current_states),
                    total=rules.steps * len(current_states),
                    best_s=min(state.best[0].cost_s for state in current_states),
                )
            )

    stop = EarlyStop()
    with open_worker_pool(workers, scheduler) as executor:
        if checkpoint and resume:
            states = checkpoints.read(checkpoint, fingerprint, chains)
            checkpoints.check(checkpoint, states, objective, rules)
        else:
            states = make_first_states(task, seed, chains)
        report(states)
        states = run_chains(task, states, executor, end_step=until, report=report, stop=stop)
        polish_budget = min(sum(state.step for state in states) * polish_work, MAX_POLISH_WORK)
        best_visits: tuple[Visit, ...] = ()
        for state in states:
            for visit in state.best:
                best_visits = merge_visit(best_visits, visit, rules.keep)
        visits = best_visits[: _FINALISTS_BEFORE_POLISH if polish_budget else None]
        proposals: list[Proposal] = []
        with stop:
            proposals.extend(map(objective.make_proposal, visits))
        proposals = proposals or [objective.make_proposal(visits[0])]
        ranking = rank_strategies(
            objective.problem,
            [*proposals, *improve_by_edge_swaps(objective, proposals, stop)],
            InProcessExecutor() if stop.has_lost_workers else executor,
            stop,
        )
    ranking = _polish_ranking(objective, ranking, seed, polish_budget, stop)
    result = _make_result(objective, ranking, states, rules, stop, plan_routes=plan_routes)
    return replace(result, cpu_s=process_time() - begin_s)


def _polish_ranking(
    objective: StrategyObjective,
    ranking: tuple[RankedStrategy, ...],
    seed: int,
    polish_budget: int,
    stop: EarlyStop,
) -> tuple[RankedStrategy, ...]:
    """Return the ranking with added results of annealing, which starts from the best and the default strategy."""
    if polish_budget <= 0 or stop or objective.problem.nodes == 1:
        return ranking
    problem, annealer = objective.problem, Annealer(objective.problem)
    default_point = objective.get_start_point()
    starts = [
        Candidate(default_point, problem.microbatches, objective.get_finding(default_point)),
        Candidate(objective.find_point(ranking[0].strategy), problem.microbatches, ranking[0].finding),
    ]
    with _freeze_existing_objects():
        polished_candidates = refine_candidates(
            annealer, starts, np.random.default_rng([seed, _POLISH_SEED]), polish_budget, stop
        )
    candidates = list(dict.fromkeys(entry.candidate for entry in polished_candidates))[:_MAX_POLISHED]
    proposals = [
        Proposal(annealer.make_strategy(entry), entry.finding, annealer.estimate_s(entry))
        for entry in candidates
    ]
    fastest_by_strategy: dict[Strategy, RankedStrategy] = {}
    polished_strategies = [simulate_proposal(problem, proposal) for proposal in proposals]
    for entry in sorted([*polished_strategies, *ranking], key=lambda entry: entry.simulated_s):
        fastest_by_strategy.setdefault(entry.strategy, entry)
    return tuple(fastest_by_strategy.values())


@contextmanager
def _freeze_existing_objects() -> Iterator[None]:
    """Exclude existing objects from garbage collection: a scan of compiled code would be slower than a simulation."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _make_result(
    objective: StrategyObjective,
    ranking: tuple[RankedStrategy, ...],
    states: Sequence[ChainState],
    rules: Rules,
    stop: EarlyStop,
    *,
    plan_routes: bool,
) -> SearchResult:
    """Return the result for the fastest strategy, with its best number of links for pairs."""
    problem = replace(objective.problem, microbatches=ranking[0].strategy.microbatches)
    if problem != objective.problem:
        objective = StrategyObjective(problem)
    best_strategy, *runners_up = rank_wirings(objective, ranking[0], stop)
    if plan_routes:
        with stop:
            best_strategy = simulate_on_plan_routes(objective.problem, best_strategy)
    ranked_wirings = best_strategy, *runners_up
    ideal_s = _simulate_ideal_switch(problem, best_strategy, stop)
    steps, max_steps = sum(state.step for state in states), rules.steps * len(states)
    return SearchResult(
        strategy=best_strategy.strategy,
        finding=best_strategy.finding,
        predicted=StrategyPrediction(
            iteration_s=best_strategy.simulated_s,
            closed_form_s=best_strategy.closed_form_s,
            bandwidth_tax=best_strategy.bandwidth_tax,
            mean_hops=compute_mean_hops(best_strategy.finding.topology),
            ideal_switch_s=ideal_s,
            bound=compute_bound(problem),
        ),
        reasons=(
            *explain_plan(problem, ranked_wirings, ideal_s),
            *compare_with_fat_tree(problem, best_strategy.strategy, best_strategy.simulated_s),
            *_explain_stop(stop, steps, max_steps),
        ),
        ranking=ranking,
        wirings=ranked_wirings,
        steps=steps,
        stopped=bool(stop) or steps < max_steps,
    )


def _simulate_ideal_switch(problem: Problem, ranked: RankedStrategy, stop: EarlyStop) -> float:
    """Return the time on an ideal switch. The first Ctrl-C restarts the simulation: a plan file needs this time."""
    with stop:
        return simulate_ideal_switch_s(problem, ranked.strategy)
    return simulate_ideal_switch_s(problem, ranked.strategy)


def _explain_stop(stop: EarlyStop, step_count: int, max_steps: int) -> Iterator[str]:
    if stop:
        yield (
            f"The search was cut short by {stop.reason} after {step_count:,} of {max_steps:,} steps:"
            " more may be found."
        )
