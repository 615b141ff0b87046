"""Choice of the range of activations. Values beyond it are clipped, so that small values are rounded more finely.

| `ranges` | end of the range |
|---|---|
| `min-max` | the largest observed magnitude |
| `percentile` | a percentile of the observed magnitudes, without zeros |
| `entropy` | the value at which rounding to 256 levels changes the distribution of the magnitudes least |
| `error` | the candidate whose outputs, in photonic arithmetic, are nearest to the float outputs |

`error` includes noise, whose size is a fixed number of steps. With a smaller range, each step and so the noise is
smaller, but more values are clipped.

`entropy` is the method of S. Migacz, "8-bit inference with TensorRT" (GPU Technology Conference, 2017): the
Kullback-Leibler divergence over candidates of a histogram with 2,048 bins. As in NVIDIA's pytorch-quantization, the
first bin gets the count of the second, because values near 0 would outweigh all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.lowering import LoweredNode, list_photonic_nodes, lower_node, make_vectors
from lightning.compiler.model import FULL_VALUE
from lightning.compiler.options import Options
from lightning.errors import CompileError
from lightning.networks.network import Network, Node

_MAX_IMAGES = 256
"""Maximum number of samples that determine ranges. From more samples, this many are chosen at random."""
_MIN_IMAGES = 8
_MAX_FLOATS = 2**26
"""Maximum size of the largest tensor, and of a layer's vectors, over all samples. It limits the number of samples."""
_VECTOR_LIMITS = (64, 1024)
"""Minimum and maximum number of vectors of activations that determine a layer's errors."""
_MAX_PRODUCTS = 2**28
"""Maximum number of products of these vectors. A large layer gets fewer vectors, so that compilation takes seconds."""
_MAX_SUM = 1e37
_SIGN_PRESERVING_OPERATIONS = frozenset(
    {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Flatten", "Reshape", "Transpose", "Slice",
     "ReduceMean", "ReduceSum", "ReduceMax", "Concat", "Add", "Mul", "Max", "Min"}
)  # fmt: skip
"""Operations whose outputs are not negative if no input is negative."""
_NONNEGATIVE_OPERATIONS = frozenset(
    {"Relu", "Softmax", "Sigmoid", "HardSigmoid", "Softplus", "Exp", "Abs", "Sqrt"}
)

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
RANGE_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Candidates of `error`, as shares of the largest observed magnitude."""
_EQUAL_FACTOR = 1.5
"""Errors up to this factor times the smallest error count as equal, because few samples show the extremes."""
_BIN_COUNT = 2048
_LEVEL_COUNT = FULL_VALUE + 1
_CANDIDATE_STEP_BINS = 16


@dataclass(frozen=True)
class LayerObservation:
    """Observations of the input of one photonic layer."""

    layer: LoweredNode
    magnitudes: Floats
    """Magnitudes of all observed activations, as a flat array."""
    vectors: Floats
    """A sample of the activations as vectors, of shape (vectors, groups, terms)."""
    is_signed: bool
    """True if some activation would round to a value below 0."""
    is_rectified: bool
    """True if only rectifiers read the outputs of the layer, so that negative outputs do not matter."""


def observe_layers(network: Network, raw: npt.NDArray[Any], seed: int) -> Iterator[LayerObservation]:
    """Yield the photonic layers in the order of execution, each with its inputs in the float network.

    Raise `CompileError` if the outputs of a layer could be infinite or NaN, or are close to the limit of float32.
    """
    rng = np.random.default_rng(seed)
    nonnegative_tensors, rectified_tensors = (
        find_nonnegative_tensors(network),
        find_rectified_tensors(network),
    )
    max_tensor_size = max(prod(shape) for shape in network.shapes.values())
    for node, activations in _trace_inputs(network, _sample_rows(raw, _limit_images(max_tensor_size), rng)):
        lowered_node = lower_node(network, node)
        all_vectors = make_vectors(
            lowered_node, _sample_rows(activations, _limit_images(lowered_node.value_count), rng)
        )
        vectors = _sample_rows(all_vectors, _count_sample_vectors(lowered_node), rng)
        magnitudes = np.abs(activations).ravel()
        # Reject sums that float32 could not hold. Written with `not`, the condition also rejects NaN.
        largest_weight_sum = np.abs(lowered_node.weights).sum(axis=2, dtype=np.float64).max(initial=0.0)
        if not float(magnitudes.max(initial=0.0)) * float(largest_weight_sum) < _MAX_SUM:
            raise CompileError(
                f"{lowered_node.node.operation} {lowered_node.node.name} gives values that are infinite, NaN or close"
                " to overflow on these samples",
                hint="Check the preprocessing (--scale, --mean, --deviation), and the network in float32",
            )
        rounds_below_zero = float(-activations.min(initial=0.0)) * 2 * FULL_VALUE > magnitudes.max(
            initial=0.0
        )
        is_signed = bool(rounds_below_zero) and node.inputs[0] not in nonnegative_tensors
        yield LayerObservation(lowered_node, magnitudes, vectors, is_signed, node.output in rectified_tensors)


def find_nonnegative_tensors(network: Network) -> frozenset[str]:
    """Return the tensors that are never negative.

    Their operations have only nonnegative outputs, or have nonnegative outputs for nonnegative inputs.
    """
    nonnegative_tensors: set[str] = set()
    for node in network.nodes:
        keeps_sign = node.operation in _SIGN_PRESERVING_OPERATIONS and all(
            _is_nonnegative(name, nonnegative_tensors, network) for name in node.inputs
        )
        is_clipped = node.operation == "Clip" and node.attributes["min"] >= 0
        if keeps_sign or is_clipped or node.operation in _NONNEGATIVE_OPERATIONS:
            nonnegative_tensors.add(node.output)
    return frozenset(nonnegative_tensors)


def find_rectified_tensors(network: Network) -> frozenset[str]:
    """Return the tensors that only rectifiers read, so that their negative values do not matter."""
    # For each tensor: whether the nodes that read it are rectifiers.
    reader_flags: dict[str, set[bool]] = {network.output: {False}}
    for node in network.nodes:
        is_rectifier = node.operation == "Relu" or (node.operation == "Clip" and node.attributes["min"] == 0)
        for name in node.inputs:
            reader_flags.setdefault(name, set()).add(is_rectifier)
    return frozenset(name for name, flags in reader_flags.items() if flags == {True})


def _is_nonnegative(name: str, nonnegative_tensors: set[str], network: Network) -> bool:
    constant = network.constants.get(name)
    return name in nonnegative_tensors if constant is None else bool(np.all(constant >= 0))


def _trace_inputs(network: Network, raw: npt.NDArray[Any]) -> Iterator[tuple[Node, Floats]]:
    """Yield the photonic nodes with their activations (images, ...). Free tensors after their last use."""
    from lightning.networks.operations.operation_list import compute_node
    from lightning.networks.preprocess import preprocess

    photonic_names = {node.name for node in list_photonic_nodes(network)}
    tensors: dict[str, npt.NDArray[Any]] = {network.input: preprocess(network, raw)}
    for node, unused_tensors in network.find_last_uses():
        if node.name in photonic_names:
            yield node, tensors[node.inputs[0]]
        with np.errstate(all="ignore"):  # `observe_layers` rejects values that are not finite
            tensors[node.output] = compute_node(node, tensors, network.constants)
        for name in unused_tensors:
            tensors.pop(name, None)


def _limit_images(value_count: int) -> int:
    """Return the number of images to use, for `value_count` values per image."""
    return min(_MAX_IMAGES, max(_MIN_IMAGES, _MAX_FLOATS // max(value_count, 1)))


def _count_sample_vectors(lowered_node: LoweredNode) -> int:
    return int(np.clip(_MAX_PRODUCTS // max(lowered_node.weights[0].size, 1), *_VECTOR_LIMITS))


def _sample_rows(rows: npt.NDArray[Any], max_row_count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return all rows, or a random choice of `max_row_count` of them, in their order."""
    if len(rows) <= max_row_count:
        return rows
    return np.asarray(rows[np.sort(rng.choice(len(rows), max_row_count, replace=False))])


