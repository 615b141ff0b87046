"""Execution of any network, node by node: digital operations in float32, photonic operations by a multiplier.

`Quirks` select behaviours of the published emulator that differ from its datapath. Source: Lightning, SIGCOMM 2023
artifact, `rtl/tb/lightning_emulator.py` and `rtl/datapath`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from lightning.compiler.datapath.schedule import count_model_cycles
from lightning.compiler.model import FULL_VALUE, CompiledModel, Floats, Geometry, Integers, PhotonicLayer
from lightning.errors import InputError
from lightning.execution.interface import (
    Activations,
    Answers,
    Fidelity,
    Keys,
    Multiplier,
    as_array,
    check_keys,
    get_raw_shape,
)
from lightning.execution.quirks import Quirks
from lightning.networks.network import Node
from lightning.networks.operations.operation_list import compute_node
from lightning.networks.patches import extract_patches
from lightning.networks.preprocess import preprocess

MAX_PATCHES_BYTES = 2**23
"""Size limit of a layer's activations, so that they stay in the processor's caches."""
MAX_IMAGES = 256

EXPONENTIALS = (1, 3, 7, 20, 55, 148, 403, 1096, 2980, 8103, 22026, 59874)
"""exp(0) .. exp(11) in the log-softmax block, rounded to integers: exp(11) is 59874.14."""
MISPRINTED_EXPONENTIAL = 2206
"""The artifact's table entry for exp(10), which lacks a digit."""


class Interpreter:
    """An executor of any compiled model on any multiplier."""

    def __init__(
        self,
        model: CompiledModel,
        multiplier: Multiplier,
        fidelity: Fidelity = "exact",
        quirks: Quirks | None = None,
    ) -> None:
        self.model = model
        self.fidelity = fidelity
        self.multiplier = multiplier
        self.quirks = quirks or Quirks()
        self.cycles = count_model_cycles(model)
        self._images_per_chunk = _count_chunk_images(model)
        self._photonic_names = [node.name for node in model.network.nodes if node.name in model.layers]
        self._normalises_last = model.shift_normalised and self.quirks.last_layer_normalised

    def run(self, inputs: npt.ArrayLike, keys: npt.ArrayLike | None = None) -> Answers:
        """Return the results for raw inputs (images, ...). Raise `InputError` for inputs that do not fit the model."""
        array = as_array(inputs)
        image_keys = check_keys(keys, len(array) if array.ndim else 0)
        counters: Counter[str] = Counter()
        earlier_clipped_count = getattr(self.multiplier, "clipped", 0)
        scores = []
        for start in range(0, max(len(image_keys), 1), self._images_per_chunk):
            chunk = slice(start, start + self._images_per_chunk)
            scores.append(
                self._compute_scores(array[chunk] if array.ndim else array, image_keys[chunk], counters)
            )
        if self.fidelity == "noisy":
            counters["clipped_readouts"] = getattr(self.multiplier, "clipped", 0) - earlier_clipped_count
        return Answers(np.concatenate(scores), self.cycles, dict(counters))

    def warm(self) -> None:
        """Run zeros for one image and a batch, which loads the kernels before the first request."""
        shape = get_raw_shape(self.model.network)
        for image_count in (1, 2):
            self.run(np.zeros((image_count, *shape), np.uint8))

    def close(self) -> None:
        """Release the multiplier's devices, if it has any."""
        close = getattr(self.multiplier, "close", None)
        if close is not None:
            close()

    def _compute_scores(self, raw: npt.NDArray[Any], keys: Keys, counters: Counter[str]) -> Floats:
        network = self.model.network
        tensors: dict[str, npt.NDArray[Any]] = {network.input: preprocess(network, raw)}
        for node, unused_tensors in network.find_last_uses():
            tensors[node.output] = self._compute_node(node, tensors, keys, counters)
            for name in unused_tensors:
                tensors.pop(name, None)
        return np.asarray(tensors[network.output], np.float32)

    def _compute_node(
        self, node: Node, tensors: Mapping[str, npt.NDArray[Any]], keys: Keys, counters: Counter[str]
    ) -> npt.NDArray[Any]:
        layer = self.model.layers.get(node.name)
        if layer is None:
            return compute_node(node, tensors, self.model.network.constants)
        real_values = np.asarray(tensors[node.inputs[0]], np.float32)
        activations = self._compute_activations(layer, real_values, counters)
        sums = self.multiplier.compute_sums(layer, _make_vectors(layer, activations), keys)
        results = compute_real_values(self._round_sums(layer, sums, counters), layer)
        if layer.geometry is not None:
            return reshape_to_pixels(results, layer.geometry)
        return results.reshape(*real_values.shape[:-1], -1)

    def _compute_activations(
        self, layer: PhotonicLayer, real_values: Floats, counters: Counter[str]
    ) -> Activations:
        if self.model.shift_normalised and layer.name != self._photonic_names[0]:
            return (scale_activations if self.model.perfect_scaling else shift_activations)(real_values)
        inputs = np.abs(real_values) if self.quirks.signs_dropped else real_values
        activations, clipped_count = quantise_activations(inputs, layer)
        counters["clipped_activations"] += clipped_count
        return activations

    def _round_sums(
        self, layer: PhotonicLayer, sums: npt.NDArray[Any], counters: Counter[str]
    ) -> npt.NDArray[np.int32]:
        """Return the sums as integers: round noisy sums, wrap them with `wrap`, and normalise the last layer's."""
        whole_sums = sums if sums.dtype == np.int32 else np.rint(sums).astype(np.int32)
        if self.model.wrap:
            whole_sums, wrapped_count = wrap_sums(whole_sums)
            if not getattr(self.multiplier, "wraps", False):
                counters["wrapped_sums"] += wrapped_count
        if self._normalises_last and layer.name == self._photonic_names[-1]:
            return normalise_last_sums(whole_sums, is_perfect=self.model.perfect_scaling)
        return whole_sums


