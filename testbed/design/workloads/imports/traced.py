"""Traced computations of a file or module, and their grouping into the operators of a workload.

A matrix product with weights, a convolution, a table or a recurrent layer begins an operator. Later computations on its
result (activations, normalisation, attention, sums) belong to the operator. A computation that reads several operators
belongs to the last of them, so edges always point forward. A layer that repeats with the same weights, such as a step
of a recurrent network, does not begin another operator.

Formulas count the operations of single computations from shapes. A multiply and an add are two operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Literal, NamedTuple

from testbed.design.workloads.model import Operator, Way, Workload
from testbed.errors import WorkloadError

TracedKind = Literal["dense", "convolution", "embedding", "recurrent", "other"]

WAYS: Mapping[str, tuple[Way, ...]] = {"dense": ("data", "tensor", "place"), "embedding": ("place", "data")}

Dims = Sequence[int]


@dataclass(frozen=True, slots=True)
class TracedComputation:
    """One computation, for all samples of the example together.

    `input_indices` holds the indices of the computations whose results it reads. `weights` holds the bytes of trained
    tensors by identity, so that shared tensors count once. `how` describes how `flops` were counted.
    """

    name: str
    type: str
    kind: TracedKind
    input_indices: tuple[int, ...]
    flops: float
    weights: Mapping[str, int]
    input_bytes: int
    output_bytes: int
    how: str


class Source(NamedTuple):
    """Origin of a value: indices of computations, weights by name, and whether it depends on the input."""

    computation_indices: tuple[int, ...] = ()
    weights: Mapping[str, int] = {}
    depends_on_input: bool = False


def unite_weights(sources: Iterable[Source]) -> Mapping[str, int]:
    """Return the weights of the sources that do not depend on the model's input."""
    return {
        name: size
        for source in sources
        if not source.depends_on_input
        for name, size in source.weights.items()
    }


