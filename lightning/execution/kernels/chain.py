"""A chain of dense layers from bytes to scores, as machine code.

`layer_table` has one row per layer with the columns `ROWS`, `TERMS`, ..., `SIGNED`. They are the numbers of rows and
terms; the offsets of the layer's values, pointers (-1: dense) and rows in the arrays of all layers; and whether the
layer is rectified and signed. `steps` are the input scales. `noise` holds the law, the mean, and the coefficients of
the variance, divided by the number of averaged readouts.

`write_answers_in_lanes` computes many images at a time. Each image is a lane of the processor's vectors. A nonzero
weight is multiplied by the activations of `LANE_COUNT` images at once, in unsigned 16 bits. A product before its
division by 256 is at most 255 * 255, so activations must not be negative. Weights are ordered by row, positive weights
first, in groups of four: `magnitudes`, `terms`, and `sign_offsets` (rows of all layers, 3) with the start of the
positive weights, the start of the negative weights, and their end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.execution.kernels.compiled import compile_kernel
from lightning.execution.kernels.laws import HIGHEST_POWER, NoiseLaw
from lightning.execution.kernels.sums import (
    add_constant_noise,
    add_levels,
    add_output_noise,
    add_products,
    add_varying_noise,
    compute_light_variance,
)

LANE_COUNT = 64
WEIGHTS_PER_PASS = 4
"""Number of weights in one pass over the lanes."""
MAX_EXACT_PRODUCTS = 256
"""Number of products whose sum fits in 16 bits. Each is at most 254."""

Array = npt.NDArray[Any]
ROWS, TERMS, VALUES, POINTERS, FIRST_ROW, RECTIFIED, SIGNED = range(7)
NO_NOISE, CONSTANT, VARYING, PER_OUTPUT = map(int, NoiseLaw)
CLIPPED_ACTIVATIONS, WRAPPED_SUMS = range(2)
IS_PUBLISHED, WRAPS_SUMS, NORMALISES_LAST, SCALES_PERFECTLY = 1, 2, 4, 8
"""Bits of `flags`."""
_CONSTANT = "Array({}, {}, 'C', readonly=True)"
_BYTES, _KEYS = _CONSTANT.format("uint8", 2), _CONSTANT.format("uint64", 1)


@compile_kernel()
def look_up_activations(
    raw: Array, byte_activations: Array, is_signed: Any, activations: Array, counters: Array
) -> None:
    """Write the activations of bytes, from one table or one per feature. Clip and count values out of range."""
    table_step = np.int64(len(byte_activations) > 1)
    lowest = np.int16(-255) if is_signed else np.int16(0)
    for term in range(len(raw)):
        activation = byte_activations[term * table_step, raw[term]]
        if activation > 255 or activation < lowest:
            counters[CLIPPED_ACTIVATIONS] += 1
            activation = np.int16(255) if activation > 0 else lowest
        activations[term] = activation


@compile_kernel()
def select_weights(layer_entry: Array, values: Array, pointers: Array, row_indices: Array) -> Any:
    """Return the values, pointers and row indices of one layer, as in `sums`."""
    value_start, pointer_start = layer_entry[VALUES], layer_entry[POINTERS]
    if pointer_start < 0:
        return (
            values[value_start : value_start + layer_entry[ROWS] * layer_entry[TERMS]],
            pointers[:0],
            row_indices[:0],
        )
    pointers_of_layer = pointers[pointer_start : pointer_start + layer_entry[TERMS] + 1]
    value_end = value_start + pointers_of_layer[layer_entry[TERMS]]
    return values[value_start:value_end], pointers_of_layer, row_indices[value_start:value_end]


@compile_kernel()
def add_noise(
    activations: Array,
    weights: Array,
    pointers_of_layer: Array,
    row_indices_of_layer: Array,
    sums: Array,
    noise_model: Any,
    seed: Any,
    key: Any,
    stream: Any,
) -> None:
    """Add noise to the sums of one layer, and round them to integers. `noise_model` is (means, spreads, noise)."""
    means, spreads, noise = noise_model
    row_count = len(sums)
    noisy_sums = np.empty((1, row_count), np.float32)
    exact_sums = sums.reshape(1, row_count)
    if noise[0] == CONSTANT:
        add_constant_noise(exact_sums, means, spreads, seed, key, stream, noisy_sums)
    elif noise[0] == PER_OUTPUT:
        add_output_noise(exact_sums, noise[1:], seed, key, stream, noisy_sums)
    else:
        light_powers = np.zeros((HIGHEST_POWER, row_count))
        add_levels(activations, weights, pointers_of_layer, row_indices_of_layer, light_powers)
        light_variances = compute_light_variance(noise[2:], light_powers).reshape(1, row_count)
        add_varying_noise(exact_sums, light_variances, means, spreads, seed, key, stream, noisy_sums)
    for row in range(row_count):
        sums[row] = np.int32(np.rint(noisy_sums[0, row]))


@compile_kernel()
def wrap_sums(sums: Array, counters: Array) -> None:
    """Wrap every sum to 16 bits, and count those that change."""
    for row in range(len(sums)):
        wrapped_sum = np.int32(np.int16(sums[row]))
        counters[WRAPPED_SUMS] += np.int64(wrapped_sum != sums[row])
        sums[row] = wrapped_sum


@compile_kernel()
def find_highest_bit(number: Any) -> Any:
    """Return the index of the highest set bit, or 0 for 0."""
    bit = 0
    while number > 1:
        number >>= 1
        bit += 1
    return bit


@compile_kernel()
def normalise_sums(sums: Array, is_perfect: Any) -> None:
    """Normalise in place with signs: shift the largest magnitude's highest bit to bit 7, or scale it to 255."""
    largest = np.int64(1)
    for row in range(len(sums)):
        largest = max(largest, abs(np.int64(sums[row])))
    if is_perfect:
        factor = 255.0 / largest
        for row in range(len(sums)):
            sums[row] = np.int32(np.rint(sums[row] * factor))
    else:
        top_bit = find_highest_bit(largest)
        for row in range(len(sums)):
            sums[row] = np.int32((np.int64(sums[row]) << 7) >> top_bit)


