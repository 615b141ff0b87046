"""Light and noise of every single readout of the schedule. Machine code.

`vectors` (positions, groups, terms); `sizes`, `order` and `signs` as in `noisy.OrderedReadouts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.execution.kernels.compiled import compile_kernel
from lightning.execution.kernels.normal import normal, seed_state
from lightning.execution.kernels.sums import add_light, variance

Array = npt.NDArray[Any]

ORDER = "int32[:, :, ::1], uint32[:, :, :, ::1], int8[:, :, ::1]"


@compile_kernel()
def light_in(activations: Array, turn: Any, magnitudes: Array) -> None:
    """Write the magnitudes (terms + 1) of a pass: positive activations in turn 0, negative ones in turn 1."""
    for term in range(len(activations)):
        activation = np.int32(activations[term])
        magnitudes[term] = max(-activation if turn else activation, np.int32(0))


@compile_kernel()
def levels_of(magnitudes: Array, sizes: Array, terms: Array, signs: Array, levels: Array) -> Any:
    """Write the light of each readout of a row, and return how many there are."""
    count = 0
    while count < len(signs) and signs[count] != 0:
        count += 1
    for readout in range(count):
        level = 0
        for place in range(terms.shape[1]):
            term = terms[readout, place]
            level += (magnitudes[term] * sizes[term]) >> 8
        levels[readout] = level
    return count


@compile_kernel(f"void(int16[:, :, ::1], {ORDER}, int64, float64[:, :, :, ::1])")
def light_into(vectors: Array, sizes: Array, order: Array, signs: Array, passes: Any, light: Array) -> None:
    """Write the sums of the powers of all readouts' light, (groups, positions, powers, rows)."""
    levels = np.empty(signs.shape[2])
    magnitudes = np.zeros(vectors.shape[2] + 1, np.int32)
    light[:] = 0
    for turn in range(passes):
        for position, group in np.ndindex(vectors.shape[:2]):
            light_in(vectors[position, group], turn, magnitudes)
            for row in range(signs.shape[1]):
                count = levels_of(magnitudes, sizes[group, row], order[group, row], signs[group, row], levels)
                for readout in range(count):
                    add_light(light[group, position], row, levels[readout])


@compile_kernel()
def spread(levels: Array, coefficients: Array, deviations: Array) -> None:
    """Write the standard deviations of readouts at these levels."""
    for readout in range(len(levels)):
        deviations[readout] = np.sqrt(variance(coefficients, levels[readout]))


@compile_kernel(
    f"int64(int16[:, :, ::1], {ORDER}, int64, float64[::1], uint64, uint64, uint64, float32[:, :, ::1])"
)
def read_into(
    vectors: Array,
    sizes: Array,
    order: Array,
    signs: Array,
    passes: Any,
    noise: Array,
    seed: Any,
    key: Any,
    stream: Any,
    out: Array,
) -> Any:
    """Write the sums of one image (positions, groups, rows) from noisy readouts; return the number of clipped samples.

    `noise`: mean, number of averaged samples, full scale, and the coefficients of the variance.
    """
    s0, s1, s2, s3 = seed_state(seed, key, stream)
    mean, averaged, limit, coefficients = noise[0], np.int64(noise[1]), noise[2], noise[3:]
    varies = coefficients[1:].any()
    levels = np.empty(signs.shape[2])
    deviations = np.full(signs.shape[2], np.sqrt(coefficients[0]))
    magnitudes = np.zeros(vectors.shape[2] + 1, np.int32)
    clipped = np.int64(0)
    out[:] = 0
    for turn in range(passes):
        share = (1.0 - 2.0 * turn) / averaged
        for position, group in np.ndindex(vectors.shape[:2]):
            light_in(vectors[position, group], turn, magnitudes)
            for row in range(signs.shape[1]):
                counted = signs[group, row]
                count = levels_of(magnitudes, sizes[group, row], order[group, row], counted, levels)
                if varies:
                    spread(levels[:count], coefficients, deviations)
                total = 0.0
                for readout in range(count):
                    seen = 0.0
                    for _ in range(averaged):
                        drawn, s0, s1, s2, s3 = normal(s0, s1, s2, s3)
                        sample = levels[readout] + mean + deviations[readout] * drawn
                        held = min(max(sample, -limit), limit)
                        clipped += held != sample
                        seen += held
                    total += counted[readout] * share * seen
                out[position, group, row] += np.float32(total)
    return clipped
