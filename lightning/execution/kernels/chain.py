"""A chain of dense layers from bytes to scores, as machine code.

`table` has one row per layer with the columns `ROWS`, `TERMS`, ..., `SIGNED`: numbers of rows and terms, offsets of its
values, pointers (-1: dense) and rows in the arrays of all layers, and whether it is rectified and signed. `steps` are
the input scales. `noise` holds the law, the mean, and the coefficients of the variance, divided by the number of
averaged readouts.

`answers_in_lanes` computes many images at a time. Each image is a lane of the processor's vectors. A nonzero weight is
multiplied by the activations of `LANES` images at once, in unsigned 16 bits. A product before its division by 256 is at
most 255 * 255, so activations must not be negative. Weights are ordered by row, positive weights first, in fours:
`magnitudes`, `terms`, and `begins` (rows of all layers, 3) with the start of the positive weights, the start of the
negative weights, and their end.
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
    growth,
)

LANES = 64
FOUR = 4
"""Weights of one pass over the lanes."""
MAX_EXACT_PRODUCTS = 256
"""Number of products whose sum fits in 16 bits. Each is at most 254."""

Array = npt.NDArray[Any]
ROWS, TERMS, VALUES, POINTERS, FIRST_ROW, RECTIFIED, SIGNED = range(7)
WITHOUT, CONSTANT, VARYING, PER_OUTPUT = map(int, NoiseLaw)
CLIPPED_ACTIVATIONS, WRAPPED_SUMS = range(2)
PUBLISHED, WRAPS, LAST_NORMALISED, PERFECT = 1, 2, 4, 8
"""Bits of `rules`."""
_CONSTANT = "Array({}, {}, 'C', readonly=True)"
_BYTES, _KEYS = _CONSTANT.format("uint8", 2), _CONSTANT.format("uint64", 1)


@compile_kernel()
def look_up(raw: Array, looked_up: Array, signed: Any, activations: Array, counters: Array) -> None:
    """Write the activations of bytes, from one table or one per feature. Clip and count values out of range."""
    table_step = np.int64(len(looked_up) > 1)
    lowest = np.int16(-255) if signed else np.int16(0)
    for term in range(len(raw)):
        activation = looked_up[term * table_step, raw[term]]
        if activation > 255 or activation < lowest:
            counters[CLIPPED_ACTIVATIONS] += 1
            activation = np.int16(255) if activation > 0 else lowest
        activations[term] = activation


@compile_kernel()
def select_weights(layer: Array, values: Array, pointers: Array, row_indices: Array) -> Any:
    """Return the values, pointers and row_indices of one layer, as in `sums`."""
    begin, start = layer[VALUES], layer[POINTERS]
    if start < 0:
        return values[begin : begin + layer[ROWS] * layer[TERMS]], pointers[:0], row_indices[:0]
    starts = pointers[start : start + layer[TERMS] + 1]
    end = begin + starts[layer[TERMS]]
    return values[begin:end], starts, row_indices[begin:end]


@compile_kernel()
def disturb(
    activations: Array,
    weights: Array,
    starts: Array,
    rows_of: Array,
    sums: Array,
    noise_model: Any,
    seed: Any,
    key: Any,
    stream: Any,
) -> None:
    """Add noise to the sums of one layer, and round them to integers. `noise_model` is (means, spreads, noise)."""
    means, spreads, noise = noise_model
    rows = len(sums)
    noisy = np.empty((1, rows), np.float32)
    exact = sums.reshape(1, rows)
    if noise[0] == CONSTANT:
        add_constant_noise(exact, means, spreads, seed, key, stream, noisy)
    elif noise[0] == PER_OUTPUT:
        add_output_noise(exact, noise[1:], seed, key, stream, noisy)
    else:
        light = np.zeros((HIGHEST_POWER, rows))
        add_levels(activations, weights, starts, rows_of, light)
        growing = growth(noise[2:], light).reshape(1, rows)
        add_varying_noise(exact, growing, means, spreads, seed, key, stream, noisy)
    for row in range(rows):
        sums[row] = np.int32(np.rint(noisy[0, row]))


@compile_kernel()
def wrap(sums: Array, counters: Array) -> None:
    """Wrap every sum to 16 bits, and count those that change."""
    for row in range(len(sums)):
        low = np.int32(np.int16(sums[row]))
        counters[WRAPPED_SUMS] += np.int64(low != sums[row])
        sums[row] = low


@compile_kernel()
def highest_bit(largest: Any) -> Any:
    """Return the index of the highest set bit, or 0 for 0."""
    bit = 0
    while largest > 1:
        largest >>= 1
        bit += 1
    return bit


@compile_kernel()
def normalise(sums: Array, perfect: Any) -> None:
    """Normalise in place with signs: shift the largest magnitude's highest bit to bit 7, or scale it to 255."""
    largest = np.int64(1)
    for row in range(len(sums)):
        largest = max(largest, abs(np.int64(sums[row])))
    if perfect:
        factor = 255.0 / largest
        for row in range(len(sums)):
            sums[row] = np.int32(np.rint(sums[row] * factor))
    else:
        top_bit = highest_bit(largest)
        for row in range(len(sums)):
            sums[row] = np.int32((np.int64(sums[row]) << 7) >> top_bit)


