"""A kit of numbers: what the reader of a device would give, without a device, a converter or QICK."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from lightning.kit.calibration.measurement.batch import Readings


@dataclass
class NumericKit:
    """Two products of two modulators each on one detector, from the formula of a Mach-Zehnder modulator."""

    half_wave: tuple[float, ...] = (20_000.0, 20_400.0, 19_500.0, 21_000.0)
    null: tuple[float, ...] = (150.0, -420.0, 60.0, 300.0)
    extinction_db: tuple[float, ...] = (27.0, 25.5, 29.0, 26.0)
    strength: tuple[float, float] = (15_000.0, 14_200.0)
    offset: float = 320.0
    end: float = 16_384.0
    sigma: float = 0.0
    whole_words: bool = True
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    rows_read: int = 0

    @classmethod
    def random(cls, seed: int, **changes) -> NumericKit:
        rng = np.random.default_rng((seed, 99))
        made = {
            "half_wave": tuple(rng.uniform(16_000, 26_000, 4)),
            "null": tuple(rng.uniform(-1_500, 1_500, 4)),
            "extinction_db": tuple(rng.uniform(20, 32, 4)),
            "strength": tuple(rng.uniform(9_000, 15_500, 2)),
        }
        return cls(**{**made, **changes})

    def level(self, words) -> np.ndarray:
        """Return counts (rows,), idle included, before noise and the converter."""
        passed = []
        for i in range(4):
            leak = 10 ** (-self.extinction_db[i] / 10)
            share = np.sin(np.pi / 2 * (words[:, i] - self.null[i]) / self.half_wave[i]) ** 2
            passed.append(leak + (1 - leak) * share)
        light = self.strength[0] * passed[0] * passed[1] + self.strength[1] * passed[2] * passed[3]
        return light + self.offset

    def read(self, words, *, shots: int = 1) -> Readings:
        table = np.atleast_2d(np.asarray(words, dtype=float))
        self.rows_read += len(table) * shots
        idle = self.level(np.zeros((1, 4)))[0]
        drawn = self.level(table)[:, None] + self.sigma * self.rng.standard_normal((len(table), shots))
        singles = np.minimum(drawn, self.end) - idle
        return Readings(singles.mean(axis=1), float(idle), singles)


@pytest.fixture
def numeric_kit():
    return NumericKit


def _decoder(series, degree, **options):
    """Return a decoder from normalised level to product, as `decode(levels)`, fitted to levels and products."""

    def fitted_to(levels, products):
        scale = float(np.max(levels)) or 1.0
        fitted = series.fit(levels / scale, products, degree, **options)
        return lambda more: fitted(more / scale)

    return fitted_to


@pytest.fixture
def polynomial_decoder():
    """Return the simplest decoder that one can do."""
    return _decoder(np.polynomial.Polynomial, 2)


@pytest.fixture
def chebyshev_decoder():
    """Return the published library's: a Chebyshev series of degree 3 on the domain [0, 1]."""
    return _decoder(np.polynomial.Chebyshev, 3, domain=[0, 1])
