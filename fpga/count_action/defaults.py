"""Widths and signs that a text leaves out: what a reader takes for granted, and a writer need not write."""

from __future__ import annotations

from collections.abc import Iterable

DEFAULT_PARAMETER = 16
"""Value of a parameter that nobody declared and nobody gave (one beat of a converter has 16 samples)."""
SAMPLE_WIDTH = 16
"""Bits of the samples of a stream that nobody declared."""
COUNT_WIDTH = 16
"""Bits of a count that does not say."""
EMIT_WIDTH = 32
"""Bits of an emitted sum that does not say."""


def number_width(modulo: int) -> int:
    """Return the bits of a number that counts to `modulo` and does not say how many it has."""
    return max(1, (modulo - 1).bit_length())


def beat_width(widths: Iterable[int]) -> int:
    """Return the bits of the samples of a beat that does not say: those of the widest."""
    return max(widths, default=1)


def beat_signed(signs: Iterable[bool]) -> bool:
    """Return whether a beat or a sum is signed: when one of its samples is."""
    return any(signs)
