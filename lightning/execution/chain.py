"""Chains of dense layers as one compiled function from bytes to scores, at least as fast as the light.

    chain = Chain(model, noise=Noise(), seed=1)
    chain.compute_scores(pixels, key, scores)      # for serving: no checks, no lock, nothing compiled

For every image, integers and noise equal those of the interpreter. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lightning.compiler.chain import DenseChain, compute_byte_activations, find_dense_chain
from lightning.compiler.model import CompiledModel, Floats, PhotonicLayer
from lightning.errors import CompileError
from lightning.execution.interface import Answers, Fidelity, as_array, check_keys
from lightning.execution.interpreter import Interpreter
from lightning.execution.kernels.laws import HIGHEST_POWER, NoiseLaw
from lightning.execution.multipliers.exact import KernelWeights, arrange_groups
from lightning.execution.multipliers.noisy import compute_row_noise, may_clip, pack_output_noise
from lightning.execution.noise import Noise, check_noise
from lightning.execution.quirks import Quirks
from lightning.networks.operations.operation_list import compute_node

Bytes = npt.NDArray[np.uint8]
COUNTER_NAMES = ("clipped_activations", "wrapped_sums")
MIN_LANE_IMAGES = 32
"""Fewest images for which lanes are faster. A vector costs the same for any number of images in it."""
MAX_SPARSE_DENSITY = 0.25
"""Lanes are faster than one image at a time below this share of nonzero weights."""
_WEIGHTS_PER_PASS = 4


def is_supported(model: CompiledModel, noise: Noise | None = None) -> bool:
    """Return whether `Chain` supports this model with this noise."""
    if find_dense_chain(model) is None or model.network.preprocessing.layout != "as-is":
        return False
    if noise is None:
        return True
    if any(noise.coefficients[HIGHEST_POWER + 1 :]):
        return False
    is_coupled = not noise.is_linear and model.hardware.wavelengths > 1 and noise.place_properties.per_readout
    return not is_coupled and not may_clip(noise, model.hardware)


class Chain:
    """A model as one compiled function. It has no state between calls, so several threads may call it at once.

    Raise `CompileError` for a model or a noise that `is_supported` rejects, and `MissingLibrary` without numba.
    """

    def __init__(
        self, model: CompiledModel, noise: Noise | None = None, seed: int = 0, quirks: Quirks | None = None
    ) -> None:
        from lightning.execution.kernels.chain import write_answers

        dense_chain = find_dense_chain(model)
        if dense_chain is None or not is_supported(model, noise):
            raise CompileError(
                f"network {model.network.name} with its preprocessing and noise cannot run as one chain of layers",
                hint="Open it with lightning.execution.open_executor, which takes every model",
            )
        self.model = model
        self.input_count = prod(model.network.input_shape)
        self.output_count = dense_chain.layers[-1].weights.shape[1]
        self.tail_nodes = dense_chain.tail_nodes
        self.kernel: Callable[..., None] = write_answers
        """The compiled function `kernel(raw, keys, *kernel_arguments, out, counters)`."""
        self._tail_input = dense_chain.tail_nodes[0].inputs[0] if dense_chain.tail_nodes else ""
        self.kernel_arguments = (
            compute_byte_activations(
                model, dense_chain.layers[0], signs_dropped=(quirks or Quirks()).signs_dropped
            ),
            *_pack_layers(dense_chain),
            *_pack_noise(model, dense_chain, noise),
            np.uint64(seed),
            _make_kernel_flags(model, quirks or Quirks()),
        )
        law = NoiseLaw.NO_NOISE if noise is None else noise.law
        self._lane_weights = (
            order_lane_weights(dense_chain.layers) if can_use_lanes(dense_chain.layers, law) else None
        )

    @property
    def uses_lanes(self) -> bool:
        """True if large batches are computed with images as lanes; see `kernels.chain`."""
        return self._lane_weights is not None

    def compute_scores(self, raw: Bytes, key: int, scores: Floats) -> None:
        """Write the scores of one input (contiguous bytes) to `scores` (outputs,), float32, without checks."""
        self.compute_batch_scores(raw.reshape(1, -1), np.array([key], np.uint64), scores.reshape(1, -1))

    def compute_batch_scores(
        self,
        raw: Bytes,
        keys: npt.NDArray[np.uint64],
        scores: Floats,
        counters: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Write the scores of bytes `raw` (images, inputs) to `scores` (images, outputs), and add to `counters`.

        `COUNTER_NAMES` names the entries of `counters`. Arguments are not checked.
        """
        counter_totals = np.zeros(len(COUNTER_NAMES), np.int64) if counters is None else counters
        if self._lane_weights is None or len(raw) < MIN_LANE_IMAGES:
            self.kernel(raw, keys, *self.kernel_arguments, scores, counter_totals)
        else:
            from lightning.execution.kernels.chain import write_answers_in_lanes

            kernel_in_lanes: Callable[..., None] = write_answers_in_lanes
            kernel_in_lanes(raw, keys, *self._lane_weights, *self.kernel_arguments, scores, counter_totals)
        if self.tail_nodes:
            scores[:] = self._apply_tail(scores)

    def warm(self) -> None:
        """Load the kernels: compute zeros for one image and a batch, from writable and read-only memory."""
        scores = np.empty(self.output_count, np.float32)
        self.compute_scores(np.zeros(self.input_count, np.uint8), 0, scores)
        self.compute_scores(np.frombuffer(bytes(self.input_count), np.uint8), 0, scores)
        self.compute_batch_scores(
            np.zeros((MIN_LANE_IMAGES, self.input_count), np.uint8),
            np.zeros(MIN_LANE_IMAGES, np.uint64),
            np.empty((MIN_LANE_IMAGES, self.output_count), np.float32),
        )

    def _apply_tail(self, scores: Floats) -> Floats:
        tensors: dict[str, npt.NDArray[np.float32]] = {self._tail_input: scores}
        for node in self.tail_nodes:
            tensors[node.output] = compute_node(node, tensors, self.model.network.constants)
        return tensors[self.tail_nodes[-1].output].reshape(len(scores), -1)


