"""Defaults for widths and signs that a text omits."""

from __future__ import annotations

from collections.abc import Iterable

DEFAULT_PARAMETER = 16
"""Value of a parameter that is neither declared nor given (one beat of a converter has 16 samples)."""
SAMPLE_WIDTH = 16
"""Bits of a sample of an undeclared stream."""
COUNT_WIDTH = 16
"""Bits of a count."""
EMIT_WIDTH = 32
"""Bits of an emitted sum."""


def compute_number_width(modulo: int) -> int:
    """Return the bits of a number that counts modulo `modulo`."""
    return max(1, (modulo - 1).bit_length())


def compute_beat_width(widths: Iterable[int]) -> int:
    """Return the bits of a sample of a beat: the width of its widest sample, or 1 if it has none."""
    return max(widths, default=1)


def is_beat_signed(signs: Iterable[bool]) -> bool:
    """Return whether a beat or a sum is signed: true if any of its samples is."""
    return any(signs)
