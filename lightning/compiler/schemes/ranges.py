"""The largest activation that is kept; larger ones are cut off, so that small ones are rounded more finely.

| `ranges` | largest kept |
|---|---|
| `min-max` | the largest seen |
| `percentile` | of the magnitudes seen that are not 0 |
| `entropy` | where the distribution, rounded to 256 levels, differs least from the one seen |
| `error` | of several, where the outputs of the layer differ least from the float ones, in the integers of light |

Noise has its part in `error`: it is a number of steps, whatever a step is worth. A smaller range makes steps finer and
noise with them, and cuts off more.

`entropy` is the method of S. Migacz, "8-bit inference with TensorRT" (GPU Technology Conference, 2017): the
Kullback-Leibler divergence over candidates of a histogram with 2,048 bins. Its first bin is given the count of the
second, as in NVIDIA's pytorch-quantization: values that are nearly 0 would outweigh all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import FULL
from lightning.compiler.options import Options

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Of the largest seen, among which `error` chooses."""
_NO_WORSE = 1.5
"""Errors that differ by less count as equal: few samples show the extremes."""
_BINS = 2048
_LEVELS = FULL + 1
_STEP = 16


def candidates(magnitudes: Floats, options: Options) -> tuple[float, ...]:
    """Largest activations to keep, among which the layer's error decides; one, unless `ranges` is `error`."""
    largest = float(magnitudes.max(initial=0.0))
    if largest == 0:
        return (1.0,)
    if options.ranges == "error":
        return tuple(part * largest for part in PARTS)
    if options.ranges == "percentile":
        return (float(np.percentile(magnitudes[magnitudes > 0], options.percentile)),)
    return (least_divergent(magnitudes) if options.ranges == "entropy" else largest,)


def best_of(errors: Sequence[float], noises: Sequence[float]) -> int:
    """Return which of several ranges, the largest first, has the least mean square error, noise included.

    Errors that are nearly the least count as equal, and of equal sums the first is taken: without noise the largest
    range that is no worse. As noise grows with the range, more of it never makes the range larger.

    >>> best_of([14, 10, 20, 90], [0, 0, 0, 0])
    0
    >>> best_of([14, 10, 20, 90], [16, 9, 4, 1])  # 15 + 16, 15 + 9, 20 + 4, 90 + 1
    1
    >>> best_of([14, 10, 20, 90], [32, 18, 8, 2])
    2
    """
    least = min(errors) * _NO_WORSE
    sums = [max(error, least) + noise for error, noise in zip(errors, noises, strict=True)]
    return sums.index(min(sums))


def least_divergent(magnitudes: Floats) -> float:
    """Return the largest value kept at which rounding to 256 levels loses the least information (Kullback-Leibler)."""
    largest = float(magnitudes.max())
    counts, _ = np.histogram(magnitudes[magnitudes > 0], _BINS, (0.0, largest))
    counts[0] = counts[1]
    kept = range(_LEVELS, _BINS + 1, _STEP)
    divergences = [_divergence(counts.astype(np.float64), bins) for bins in kept]
    return largest * kept[int(np.argmin(divergences))] / _BINS


def _divergence(counts: Doubles, bins: int) -> float:
    """Return the divergence of the first `bins` bins, with the tail in the last, from the same in 256 levels.

    A level's counts are spread evenly over those of its bins that held anything.
    """
    seen = counts[:bins].copy()
    levels = np.arange(bins) * _LEVELS // bins
    held = (seen > 0).astype(np.float64)
    totals = np.bincount(levels, seen, _LEVELS)
    places = np.maximum(np.bincount(levels, held, _LEVELS), 1)
    rounded = (totals / places)[levels] * held
    seen[-1] += counts[bins:].sum()
    return _kullback_leibler(seen / seen.sum(), rounded / max(rounded.sum(), 1.0))


def _kullback_leibler(seen: Doubles, rounded: Doubles) -> float:
    """Sum p log(p / q); what q cannot have and p has counts as a millionth.

    >>> round(_kullback_leibler(np.array([0.5, 0.5]), np.array([0.25, 0.75])), 4)
    0.1438
    """
    there = seen > 0
    return float(np.sum(seen[there] * np.log(seen[there] / np.maximum(rounded[there], 1e-6))))
