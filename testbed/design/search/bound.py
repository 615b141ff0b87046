"""Lower bound on the iteration time of every plan: from computing, and from a linear programme over bytes to send.

In the programme, each operator has a mixture of its legal shapes. Each edge has a mixture of pairs of shapes that is
consistent with the mixtures at its ends (the local relaxation). Two sums are spread evenly over servers and links:
seconds of computing, and bytes times the minimum number of links that they cross. The programme minimises the larger
one. At most `degree` servers are one link away and degree (degree - 1) are two links away, so bytes to many servers
cross more links on any topology.

Needs scipy. Without it, the bound considers only computing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.search.moves import group_by_shape
from testbed.design.search.problem import Problem
from testbed.design.workloads.iteration.totals import list_gradient_sums, sum_edge_pairs
from testbed.design.workloads.model import Edge, Operator
from testbed.design.workloads.roofline import compute_operator_seconds
from testbed.design.workloads.sharding import Sharding, count_row_samples, list_trainable
from testbed.design.workloads.strategies import list_legal_shardings

Floats = NDArray[np.float64]


class Bound(NamedTuple):
    """Lower bound on the seconds of an iteration. `by` tells what determines the bound: `compute` or `network`."""

    seconds: float
    by: str


def compute_bound(problem: Problem) -> Bound:
    """Return the lower bound on an iteration with any strategy on any topology."""
    costs = _ShapeCosts(problem)
    compute_s = sum(min(shape.seconds for shape in shapes) for shapes in costs.shapes) / problem.nodes
    if problem.nodes == 1:
        return Bound(compute_s, "compute")
    try:
        from scipy.optimize import linprog
    except ImportError:
        return Bound(compute_s, "compute")
    from scipy.sparse import coo_array

    # The variables are the fractions of shapes, the fractions of pairs of shapes, and the seconds.
    first_variables = np.concatenate([[0], np.cumsum([len(shapes) for shapes in costs.shapes])])
    variable_count = int(first_variables[-1])
    compute_s_by_variable = [shape.seconds / problem.nodes for shapes in costs.shapes for shape in shapes]
    byte_s = 8e-9 / (problem.nodes * problem.degree * problem.rate_gbps)
    send_s_by_variable = [shape.sum_bytes * byte_s for shapes in costs.shapes for shape in shapes]
    rows: list[tuple[int, int, float]] = [
        (op_index, shape_index, 1.0)
        for op_index in range(len(costs.shapes))
        for shape_index in range(first_variables[op_index], first_variables[op_index + 1])
    ]
    right_sides = [1.0] * len(costs.shapes)
    for edge in problem.workload.edges:
        pair_costs = costs.compute_edge_costs(edge) * byte_s
        for side, op_index in enumerate(edge):
            for shape_index in range(pair_costs.shape[side]):
                variables = (
                    np.arange(pair_costs.size).reshape(pair_costs.shape).take(shape_index, axis=side).ravel()
                    + variable_count
                )
                rows += [(len(right_sides), int(variable), 1.0) for variable in variables]
                rows.append((len(right_sides), int(first_variables[op_index] + shape_index), -1.0))
                right_sides.append(0.0)
        compute_s_by_variable += [0.0] * pair_costs.size
        send_s_by_variable += pair_costs.ravel().tolist()
        variable_count += pair_costs.size
    row_indices, column_indices, coefficients = zip(*rows, strict=True)
    equations = coo_array(
        (coefficients, (row_indices, column_indices)), shape=(len(right_sides), variable_count + 1)
    ).tocsr()
    limit_rows = np.array([[*compute_s_by_variable, -1.0], [*send_s_by_variable, -1.0]])
    solution = linprog(
        np.eye(1, variable_count + 1, variable_count)[0],
        A_ub=limit_rows,
        b_ub=[0.0, 0.0],
        A_eq=equations,
        b_eq=right_sides,
        method="highs",
    )
    seconds = float(solution.fun) if solution.success else 0.0
    return Bound(max(seconds, compute_s), "network" if seconds > compute_s * (1 + 1e-9) else "compute")


class _Shape(NamedTuple):
    """Shardings of one shape, and the costs of the first sharding.

    `seconds` is the computing time summed over servers, `sum_bytes` the bytes of its sums times links.
    """

    shardings: tuple[Sharding, ...]
    seconds: float
    sum_bytes: float


class _ShapeCosts:
    """Costs of shapes, and of pairs of shapes on an edge."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.trainable = list_trainable(problem.workload)
        self.shapes = [self._list_shapes(op_index) for op_index in range(len(problem.workload.operators))]
        self.find_pair_minimum = lru_cache(1 << 14)(self._find_pair_minimum)

    def _list_shapes(self, op_index: int) -> tuple[_Shape, ...]:
        operator, nodes = self.problem.workload.operators[op_index], self.problem.nodes
        legal_shardings_of_op = list_legal_shardings(operator, nodes)
        shapes = [
            tuple(legal_shardings_of_op[sharding_index] for sharding_index in shape)
            for shape in group_by_shape(legal_shardings_of_op).values()
        ]
        return tuple(_Shape(shape, *self._measure_sharding(op_index, operator, shape[0])) for shape in shapes)

    def _measure_sharding(self, op_index: int, operator: Operator, sharding: Sharding) -> tuple[float, float]:
        workload, cluster = self.problem.workload, self.problem.cluster
        samples_by_server = count_row_samples(sharding, workload.batch).tolist()
        pass_count = 1 + self.trainable[op_index]
        times_s = [
            sum(compute_operator_seconds(operator, server_samples, sharding.shards, cluster)[:pass_count])
            for server_samples in samples_by_server
        ]
        gradient_sums = list_gradient_sums(workload, op_index, sharding)
        return sum(times_s), float(sum(2 * (len(members) - 1) * size for members, size in gradient_sums))

    def compute_edge_costs(self, edge: Edge) -> Floats:
        """Return the bytes times links of an edge for each pair of shapes of its two operators."""
        workload = self.problem.workload
        edge_bytes, is_sliced = workload.compute_edge_bytes(edge), workload.is_sliced(edge)
        producers, consumers = (self.shapes[op_index] for op_index in edge)
        return np.array(
            [
                [
                    self.find_pair_minimum(
                        producer_shape.shardings,
                        consumer_shape.shardings,
                        edge_bytes,
                        is_sliced,
                        self.trainable[edge[0]],
                    )
                    for consumer_shape in consumers
                ]
                for producer_shape in producers
            ]
        )

    def _find_pair_minimum(
        self,
        producers: tuple[Sharding, ...],
        consumers: tuple[Sharding, ...],
        edge_bytes: int,
        is_sliced: bool,
        with_gradients: bool,
    ) -> float:
        """Return the minimum of bytes times links over all consumers, for the first producer.

        The other producers differ from the first only in the numbers of servers.
        """
        nodes, batch = self.problem.nodes, self.problem.workload.batch
        fewest_bytes = np.inf
        for consumer in consumers:
            pair_bytes, pair_bytes_with_gradients = (
                sum_edge_pairs(producers[0], consumer, batch, edge_bytes, nodes, is_sliced, gradients)
                for gradients in (False, with_gradients)
            )
            fewest_bytes = min(
                fewest_bytes,
                self._sum_bytes_times_links(pair_bytes)
                + self._sum_bytes_times_links(pair_bytes_with_gradients - pair_bytes),
            )
        return float(fewest_bytes)

    def _sum_bytes_times_links(self, pair_bytes: Floats) -> float:
        """Return the bytes times the minimum number of links that they cross on any topology of this degree."""
        degree, nodes = self.problem.degree, self.problem.nodes
        hops, reached_count, ring_count = np.zeros(nodes), 0, degree
        for distance in range(1, nodes):
            hops[reached_count : reached_count + ring_count] = distance
            reached_count, ring_count = (
                reached_count + ring_count,
                ring_count * (degree if self.problem.simplex else degree - 1),
            )
            if reached_count >= nodes or not ring_count:
                hops[min(reached_count, nodes) :] = distance + 1
                break
        return float(
            max((-np.sort(-sent_bytes, axis=1) * hops).sum() for sent_bytes in (pair_bytes, pair_bytes.T))
        )
