"""Objective of the search: strategies of a workload as points, their costs, and topologies for their demands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.search.chains import Point, Visit
from testbed.design.search.cost import Costs, build_paths
from testbed.design.search.moves import Moves
from testbed.design.search.problem import Problem
from testbed.design.search.program import ProgramBuilder
from testbed.design.topology.demand import Demand
from testbed.design.topology.finder import Finding, plan_topology
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.roofline import check_memory, compute_operator_memory, compute_peak_bytes
from testbed.design.workloads.sharding import Sharding, Strategy
from testbed.design.workloads.strategies import fitting_strategy, list_legal_shardings

_CACHED_TOPOLOGIES = 16
_CACHED_PROGRAMS = 64
_CACHED_MEMORY_ENTRIES = 1 << 14
FEW_NODES = 32
"""Up to this number of servers, a chain tries all numbers of links for pairs, and edges are swapped at its end. Beyond,
a chain tries only the published number and 0."""


class Proposal(NamedTuple):
    """A strategy, a topology for it, and the seconds of an iteration in closed form."""

    strategy: Strategy
    finding: Finding
    closed_form_s: float


@dataclass(frozen=True, slots=True)
class StrategyObjectiveFactory:
    """The problem of a search in the form that is sent to workers."""

    problem: Problem

    def make_objective(self) -> StrategyObjective:
        """Return the objective of the problem, with empty caches."""
        return StrategyObjective(self.problem)


class StrategyObjective:
    """Strategies of one problem as points, their costs, and topologies for them.

    Raises `OutOfMemory` if even the start strategy does not fit into memory.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        workload, nodes = problem.workload, problem.nodes
        fitting_shardings = fitting_strategy(workload, problem.cluster).shardings
        self.shardings = tuple(
            tuple(dict.fromkeys([*list_legal_shardings(operator, nodes), sharding]))
            for operator, sharding in zip(workload.operators, fitting_shardings, strict=True)
        )
        self._start_point = tuple(
            legal.index(sharding) for legal, sharding in zip(self.shardings, fitting_shardings, strict=True)
        )
        self._moves = Moves(workload, self.shardings, nodes)
        check_memory(workload, self.make_strategy(self._start_point), problem.cluster)
        self._get_memory = lru_cache(_CACHED_MEMORY_ENTRIES)(self._compute_memory)
        self._programs = ProgramBuilder(problem)
        self.get_program = lru_cache(_CACHED_PROGRAMS)(
            lambda point: self._programs.build_program(self._list_shardings(point))
        )
        self.get_finding = lru_cache(_CACHED_TOPOLOGIES)(self._choose_finding)
        self._get_costs = lru_cache(_CACHED_TOPOLOGIES)(
            lambda finding: Costs(problem, build_paths(finding.topology, problem.rate_gbps))
        )

    def get_start_point(self) -> Point:
        """Return the default strategy, or, if it does not fit into memory, a strategy with everything cut."""
        return self._start_point

    def draw_neighbour(self, point: Point, rng: np.random.Generator) -> Point:
        """Return the point with a random operator laid out in another way."""
        return self._moves.lay_out_operator(point, rng) if self._moves.free_operators else point

    def compute_cost_s(self, point: Point, origin: Point) -> float:
        """Return the seconds of an iteration in closed form on the topology made for `origin`.

        Return infinity if the strategy does not fit into memory.
        """
        if not self.fits_memory(point):
            return math.inf
        return self._get_costs(self.get_finding(origin)).compute_seconds(self.get_program(point))

    def compute_cost_on(self, point: Point, finding: Finding) -> float:
        """Return the seconds of an iteration in closed form on a topology; infinity if it does not fit into memory."""
        return (
            self._get_costs(finding).compute_seconds(self.get_program(point))
            if self.fits_memory(point)
            else math.inf
        )

    def compute_demand(self, point: Point) -> Demand:
        """Return the demand of the strategy, the input of the topology search."""
        return traffic(self.problem.workload, self.make_strategy(point), self.problem.cluster).demand

    def fits_memory(self, point: Point) -> bool:
        """Return whether the strategy fits into the memory of every server."""
        memory_rows = np.array(
            [self._get_memory(op_index, sharding_index) for op_index, sharding_index in enumerate(point)]
        )
        used_bytes = compute_peak_bytes(self.problem.workload, memory_rows, self.problem.microbatches)
        return bool(np.max(used_bytes) <= self.problem.cluster.memory_bytes)

    def make_strategy(self, point: Point) -> Strategy:
        """Return the strategy of a point."""
        return Strategy(self._list_shardings(point), self.problem.microbatches)

    def find_point(self, strategy: Strategy) -> Point:
        """Return the point of a strategy. Raises `ValueError` for a sharding that is not legal."""
        return tuple(
            legal.index(sharding) for legal, sharding in zip(self.shardings, strategy.shardings, strict=True)
        )

    def make_proposal(self, visit: Visit) -> Proposal:
        """Return the strategy, topology and cost of a chain's visit."""
        return Proposal(self.make_strategy(visit.point), self.get_finding(visit.origin), visit.cost_s)

    def split_as_published(self, point: Point) -> Finding:
        """Return the topology for a strategy's demand, with links split between rings and pairs as published."""
        return plan_topology(self.compute_demand(point), self.problem.degree, simplex=self.problem.simplex)

    def _compute_memory(self, op_index: int, sharding_index: int) -> NDArray[np.float64]:
        """Return `compute_operator_memory` for one operator in one of its shardings."""
        workload, sharding = self.problem.workload, self.shardings[op_index][sharding_index]
        operator, nodes = workload.operators[op_index], self.problem.nodes
        return compute_operator_memory(operator, sharding, workload.batch, nodes, training=workload.training)

    def _list_shardings(self, point: Point) -> tuple[Sharding, ...]:
        return tuple(
            legal[sharding_index] for legal, sharding_index in zip(self.shardings, point, strict=True)
        )

    def _choose_finding(self, origin: Point) -> Finding:
        """Return the topology of least cost over the published number of links for pairs and other numbers."""
        problem, demand, published_split = (
            self.problem,
            self.compute_demand(origin),
            self.split_as_published(origin),
        )
        degrees = problem.possible_pair_link_counts if 1 < problem.nodes <= FEW_NODES else (0,)
        other_findings = [
            plan_topology(demand, problem.degree, simplex=problem.simplex, matching_degree=degree)
            for degree in degrees
            if degree != published_split.matching_degree
        ]
        return min(
            (published_split, *other_findings), key=lambda finding: self.compute_cost_on(origin, finding)
        )
