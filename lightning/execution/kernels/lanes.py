"""A chain of dense layers for many images at a time: each image is a lane of the processor's vectors. Machine code.

A weight that is not 0 is multiplied with the activations of `LANES` images at once, in 16 bits: the magnitude of a
product before its division by 256 is at most 255 * 255. So activations are not negative here. Weights are ordered by
row, positive ones first, in fours: `magnitudes`, `terms`, and `begins` (rows of all layers, 3): where the positive
ones begin, the negative ones, and where they end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.execution.kernels.chain import FIRST_ROW, ROWS, SIGNED, TERMS, finish, look_up
from lightning.execution.kernels.compiled import compiled

Array = npt.NDArray[Any]

LANES = 64
FOUR = 4
"""Weights taken in one pass over the lanes."""
AT_MOST = 256
"""Products that 16 bits add up without loss: each is at most 254."""

_CONSTANT = "Array({}, {}, 'C', readonly=True)"
_BYTES, _KEYS = _CONSTANT.format("uint8", 2), _CONSTANT.format("uint64", 1)


@compiled()
def add_magnitudes(sent: Array, magnitudes: Array, terms: Array, sign: Any, part: Array, sums: Array) -> None:
    """Add `sign` times the products of some weights of one row with `sent` (terms, lanes) to sums (lanes)."""
    for start in range(0, len(terms), AT_MOST):
        part[:] = 0
        for place in range(start, min(start + AT_MOST, len(terms)), FOUR):
            a, b, c, d = terms[place], terms[place + 1], terms[place + 2], terms[place + 3]
            v, w = magnitudes[place], magnitudes[place + 1]
            x, y = magnitudes[place + 2], magnitudes[place + 3]
            for lane in range(LANES):
                low = (np.uint16(sent[a, lane] * v) >> 8) + (np.uint16(sent[b, lane] * w) >> 8)
                high = (np.uint16(sent[c, lane] * x) >> 8) + (np.uint16(sent[d, lane] * y) >> 8)
                part[lane] = np.uint16(part[lane] + low + high)
        for lane in range(LANES):
            sums[lane] += sign * np.int32(part[lane])


@compiled()
def look_up_lanes(
    raw: Array, looked_up: Array, signed: Any, activations: Array, sent: Array, counters: Array
) -> None:
    """Write the activations of bytes (images, terms) to `sent` (terms, lanes)."""
    for lane in range(len(raw)):
        look_up(raw[lane], looked_up, signed, activations, counters)
        for term in range(raw.shape[1]):
            sent[term, lane] = activations[term]


@compiled()
def add_rows(sent: Array, magnitudes: Array, terms: Array, begins: Array, sums: Array) -> None:
    """Write the sums (rows, lanes) of one layer."""
    part = np.empty(LANES, np.uint16)
    for row in range(len(begins)):
        positive, negative, end = begins[row]
        sums[row] = 0
        up, down = slice(positive, negative), slice(negative, end)
        add_magnitudes(sent, magnitudes[up], terms[up], np.int32(1), part, sums[row])
        add_magnitudes(sent, magnitudes[down], terms[down], np.int32(-1), part, sums[row])


@compiled(
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
    places: Array,
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
    """Write the scores as `answers` of `chain` does, for noise that does not grow with the light of each image."""
    widest = max(table[:, ROWS].max(), table[:, TERMS].max())
    sent = np.zeros((widest, LANES), np.uint16)
    sums = np.empty((widest, LANES), np.int32)
    activations, found = np.empty(widest, np.int16), np.empty(widest, np.int32)
    numbers = table, steps, biases, scales, means, spreads, noise
    lit = activations[:0], values[:0], pointers[:0], places[:0]
    for start in range(0, len(raw), LANES):
        lanes = min(LANES, len(raw) - start)
        look_up_lanes(raw[start : start + lanes], looked_up, table[0, SIGNED], activations, sent, counters)
        for layer in range(len(table)):
            first, rows = table[layer, FIRST_ROW], table[layer, ROWS]
            add_rows(sent, magnitudes, terms, begins[first : first + rows], sums)
            for lane in range(lanes):
                image = start + lane
                for row in range(rows):
                    found[row] = sums[row, lane]
                finish(
                    found[:rows],
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
                    sent[row, lane] = activations[row]
