"""Sweeps of the modulators on a device: transmission against gain word.

The light of a modulator passes its partner, which must therefore be open. The light of the other pair is constant and
does no harm. At first neither curve is known, so a coarse sweep tries a few words for the partner. The full sweep of
256 points then opens the partner at the peak of its coarse curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.encoder import WORD_LIMIT
from lightning.kit.calibration.fringe import Floats, Fringe, fit_fringe
from lightning.kit.calibration.measurement.batch import Readings

PARTNERS = (1, 0, 3, 2)
LOWEST_WORD = -6_000
"""Start of a sweep. A bias is accurate to a few hundredths of V_pi, so a null may lie below word 0."""
POINT_COUNT = 256
MAX_RESIDUAL = 0.005
"""Largest rms residual of a curve, as a share of its swing. For values from 0 to 255, this is an error of 1.3."""
COARSE_POINT_COUNT = 40
GUESS_WORDS = (20_000, 12_000, 28_000, 4_000)
"""Words tried for a partner whose curve is unknown."""


class RowReader(Protocol):
    """Measurement of rows of four gain words, such as `batch.TableReader`."""

    def read(self, words: npt.ArrayLike, *, shots: int = 1) -> Readings:
        """Measure (n, 4) gain words, each `shots` times."""
        ...


@dataclass(frozen=True, slots=True)
class Sweep:
    """The sweep of modulator `index`, and the curve through it."""

    index: int
    words: npt.NDArray[np.int64]
    levels: Floats
    """Counts above idle."""
    partner_word: int
    curve: Fringe

    @property
    def is_visible(self) -> bool:
        """True if there is a fringe, not only noise."""
        return self.curve.amplitude > max(1.0, 20 * self.curve.rms)

    @property
    def residual(self) -> float:
        """Root mean square of the residuals, as a share of the curve's amplitude."""
        return self.curve.rms / self.curve.amplitude

    def polynomial_residual(self, degree: int = 2) -> float:
        """Return the residual of a polynomial of this degree through the points between null and peak."""
        rising_words, shares = self._select_rising()
        fitted_curve = np.polynomial.Polynomial.fit(rising_words, shares, degree)
        return _compute_rms(fitted_curve(rising_words) - shares)

    def chebyshev_residual(self, degree: int = 3) -> float:
        """Return the residual of a Chebyshev series of this degree through the points between null and peak."""
        rising_words, shares = self._select_rising()
        fitted_curve = np.polynomial.Chebyshev.fit(rising_words, shares, degree)
        return _compute_rms(fitted_curve(rising_words) - shares)

    def _select_rising(self) -> tuple[Floats, Floats]:
        """Return the words and measured shares from null to peak: the part that encodes values."""
        is_rising = (self.words >= self.curve.null) & (self.words <= self.curve.peak)
        shares = (self.levels[is_rising] - self.curve.baseline) / self.curve.amplitude
        return self.words[is_rising].astype(float), shares


def find_coarse_curves(reader: RowReader, *, shots: int = 2) -> tuple[Fringe, Fringe, Fringe, Fringe]:
    """Return a rough curve of every modulator, without prior knowledge.

    The sweep tries several words for the partner and uses the word with the greatest swing. Raise `ValueError` if a
    level is not finite.
    """
    sweep_words = np.linspace(LOWEST_WORD, WORD_LIMIT, COARSE_POINT_COUNT).round().astype(np.int64)
    sweep_tables = [
        _make_sweep_rows(index, sweep_words, partner_word, {})
        for index in range(4)
        for partner_word in GUESS_WORDS
    ]
    levels = reader.read(np.concatenate(sweep_tables), shots=shots).levels.reshape(
        4, len(GUESS_WORDS), COARSE_POINT_COUNT
    )
    best_traces = [trace[int(np.argmax(np.ptp(trace, axis=1)))] for trace in levels]
    curve_0, curve_1, curve_2, curve_3 = (fit_fringe(sweep_words, trace) for trace in best_traces)
    return curve_0, curve_1, curve_2, curve_3


def sweep_modulators(
    reader: RowReader,
    curves: Sequence[Fringe],
    *,
    point_count: int = POINT_COUNT,
    shots: int = 4,
    modulators: Sequence[int] = (0, 1, 2, 3),
) -> dict[int, Sweep]:
    """Sweep each modulator of `modulators` fully, with its partner open and the other pair dark, in one table.

    Raise `ValueError` for fewer than 16 points or a level that is not finite.
    """
    sweep_words = np.linspace(LOWEST_WORD, WORD_LIMIT, point_count).round().astype(np.int64)
    peaks = {index: _clip_word(curves[index].peak) for index in range(4)}
    nulls = {index: _clip_word(curves[index].null) for index in range(4)}
    sweep_tables = [
        _make_sweep_rows(index, sweep_words, peaks[PARTNERS[index]], nulls) for index in modulators
    ]
    levels = reader.read(np.concatenate(sweep_tables), shots=shots).levels.reshape(
        len(modulators), point_count
    )
    return {
        index: Sweep(index, sweep_words, trace, peaks[PARTNERS[index]], fit_fringe(sweep_words, trace))
        for index, trace in zip(modulators, levels, strict=True)
    }


def _make_sweep_rows(
    index: int, sweep_words: npt.NDArray[np.int64], partner_word: int, nulls: dict[int, int]
) -> npt.NDArray[np.int64]:
    """Return the words of a sweep, (points, 4), with the partner at `partner_word` and the other pair at nulls or 0."""
    row = np.array([nulls.get(modulator, 0) for modulator in range(4)])
    row[PARTNERS[index]] = partner_word
    table = np.tile(row, (sweep_words.size, 1))
    table[:, index] = sweep_words
    return table


def _clip_word(word: float) -> int:
    return round(min(max(word, -WORD_LIMIT), WORD_LIMIT))


def _compute_rms(errors: npt.ArrayLike) -> float:
    return float(np.sqrt(np.mean(np.asarray(errors, dtype=float) ** 2)))
