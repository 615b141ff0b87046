"""Noise of single readings, measured on a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.measurement.transfer import Rows
from lightning.kit.calibration.noise import NoiseModel, fit_noise

LEVELS = 24
READINGS = 199
"""Per level; no multiple of four, so that no dither adds to the noise."""


def measured_noise(
    rows: Rows, word_table: Callable[[npt.ArrayLike], npt.NDArray[np.int64]], *, mean: float = 0.0
) -> NoiseModel:
    """Return the noise of single readings on a device, at levels from dark to a full product of the first pair.

    `rows` should read windows of one sample; `word_table` encodes (n, 4) values.
    """
    values = np.zeros((LEVELS, 4), dtype=np.int64)
    values[:, 0], values[:, 1] = np.linspace(0, 255, LEVELS).round(), 255
    readings = rows.read(word_table(values), shots=READINGS)
    return fit_noise(readings.levels, readings.singles.var(axis=1, ddof=1), READINGS, mean=mean)
