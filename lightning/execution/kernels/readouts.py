"""Light and noise of each readout of the schedule. Machine code.

`vectors` are (positions, groups, terms). `weight_magnitudes`, `term_indices` and `signs` are those of
`noisy.OrderedReadouts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.execution.kernels.compiled import compile_kernel
from lightning.execution.kernels.normal import draw_normal, seed_state
from lightning.execution.kernels.sums import add_light, compute_variance

Array = npt.NDArray[Any]

ORDER_TYPES = "int32[:, :, ::1], uint32[:, :, :, ::1], int8[:, :, ::1]"


@compile_kernel()
def write_pass_magnitudes(activations: Array, pass_index: Any, magnitudes: Array) -> None:
    """Write the magnitudes (terms + 1) of a pass: positive activations in pass 0, negative ones in pass 1."""
    for term in range(len(activations)):
        activation = np.int32(activations[term])
        magnitudes[term] = max(-activation if pass_index else activation, np.int32(0))


@compile_kernel()
def write_levels(
    magnitudes: Array, weight_magnitudes: Array, term_indices: Array, signs: Array, levels: Array
) -> Any:
    """Write the light of each readout of a row, and return the number of readouts."""
    readout_count = 0
    while readout_count < len(signs) and signs[readout_count] != 0:
        readout_count += 1
    for readout in range(readout_count):
        level = 0
        for wavelength in range(term_indices.shape[1]):
            term = term_indices[readout, wavelength]
            level += (magnitudes[term] * weight_magnitudes[term]) >> 8
        levels[readout] = level
    return readout_count


@compile_kernel(f"void(int16[:, :, ::1], {ORDER_TYPES}, int64, float64[:, :, :, ::1])")
def write_light_powers(
    vectors: Array,
    weight_magnitudes: Array,
    term_indices: Array,
    signs: Array,
    pass_count: Any,
    light_powers: Array,
) -> None:
    """Write to `light_powers` (groups, positions, powers, rows) the sums of the powers of the readouts' light."""
    levels = np.empty(signs.shape[2])
    magnitudes = np.zeros(vectors.shape[2] + 1, np.int32)
    light_powers[:] = 0
    for pass_index in range(pass_count):
        for position, group in np.ndindex(vectors.shape[:2]):
            write_pass_magnitudes(vectors[position, group], pass_index, magnitudes)
            for row in range(signs.shape[1]):
                readout_count = write_levels(
                    magnitudes,
                    weight_magnitudes[group, row],
                    term_indices[group, row],
                    signs[group, row],
                    levels,
                )
                for readout in range(readout_count):
                    add_light(light_powers[group, position], row, levels[readout])


@compile_kernel()
def write_deviations(levels: Array, coefficients: Array, deviations: Array) -> None:
    """Write the standard deviations of readouts at these levels."""
    for readout in range(len(levels)):
        deviations[readout] = np.sqrt(compute_variance(coefficients, levels[readout]))


@compile_kernel(
    f"int64(int16[:, :, ::1], {ORDER_TYPES}, int64, float64[::1], uint64, uint64, uint64, float32[:, :, ::1])"
)
def write_noisy_sums(
    vectors: Array,
    weight_magnitudes: Array,
    term_indices: Array,
    signs: Array,
    pass_count: Any,
    noise: Array,
    seed: Any,
    key: Any,
    stream: Any,
    noisy_sums: Array,
) -> Any:
    """Write one image's sums (positions, groups, rows) from noisy readouts; return the number of clipped samples.

    `noise` holds the mean, the number of averaged samples, the full scale, and the coefficients of the variance.
    """
    s0, s1, s2, s3 = seed_state(seed, key, stream)
    mean, sample_count, full_scale, coefficients = noise[0], np.int64(noise[1]), noise[2], noise[3:]
    is_varying = coefficients[1:].any()
    levels = np.empty(signs.shape[2])
    deviations = np.full(signs.shape[2], np.sqrt(coefficients[0]))
    magnitudes = np.zeros(vectors.shape[2] + 1, np.int32)
    clipped_count = np.int64(0)
    noisy_sums[:] = 0
    for pass_index in range(pass_count):
        pass_weight = (1.0 - 2.0 * pass_index) / sample_count
        for position, group in np.ndindex(vectors.shape[:2]):
            write_pass_magnitudes(vectors[position, group], pass_index, magnitudes)
            for row in range(signs.shape[1]):
                row_signs = signs[group, row]
                readout_count = write_levels(
                    magnitudes, weight_magnitudes[group, row], term_indices[group, row], row_signs, levels
                )
                if is_varying:
                    write_deviations(levels[:readout_count], coefficients, deviations)
                total = 0.0
                for readout in range(readout_count):
                    sample_sum = 0.0
                    for _ in range(sample_count):
                        draw, s0, s1, s2, s3 = draw_normal(s0, s1, s2, s3)
                        sample = levels[readout] + mean + deviations[readout] * draw
                        clipped_sample = min(max(sample, -full_scale), full_scale)
                        clipped_count += clipped_sample != sample
                        sample_sum += clipped_sample
                    total += row_signs[readout] * pass_weight * sample_sum
                noisy_sums[position, group, row] += np.float32(total)
    return clipped_count
