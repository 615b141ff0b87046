"""Latencies in buckets of equal ratio, as wide for microseconds as for seconds when drawn on a logarithmic axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PER_DECADE = 40
"""Buckets: a bucket's ends differ by 10^(1/40), 5.9 %."""


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values lie from `edges[i]` (included) to `edges[i + 1]` (not)."""

    edges: npt.NDArray[np.float64]
    """(buckets + 1,)"""
    counts: npt.NDArray[np.int64]
    """(buckets,)"""


def log_histogram(values: npt.NDArray[np.float64]) -> Histogram:
    """Return the buckets from the smallest value to the largest (at least 0.1); none without values.

    >>> found = log_histogram(np.array([10.0, 10.1, 1000.0]))
    >>> len(found.counts)  # two decades, and the bucket that holds 1000
    81
    >>> found.counts[[0, -1]].tolist()
    [2, 1]
    """
    if not len(values):
        return Histogram(np.array([1.0]), np.zeros(0, dtype=np.int64))
    # The small excess puts a power of ten into the bucket that it opens, whatever its logarithm's last digit.
    buckets = np.floor(np.log10(np.maximum(values, 0.1)) * PER_DECADE + 1e-9).astype(np.int64)
    first = int(buckets.min())
    counts = np.bincount(buckets - first)
    edges = 10.0 ** (np.arange(first, first + len(counts) + 1) / PER_DECADE)
    return Histogram(edges, counts.astype(np.int64))
