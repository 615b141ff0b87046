"""MLTCP with two identical jobs on one link: the shift of their start times per iteration.

With slope S and intercept I of F, period T and communication fraction a, a gap D of start times grows by

    Shift(D) = S D (a T - D) / (a T I + S D)

if the shares within an overlap are constant. The fixed points are 0, which is unstable (gain 1 + S / I), and a T, where
each iteration multiplies an error by I / (I + S).
"""

from __future__ import annotations


def compute_shift(gap: float, burst: float, slope: float, intercept: float) -> float:
    """Return the growth of the gap of start times in one iteration; `burst` is a T, in the unit of the gap."""
    return slope * gap * (burst - gap) / (burst * intercept + slope * gap)


def compute_gaps(
    first_offset: float, burst: float, slope: float, intercept: float, iterations: int
) -> tuple[float, ...]:
    """Return `first_offset`, and the gap after each of `iterations` iterations.

    >>> [round(gap, 4) for gap in compute_gaps(0.01, 1.0, 1.75, 0.25, 5)]
    [0.01, 0.0748, 0.3926, 0.838, 0.9764, 0.997]
    """
    sequence = [first_offset]
    for _ in range(iterations):
        sequence.append(sequence[-1] + compute_shift(sequence[-1], burst, slope, intercept))
    return tuple(sequence)


def count_iterations_until_apart(gap: float, slope: float, intercept: float, part: float = 0.99) -> int:
    """Return the number of iterations until a gap, in units of the burst, reaches `part`."""
    count = 0
    while gap < part:
        gap += compute_shift(gap, 1.0, slope, intercept)
        count += 1
    return count


def compute_noise_bound(deviation: float, slope: float, intercept: float) -> float:
    """Return a bound on the distance from the fixed point under noise of `deviation` per iteration of both jobs.

    >>> round(compute_noise_bound(1.0, 1.75, 0.25), 3)
    2.286
    """
    return 2 * deviation * (1 + intercept / slope)
