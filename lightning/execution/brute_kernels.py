"""Every readout of the schedule, with its own draws: what the fast path is held to. Machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.execution.compiled import compiled
from lightning.execution.kernels import light
from lightning.execution.normal import normal, seeded

Array = npt.NDArray[Any]


@compiled(
    "int64(int16[:, :, ::1], int16[:, :, ::1], int32[:, :, :, ::1], int8[:, :, ::1], int64, float64[::1], uint64,"
    " uint64, uint64, float32[:, :, ::1])"
)
def read_into(
    vectors: Array,
    weights: Array,
    order: Array,
    signs: Array,
    passes: Any,
    noise: Array,
    seed: Any,
    key: Any,
    stream: Any,
    out: Array,
) -> Any:
    """Sums of one image (positions, groups, rows), readout by readout; gives how many samples the converter clipped.

    `vectors` (positions, groups, terms), `weights` (groups, rows, terms), `order` (groups, rows, readouts,
    wavelengths), `signs` (groups, rows, readouts). `noise`: mean, variance, shot, intensity, samples averaged,
    full scale.
    """
    s0, s1, s2, s3 = seeded(seed, key, stream)
    mean, base, shot, intensity, limit = noise[0], noise[1], noise[2], noise[3], noise[5]
    averaged, constant, varies = np.int64(noise[4]), np.sqrt(noise[1]), noise[2] != 0.0 or noise[3] != 0.0
    clipped = np.int64(0)
    for position, group, row in np.ndindex(out.shape):
        activations, values = vectors[position, group], weights[group, row]
        terms, counted = order[group, row], signs[group, row]
        total = 0.0
        for turn in range(passes):
            for readout in range(len(counted)):
                if counted[readout] == 0:  # the row has no more
                    break
                level = light(activations, values, terms, readout, turn)
                share = counted[readout] * (1.0 - 2.0 * turn) / averaged
                deviation = constant
                if varies:
                    deviation = np.sqrt(base + shot * level + intensity * level * level)
                for _ in range(averaged):
                    drawn, s0, s1, s2, s3 = normal(s0, s1, s2, s3)
                    sample = level + mean + deviation * drawn
                    held = min(max(sample, -limit), limit)
                    clipped += held != sample
                    total += share * held
        out[position, group, row] = np.float32(total)
    return clipped