@compile_kernel()
def rectify_and_normalise(sums: Array, is_perfect: Any, activations: Array) -> None:
    """Write activations like the published datapath: negative sums become 0, the others are normalised."""
    for row in range(len(sums)):
        sums[row] = max(sums[row], np.int32(0))
    normalise_sums(sums, is_perfect)
    for row in range(len(sums)):
        activations[row] = np.int16(sums[row])


@compile_kernel()
def write_scores(sums: Array, bias: Array, scale: Array, is_rectified: Any, scores: Array) -> None:
    """Write the scores of the last layer."""
    for row in range(len(sums)):
        real = np.float32(np.int32(sums[row] + bias[row])) * scale[row]
        scores[row] = np.float32(0.0) if is_rectified and real < 0 else real


@compile_kernel()
def quantise_sums(
    sums: Array,
    bias: Array,
    scale: Array,
    is_rectified: Any,
    next_format: Any,
    activations: Array,
    counters: Array,
) -> None:
    """Write the activations of the next layer from sums. `next_format` is (whether it is signed, its step)."""
    is_signed, step = next_format
    lowest = np.float32(-255.0) if is_signed else np.float32(0.0)
    for row in range(len(sums)):
        real = np.float32(np.int32(sums[row] + bias[row])) * scale[row]
        if is_rectified and real < 0:
            real = np.float32(0.0)
        rounded_activation = np.rint(np.float32(real / step))
        if rounded_activation > 255 or rounded_activation < lowest:
            counters[CLIPPED_ACTIVATIONS] += 1
        activations[row] = np.int16(min(max(rounded_activation, lowest), np.float32(255.0)))