@compile_kernel()
def rectify_and_send(sums: Array, perfect: Any, activations: Array) -> None:
    """Write activations like the published datapath: negative sums become 0, the others are normalised."""
    for row in range(len(sums)):
        sums[row] = max(sums[row], np.int32(0))
    normalise(sums, perfect)
    for row in range(len(sums)):
        activations[row] = np.int16(sums[row])


@compile_kernel()
def write_scores(sums: Array, bias: Array, scale: Array, rectified: Any, out: Array) -> None:
    """Write the scores of the last layer."""
    for row in range(len(sums)):
        real = np.float32(np.int32(sums[row] + bias[row])) * scale[row]
        out[row] = np.float32(0.0) if rectified and real < 0 else real


@compile_kernel()
def quantise(
    sums: Array,
    bias: Array,
    scale: Array,
    rectified: Any,
    next_format: Any,
    activations: Array,
    counters: Array,
) -> None:
    """Write the activations of the next layer from sums. `next_format` is (whether it is signed, its step)."""
    signed, step = next_format
    lowest = np.float32(-255.0) if signed else np.float32(0.0)
    for row in range(len(sums)):
        real = np.float32(np.int32(sums[row] + bias[row])) * scale[row]
        if rectified and real < 0:
            real = np.float32(0.0)
        steps = np.rint(np.float32(real / step))
        if steps > 255 or steps < lowest:
            counters[CLIPPED_ACTIVATIONS] += 1
        activations[row] = np.int16(min(max(steps, lowest), np.float32(255.0)))


@compile_kernel()
def finish(
    sums: Array,
    key: Any,
    layer: Any,
    lit: Any,
    numbers: Any,
    seed: Any,
    rules: Any,
    activations: Array,
    out: Array,
    counters: Array,
) -> None:
    """Write the next layer's activations from one image's sums, or the scores `out` after the last layer.

    `lit` is (activations, weights, pointers, row_indices). Only noise that grows with light reads it.
    """
    table, steps, biases, scales, means, spreads, noise = numbers
    first_row, last_row = table[layer, FIRST_ROW], table[layer, FIRST_ROW] + table[layer, ROWS]
    if noise[0] != WITHOUT:
        lit_activations, weights, starts, rows_of = lit
        noise_model = means[first_row:last_row], spreads[first_row:last_row], noise
        disturb(lit_activations, weights, starts, rows_of, sums, noise_model, seed, key, np.uint64(layer))
    if rules & WRAPS:
        wrap(sums, counters)
    bias, scale = biases[first_row:last_row], scales[first_row:last_row]
    if layer + 1 == len(table):
        if rules & LAST_NORMALISED:
            normalise(sums, rules & PERFECT)
        write_scores(sums, bias, scale, table[layer, RECTIFIED], out)
    elif rules & PUBLISHED:
        rectify_and_send(sums, rules & PERFECT, activations)
    else:
        next_format = table[layer + 1, SIGNED], steps[layer + 1]
        quantise(sums, bias, scale, table[layer, RECTIFIED], next_format, activations, counters)


@compile_kernel(
    f"void({_BYTES}, {_KEYS}, int16[:, ::1], int64[:, ::1], float32[::1], int16[::1], int64[::1], uint32[::1],"
    " int32[::1], float32[::1], float64[::1], float64[::1], float64[::1], uint64, int64, float32[:, ::1],"
    " int64[::1])"
)
def answers(
    raw: Array,
    keys: Array,
    looked_up: Array,
    table: Array,
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
    rules: Any,
    out: Array,
    counters: Array,
) -> None:
    """Write the scores `out` (images, rows of the last layer) of bytes `raw` (images, terms of the first)."""
    widest = max(table[:, ROWS].max(), table[:, TERMS].max())
    activations = np.empty(widest, np.int16)
    sums = np.empty(widest, np.int32)
    numbers = table, steps, biases, scales, means, spreads, noise
    for image in range(len(raw)):
        look_up(raw[image], looked_up, table[0, SIGNED], activations, counters)
        for layer in range(len(table)):
            row_sums, lit_activations = sums[: table[layer, ROWS]], activations[: table[layer, TERMS]]
            weights, starts, rows_of = select_weights(table[layer], values, pointers, row_indices)
            row_sums[:] = 0
            add_products(lit_activations, weights, starts, rows_of, row_sums)
            lit = lit_activations, weights, starts, rows_of
            finish(row_sums, keys[image], layer, lit, numbers, seed, rules, activations, out[image], counters)


