"""Sums with noise, readout by readout, as the schedule sends them: slow, and right by construction.

Every readout is bipolar, its baseline subtracted, not rounded, and clipped at the converter's full scale alone, which
is counted. It is what the fast path in `noisy` is compared with, and what runs where a converter may clip.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import CompiledModel, Floats, PhotonicLayer
from lightning.compiler.schedule import passes_of, schedule_of
from lightning.errors import OutOfRange
from lightning.execution.noisy import checked_noise, streams_of
from lightning.execution.seam import Activations, Keys, Noise


@dataclass(frozen=True)
class _Prepared:
    weights: npt.NDArray[np.int16]
    order: npt.NDArray[np.int32]
    signs: npt.NDArray[np.int8]


class BruteMultiplier:
    """One draw a readout. `clipped` counts the samples that were beyond the converter's full scale."""

    def __init__(self, model: CompiledModel, noise: Noise, seed: int = 0) -> None:
        if noise.place == "per-output":
            raise OutOfRange(
                "noise per output has no readouts to take one by one", cure="Take per-product noise"
            )
        self.noise = checked_noise(noise)
        self.clipped = 0
        self._hardware = model.hardware
        self._seed = np.uint64(seed)
        self._streams = streams_of(model)
        self._prepared: dict[str, _Prepared] = {}

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Floats:
        """(images, positions, groups, rows) float32, not rounded, of (images, positions, groups, terms)."""
        from lightning.execution.brute_kernels import read_into

        images, positions, groups, _ = activations.shape
        ready, rows = self._ready(layer), layer.weights.shape[1]
        out = np.empty((images, positions, groups, rows), np.float32)
        for image, key in enumerate(keys):
            self.clipped += read_into(
                activations[image],
                ready.weights,
                ready.order,
                ready.signs,
                passes_of(layer),
                self._numbers(),
                self._seed,
                key,
                self._streams[layer.name],
                out[image],
            )
        return out

    def _numbers(self) -> npt.NDArray[np.float64]:
        """As the kernel takes them."""
        noise = self.noise
        limit = noise.full_scale * self._hardware.wavelengths
        return np.array([noise.mean, noise.sigma**2, noise.shot, noise.intensity, noise.average, limit])

    def _ready(self, layer: PhotonicLayer) -> _Prepared:
        if layer.name not in self._prepared:
            self._prepared[layer.name] = self._prepare(layer)
        return self._prepared[layer.name]

    def _prepare(self, layer: PhotonicLayer) -> _Prepared:
        schedules = schedule_of(layer, self._hardware, dense=self.noise.place == "per-product-dense")
        longest = max(each.signs.shape[1] for each in schedules)
        order = [
            np.pad(each.order, ((0, 0), (0, longest - each.order.shape[1]), (0, 0)), constant_values=-1)
            for each in schedules
        ]
        signs = [np.pad(each.signs, ((0, 0), (0, longest - each.signs.shape[1]))) for each in schedules]
        return _Prepared(np.ascontiguousarray(layer.weights), np.stack(order), np.stack(signs))
