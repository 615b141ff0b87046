"""Traffic of an iteration: from its task graph, or summed without a graph and updated as operators move.

`traffic` equals `sum_graph_traffic(iteration(...))` to the byte: both use the same resharding. All sums are whole
numbers below 2**53, so adding and subtracting in floating point is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbed.output_file import save_figure
from lightbed.wording import describe_extra
from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.topology.demand import AllReduceDemand, Demand, check_group, make_matrix_demand
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import (
    Group,
    Resharding,
    Sharding,
    Strategy,
    count_microbatch_samples,
    count_shard_bytes,
    list_replica_groups,
    list_trainable,
    make_backward_resharding,
    make_dispatch_resharding,
    make_forward_resharding,
    reverse_resharding,
    split_evenly,
)
from testbed.design.workloads.strategies import check_strategy

Samples = tuple[tuple[int, int], ...]
"""Pairs: a number of samples, and the number of microbatches that have this number of samples."""
_CACHE_SIZE = 1 << 14
_COLOUR_DECADES = 4
"""Decades of the colour scale below the largest value. Smaller values have the darkest colour; zeros are white."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Bytes of one iteration among `nodes` servers.

    `allreduce[members]` is the number of bytes that this group reduces. `pairs` (nodes, nodes) holds all other bytes,
    from row to column.
    """

    nodes: int
    allreduce: Mapping[Group, int]
    pairs: NDArray[np.float64]

    @property
    def demand(self) -> Demand:
        """Demand for the topology search: groups that strides can join stay AllReduces, others become rings of pairs.

        Groups stay if they are evenly spaced and all groups of one size together contain every server. All groups of
        this size then have the largest of their tensors. Raises `DemandError` as `make_matrix_demand` does.
        """
        matrix = self.pairs.copy()
        tensors_by_group_size: dict[int, dict[int, int]] = {}
        for members, size_bytes in self.allreduce.items():
            step = self.nodes // len(members) if len(members) > 1 and self.nodes % len(members) == 0 else 0
            if step and members == tuple(range(members[0], self.nodes, step)):
                tensors_by_group_size.setdefault(len(members), {})[members[0]] = size_bytes
            else:
                _add_ring(matrix, members, size_bytes)
        groups = []
        for group_size, tensors in tensors_by_group_size.items():
            if len(tensors) == self.nodes // group_size:
                groups.append(AllReduceDemand(group_size, max(tensors.values())))
                check_group(self.nodes, groups[-1])
            else:
                for start, size_bytes in tensors.items():
                    _add_ring(matrix, tuple(range(start, self.nodes, self.nodes // group_size)), size_bytes)
        return make_matrix_demand(matrix, groups)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """All bytes from row to column, with each AllReduce as one ring in the order of its members."""
        matrix = self.pairs.copy()
        for members, size_bytes in self.allreduce.items():
            _add_ring(matrix, members, size_bytes)
        return matrix


def sum_graph_traffic(graph: TaskGraph) -> Traffic:
    """Return the traffic of a task graph."""
    pairs = np.zeros((graph.node_count, graph.node_count))
    is_transfer = graph.kind == Kind.TRANSFER
    np.add.at(pairs, (graph.source[is_transfer], graph.target[is_transfer]), graph.size_bytes[is_transfer])
    exchange_counts = np.bincount(graph.group[graph.kind == Kind.EXCHANGE], minlength=len(graph.exchanges))
    for exchange, count in zip(graph.exchanges, exchange_counts.tolist(), strict=True):
        np.add.at(pairs, (exchange.source, exchange.target), exchange.size_bytes * count)
    np.fill_diagonal(pairs, 0.0)
    allreduce: dict[Group, int] = {}
    for task in np.flatnonzero(graph.kind == Kind.ALLREDUCE):
        members = tuple(sorted(graph.groups[graph.group[task]]))
        if len(members) > 1:
            allreduce[members] = allreduce.get(members, 0) + int(graph.size_bytes[task])
    return Traffic(graph.node_count, allreduce, pairs)


def _add_ring(matrix: NDArray[np.float64], members: Group, size_bytes: int) -> None:
    """Add the bytes of a ring AllReduce from each member to the next: 2(g-1)/g of the tensor."""
    if len(members) < 2:
        return
    order = np.array(members)
    matrix[order, np.roll(order, -1)] += 2 * (len(members) - 1) / len(members) * size_bytes


class Pairs(NamedTuple):
    """Bytes of pairs of servers.

    `pair_keys` is source * nodes + target; keys are unique, and no pair is within a server.
    """

    pair_keys: NDArray[np.int64]
    size_bytes: NDArray[np.float64]


def traffic(workload: Workload, strategy: Strategy, cluster: Cluster) -> Traffic:
    """Return the traffic of one iteration. Raises `StrategyError` for a strategy that does not fit."""
    return TrafficTotals.from_strategy(workload, strategy, cluster).traffic


def sum_edge_pairs(
    producer: Sharding,
    consumer: Sharding,
    batch: int,
    size_bytes: int,
    nodes: int,
    is_sliced: bool,
    with_gradients: bool,
) -> NDArray[np.float64]:
    """Return the bytes of one edge in one microbatch, from row to column, shape (nodes, nodes)."""
    output = _Output(size_bytes, is_sliced=is_sliced, with_gradients=with_gradients)
    term = _compute_edge_pairs(producer, consumer, ((batch, 1),), output, nodes)
    matrix = np.zeros(nodes * nodes)
    matrix[term.pair_keys] = term.size_bytes
    return matrix.reshape(nodes, nodes)


def list_gradient_sums(
    workload: Workload, op_index: int, sharding: Sharding
) -> tuple[tuple[Group, int], ...]:
    """Return the groups and bytes of one operator's AllReduces in one microbatch."""
    has_backward = list_trainable(workload)[op_index]
    microbatch_sizes = ((workload.batch, 1),)
    return _list_allreduces(
        workload.operators[op_index], sharding, microbatch_sizes, workload.training, has_backward
    )