def _make_vectors(layer: PhotonicLayer, activations: Activations) -> Activations:
    """Return the activations as vectors, (images, positions, groups, terms)."""
    group_count, _, term_count = layer.weights.shape
    if layer.geometry is not None:
        return make_patches(activations, layer.geometry, group_count)
    return np.ascontiguousarray(activations).reshape(len(activations), -1, group_count, term_count)


def _count_chunk_images(model: CompiledModel) -> int:
    """Return the number of images whose activations as patches take `MAX_PATCHES_BYTES` in the largest layer."""
    terms = (
        layer.position_count * len(layer.weights) * layer.weights.shape[2] for layer in model.layers.values()
    )
    return min(max(MAX_PATCHES_BYTES // (2 * max(terms, default=1)), 1), MAX_IMAGES)


def make_patches(activations: Activations, geometry: Geometry, group_count: int = 1) -> Activations:
    """Return the patches, (images, positions, groups, terms), of images (images, channels, height, width).

    Padding is 0. Terms run over the channels of a group, then rows, then columns, as in the weights of a `Conv`.

    >>> geometry = Geometry(1, 2, 3, kernel=(2, 2))
    >>> make_patches(np.arange(6, dtype=np.int16).reshape(1, 1, 2, 3), geometry).tolist()
    [[[[0, 1, 3, 4]], [[1, 2, 4, 5]]]]
    """
    return extract_patches(
        activations, geometry.kernel, geometry.strides, geometry.pads, geometry.dilations, group_count
    )


def reshape_to_pixels(sums: npt.NDArray[np.float32], geometry: Geometry) -> npt.NDArray[np.float32]:
    """Return the pixels, (images, rows of all groups, height, width), of sums (images, positions, groups, rows)."""
    image_count, position_count = sums.shape[:2]
    row_sums = sums.reshape(image_count, position_count, -1).transpose(0, 2, 1)
    pixels = np.ascontiguousarray(row_sums).reshape(image_count, -1, *geometry.output)
    return cast("npt.NDArray[np.float32]", pixels)


def quantise_activations(values: Floats, layer: PhotonicLayer) -> tuple[Activations, int]:
    """Return (activations in steps of the layer's `input_scale`, number of clipped activations).

    Unless the layer is signed, negative values are clipped to 0 and counted.
    """
    steps, lowest = layer.convert_to_steps(values), -FULL_VALUE if layer.signed else 0
    clipped_count = int(np.count_nonzero((steps > FULL_VALUE) | (steps < lowest)))
    return np.clip(steps, lowest, FULL_VALUE).astype(np.int16), clipped_count


def compute_real_values(sums: Integers, layer: PhotonicLayer) -> Floats:
    """Return the real values (images, positions, groups, rows): (sum + bias) * `output_scale`."""
    return np.asarray((sums + layer.bias).astype(np.float32) * layer.output_scale, np.float32)


def wrap_sums(sums: Integers) -> tuple[Integers, int]:
    """Return (sums wrapped to 16 bits in two's complement, number of sums that changed).

    >>> wrap_sums(np.array([32767, 32768, -40000], np.int32))
    (array([ 32767, -32768,  25536], dtype=int32), 2)
    """
    wrapped_sums = sums.astype(np.int16).astype(np.int32)
    return wrapped_sums, int(np.count_nonzero(wrapped_sums != sums))


def shift_activations(sums: npt.NDArray[np.float32] | Integers) -> Activations:
    """Return the activations that the datapath computes from sums (images, ...).

    Negative sums become 0. The others are shifted so that the highest set bit of the largest of each image becomes
    bit 7.

    >>> shift_activations(np.array([[1000, -7, 3], [5, 1, 0]], np.int32)).tolist()
    [[250, 0, 0], [160, 32, 0]]
    """
    return _shift(np.maximum(sums, 0).astype(np.int64)).astype(np.int16)


def scale_activations(sums: npt.NDArray[np.float32] | Integers) -> Activations:
    """Return the activations after the emulator's perfect scaling: times 255 / largest, with ties rounded to even.

    >>> scale_activations(np.array([[1000, -7, 3]], np.int32)).tolist()
    [[255, 0, 1]]
    """
    return _scale(np.maximum(sums, 0).astype(np.int64)).astype(np.int16)


def normalise_last_sums(sums: Integers, *, is_perfect: bool) -> Integers:
    """Return the last layer's sums (images, ...), normalised with their signs like the emulator.

    >>> normalise_last_sums(np.array([[1000, -7, 3]], np.int32), is_perfect=False).tolist()
    [[250, -2, 0]]
    """
    wide_sums = sums.astype(np.int64)
    return (_scale(wide_sums) if is_perfect else _shift(wide_sums)).astype(np.int32)


def log_softmax(results: Sequence[int] | Integers, *, is_misprinted: bool = False) -> npt.NDArray[np.float64]:
    """Return the log-softmax with the exponentials of the datapath's block. Raise `InputError` unless 1-D integers.

    Results are shifted so that the largest is 11. Exponentials come from a table of twelve integers, and are 0 below
    it. The logarithm of their sum is exact here, not from a table. No executor uses this block, because it changes no
    class. `is_misprinted` selects the artifact's table, which lacks a digit.

    >>> log_softmax([5, 4]).round(3).tolist()  # 11 and 10: ln(59874 + 22026) = 11.313
    [-0.313, -1.313]
    >>> log_softmax([5, 4], is_misprinted=True).round(3).tolist()
    [-0.036, -1.036]
    """
    integers = np.asarray(results)
    if integers.ndim != 1 or not len(integers) or integers.dtype.kind not in "iu":
        raise InputError(
            f"log-softmax takes the integers of one image, not {integers.dtype} of shape {integers.shape}"
        )
    shifted_results = integers.astype(np.int64) + (len(EXPONENTIALS) - 1 - int(integers.max()))
    table = np.array(EXPONENTIALS)
    if is_misprinted:
        table[10] = MISPRINTED_EXPONENTIAL
    total = table[shifted_results[shifted_results >= 0]].sum()
    return np.asarray(shifted_results - np.log(total), np.float64)


def _shift(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    _, exponents = np.frexp(_find_max_magnitude(sums))  # exact below 2**53: m * 2**exponent with 0.5 <= m < 1
    return np.asarray((sums << 7) >> np.maximum(exponents.astype(np.int64) - 1, 0))


def _scale(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.asarray(np.rint(sums * (255 / np.maximum(_find_max_magnitude(sums), 1))))


def _find_max_magnitude(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the largest magnitude of every image, shaped to broadcast."""
    largest = np.abs(sums).reshape(len(sums), -1).max(axis=1)
    return np.asarray(largest.reshape(-1, *([1] * (sums.ndim - 1))))
