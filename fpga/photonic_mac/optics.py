"""The photonic multiplier as `fpga/rtl/photonic_core.sv` behaves: delay, gain, and a seeded noise.

A model for tests: what light does between converters is reduced to what the digital side can see of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_UNITY_GAIN = 256
"""A gain of one: no loss."""
_MASK = 0xFFFF_FFFF
_SALT = 0x9E37_79B9
_LANES = 16


@dataclass(frozen=True, slots=True)
class Optics:
    """Settings of the photonic core.

    Light comes back `delay` whole cycles (0 .. 15) and `shift` samples (0 .. 15) later than it would without any.
    `gain` is in parts of 256. `noise` adds −3 .. 3 to every sample (triangular, deviation 1.58 of 255), drawn from
    `seed`. `sparsity` makes products 0 of which a factor is 0, whatever came back.
    """

    delay: int = 7
    shift: int = 3
    gain: int = _UNITY_GAIN
    noise: bool = False
    seed: int = 1
    sparsity: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for settings that the core does not have."""
        if not (0 <= self.delay <= 15 and 0 <= self.shift <= 15):
            raise ValueError(f"delay and shift are 0 .. 15, not {self.delay} and {self.shift}")
        if not (0 <= self.gain < 512 and 0 <= self.seed <= _MASK):
            raise ValueError(f"gain is 0 .. 511 and seed has 32 bits, not {self.gain} and {self.seed}")

    def light(self, products: NDArray[np.int32], first: int) -> NDArray[np.int32]:
        """Return what the detector sees of products (cycles × lanes); the first is in cycle `first` of the noise."""
        amplified = (products * self.gain) >> 8
        if self.noise:
            amplified = amplified + noise(self.seed, first + len(products))[first:]
        return np.asarray(np.clip(amplified, 0, 255), np.int32)


def noise(seed: int, cycles: int) -> NDArray[np.int32]:
    """Return the noise of every lane from its first cycle on: cycles × lanes."""
    lanes = np.arange(1, _LANES + 1, dtype=np.uint64)
    state = np.uint64(seed) ^ (lanes * np.uint64(_SALT) & np.uint64(_MASK))
    state = np.where(state == 0, np.uint64(1), state)
    found = np.empty((cycles, _LANES), np.int32)
    for cycle in range(cycles):
        found[cycle] = (state & np.uint64(3)) + (state >> np.uint64(16) & np.uint64(3))
        state = _next(state)
    return found - 3


def _next(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return one step of a linear-feedback generator of 32 bits: G.

    Marsaglia, Xorshift RNGs (2003), triple 13, 17, 5.
    """
    state = state ^ (state << np.uint64(13) & np.uint64(_MASK))
    state = state ^ state >> np.uint64(17)
    return np.asarray(state ^ (state << np.uint64(5) & np.uint64(_MASK)))