@dataclass(frozen=True, slots=True, eq=False)
class TrafficTotals:
    """Traffic of a strategy, with an update: `with_sharding` recomputes only the messages of the changed operator.

    `pairs` (nodes * nodes,) and `allreduce` are as in `Traffic`. Do not write to them.
    """

    workload: Workload
    strategy: Strategy
    nodes: int
    pairs: NDArray[np.float64]
    allreduce: Mapping[Group, int]
    _trainable: tuple[bool, ...]

    @classmethod
    def from_strategy(cls, workload: Workload, strategy: Strategy, cluster: Cluster) -> TrafficTotals:
        """Return the totals of a strategy. Raises `StrategyError` if it does not fit the workload."""
        check_strategy(workload, strategy, cluster.nodes)
        nodes = cluster.nodes
        pairs, allreduce = np.zeros(nodes * nodes), Counter[Group]()
        terms = _TrafficTerms(workload, strategy, nodes, list_trainable(workload))
        _add_pairs(pairs, terms.list_pairs(range(len(workload.operators)), workload.edges), 1)
        for op_index in range(len(workload.operators)):
            _add_allreduces(allreduce, terms.list_allreduces(op_index), 1)
        return cls(workload, strategy, nodes, pairs, allreduce, terms.trainable)

    def with_sharding(self, op_index: int, sharding: Sharding) -> TrafficTotals:
        """Return the totals with the sharding of one operator replaced. The sharding is not checked."""
        changed_strategy = self.strategy.with_sharding(op_index, sharding)
        edges = [edge for edge in self.workload.edges if op_index in edge]
        pairs, allreduce = self.pairs.copy(), Counter(self.allreduce)
        for strategy, sign in ((self.strategy, -1), (changed_strategy, 1)):
            terms = _TrafficTerms(self.workload, strategy, self.nodes, self._trainable)
            _add_pairs(pairs, terms.list_pairs((op_index,), edges), sign)
            _add_allreduces(allreduce, terms.list_allreduces(op_index), sign)
        return TrafficTotals(self.workload, changed_strategy, self.nodes, pairs, allreduce, self._trainable)

    @property
    def traffic(self) -> Traffic:
        """The totals as `Traffic`."""
        return Traffic(self.nodes, dict(self.allreduce), self.pairs.reshape(self.nodes, self.nodes).copy())


class _TrafficTerms:
    """Terms of a strategy's totals: bytes of single operators and edges."""

    def __init__(
        self, workload: Workload, strategy: Strategy, nodes: int, has_backward: tuple[bool, ...]
    ) -> None:
        self._workload, self._strategy, self._nodes = workload, strategy, nodes
        microbatch_counts = Counter(_split_batch(workload.batch, strategy.microbatches))
        self._samples: Samples = tuple(sorted(microbatch_counts.items()))
        self.trainable = has_backward

    def list_pairs(self, op_indices: Iterable[int], edges: Iterable[tuple[int, int]]) -> Iterator[Pairs]:
        """Yield the bytes between the experts of these operators, and along these edges."""
        operators, shardings = self._workload.operators, self._strategy.shardings
        for op_index in op_indices:
            if shardings[op_index].way == "expert":
                sample_bytes = operators[op_index].output_bytes * operators[op_index].routed
                passes_per_sample = 2 if self.trainable[op_index] else 1
                yield _compute_expert_pairs(
                    shardings[op_index],
                    self._samples,
                    sample_bytes,
                    passes_per_sample,
                    self._nodes,
                    operators[op_index].popularity,
                )
        for producer, consumer in edges:
            output = _Output(
                self._workload.compute_edge_bytes((producer, consumer)),
                is_sliced=self._workload.is_sliced((producer, consumer)),
                with_gradients=self.trainable[producer],
            )
            yield _compute_edge_pairs(
                shardings[producer], shardings[consumer], self._samples, output, self._nodes
            )

    def list_allreduces(self, op_index: int) -> tuple[tuple[Group, int], ...]:
        """Return the groups and bytes of an operator's AllReduces."""
        return _list_allreduces(
            self._workload.operators[op_index],
            self._strategy.shardings[op_index],
            self._samples,
            self._workload.training,
            self.trainable[op_index],
        )


