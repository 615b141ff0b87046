"""Bit-exact model of dense layers in the integers of the photonic datapath.

Light encodes magnitudes of 8 bits: a product is `(a * b) >> 8`. Signs are restored after the converter, and sums wrap
at 16 bits. Between two layers negative results become 0, and results are shifted so that the highest set bit of the
largest is bit 7. Quantisation and arithmetic follow the published datapath (Lightning, SIGCOMM 2023 artifact).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_UNITY_GAIN = 256
"""A gain of 1."""
_WORD_MASK = 0xFFFF_FFFF
_SALT = 0x9E37_79B9
_LANE_COUNT = 16


@dataclass(frozen=True, slots=True)
class Optics:
    """Settings of the photonic core.

    The light is delayed by `delay` cycles (0 .. 15) and `shift` samples (0 .. 15). `gain` is in units of 1/256.
    `noise` adds −3 .. 3 to every sample (triangular, standard deviation 1.58 of 255), generated from `seed`.
    `sparsity` sets a product to 0 if a factor is 0, regardless of noise.
    """

    delay: int = 7
    shift: int = 3
    gain: int = _UNITY_GAIN
    noise: bool = False
    seed: int = 1
    sparsity: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for settings outside their ranges."""
        if not (0 <= self.delay <= 15 and 0 <= self.shift <= 15):
            raise ValueError(f"delay and shift must be 0 to 15, not {self.delay} and {self.shift}")
        if not (0 <= self.gain < 512 and 0 <= self.seed <= _WORD_MASK):
            raise ValueError(f"gain must be 0 to 511 and seed 32 bits wide, not {self.gain} and {self.seed}")

    def detect(self, products: NDArray[np.int32], first_cycle: int) -> NDArray[np.int32]:
        """Return the detected values of products (cycles × lanes), the first of which is detected in `first_cycle`."""
        amplified_products = (products * self.gain) >> 8
        if self.noise:
            amplified_products = (
                amplified_products + compute_noise(self.seed, first_cycle + len(products))[first_cycle:]
            )
        return np.asarray(np.clip(amplified_products, 0, 255), np.int32)


def compute_noise(seed: int, cycle_count: int) -> NDArray[np.int32]:
    """Return the noise of every lane in cycles 0 to `cycle_count` - 1, as an array cycles × lanes, −3 .. 3."""
    lanes = np.arange(1, _LANE_COUNT + 1, dtype=np.uint64)
    state = np.uint64(seed) ^ (lanes * np.uint64(_SALT) & np.uint64(_WORD_MASK))
    state = np.where(state == 0, np.uint64(1), state)
    values = np.empty((cycle_count, _LANE_COUNT), np.int32)
    for cycle in range(cycle_count):
        values[cycle] = (state & np.uint64(3)) + (state >> np.uint64(16) & np.uint64(3))
        state = _advance_xorshift(state)
    return values - 3


