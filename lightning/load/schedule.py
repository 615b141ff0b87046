"""Times of requests: a Poisson process, drawn before the first request is sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning.load.targets import LoadError

Nanoseconds = npt.NDArray[np.int64]


def draw_schedule(rate_per_s: float, duration_s: float, seed: int) -> Nanoseconds:
    """Return ascending times of requests, in nanoseconds from the start, at the mean rate `rate_per_s`.

    The gaps of a Poisson process are independent and exponentially distributed, with mean 1 / rate. Raise `LoadError`
    unless rate and duration are finite and above 0.

    >>> due = draw_schedule(1000, 10, seed=1)
    >>> abs(len(due) - 10_000) < 400  # four standard deviations, of sqrt(10,000) each
    True
    """
    if not (rate_per_s > 0 and duration_s > 0 and np.isfinite(rate_per_s * duration_s)):
        raise LoadError(
            f"cannot draw a load at {rate_per_s} requests/s for {duration_s} s",
            hint="Give a rate and a duration above 0",
        )
    rng = np.random.default_rng(seed)
    expected_count = rate_per_s * duration_s
    due_times_s = np.cumsum(
        rng.exponential(1 / rate_per_s, size=int(expected_count + 8 * expected_count**0.5 + 16))
    )
    return np.asarray(due_times_s[due_times_s < duration_s] * 1e9).astype(np.int64)