def name_counters(counters: npt.NDArray[np.int64], *, wrap: bool) -> Mapping[str, int]:
    """Return the counters by name, with `wrapped_sums` only if `wrap` is true."""
    return {
        name: count
        for name, count in zip(COUNTER_NAMES, counters.tolist(), strict=True)
        if wrap or name != "wrapped_sums"
    }


def _pack_layers(dense_chain: DenseChain) -> tuple[npt.NDArray[np.generic], ...]:
    """Return table, steps, values, pointers, row indices, biases and scales of all layers, for `kernels.chain`."""
    kernel_weights = [arrange_groups(layer)[0] for layer in dense_chain.layers]
    steps = np.array([layer.input_scale for layer in dense_chain.layers], np.float32)
    return (
        _make_layer_table(dense_chain, kernel_weights),
        steps,
        np.concatenate([layer_weights.values for layer_weights in kernel_weights]),
        np.concatenate([layer_weights.pointers for layer_weights in kernel_weights]),
        np.concatenate([_pad_row_indices(layer_weights) for layer_weights in kernel_weights]),
        np.concatenate([layer.bias.reshape(-1) for layer in dense_chain.layers]).astype(np.int32),
        np.concatenate([layer.output_scale.reshape(-1) for layer in dense_chain.layers]).astype(np.float32),
    )


def _pad_row_indices(weights: KernelWeights) -> npt.NDArray[np.uint32]:
    """Return row indices padded to the number of values, so that both have the same offsets."""
    return (
        np.resize(weights.row_indices, len(weights.values))
        if len(weights.pointers)
        else np.zeros(len(weights.values), np.uint32)
    )


def _make_layer_table(dense_chain: DenseChain, kernel_weights: list[KernelWeights]) -> npt.NDArray[np.int64]:
    layer_table = np.zeros((len(kernel_weights), 7), np.int64)
    value_offset = pointer_offset = row_offset = 0
    for index, (layer, layer_weights) in enumerate(zip(dense_chain.layers, kernel_weights, strict=True)):
        first_pointer = pointer_offset if len(layer_weights.pointers) else -1
        layer_table[index] = (
            *layer.weights.shape[1:],
            value_offset,
            first_pointer,
            row_offset,
            dense_chain.relu_flags[index],
            layer.signed,
        )
        value_offset += len(layer_weights.values)
        pointer_offset += len(layer_weights.pointers)
        row_offset += layer.weights.shape[1]
    return layer_table


