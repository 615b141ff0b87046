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
    " uint64, uint64, float32[:, ::1])"
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
    """Sums of one image (positions, groups * rows), readout by readout; gives how many samples the converter clipped.

    `vectors` (positions, groups, terms), `weights` (groups, rows, terms), `order` (groups, rows, readouts,
    wavelengths), `signs` (groups, rows, readouts). `noise`: mean, variance, shot, intensity, samples averaged,
    full scale.
    """
    s0, s1, s2, s3 = seeded(seed, key, stream)
    averaged = np.int64(noise[4])
    limit = noise[5]
    clipped = np.int64(0)
    groups, rows, readouts = signs.shape
    for position in range(len(vectors)):
        for group in range(groups):
            for row in range(rows):
                total = 0.0
                for turn in range(passes):
                    for readout in range(readouts):
                        sign = signs[group, row, readout]
                        if sign == 0:
                            break
                        level = np.float64(
                            light(
                                vectors[position, group],
                                weights[group, row],
                                order[group, row, readout],
                                turn,
                            )
                        )
                        deviation = np.sqrt(noise[1] + noise[2] * level + noise[3] * level * level)
                        read = 0.0
                        for _ in range(averaged):
                            drawn, s0, s1, s2, s3 = normal(s0, s1, s2, s3)
                            sample = level + noise[0] + deviation * drawn
                            if abs(sample) > limit:
                                clipped += 1
                                sample = np.copysign(limit, sample)
                            read += sample
                        total += (sign if turn == 0 else -sign) * read / averaged
                out[position, group * rows + row] = np.float32(total)
    return clipped
