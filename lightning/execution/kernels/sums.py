"""Products, their sums and their noise, in machine code, for one vector of activations at a time.

A layer's weights have one of two forms. Both are ordered by term, so that an activation of 0 costs one comparison:

    dense     values (terms * rows), with all rows of a term together; pointers and row_indices are empty
    sparse    values and row_indices (rows) of the nonzero weights; term k has entries pointers[k] .. pointers[k + 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.execution.kernels import laws
from lightning.execution.kernels.compiled import compile_kernel
from lightning.execution.kernels.normal import draw_normal, seed_state

Array = npt.NDArray[Any]

WEIGHT_TYPES = "int16[::1], int64[::1], uint32[::1]"
"""Types of values, pointers and row_indices in the signatures of kernels."""

compute_variance = compile_kernel()(laws.compute_variance)
add_light = compile_kernel()(laws.add_light)
compute_light_variance = compile_kernel()(laws.compute_light_variance)


@compile_kernel()
def multiply(activation: Any, weight: Any) -> Any:
    """Return `(|a| * |w|) >> 8` with the sign of a * w: division by 256 that rounds towards 0."""
    product = np.int32(activation * weight)
    return np.int32(np.int32(product + ((product >> 31) & 255)) >> 8)


@compile_kernel()
def add_products(activations: Array, values: Array, pointers: Array, row_indices: Array, sums: Array) -> None:
    """Add the products of one vector to the sums (rows)."""
    row_count = len(sums)
    nonzero_terms = np.empty(len(activations), np.uint32)
    nonzero_count = 0
    for term in range(len(activations)):  # no branch: a processor cannot predict which activations are 0
        nonzero_terms[nonzero_count] = term
        nonzero_count += activations[term] != 0
    for index in range(nonzero_count):
        term = nonzero_terms[index]
        activation = np.int32(activations[term])
        if len(pointers) == 0:
            term_weights = values[term * row_count : (term + 1) * row_count]
            for row in range(row_count):
                sums[row] += multiply(activation, np.int32(term_weights[row]))
        else:
            for weight_index in range(pointers[term], pointers[term + 1]):
                sums[row_indices[weight_index]] += multiply(activation, np.int32(values[weight_index]))


@compile_kernel()
def add_levels(
    activations: Array, values: Array, pointers: Array, row_indices: Array, light_powers: Array
) -> None:
    """Add the powers of the products' magnitudes to `light_powers` (powers, rows), for one product per readout."""
    row_count = light_powers.shape[1]
    for term in range(len(activations)):
        activation = np.int32(activations[term])
        if activation == 0:
            continue
        if len(pointers) == 0:
            for row in range(row_count):
                level = np.float64(abs(multiply(activation, np.int32(values[term * row_count + row]))))
                add_light(light_powers, row, level)
        else:
            for weight_index in range(pointers[term], pointers[term + 1]):
                level = np.float64(abs(multiply(activation, np.int32(values[weight_index]))))
                add_light(light_powers, row_indices[weight_index], level)


@compile_kernel(f"void(int16[:, ::1], {WEIGHT_TYPES}, int32[:, ::1])")
def write_sums(vectors: Array, values: Array, pointers: Array, row_indices: Array, sums: Array) -> None:
    """Write the sums (vectors, rows) of vectors (vectors, terms)."""
    sums[:] = 0
    for vector in range(len(vectors)):
        add_products(vectors[vector], values, pointers, row_indices, sums[vector])


@compile_kernel(f"void(int16[:, ::1], {WEIGHT_TYPES}, float64[:, :, ::1])")
def write_level_powers(
    vectors: Array, values: Array, pointers: Array, row_indices: Array, light_powers: Array
) -> None:
    """Write the sums of levels and their powers, (vectors, powers, rows), for vectors (vectors, terms)."""
    light_powers[:] = 0
    for vector in range(len(vectors)):
        add_levels(vectors[vector], values, pointers, row_indices, light_powers[vector])


@compile_kernel("void(int32[:, ::1], float64[::1], float64[::1], uint64, uint64, uint64, float32[:, ::1])")
def add_constant_noise(
    sums: Array, means: Array, deviations: Array, seed: Any, key: Any, stream: Any, out: Array
) -> None:
    """Add one draw to each of an image's sums (vectors, rows). Mean and deviation are constant in each row."""
    s0, s1, s2, s3 = seed_state(seed, key, stream)
    for vector in range(sums.shape[0]):
        for row in range(sums.shape[1]):
            draw, s0, s1, s2, s3 = draw_normal(s0, s1, s2, s3)
            out[vector, row] = np.float32(sums[vector, row] + means[row] + deviations[row] * draw)


@compile_kernel(
    "void(int32[:, ::1], float64[:, ::1], float64[::1], float64[::1], uint64, uint64, uint64, float32[:, ::1])"
)
def add_varying_noise(
    sums: Array,
    light_variances: Array,
    means: Array,
    variances: Array,
    seed: Any,
    key: Any,
    stream: Any,
    out: Array,
) -> None:
    """Add one draw to each of an image's sums. The row's variance and `light_variances` (vectors, rows) add up."""
    s0, s1, s2, s3 = seed_state(seed, key, stream)
    for vector in range(sums.shape[0]):
        for row in range(sums.shape[1]):
            draw, s0, s1, s2, s3 = draw_normal(s0, s1, s2, s3)
            deviation = np.sqrt(variances[row] + light_variances[vector, row])
            out[vector, row] = np.float32(sums[vector, row] + means[row] + deviation * draw)


@compile_kernel("void(int32[:, ::1], float64[::1], uint64, uint64, uint64, float32[:, ::1])")
def add_output_noise(sums: Array, noise: Array, seed: Any, key: Any, stream: Any, out: Array) -> None:
    """Add one draw to each of an image's sums, on a scale where the largest magnitude is 255.

    As in the published emulation, the result is sign(x) * | |x| + n |, so signs and zeros do not change. `noise` holds
    the mean and the coefficients of the variance.
    """
    s0, s1, s2, s3 = seed_state(seed, key, stream)
    mean, coefficients = noise[0], noise[1:]
    step = np.abs(sums).max() / 255.0
    for vector in range(sums.shape[0]):
        for row in range(sums.shape[1]):
            draw, s0, s1, s2, s3 = draw_normal(s0, s1, s2, s3)
            if sums[vector, row] == 0:
                out[vector, row] = np.float32(0.0)
                continue
            level = abs(sums[vector, row]) / step
            noisy_magnitude = abs(level + mean + np.sqrt(compute_variance(coefficients, level)) * draw) * step
            out[vector, row] = np.float32(np.copysign(noisy_magnitude, np.float64(sums[vector, row])))