@compile_kernel()
def finish_layer(
    sums: Array,
    key: Any,
    layer_index: Any,
    product_factors: Any,
    parameters: Any,
    seed: Any,
    flags: Any,
    activations: Array,
    scores: Array,
    counters: Array,
) -> None:
    """Write the next layer's activations from one image's sums, or, after the last layer, write `scores`.

    `product_factors` is (activations, weights, pointers, row_indices). Only noise that grows with light reads it.
    """
    layer_table, steps, biases, scales, means, spreads, noise = parameters
    first_row, end_row = (
        layer_table[layer_index, FIRST_ROW],
        layer_table[layer_index, FIRST_ROW] + layer_table[layer_index, ROWS],
    )
    if noise[0] != NO_NOISE:
        layer_activations, weights, pointers_of_layer, row_indices_of_layer = product_factors
        noise_model = means[first_row:end_row], spreads[first_row:end_row], noise
        add_noise(
            layer_activations,
            weights,
            pointers_of_layer,
            row_indices_of_layer,
            sums,
            noise_model,
            seed,
            key,
            np.uint64(layer_index),
        )
    if flags & WRAPS_SUMS:
        wrap_sums(sums, counters)
    bias, scale = biases[first_row:end_row], scales[first_row:end_row]
    if layer_index + 1 == len(layer_table):
        if flags & NORMALISES_LAST:
            normalise_sums(sums, flags & SCALES_PERFECTLY)
        write_scores(sums, bias, scale, layer_table[layer_index, RECTIFIED], scores)
    elif flags & IS_PUBLISHED:
        rectify_and_normalise(sums, flags & SCALES_PERFECTLY, activations)
    else:
        next_format = layer_table[layer_index + 1, SIGNED], steps[layer_index + 1]
        quantise_sums(
            sums, bias, scale, layer_table[layer_index, RECTIFIED], next_format, activations, counters
        )


@compile_kernel(
    f"void({_BYTES}, {_KEYS}, int16[:, ::1], int64[:, ::1], float32[::1], int16[::1], int64[::1], uint32[::1],"
    " int32[::1], float32[::1], float64[::1], float64[::1], float64[::1], uint64, int64, float32[:, ::1],"
    " int64[::1])"
)
def write_answers(
    raw: Array,
    keys: Array,
    byte_activations: Array,
    layer_table: Array,
    steps: Array,
    values: Array,
    pointers: Array,
    row_indices: Array,
    biases: Array,
    scales: Array,
    means: Array,
    spreads: Array,
    noise: Array,
    seed: Any,
    flags: Any,
    scores: Array,
    counters: Array,
) -> None:
    """Write `scores` (images, rows of the last layer) for bytes `raw` (images, terms of the first layer)."""
    max_width = max(layer_table[:, ROWS].max(), layer_table[:, TERMS].max())
    activations = np.empty(max_width, np.int16)
    sums = np.empty(max_width, np.int32)
    parameters = layer_table, steps, biases, scales, means, spreads, noise
    for image in range(len(raw)):
        look_up_activations(raw[image], byte_activations, layer_table[0, SIGNED], activations, counters)
        for layer_index in range(len(layer_table)):
            row_sums, layer_activations = (
                sums[: layer_table[layer_index, ROWS]],
                activations[: layer_table[layer_index, TERMS]],
            )
            weights, pointers_of_layer, row_indices_of_layer = select_weights(
                layer_table[layer_index], values, pointers, row_indices
            )
            row_sums[:] = 0
            add_products(layer_activations, weights, pointers_of_layer, row_indices_of_layer, row_sums)
            product_factors = layer_activations, weights, pointers_of_layer, row_indices_of_layer
            finish_layer(
                row_sums,
                keys[image],
                layer_index,
                product_factors,
                parameters,
                seed,
                flags,
                activations,
                scores[image],
                counters,
            )


@compile_kernel()
def add_magnitudes(
    lane_activations: Array, magnitudes: Array, terms: Array, sign: Any, partial_sums: Array, sums: Array
) -> None:
    """Add to `sums` (lanes) `sign` times the products of weights of one row with `lane_activations` (terms, lanes)."""
    for start in range(0, len(terms), MAX_EXACT_PRODUCTS):
        partial_sums[:] = 0
        for index in range(start, min(start + MAX_EXACT_PRODUCTS, len(terms)), WEIGHTS_PER_PASS):
            term0, term1, term2, term3 = terms[index], terms[index + 1], terms[index + 2], terms[index + 3]
            weight0, weight1 = magnitudes[index], magnitudes[index + 1]
            weight2, weight3 = magnitudes[index + 2], magnitudes[index + 3]
            for lane in range(LANE_COUNT):
                first_products = (np.uint16(lane_activations[term0, lane] * weight0) >> 8) + (
                    np.uint16(lane_activations[term1, lane] * weight1) >> 8
                )
                last_products = (np.uint16(lane_activations[term2, lane] * weight2) >> 8) + (
                    np.uint16(lane_activations[term3, lane] * weight3) >> 8
                )
                partial_sums[lane] = np.uint16(partial_sums[lane] + first_products + last_products)
        for lane in range(LANE_COUNT):
            sums[lane] += sign * np.int32(partial_sums[lane])