def find_candidates(magnitudes: Floats, options: Options) -> tuple[float, ...]:
    """Return the candidates for the largest activation, largest first. Only `error` has several."""
    max_magnitude = float(magnitudes.max(initial=0.0))
    if max_magnitude == 0:
        return (1.0,)
    if options.ranges == "error":
        return tuple(range_share * max_magnitude for range_share in RANGE_SHARES)
    if options.ranges == "percentile":
        return (float(np.percentile(magnitudes[magnitudes > 0], options.percentile)),)
    return (find_least_divergent_limit(magnitudes) if options.ranges == "entropy" else max_magnitude,)


def find_best_range(mean_square_errors: Sequence[float], mean_square_noises: Sequence[float]) -> int:
    """Return the index of the range with the smallest mean square error including noise. The largest range has index 0.

    Errors up to `_EQUAL_FACTOR` times the smallest are treated as equal. Of equal sums the first wins. Without noise,
    this is the largest range with a smallest error. Noise grows with the range, so more noise never selects a larger
    range.

    >>> find_best_range([14, 10, 20, 90], [0, 0, 0, 0])
    0
    >>> find_best_range([14, 10, 20, 90], [16, 9, 4, 1])  # 15 + 16, 15 + 9, 20 + 4, 90 + 1
    1
    >>> find_best_range([14, 10, 20, 90], [32, 18, 8, 2])
    2
    """
    equal_limit = min(mean_square_errors) * _EQUAL_FACTOR
    total_errors = [
        max(error, equal_limit) + noise
        for error, noise in zip(mean_square_errors, mean_square_noises, strict=True)
    ]
    return total_errors.index(min(total_errors))