def _add_pairs(pairs: NDArray[np.float64], terms: Iterable[Pairs], sign: int) -> None:
    for term in terms:
        pairs[term.pair_keys] += sign * term.size_bytes


def _add_allreduces(allreduce: Counter[Group], terms: Iterable[tuple[Group, int]], sign: int) -> None:
    for members, size_bytes in terms:
        allreduce[members] += sign * size_bytes
        if not allreduce[members]:
            del allreduce[members]


@lru_cache(maxsize=256)
def _split_batch(batch: int, microbatches: int) -> tuple[int, ...]:
    return tuple(count_microbatch_samples(batch, microbatches))


class _Output(NamedTuple):
    """Properties of an edge, besides shardings, that determine its bytes."""

    size_bytes: int
    is_sliced: bool
    with_gradients: bool


@lru_cache(maxsize=_CACHE_SIZE)
def _compute_edge_pairs(
    producer: Sharding, consumer: Sharding, microbatch_sizes: Samples, output: _Output, nodes: int
) -> Pairs:
    make_functions = (
        (make_forward_resharding, make_backward_resharding)
        if output.with_gradients
        else (make_forward_resharding,)
    )
    reshardings = (
        (make_resharding(producer, consumer, sample_count, output.size_bytes, output.is_sliced), count)
        for sample_count, count in microbatch_sizes
        for make_resharding in make_functions
    )
    return _sum_reshardings(reshardings, nodes)


@lru_cache(maxsize=_CACHE_SIZE)
def _compute_expert_pairs(
    sharding: Sharding,
    microbatch_sizes: Samples,
    sample_bytes: int,
    passes_per_sample: int,
    nodes: int,
    popularity: tuple[float, ...],
) -> Pairs:
    reshardings = [
        (
            make_dispatch_resharding(sharding, sample_count, sample_bytes, popularity),
            passes_per_sample * count,
        )
        for sample_count, count in microbatch_sizes
    ]
    return _sum_reshardings(
        reshardings + [(reverse_resharding(resharding), count) for resharding, count in reshardings], nodes
    )


def _sum_reshardings(reshardings: Iterable[tuple[Resharding, int]], nodes: int) -> Pairs:
    bytes_by_key = np.zeros(nodes * nodes)
    for (source, target, size_bytes), count in reshardings:
        is_remote = source != target
        np.add.at(bytes_by_key, (source * nodes + target)[is_remote], count * size_bytes[is_remote])
    keys = np.flatnonzero(bytes_by_key)
    return Pairs(keys, bytes_by_key[keys])


@lru_cache(maxsize=_CACHE_SIZE)
def _list_allreduces(
    operator: Operator, sharding: Sharding, microbatch_sizes: Samples, is_training: bool, has_backward: bool
) -> tuple[tuple[Group, int], ...]:
    bytes_by_group: Counter[Group] = Counter()
    if is_training and sharding.replicas > 1:
        for members, size_bytes in zip(
            list_replica_groups(sharding), count_shard_bytes(operator, sharding), strict=True
        ):
            bytes_by_group[tuple(sorted(members))] += size_bytes
    if sharding.way == "tensor" and sharding.shards > 1:
        sample_bytes = operator.forward_reduce_bytes + has_backward * operator.backward_reduce_bytes
        for sample_count, microbatch_count in microbatch_sizes:
            counts = np.diff(split_evenly(sample_count, sharding.replicas)).tolist()
            for row, count in zip(sharding.grid, counts, strict=True):
                bytes_by_group[tuple(sorted(row))] += count * sample_bytes * microbatch_count
    return tuple((members, size_bytes) for members, size_bytes in bytes_by_group.items() if size_bytes)


def draw_heat_map(matrix: NDArray[np.float64], path: str | Path, *, title: str = "") -> Path:
    """Draw a matrix such as `Traffic.matrix` to a file, in the format of its suffix, and return the path.

    Rows are sources and columns are targets. Colours are logarithmic. A matrix of zeros gives an empty picture.
    Raises `ModuleNotFoundError` with a hint if matplotlib is missing.
    """
    try:
        import matplotlib as mpl
        from matplotlib.colors import LogNorm
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the heat map needs matplotlib: {describe_extra('testbed')}", name=error.name
        ) from error
    path, matrix = Path(path), np.asarray(matrix, dtype=np.float64)
    with mpl.rc_context({"svg.hashsalt": "lightbed", "font.size": 10}):
        figure = Figure(figsize=(5.6, 4.8), layout="constrained")
        axis = figure.subplots()
        sent_bytes = matrix[matrix > 0]
        max_bytes = matrix.max(initial=0.0) or 1.0
        min_bytes = max(sent_bytes.min(initial=max_bytes), max_bytes / 10**_COLOUR_DECADES)
        norm = LogNorm(min(min_bytes, max_bytes / 10), max_bytes)
        visible_bytes = np.ma.masked_less_equal(matrix, 0.0)
        image = axis.imshow(visible_bytes, norm=norm, cmap="viridis", interpolation="nearest")
        figure.colorbar(image, ax=axis, label="bytes an iteration")
        axis.set(title=title, xlabel="target server", ylabel="source server")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        save_figure(figure, path, dpi=150)
    return path