def unite_computation_indices(sources: Iterable[Source]) -> tuple[int, ...]:
    """Return the indices of all computations of the sources, ascending."""
    return tuple(sorted({index for source in sources for index in source.computation_indices}))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Count and FLOPs per sample of all computations of one type."""

    type: str
    count: int
    flops: float
    how: str


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """Imported workload, with estimates of its FLOPs and notes for the user."""

    workload: Workload
    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...] = ()


def assemble_model(
    name: str,
    computations: Sequence[TracedComputation],
    *,
    samples: int,
    batch: int,
    training: bool,
    origin: str,
    notes: Sequence[str] = (),
) -> ImportedModel:
    """Return the workload for `batch` samples, from the computations of an example with `samples` samples.

    Raises `WorkloadError` if there are no computations.
    """
    if not computations:
        raise WorkloadError(f"{origin}: nothing is computed from its inputs; give a model that uses them")
    operator_by_computation = _group_computations(computations)
    indices_by_operator: dict[int, list[int]] = {}
    for index, operator_number in enumerate(operator_by_computation):
        indices_by_operator.setdefault(operator_number, []).append(index)
    edge_bytes = _sum_edge_bytes(computations, operator_by_computation)
    counted_weights: set[str] = set()
    weight_bytes = []
    for entry in computations:
        weight_bytes.append(sum(size for key, size in entry.weights.items() if key not in counted_weights))
        counted_weights.update(entry.weights)
    names = _number_repeated([computations[indices[0]].name for indices in indices_by_operator.values()])
    operators = [
        _make_operator(
            names[operator_number],
            [computations[index] for index in indices],
            sum(weight_bytes[index] for index in indices),
            _find_output_bytes(operator_number, indices, computations, edge_bytes),
            samples=samples,
            training=training,
        )
        for operator_number, indices in indices_by_operator.items()
    ]
    workload = Workload(name, tuple(operators), tuple(sorted(edge_bytes)), batch, training, origin)
    counts = Counter((entry.type, entry.how) for entry in computations)
    flops: Counter[tuple[str, str]] = Counter()
    for entry in computations:
        flops[entry.type, entry.how] += entry.flops / samples  # type: ignore[assignment]
    return ImportedModel(
        workload,
        tuple(
            Estimate(type_, count, flops[type_, formula], formula)
            for (type_, formula), count in counts.items()
        ),
        tuple(notes),
    )


def _group_computations(computations: Sequence[TracedComputation]) -> list[int]:
    """Return, for each computation, the number of its operator."""
    groups: list[int] = []
    count = 0
    first_user_by_weight: dict[str, int] = {}  # the first computation with each weight
    for index, entry in enumerate(computations):
        first_uses = [first_user_by_weight.setdefault(key, index) for key in entry.weights]
        matches = [
            earlier_index
            for earlier_index in first_uses
            if earlier_index < index and computations[earlier_index].name == entry.name
        ]
        if len(matches) == len(first_uses) > 0:
            begins_operator = False
        else:
            begins_operator, matches = entry.kind != "other" or not entry.input_indices, []
        groups.append(
            count
            if begins_operator
            else max(groups[earlier_index] for earlier_index in (*matches, *entry.input_indices))
        )
        count += begins_operator
    return groups


def _sum_edge_bytes(
    computations: Sequence[TracedComputation], operator_by_computation: Sequence[int]
) -> Mapping[tuple[int, int], int]:
    """Return the bytes that pass between each pair of operators, counting each result once."""
    indices_by_edge: dict[tuple[int, int], set[int]] = {}
    for reader, entry in enumerate(computations):
        for index in entry.input_indices:
            edge = operator_by_computation[index], operator_by_computation[reader]
            if edge[0] != edge[1]:
                indices_by_edge.setdefault(edge, set()).add(index)
    return {
        edge: sum(computations[index].output_bytes for index in indices)
        for edge, indices in indices_by_edge.items()
    }


def _find_output_bytes(
    operator_number: int,
    indices: Sequence[int],
    computations: Sequence[TracedComputation],
    edge_bytes: Mapping[tuple[int, int], int],
) -> int:
    """Return the maximum bytes that a reader of an operator reads, or the bytes of its last result without readers."""
    sizes = [size for (producer, _), size in edge_bytes.items() if producer == operator_number]
    return max(sizes, default=computations[indices[-1]].output_bytes)


def _make_operator(
    name: str,
    computations: Sequence[TracedComputation],
    weight_bytes: int,
    output_bytes: int,
    *,
    samples: int,
    training: bool,
) -> Operator:
    """Return an operator from its computations.

    A dense layer that is split by columns must gather its output and sum the gradient of its input.
    """
    head = computations[0]
    flops = sum(part.flops for part in computations) / samples
    can_split = "tensor" in WAYS.get(head.kind, ())
    is_table = head.kind == "embedding"
    return Operator(
        name=name,
        kind=head.kind if head.kind != "other" else head.type.lower(),
        forward_flops=flops,
        backward_flops=2 * flops * training,
        parameter_bytes=weight_bytes,
        output_bytes=ceil(output_bytes / samples),
        moved_bytes=sum(part.input_bytes + part.output_bytes for part in computations) / samples,
        gradient_bytes=weight_bytes * training,
        state_bytes=weight_bytes * (training and not is_table),
        forward_reduce_bytes=ceil(head.output_bytes / samples / 2) * can_split,
        backward_reduce_bytes=ceil(head.input_bytes / samples) * can_split * training,
        ways=WAYS.get(head.kind, ("data",)),
    )


def _number_repeated(names: Sequence[str]) -> list[str]:
    """Return the names, with a number for repetitions: `dense`, `dense#2`."""
    counts: Counter[str] = Counter()
    numbered_names = []
    for name in names:
        counts[name] += 1
        numbered_names.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return numbered_names


def count_product_flops(left: Dims, right: Dims) -> float:
    """Return the FLOPs of a (batched) matrix product: 2 m n k for each matrix of the broadcast batch.

    >>> count_product_flops((10, 3, 4), (4, 5))
    1200.0
    """
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    return 2.0 * _count_broadcast(left[:-2], right[:-2]) * rows * left[-1] * columns


def count_convolution_flops(output: Dims, weight: Dims) -> float:
    """Return the FLOPs of a convolution: two per kernel weight of a group and output.

    `weight` is (c_out, c_in / groups, *kernel).

    >>> count_convolution_flops((1, 64, 112, 112), (64, 3, 7, 7))
    236027904.0
    """
    return 2.0 * prod(output) * prod(weight[1:])


def count_transposed_flops(inputs: Dims, weight: Dims) -> float:
    """Return the FLOPs of a transposed convolution: two per kernel weight of a group and input.

    `weight` is (c_in, c_out / groups, *kernel).
    """
    return 2.0 * prod(inputs) * prod(weight[1:])


def count_attention_flops(queries: Dims, keys: Dims, values: Dims) -> float:
    """Return the FLOPs of attention: 2 s t (d + e) per head, for the scores and the weighted sum.

    Arguments have the shape (..., heads, tokens, width).
    """
    return 2.0 * prod(queries[:-1]) * keys[-2] * (queries[-1] + values[-1])


def count_recurrent_flops(steps: int, sample_count: int, weight_count: int) -> float:
    """Return the FLOPs of a recurrent layer: two per weight, step and sample."""
    return 2.0 * steps * sample_count * weight_count


def count_einsum_flops(equation: str, shapes: Sequence[Dims]) -> float:
    """Return the FLOPs of an einsum: two per combination of indices, or 0 for a single factor.

    An ellipsis counts as one index.

    >>> count_einsum_flops("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)])
    240.0
    """
    if len(shapes) < 2:
        return 0.0
    sizes: dict[str, int] = {}
    for term, shape in zip(equation.replace(" ", "").partition("->")[0].split(","), shapes, strict=True):
        named_indices = term.replace("...", "")
        leading, _, trailing = term.partition("...")
        ellipsis_rank = len(shape) - len(named_indices)
        middle = shape[len(leading) : len(leading) + ellipsis_rank]
        sizes["..."] = max(sizes.get("...", 1), prod(middle))
        sizes |= dict(
            zip(
                leading + trailing,
                (*shape[: len(leading)], *shape[len(leading) + ellipsis_rank :]),
                strict=True,
            )
        )
    return 2.0 * prod(sizes.values())


def _count_broadcast(left: Dims, right: Dims) -> int:
    width = max(len(left), len(right))
    padded_dims = ((1,) * (width - len(dims)) + tuple(dims) for dims in (left, right))
    return prod(max(pair) for pair in zip(*padded_dims, strict=True))
