"""Metropolis chains over strategies, with topology search in the loop (TopoOpt's alternating optimisation, fused).

A step follows the released code. It gives a random operator a random sharding. It always accepts a faster iteration,
and accepts a slower one with probability exp(-alpha * difference in ms). After an accepted strategy, or 50 steps
without a change, it recomputes the topology for the current strategy and accepts it by the same rule, with a separate
alpha. After each hundredth of the budget, but at least every 1,000 steps, the chain returns to its best visit. As our
addition, the difference can count in thousandths of the first cost instead of ms.

A chain depends only on its seed and number. Its whole state is a `ChainState`, so it can be stopped and resumed at any
step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np

from testbed.errors import SearchError

Point = tuple[int, ...]
"""A strategy as numbers: for each operator, the index of its sharding among the legal shardings."""

AlphaUnit = Literal["ms", "permille"]


class Objective(Protocol):
    """Costs of points on topologies. Results depend only on the arguments, so chains are reproducible.

    A topology is identified by its *origin*: the point for whose traffic it was made.
    """

    def get_start_point(self) -> Point:
        """Return the point where every chain begins. Its cost on its own topology must be finite."""

    def draw_neighbour(self, point: Point, rng: np.random.Generator) -> Point:
        """Return a point that differs from this one in one number."""

    def compute_cost_s(self, point: Point, origin: Point) -> float:
        """Return the seconds of an iteration; infinity for an impossible point, such as one that exceeds the memory."""


class ObjectiveFactory(Protocol):
    """Everything that defines an objective, small enough to send to another process."""

    def make_objective(self) -> Objective:
        """Return the objective, with empty caches."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a chain.

    - `steps`: total number of steps.
    - `alpha`, `topology_alpha`: factors of the acceptance rule for strategies and topologies.
    - `per`: unit of the alphas. `ms` as published, or `permille` of the first strategy's time, so that chains of short
      and of long iterations behave alike.
    - `patience`: steps without a change after which the topology is recomputed.
    - `keep`: number of best visits to keep.

    Raises `SearchError` for numbers out of range.
    """

    steps: int = 4000
    alpha: float = 0.2
    topology_alpha: float = 0.5
    patience: int = 50
    keep: int = 20
    per: AlphaUnit = "ms"

    def __post_init__(self) -> None:
        if self.steps < 0 or self.patience < 1 or self.keep < 1:
            raise SearchError(
                f"a chain of {self.steps} steps with patience {self.patience}, keeping the best {self.keep}: "
                "give 0 or more steps, and 1 or more of the others"
            )
        if not (self.alpha > 0 and self.topology_alpha > 0):
            raise SearchError(
                f"alpha is {self.alpha} and topology_alpha {self.topology_alpha}: give numbers above 0"
            )
        if self.per not in get_args(AlphaUnit):
            raise SearchError(f"per is {self.per!r}: choose {' or '.join(get_args(AlphaUnit))}")

    @property
    def reset_every(self) -> int:
        """Steps between returns to the best.

        >>> Rules(steps=4000).reset_every, Rules(steps=50).reset_every, Rules(steps=10**6).reset_every
        (40, 1, 1000)
        """
        return max(1, min(1000, self.steps // 100))


def compute_unit_s(objective: Objective, rules: Rules) -> float:
    """Return the unit of cost differences for the alphas, in seconds."""
    if rules.per == "ms":
        return 1e-3
    start = objective.get_start_point()
    return objective.compute_cost_s(start, start) * 1e-3


class Visit(NamedTuple):
    """A point that was visited, on the topology made for `origin`."""

    cost_s: float
    point: Point
    origin: Point


@dataclass(frozen=True, slots=True)
class ChainState:
    """State of a chain after `step` steps. `best` holds the cheapest visits of different cost, cheapest first.

    `chance` is the state of the random generator. `unchanged` counts the steps since the last change.
    """

    chance: Mapping[str, Any]
    step: int
    at: Visit
    unchanged: int
    accepted: int
    best: tuple[Visit, ...]


def make_first_state(objective: Objective, seed: int, chain_number: int) -> ChainState:
    """Return the state before the first step of chain `chain_number`. Raises `SearchError` if its cost is infinite."""
    start = objective.get_start_point()
    visit = Visit(objective.compute_cost_s(start, start), start, start)
    if not math.isfinite(visit.cost_s):
        raise SearchError("the initial strategy does not run: give more servers or memory")
    rng = np.random.default_rng([seed, chain_number])
    return ChainState(rng.bit_generator.state, 0, visit, 0, 0, (visit,))


def run_steps(objective: Objective, rules: Rules, state: ChainState, step_count: int) -> ChainState:
    """Return the state after `step_count` more steps, or at the end of the chain if that comes first."""
    rng = np.random.default_rng()
    rng.bit_generator.state = state.chance
    step_count = min(step_count, rules.steps - state.step)
    unit_s = compute_unit_s(objective, rules) if step_count > 0 else 0.0
    for _ in range(step_count):
        current, best_visits = state.at, state.best
        if state.step and state.step % rules.reset_every == 0:
            current = best_visits[0]
        point = objective.draw_neighbour(current.point, rng)
        candidate = Visit(objective.compute_cost_s(point, current.origin), point, current.origin)
        is_accepted = _is_accepted(current.cost_s, candidate.cost_s, rules.alpha / unit_s, rng)
        unchanged = 0 if is_accepted else state.unchanged + 1
        if is_accepted:
            current = candidate
            best_visits = merge_visit(best_visits, current, rules.keep)
        if is_accepted or unchanged == rules.patience:
            rewired = Visit(
                objective.compute_cost_s(current.point, current.point), current.point, current.point
            )
            unchanged = 0
            if _is_accepted(current.cost_s, rewired.cost_s, rules.topology_alpha / unit_s, rng):
                current = rewired
                best_visits = merge_visit(best_visits, current, rules.keep)
        state = ChainState(
            state.chance, state.step + 1, current, unchanged, state.accepted + is_accepted, best_visits
        )
    return replace(state, chance=rng.bit_generator.state)


def merge_visit(best_visits: tuple[Visit, ...], visit: Visit, max_visits: int) -> tuple[Visit, ...]:
    """Return the best visits with `visit` added, at most `max_visits`, cheapest first.

    Keep one of several visits with the same point, or with equal cost (to 12 digits): strategies of equal cost mostly
    differ only in the numbers of servers.
    """
    if len(best_visits) == max_visits and visit.cost_s >= best_visits[-1].cost_s:
        return best_visits
    cost = _format_cost(visit)
    for earlier_visit in best_visits:
        if _format_cost(earlier_visit) == cost or (
            earlier_visit.point == visit.point and earlier_visit.cost_s <= visit.cost_s
        ):
            return best_visits
    other_visits = [earlier_visit for earlier_visit in best_visits if earlier_visit.point != visit.point]
    return tuple(sorted([*other_visits, visit], key=lambda other_visit: other_visit.cost_s)[:max_visits])


def _format_cost(visit: Visit) -> str:
    return f"{visit.cost_s:.12g}"


def _is_accepted(cost_s: float, candidate_s: float, alpha: float, rng: np.random.Generator) -> bool:
    """Return whether Metropolis' rule accepts the candidate, with `alpha` per second.

    It always draws a number, so that chains with different costs use the same random numbers.
    """
    threshold = rng.random()
    return bool(candidate_s < cost_s or threshold < math.exp(-alpha * (candidate_s - cost_s)))


class EarlyStop:
    """Context manager that ends its block without an error at Ctrl-C or a loss of workers, and keeps the reason.

    >>> stop = EarlyStop()
    >>> with stop:
    ...     raise KeyboardInterrupt
    >>> stop.reason
    'Ctrl-C'
    """

    def __init__(self) -> None:
        self.reason = ""
        self.has_lost_workers = False

    def __bool__(self) -> bool:
        """Return whether a block ended early."""
        return bool(self.reason)

    def __enter__(self) -> None:
        """Enter a block. The same stop can enter several blocks."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if isinstance(error, KeyboardInterrupt):
            self.reason = "Ctrl-C"
        elif error is not None and is_worker_loss(error):
            self.has_lost_workers = True
            self.reason = f"a loss of workers ({type(error).__name__})"
        else:
            return False
        return True


def is_worker_loss(error: BaseException) -> bool:
    """Return whether an error means lost workers: a broken process pool, a cancelled call, or Dask's `KilledWorker`."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ == "KilledWorker"