def find_least_divergent_limit(magnitudes: Floats) -> float:
    """Return the clipping value at which rounding to 256 levels loses the least information (Kullback-Leibler)."""
    max_magnitude = float(magnitudes.max())
    histogram, _ = np.histogram(magnitudes[magnitudes > 0], _BIN_COUNT, (0.0, max_magnitude))
    histogram[0] = histogram[1]
    candidate_bin_counts = range(_LEVEL_COUNT, _BIN_COUNT + 1, _CANDIDATE_STEP_BINS)
    divergences = [
        _compute_divergence(histogram.astype(np.float64), bin_count) for bin_count in candidate_bin_counts
    ]
    return max_magnitude * candidate_bin_counts[int(np.argmin(divergences))] / _BIN_COUNT


def _compute_divergence(histogram: Doubles, bin_count: int) -> float:
    """Return the divergence between the histogram clipped to `bin_count` bins and its rounding to 256 levels.

    Clipping adds the counts of all further bins to the last bin. Rounding spreads the counts of each level evenly over
    its nonempty bins.
    """
    clipped_counts = histogram[:bin_count].copy()
    level_by_bin = np.arange(bin_count) * _LEVEL_COUNT // bin_count
    is_occupied = (clipped_counts > 0).astype(np.float64)
    level_totals = np.bincount(level_by_bin, clipped_counts, _LEVEL_COUNT)
    bins_per_level = np.maximum(np.bincount(level_by_bin, is_occupied, _LEVEL_COUNT), 1)
    rounded_counts = (level_totals / bins_per_level)[level_by_bin] * is_occupied
    clipped_counts[-1] += histogram[bin_count:].sum()
    return _compute_kullback_leibler(
        clipped_counts / clipped_counts.sum(), rounded_counts / max(rounded_counts.sum(), 1.0)
    )


def _compute_kullback_leibler(original: Doubles, rounded: Doubles) -> float:
    """Return the sum of p log(p / q), where a q below 1e-6 counts as 1e-6.

    >>> round(_compute_kullback_leibler(np.array([0.5, 0.5]), np.array([0.25, 0.75])), 4)
    0.1438
    """
    is_occupied = original > 0
    return float(
        np.sum(original[is_occupied] * np.log(original[is_occupied] / np.maximum(rounded[is_occupied], 1e-6)))
    )