def _pack_noise(
    model: CompiledModel, dense_chain: DenseChain, noise: Noise | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return (means, spreads, noise parameters). Spreads are deviations for constant noise, otherwise variances."""
    checked_noise = check_noise(noise or Noise(sigma=0.0))
    row_noises = [compute_row_noise(layer, checked_noise, model.hardware) for layer in dense_chain.layers]
    means = np.concatenate([row_noise.means for row_noise in row_noises])
    variances = np.concatenate([row_noise.variances for row_noise in row_noises])
    law = NoiseLaw.NO_NOISE if noise is None else noise.law
    parameters = np.concatenate([[law], pack_output_noise(checked_noise)])
    return means, np.sqrt(variances) if law == NoiseLaw.CONSTANT else variances, parameters


def _make_kernel_flags(model: CompiledModel, quirks: Quirks) -> int:
    from lightning.execution.kernels.chain import IS_PUBLISHED, NORMALISES_LAST, SCALES_PERFECTLY, WRAPS_SUMS

    flags = WRAPS_SUMS if model.wrap else 0
    if model.shift_normalised:
        flags |= IS_PUBLISHED
        flags |= SCALES_PERFECTLY if model.perfect_scaling else 0
        flags |= NORMALISES_LAST if quirks.last_layer_normalised else 0
    return flags


class LaneWeights(NamedTuple):
    """Nonzero weights by row, as described in `kernels.chain`."""

    magnitudes: npt.NDArray[np.uint16]
    term_indices: npt.NDArray[np.uint32]
    part_offsets: npt.NDArray[np.int64]


def can_use_lanes(layers: Sequence[PhotonicLayer], law: NoiseLaw) -> bool:
    """Return whether lanes are faster and give the same results.

    Activations must not be negative, and noise must not depend on the light of an image.
    """
    if law == NoiseLaw.VARYING or any(layer.signed for layer in layers):
        return False
    nonzero_count = sum(np.count_nonzero(layer.weights) for layer in layers)
    return bool(nonzero_count < MAX_SPARSE_DENSITY * sum(layer.weights.size for layer in layers))


def order_lane_weights(layers: Sequence[PhotonicLayer]) -> LaneWeights:
    """Return the nonzero weights of all layers. The parts of each row are padded with 0 to multiples of four."""
    magnitudes: list[npt.NDArray[np.generic]] = []
    terms: list[npt.NDArray[np.generic]] = []
    sign_offsets, weight_count = [], 0
    for layer in layers:
        for row in layer.weights[0]:
            sign_offsets.append([weight_count])
            for terms_of_sign in (np.flatnonzero(row > 0), np.flatnonzero(row < 0)):
                padding = (0, -len(terms_of_sign) % _WEIGHTS_PER_PASS)
                magnitudes.append(np.pad(np.abs(row[terms_of_sign]), padding))
                terms.append(np.pad(terms_of_sign, padding))
                weight_count += len(terms_of_sign) + padding[1]
                sign_offsets[-1].append(weight_count)
    return LaneWeights(
        np.concatenate(magnitudes).astype(np.uint16),
        np.concatenate(terms).astype(np.uint32),
        np.array(sign_offsets, np.int64),
    )


class FusedExecutor:
    """An executor that runs bytes on a `Chain` and other data on the interpreter, with equal results."""

    def __init__(self, chain: Chain, interpreter: Interpreter) -> None:
        self.model: CompiledModel = interpreter.model
        self.fidelity: Fidelity = interpreter.fidelity
        self.chain = chain
        self.interpreter = interpreter

    def run(self, inputs: npt.ArrayLike, keys: npt.ArrayLike | None = None) -> Answers:
        """Return the scores, counters and cycles of `Interpreter.run`, and raise its errors."""
        array = as_array(inputs)
        if array.dtype != np.uint8 or not self._has_valid_shape(array.shape):
            return self.interpreter.run(array, keys)
        image_keys = check_keys(keys, len(array))
        scores = np.empty((len(array), self.chain.output_count), np.float32)
        counters = np.zeros(len(COUNTER_NAMES), np.int64)
        raw = np.ascontiguousarray(array).reshape(len(array), -1)
        self.chain.compute_batch_scores(raw, image_keys, scores, counters)
        shaped_scores = scores.reshape(len(array), *self.model.network.output_shape)
        clipping_counter = (
            {"clipped_readouts": 0} if self.fidelity == "noisy" else {}
        )  # `is_supported` rejects noise that may clip
        return Answers(
            shaped_scores,
            self.interpreter.cycles,
            {**name_counters(counters, wrap=self.model.wrap), **clipping_counter},
        )

    def warm(self) -> None:
        """Warm the chain and the interpreter."""
        self.chain.warm()
        self.interpreter.warm()

    def close(self) -> None:
        """Do nothing: this executor holds no device."""

    def _has_valid_shape(self, shape: tuple[int, ...]) -> bool:
        """Return whether inputs have the network's shape, or are images for a network that takes rows."""
        expected_shape = self.model.network.input_shape
        image_shape = shape[1:]
        return (
            bool(shape)
            and shape[0] > 0
            and (
                image_shape == expected_shape
                or (len(expected_shape) == 1 and prod(image_shape) == expected_shape[0])
            )
        )
