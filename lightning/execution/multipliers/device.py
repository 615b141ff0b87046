"""Sums by light: the kit, or its twin, plays the dot products of a layer as waveforms.

`VectorCore` gives sum_k w_k a_k / 255, and no product is rounded on its way. Sums of a model lose 8 bits a product:

    sum_k sign (|w_k a_k| >> 8)  =  255/256 * (what light gives)  -  sum_k sign (what >> 8 takes of product k)

What it takes is not known to one who does not multiply. Its mean is: over all activations that are not 0 it depends on
the weight alone (0.498 for most). The controller subtracts that mean for every product that was lit, as it subtracts
leaks; what is left is below 0.3 of a step a product, as random as the low bits are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import Floats, PhotonicLayer
from lightning.execution.interface import Activations, Keys
from lightning.execution.multipliers.fitted import identity_of_calibration
from lightning.kit.calibration.decoder import FULL
from lightning.kit.calibration.document import Calibration

MOST_PRODUCTS = 1 << 20
"""Handed over at once, zeros included: some tens of megabytes."""


class DeviceMultiplier:
    """`Multiplier` on a kit: an address as `lightning.connect` takes it, or what that gives.

    `average` is the number of shots of which the mean is taken. `seed` is that of the core's training tiles. The
    device's own noise has no seed and no keys: it goes on from product to product. Products of which a factor is 0 are
    not played. Raises `NotCalibrated`, `ForeignCalibration` and `StaleCalibration` as `VectorCore` does.
    """

    def __init__(
        self,
        device: Any = "sim://kit",
        *,
        average: int = 1,
        seed: int = 0,
        calibration: Calibration | None = None,
    ) -> None:
        from lightning.kit.connection import connect
        from lightning.kit.dot.core import VectorCore

        soc = connect(device) if isinstance(device, str) else device
        self.core = VectorCore(soc, calibration, seed=seed)
        self.identity = identity_of_calibration(self.core.calibration)
        """Of the calibration."""
        self._average = average

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Floats:
        """Return sums (images, positions, groups, rows) of activations (images, positions, groups, terms).

        They are not rounded. All images and positions go in few programs. Raises `DeviceGone` and
        `DeviceStuck`; warns with `DarkWarning`.
        """
        images, positions, groups, terms = activations.shape
        vectors = activations.reshape(images * positions, groups, terms)
        found = np.empty((len(vectors), groups, layer.weights.shape[1]), np.float32)
        step = max(1, MOST_PRODUCTS // max(1, layer.weights[0].size))
        for group in range(groups):
            for first in range(0, len(vectors), step):
                some = slice(first, first + step)
                found[some, group] = self._of_group(layer, group, vectors[some, group])
        return found.reshape(images, positions, groups, -1)

    def close(self) -> None:
        """Do nothing: QICK lets go of a device when its object goes."""

    def _of_group(self, layer: PhotonicLayer, group: int, vectors: Activations) -> npt.NDArray[np.float64]:
        """Return the sums of a group, (vectors, rows), of (vectors, terms)."""
        weights = layer.weights[group]
        light = self.core.analogue(weights[None], vectors[:, None, :], shots=self._average)
        taken = np.sign(weights) * mean_taken()[np.abs(weights)]
        sums: npt.NDArray[np.float64] = light * (FULL / 256) - np.sign(vectors).astype(np.float32) @ taken.T
        return sums


@lru_cache(maxsize=1)
def mean_taken() -> npt.NDArray[np.float32]:
    """Return the mean that is taken away, by the magnitude of a weight, (256,).

    It is that of (a w / 256) - (a w >> 8) over activations a of 1 .. 255.

    By hand: of w = 1 everything is lost, the mean of a / 256, which is 128 / 256; of w = 128 every odd a loses a half,
    128 times 0.5 in 255.

    >>> mean_taken()[[0, 1, 128]].round(4).tolist() == np.float32([0, 0.5, 0.251]).tolist()
    True
    """
    activations, weights = np.arange(1, FULL + 1), np.arange(FULL + 1)
    low_bits = np.outer(weights, activations) & 255
    return np.asarray(low_bits.mean(axis=1) / 256, np.float32)