def _advance_xorshift(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the next state of a 32-bit xorshift generator.

    Marsaglia, Xorshift RNGs (2003), triple 13, 17, 5.
    """
    state = state ^ (state << np.uint64(13) & np.uint64(_WORD_MASK))
    state = state ^ state >> np.uint64(17)
    return np.asarray(state ^ (state << np.uint64(5) & np.uint64(_WORD_MASK)))


LANE_COUNT = 16
"""Samples per cycle of the converters, hence products per cycle."""
FULL_SCALE = 255
"""The largest magnitude: 8 bits of light."""
LENET_SHAPES = ((300, 784), (100, 300), (10, 100))
"""(Outputs, inputs) of the layers of LeNet-300-100."""

Integers = NDArray[np.int32]


@dataclass(frozen=True)
class Network:
    """Weights of the layers, from the first on: outputs × inputs, in −255 .. 255."""

    layers: tuple[Integers, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for layers whose shapes do not match, or weights out of range."""
        if not self.layers:
            raise ValueError("a network needs at least one layer")
        for weights in self.layers:
            if weights.ndim != 2 or not weights.size or np.abs(weights).max() > FULL_SCALE:
                raise ValueError(
                    f"a layer must be outputs × inputs with weights from −255 to 255, not {weights.shape}"
                )
        for weights_before, weights_after in zip(self.layers, self.layers[1:], strict=False):
            if weights_before.shape[0] != weights_after.shape[1]:
                raise ValueError(
                    f"{weights_before.shape[0]} outputs do not match {weights_after.shape[1]} inputs"
                )

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(Outputs, inputs) of every layer."""
        return tuple((weights.shape[0], weights.shape[1]) for weights in self.layers)


def quantise(weights: Sequence[ArrayLike]) -> Network:
    """Return weights scaled by one factor for all layers, so that the largest magnitude becomes 255.

    As in the published datapath, weights that are all below 1 in magnitude are scaled by 255, not up to 255.
    Ties are rounded to even.

    >>> quantise([[[0.5, -1.0]]]).layers[0].tolist()
    [[128, -255]]
    >>> quantise([[[0.1, -2.0]]]).layers[0].tolist()
    [[13, -255]]
    """
    layers = [np.asarray(weight, np.float64) for weight in weights]
    max_magnitude = max([1.0, *(float(np.abs(layer).max()) for layer in layers if layer.size)])
    return Network(tuple(np.rint(layer * (FULL_SCALE / max_magnitude)).astype(np.int32) for layer in layers))


def layer_results(network: Network, images: ArrayLike) -> tuple[NDArray[np.int16], ...]:
    """Return the results of each layer (batch × outputs, 16 bits) for images of 0 .. 255 (batch × inputs).

    The optics have no noise and no loss. Raise ValueError for images of another size or out of range.
    """
    activations = _check_images(network, images)
    results: list[NDArray[np.int16]] = []
    for weights in network.layers:
        if results:
            activations = normalise(results[-1])
        results.append(_multiply_layer(weights, activations))
    return tuple(results)


def _check_images(network: Network, images: ArrayLike) -> Integers:
    values = np.atleast_2d(np.asarray(images, np.int32))
    input_count = network.shapes[0][1]
    if values.ndim != 2 or values.shape[1] != input_count or values.min() < 0 or values.max() > FULL_SCALE:
        raise ValueError(
            f"images must have shape (batch, {input_count}) and values 0 to 255, not shape {values.shape}"
        )
    return values


def _multiply_layer(weights: Integers, activations: Integers) -> NDArray[np.int16]:
    """Return the results of one layer (batch × outputs). Weights of 0 are skipped, which makes it much faster."""
    sums = np.empty((len(activations), len(weights)), np.int32)
    for output, row in enumerate(weights):
        nonzero = np.flatnonzero(row)
        products = (activations[:, nonzero] * np.abs(row[nonzero])) >> 8
        sums[:, output] = products @ np.sign(row[nonzero])
    return sums.astype(np.int16)  # wraps, as the accumulator does


def normalise(results: NDArray[np.int16]) -> Integers:
    """Return the results of a layer (batch × outputs) as the activations of the next, 0 .. 255.

    >>> normalise(np.array([[1000, -7, 3]], np.int16)).tolist()
    [[250, 0, 0]]
    >>> normalise(np.array([[5, 1, 0]], np.int16)).tolist()
    [[160, 32, 0]]
    """
    positive_results = np.maximum(results.astype(np.int32), 0)
    highest_bits = [int(largest).bit_length() - 1 for largest in positive_results.max(axis=1)]
    top_bits = np.maximum(np.array(highest_bits, np.int32), 0)[:, None]
    return np.asarray((positive_results << 7) >> top_bits, np.int32)


def accuracy(results: NDArray[np.int16], labels: ArrayLike) -> float:
    """Return the fraction of images whose largest result (the first if several are equal) is at their label."""
    return float((results.argmax(axis=1) == np.asarray(labels)).mean())


def count_beats(input_count: int) -> int:
    """Return the number of cycles for one output."""
    return -(-input_count // LANE_COUNT)


def simulate_noisy_results(
    network: Network, image: ArrayLike, optics: Optics, first_noise_cycles: Sequence[int]
) -> Iterator[NDArray[np.int16]]:
    """Yield the results of every layer for one image through imperfect optics.

    `first_noise_cycles` holds, for each layer, the cycle in which its first product is sent. The noise depends on the
    cycle.
    """
    activations = _check_images(network, image)[0]
    for weights, first_cycle in zip(network.layers, first_noise_cycles, strict=True):
        results = _multiply_with_light(weights, activations, optics, first_cycle)
        yield results
        activations = normalise(results[None])[0]


def _multiply_with_light(
    weights: Integers, activations: Integers, optics: Optics, first_cycle: int
) -> NDArray[np.int16]:
    output_count, input_count = weights.shape
    padding_count = count_beats(input_count) * LANE_COUNT - input_count
    padded_weights = np.pad(weights, ((0, 0), (0, padding_count))).reshape(-1, LANE_COUNT)
    repeated_activations = np.tile(
        np.pad(activations, (0, padding_count)).reshape(-1, LANE_COUNT), (output_count, 1)
    )
    magnitudes = optics.detect((repeated_activations * np.abs(padded_weights)) >> 8, first_cycle)
    if optics.sparsity:
        magnitudes = np.where((padded_weights != 0) & (repeated_activations != 0), magnitudes, 0)
    signed_products = np.where(padded_weights >= 0, magnitudes, -magnitudes)
    return np.asarray(signed_products.reshape(output_count, -1).sum(axis=1).astype(np.int16))
