"""Exact model of the smartNIC's answers, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpga.photonic_mac.network import FULL_SCALE
from fpga.smartnic.program import Floats, NicLayer, NicModel

Integers = NDArray[np.int32]


def compute_scores(model: NicModel, image: ArrayLike) -> tuple[Floats, int]:
    """Return the scores (outputs,) of an image, `inputs` bytes, and its class: the first of the largest scores.

    A single score is a logit: its class is 1 if it is above 0, else 0.

    Raise ValueError for an image of another size or type.
    """
    results = layer_results(model, image)[-1]
    values = compute_float_product(results, model.layers[-1])
    return values, int(values.argmax() if values.size > 1 else values[0] > 0)


def layer_results(model: NicModel, image: ArrayLike) -> tuple[Integers, ...]:
    """Return the sums of every layer plus its biases; with `wraps_sums`, sums wrap first.

    Raise ValueError for an image of another size or type.
    """
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.shape != (model.input_count,):
        raise ValueError(
            f"{model.name} takes uint8[{model.input_count}], not {pixels.dtype}{list(pixels.shape)}."
        )
    activations = model.look_up_table[pixels].astype(np.int32)
    results: list[Integers] = []
    for index, layer in enumerate(model.layers):
        if index:
            activations = _compute_activations(model, model.layers[index - 1], results[-1])
        sums = _compute_sums(layer, activations)
        if model.wraps_sums:
            sums = sums.astype(np.int16).astype(np.int32)
        results.append(sums + layer.bias)
    return tuple(results)


def _compute_activations(model: NicModel, previous_layer: NicLayer, results: Integers) -> Integers:
    if model.follows_published_datapath:
        return scale_perfectly(results) if model.is_scaling_exact else normalise(results)
    return compute_float_steps(compute_float_product(results, previous_layer), previous_layer.step)


def _compute_sums(layer: NicLayer, activations: Integers) -> Integers:
    weights = layer.weights.astype(np.int32)
    products = (np.abs(weights) * activations) >> 8
    return np.asarray((np.sign(weights) * products).sum(axis=1, dtype=np.int32))


def compute_float_product(sums: Integers, layer: NicLayer) -> Floats:
    """Return float32(sums) * scale of the layer (outputs,); negative products become 0 if it is rectified."""
    scaled_sums = sums.astype(np.float32) * layer.scale
    return np.asarray(
        np.where(scaled_sums < 0, np.float32(0), scaled_sums) if layer.has_relu else scaled_sums, np.float32
    )


def compute_float_steps(scaled_sums: Floats, step: np.float32) -> Integers:
    """Return the activations clip(rint(real / step), 0, 255); quotients are rounded to float32 first."""
    with np.errstate(over="ignore"):
        steps = np.rint(scaled_sums / step)
    return np.asarray(np.clip(steps, 0, FULL_SCALE), np.int32)


def normalise(results: Integers) -> Integers:
    """Return activations of the published datapath: negative results are 0, and one shift gives the largest 8 bits.

    >>> normalise(np.array([1000, -7, 3], np.int32)).tolist()
    [250, 0, 0]
    >>> normalise(np.array([0, 254 * 1024], np.int32)).tolist()
    [0, 254]
    """
    positive_results = np.maximum(results, 0).astype(np.int64)
    top_bit = max(int(positive_results.max()).bit_length() - 1, 0)
    return np.asarray((positive_results << 7) >> top_bit, np.int32)


def scale_perfectly(results: Integers) -> Integers:
    """Return activations of the published emulator: negative results are 0, others times 255 / largest in float64.

    >>> scale_perfectly(np.array([1000, -7, 3], np.int32)).tolist()
    [255, 0, 1]
    """
    positive_results = np.maximum(results, 0)
    return np.asarray(
        np.rint(positive_results * (FULL_SCALE / max(int(positive_results.max()), 1))), np.int32
    )
