"""Checks of device parameters with uniform messages."""

from __future__ import annotations

import math


def check_positive(**values: float) -> None:
    """Raise ValueError with the name of the parameter unless every value is finite and above zero.

    >>> check_positive(half_wave_v=5.0)
    >>> check_positive(half_wave_v=0.0)
    Traceback (most recent call last):
    ValueError: half_wave_v is 0.0: it must be a finite number above 0
    """
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} is {value}: it must be a finite number above 0")


def check_not_negative(**values: float) -> None:
    """Raise ValueError unless every value is finite and at least zero."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} is {value}: it must be a finite number, 0 or more")


def check_finite(**values: float) -> None:
    """Raise ValueError unless every value is finite."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}: it must be a finite number")


def check_within(low: float, high: float, **values: float) -> None:
    """Raise ValueError unless every value lies in `low`..`high`, both included."""
    for name, value in values.items():
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}: it must be between {low} and {high}")