@compile_kernel()
def look_up_lanes(
    raw: Array,
    byte_activations: Array,
    is_signed: Any,
    activations: Array,
    lane_activations: Array,
    counters: Array,
) -> None:
    """Write the activations of bytes (images, terms) to `lane_activations` (terms, lanes)."""
    for lane in range(len(raw)):
        look_up_activations(raw[lane], byte_activations, is_signed, activations, counters)
        for term in range(raw.shape[1]):
            lane_activations[term, lane] = activations[term]


@compile_kernel()
def write_row_sums(
    lane_activations: Array, magnitudes: Array, terms: Array, sign_offsets: Array, sums: Array
) -> None:
    """Write the sums (rows, lanes) of one layer."""
    partial_sums = np.empty(LANE_COUNT, np.uint16)
    for row in range(len(sign_offsets)):
        positive_start, negative_start, end = sign_offsets[row]
        sums[row] = 0
        positive_terms, negative_terms = slice(positive_start, negative_start), slice(negative_start, end)
        add_magnitudes(
            lane_activations,
            magnitudes[positive_terms],
            terms[positive_terms],
            np.int32(1),
            partial_sums,
            sums[row],
        )
        add_magnitudes(
            lane_activations,
            magnitudes[negative_terms],
            terms[negative_terms],
            np.int32(-1),
            partial_sums,
            sums[row],
        )


@compile_kernel(
    f"void({_BYTES}, {_KEYS}, uint16[::1], uint32[::1], int64[:, ::1], int16[:, ::1], int64[:, ::1], float32[::1],"
    " int16[::1], int64[::1], uint32[::1], int32[::1], float32[::1], float64[::1], float64[::1], float64[::1],"
    " uint64, int64, float32[:, ::1], int64[::1])"
)
def write_answers_in_lanes(
    raw: Array,
    keys: Array,
    magnitudes: Array,
    terms: Array,
    sign_offsets: Array,
    byte_activations: Array,
    layer_table: Array,
    steps: Array,
    values: Array,
    pointers: Array,
    row_indices: Array,
    biases: Array,
    scales: Array,
    means: Array,
    spreads: Array,
    noise: Array,
    seed: Any,
    flags: Any,
    scores: Array,
    counters: Array,
) -> None:
    """Write the scores of `write_answers`, for noise that does not depend on the light of each image."""
    max_width = max(layer_table[:, ROWS].max(), layer_table[:, TERMS].max())
    lane_activations = np.zeros((max_width, LANE_COUNT), np.uint16)
    sums = np.empty((max_width, LANE_COUNT), np.int32)
    activations, lane_sums = np.empty(max_width, np.int16), np.empty(max_width, np.int32)
    parameters = layer_table, steps, biases, scales, means, spreads, noise
    product_factors = activations[:0], values[:0], pointers[:0], row_indices[:0]
    for start in range(0, len(raw), LANE_COUNT):
        lane_count = min(LANE_COUNT, len(raw) - start)
        look_up_lanes(
            raw[start : start + lane_count],
            byte_activations,
            layer_table[0, SIGNED],
            activations,
            lane_activations,
            counters,
        )
        for layer_index in range(len(layer_table)):
            first_row, row_count = layer_table[layer_index, FIRST_ROW], layer_table[layer_index, ROWS]
            write_row_sums(
                lane_activations, magnitudes, terms, sign_offsets[first_row : first_row + row_count], sums
            )
            for lane in range(lane_count):
                image = start + lane
                for row in range(row_count):
                    lane_sums[row] = sums[row, lane]
                finish_layer(
                    lane_sums[:row_count],
                    keys[image],
                    layer_index,
                    product_factors,
                    parameters,
                    seed,
                    flags,
                    activations,
                    scores[image],
                    counters,
                )
                for row in range(row_count):
                    lane_activations[row, lane] = activations[row]
