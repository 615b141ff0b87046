"""Mean iteration times over arrays of periods, communication fractions and weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sim.models.contention.job import Sharing, compute_then_send
from sim.models.contention.simulation import Floats, Setting, simulate


def sweep(
    periods_ms: ArrayLike,
    fractions: ArrayLike,
    weights: ArrayLike = 1.0,
    *,
    slope: float = 0.0,
    intercept: float = 1.0,
    starts_ms: ArrayLike = 0.0,
    iterations: int = 300,
    warm_up: int = 100,
) -> Floats:
    """Return mean iteration times, (..., jobs), of jobs that compute, then send, on one link at its full rate.

    The last axis of each array is the jobs; arrays are broadcast against each other.

    >>> sweep([100.0, 100.0], [[0.3, 0.3], [0.4, 0.4]]).round(6).tolist()
    [[130.0, 130.0], [140.0, 140.0]]
    """
    columns = np.broadcast_arrays(
        *(np.asarray(one, float) for one in (periods_ms, fractions, weights, starts_ms))
    )
    shape = columns[0].shape
    rows = np.stack([column.reshape(-1, shape[-1]) for column in columns], axis=1)
    means = np.empty((len(rows), shape[-1]))
    for place, (periods, parts, shares, starts) in enumerate(rows):
        jobs = [compute_then_send(str(n), *pair) for n, pair in enumerate(zip(periods, parts, strict=True))]
        sharing = Sharing(tuple(shares), slope=slope, intercept=intercept)
        done = simulate(jobs, [1.0], iterations, sharing, Setting(starts_ms=tuple(starts)))
        means[place] = done.mean_ms(warm_up)
    return means.reshape(shape)
