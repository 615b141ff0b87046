"""MLTCP of two identical jobs on one link: how far an iteration moves them apart.

With slope S and intercept I of F, period T and communication fraction a, a gap D of start times grows by

    Shift(D) = S D (a T - D) / (a T I + S D)

as long as the shares within an overlap are constant. Fixed points are 0, which is unstable (gain 1 + S / I), and a T,
where an error shrinks to I / (I + S) of itself.
"""

from __future__ import annotations


def shift(gap: float, burst: float, slope: float, intercept: float) -> float:
    """Return by how much the gap of start times grows in one iteration; `burst` is a T, in the unit of the gap."""
    return slope * gap * (burst - gap) / (burst * intercept + slope * gap)


def gaps(first: float, burst: float, slope: float, intercept: float, iterations: int) -> tuple[float, ...]:
    """Return the gap before each iteration, the first and so many more.

    >>> [round(gap, 4) for gap in gaps(0.01, 1.0, 1.75, 0.25, 5)]
    [0.01, 0.0748, 0.3926, 0.838, 0.9764, 0.997]
    """
    found = [first]
    for _ in range(iterations):
        found.append(found[-1] + shift(found[-1], burst, slope, intercept))
    return tuple(found)


def iterations_until_apart(gap: float, slope: float, intercept: float, part: float = 0.99) -> int:
    """Return the iterations until a gap, as a part of the burst, reaches `part` of it."""
    count = 0
    while gap < part:
        gap += shift(gap, 1.0, slope, intercept)
        count += 1
    return count


def noise_bound(deviation: float, slope: float, intercept: float) -> float:
    """Return how far noise of this size in each iteration of both jobs may keep them from the fixed point.

    >>> round(noise_bound(1.0, 1.75, 0.25), 3)
    2.286
    """
    return 2 * deviation * (1 + intercept / slope)