@compile_kernel()
def add_magnitudes(
    lanes_sent: Array, magnitudes: Array, terms: Array, sign: Any, part: Array, sums: Array
) -> None:
    """Add `sign` times the products of some weights of one row with `lanes_sent` (terms, lanes) to sums (lanes)."""
    for start in range(0, len(terms), MAX_EXACT_PRODUCTS):
        part[:] = 0
        for index in range(start, min(start + MAX_EXACT_PRODUCTS, len(terms)), FOUR):
            a, b, c, d = terms[index], terms[index + 1], terms[index + 2], terms[index + 3]
            v, w = magnitudes[index], magnitudes[index + 1]
            x, y = magnitudes[index + 2], magnitudes[index + 3]
            for lane in range(LANES):
                low = (np.uint16(lanes_sent[a, lane] * v) >> 8) + (np.uint16(lanes_sent[b, lane] * w) >> 8)
                high = (np.uint16(lanes_sent[c, lane] * x) >> 8) + (np.uint16(lanes_sent[d, lane] * y) >> 8)
                part[lane] = np.uint16(part[lane] + low + high)
        for lane in range(LANES):
            sums[lane] += sign * np.int32(part[lane])


@compile_kernel()
def look_up_lanes(
    raw: Array, looked_up: Array, signed: Any, activations: Array, lane_activations: Array, counters: Array
) -> None:
    """Write the activations of bytes (images, terms) to `lane_activations` (terms, lanes)."""
    for lane in range(len(raw)):
        look_up(raw[lane], looked_up, signed, activations, counters)
        for term in range(raw.shape[1]):
            lane_activations[term, lane] = activations[term]


@compile_kernel()
def add_rows(lane_activations: Array, magnitudes: Array, terms: Array, begins: Array, sums: Array) -> None:
    """Write the sums (rows, lanes) of one layer."""
    part = np.empty(LANES, np.uint16)
    for row in range(len(begins)):
        positive, negative, end = begins[row]
        sums[row] = 0
        positive_terms, negative_terms = slice(positive, negative), slice(negative, end)
        add_magnitudes(
            lane_activations, magnitudes[positive_terms], terms[positive_terms], np.int32(1), part, sums[row]
        )
        add_magnitudes(
            lane_activations, magnitudes[negative_terms], terms[negative_terms], np.int32(-1), part, sums[row]
        )


@compile_kernel(
    f"void({_BYTES}, {_KEYS}, uint16[::1], uint32[::1], int64[:, ::1], int16[:, ::1], int64[:, ::1], float32[::1],"
    " int16[::1], int64[::1], uint32[::1], int32[::1], float32[::1], float64[::1], float64[::1], float64[::1],"
    " uint64, int64, float32[:, ::1], int64[::1])"
)
def answers_in_lanes(
    raw: Array,
    keys: Array,
    magnitudes: Array,
    terms: Array,
    begins: Array,
    looked_up: Array,
    table: Array,
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
    rules: Any,
    out: Array,
    counters: Array,
) -> None:
    """Write the scores of `answers`, for noise that does not depend on the light of each image."""
    widest = max(table[:, ROWS].max(), table[:, TERMS].max())
    lane_activations = np.zeros((widest, LANES), np.uint16)
    sums = np.empty((widest, LANES), np.int32)
    activations, lane_sums = np.empty(widest, np.int16), np.empty(widest, np.int32)
    numbers = table, steps, biases, scales, means, spreads, noise
    lit = activations[:0], values[:0], pointers[:0], row_indices[:0]
    for start in range(0, len(raw), LANES):
        lanes = min(LANES, len(raw) - start)
        look_up_lanes(
            raw[start : start + lanes], looked_up, table[0, SIGNED], activations, lane_activations, counters
        )
        for layer in range(len(table)):
            first_row, rows = table[layer, FIRST_ROW], table[layer, ROWS]
            add_rows(lane_activations, magnitudes, terms, begins[first_row : first_row + rows], sums)
            for lane in range(lanes):
                image = start + lane
                for row in range(rows):
                    lane_sums[row] = sums[row, lane]
                finish(
                    lane_sums[:rows],
                    keys[image],
                    layer,
                    lit,
                    numbers,
                    seed,
                    rules,
                    activations,
                    out[image],
                    counters,
                )
                for row in range(rows):
                    lane_activations[row, lane] = activations[row]
