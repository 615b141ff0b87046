"""Sweeps of the modulators on a device: which word opens each how far.

A modulator is seen through its partner, which must stand open; light of the other pair is the same at every point
and does no harm. Since neither is known at first, a coarse sweep tries a few words for the partner, and the full
sweep of 256 points opens it where the coarse one found its peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.encoder import WORD_LIMIT
from lightning.kit.calibration.fringe import Floats, Fringe, fit
from lightning.kit.calibration.measurement.batch import Readings

PARTNER = (1, 0, 3, 2)
LOWEST_WORD = -6_000
"""A null below word 0 is looked for down to here; a bias is set to within a few hundredths of V_pi."""
POINTS = 256
RESIDUAL = 0.005
"""Of the swing, that a curve may leave unexplained: 1.3 of 255."""
COARSE_POINTS = 40
GUESSES = (20_000, 12_000, 28_000, 4_000)
"""Words tried for a partner of which nothing is known."""


class Rows(Protocol):
    """Whatever measures rows of four gain words: `batch.Reader` on a device."""

    def read(self, words: npt.ArrayLike, *, shots: int = 1) -> Readings:
        """Measure (n, 4) gain words, each `shots` times."""
        ...


@dataclass(frozen=True, slots=True)
class Sweep:
    """One modulator's sweep, and the curve through it."""

    index: int
    words: npt.NDArray[np.int64]
    levels: Floats
    """Counts above idle."""
    partner_word: int
    curve: Fringe

    @property
    def visible(self) -> bool:
        """True where there is a fringe at all, not the fit of mere noise."""
        return self.curve.amplitude > max(1.0, 20 * self.curve.rms)

    @property
    def residual(self) -> float:
        """Root mean square of what the curve does not explain, as a share of the curve's amplitude."""
        return self.curve.rms / self.curve.amplitude

    def polynomial_residual(self, degree: int = 2) -> float:
        """Return the residual as `residual` does, for a polynomial through the same points between null and peak."""
        inside, share = self._rising()
        fitted = np.polynomial.Polynomial.fit(inside, share, degree)
        return _rms(fitted(inside) - share)

    def chebyshev_residual(self, degree: int = 3) -> float:
        """Return the residual as `residual` does, for a Chebyshev series through the points between null and peak."""
        inside, share = self._rising()
        fitted = np.polynomial.Chebyshev.fit(inside, share, degree)
        return _rms(fitted(inside) - share)

    def _rising(self) -> tuple[Floats, Floats]:
        """Return the words and measured shares from null to peak: the part that encodes values."""
        inside = (self.words >= self.curve.null) & (self.words <= self.curve.peak)
        share = (self.levels[inside] - self.curve.baseline) / self.curve.amplitude
        return self.words[inside].astype(float), share


def coarse_peaks(rows: Rows, *, shots: int = 2) -> tuple[Fringe, Fringe, Fringe, Fringe]:
    """Find a rough curve of every modulator, with nothing known about any of them.

    Of the words tried for the partner the one that shows the greatest swing is taken. Raises `ValueError` where
    no fringe can be fitted.
    """
    swept = np.linspace(LOWEST_WORD, WORD_LIMIT, COARSE_POINTS).round().astype(np.int64)
    table = [_swept_rows(index, swept, guess, {}) for index in range(4) for guess in GUESSES]
    levels = rows.read(np.concatenate(table), shots=shots).levels.reshape(4, len(GUESSES), COARSE_POINTS)
    best = [trace[int(np.argmax(np.ptp(trace, axis=1)))] for trace in levels]
    one, two, three, four = (fit(swept, trace) for trace in best)
    return one, two, three, four


def sweep_all(
    rows: Rows,
    curves: Sequence[Fringe],
    *,
    points: int = POINTS,
    shots: int = 4,
    which: Sequence[int] = (0, 1, 2, 3),
) -> dict[int, Sweep]:
    """Measure the full sweep of the modulators `which`, partners open and the other pair dark, in one table.

    Raises `ValueError` where no fringe can be fitted.
    """
    swept = np.linspace(LOWEST_WORD, WORD_LIMIT, points).round().astype(np.int64)
    opened = {index: _within(curves[index].peak) for index in range(4)}
    dark = {index: _within(curves[index].null) for index in range(4)}
    table = [_swept_rows(index, swept, opened[PARTNER[index]], dark) for index in which]
    levels = rows.read(np.concatenate(table), shots=shots).levels.reshape(len(which), points)
    return {
        index: Sweep(index, swept, trace, opened[PARTNER[index]], fit(swept, trace))
        for index, trace in zip(which, levels, strict=True)
    }


def _swept_rows(
    index: int, swept: npt.NDArray[np.int64], partner_word: int, dark: dict[int, int]
) -> npt.NDArray[np.int64]:
    """Return the words of a sweep, (points, 4): the partner at one word, the other pair dark, or idle."""
    row = np.array([dark.get(other, 0) for other in range(4)])
    row[PARTNER[index]] = partner_word
    table = np.tile(row, (swept.size, 1))
    table[:, index] = swept
    return table


def _within(word: float) -> int:
    return round(min(max(word, -WORD_LIMIT), WORD_LIMIT))


def _rms(errors: npt.ArrayLike) -> float:
    return float(np.sqrt(np.mean(np.asarray(errors, dtype=float) ** 2)))
