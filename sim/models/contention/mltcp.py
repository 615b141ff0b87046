"""MLTCP with two identical jobs on one link: the shift of their start times per iteration.

MLTCP multiplies the weight of a job by F(x) = S x + I, where x is the share of its traffic that the job has sent. T is
the period of the jobs, and a the part of the period in which a job communicates. If both jobs keep constant shares of
the link while they overlap, a gap D of their start times grows per iteration by

    Shift(D) = S D (a T - D) / (a T I + S D).

The fixed points are 0, which is unstable (gain 1 + S / I), and a T, where
each iteration multiplies an error by I / (I + S).
"""

from __future__ import annotations


def compute_shift(gap: float, burst: float, slope: float, intercept: float) -> float:
    """Return the growth of the gap of start times in one iteration; `burst` is a T, in the unit of the gap."""
    return slope * gap * (burst - gap) / (burst * intercept + slope * gap)


def compute_gaps(
    first_offset: float, burst: float, slope: float, intercept: float, iteration_count: int
) -> tuple[float, ...]:
    """Return `first_offset`, and the gap after each of `iteration_count` iterations.

    >>> [round(gap, 4) for gap in compute_gaps(0.01, 1.0, 1.75, 0.25, 5)]
    [0.01, 0.0748, 0.3926, 0.838, 0.9764, 0.997]
    """
    sequence = [first_offset]
    for _ in range(iteration_count):
        sequence.append(sequence[-1] + compute_shift(sequence[-1], burst, slope, intercept))
    return tuple(sequence)


def count_iterations_to_gap(gap: float, slope: float, intercept: float, gap_fraction: float = 0.99) -> int:
    """Return the number of iterations until a gap, in units of the burst, reaches `gap_fraction`."""
    count = 0
    while gap < gap_fraction:
        gap += compute_shift(gap, 1.0, slope, intercept)
        count += 1
    return count


def compute_noise_bound(deviation: float, slope: float, intercept: float) -> float:
    """Return a bound on the distance from the fixed point if each iteration of a job has noise of `deviation`.

    >>> round(compute_noise_bound(1.0, 1.75, 0.25), 3)
    2.286
    """
    return 2 * deviation * (1 + intercept / slope)
