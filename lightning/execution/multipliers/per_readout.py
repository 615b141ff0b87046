"""Sums with noise, readout by readout, as the schedule sends them: slow, and right by construction.

Every readout is bipolar, its baseline subtracted, not rounded, and clipped at the converter's full scale alone, which
is counted. It is what the fast path in `noisy` is compared with, and what runs where a converter may clip.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning.compiler.datapath.schedule import passes_of
from lightning.compiler.model import CompiledModel, Floats, PhotonicLayer
from lightning.errors import OutOfRange
from lightning.execution.interface import Activations, Keys
from lightning.execution.multipliers.noisy import streams_of
from lightning.execution.multipliers.ordered_readouts import OrderedReadouts, readouts_in_order
from lightning.execution.noise import Noise, check_noise


class PerReadoutMultiplier:
    """One draw a readout. `clipped` counts the samples that were beyond the converter's full scale."""

    def __init__(self, model: CompiledModel, noise: Noise, seed: int = 0) -> None:
        if not noise.drawn.per_readout:
            raise OutOfRange(
                "noise per output has no readouts to take one by one", hint="Take per-product noise"
            )
        self.noise = check_noise(noise)
        self.clipped = 0
        self._hardware = model.hardware
        self._seed = np.uint64(seed)
        self._streams = streams_of(model)
        self._readouts: dict[str, OrderedReadouts] = {}

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Floats:
        """Return the sums as `Multiplier.sums` does, float32 and not rounded."""
        from lightning.execution.kernels.readouts import read_into

        ready, numbers, stream = self._ready(layer), self._numbers(), self._streams[layer.name]
        out = np.empty((*activations.shape[:3], layer.weights.shape[1]), np.float32)
        for image, key in enumerate(keys):
            self.clipped += read_into(
                activations[image],
                ready.sizes,
                ready.order,
                ready.signs,
                passes_of(layer),
                numbers,
                self._seed,
                key,
                stream,
                out[image],
            )
        return out

    def _numbers(self) -> npt.NDArray[np.float64]:
        """Return the noise as the kernel takes it."""
        noise = self.noise
        limit = noise.full_scale * self._hardware.wavelengths
        return np.array([noise.mean, noise.average, limit, *noise.coefficients])

    def _ready(self, layer: PhotonicLayer) -> OrderedReadouts:
        if layer.name not in self._readouts:
            self._readouts[layer.name] = readouts_in_order(
                layer, self._hardware, dense=self.noise.drawn.dense
            )
        return self._readouts[layer.name]
