"""Numbers as text for people: sizes in powers of two, durations and other numbers. Ticks of axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def format_size(size_bytes: float) -> str:
    """Return a size in bytes as text.

    >>> [format_size(n) for n in (512, 1024, 1536, 8 << 20)]
    ['512 B', '1 KiB', '1.5 KiB', '8 MiB']
    """
    for unit_bytes, unit in _UNITS:
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def format_seconds(seconds: float | None) -> str:
    """Return a duration as text with three digits and a suitable unit, or `not measured` for None.

    >>> [format_seconds(s) for s in (None, 0, 0.0000123, 0.0213, 1.5, 75.0)]
    ['not measured', '0 s', '12.3 µs', '21.3 ms', '1.5 s', '1 min 15 s']
    """
    if seconds is None:
        return "not measured"
    if seconds >= 60:
        return f"{int(seconds // 60)} min {seconds % 60:.0f} s"
    if seconds >= 1 or seconds == 0:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def format_number(value: float) -> str:
    r"""Return a number as text with three digits, or as a whole number from 100 on.

    >>> [format_number(v) for v in (0, 0.01234, 3.14159, 94.06, 395.4, 12345.6)]
    ['0', '0.0123', '3.14', '94.1', '395', '12\xa0346']
    """
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", "\N{NO-BREAK SPACE}")
    return f"{value:.3g}"


def compute_round_ticks(largest: float, max_count: int = 6) -> Sequence[float]:
    """Return axis ticks from 0 to at least `largest`, in steps of 1, 2, 2.5 or 5 times a power of ten.

    Raises `ValueError` if `max_count` is too small.

    >>> compute_round_ticks(400)
    [0.0, 100.0, 200.0, 300.0, 400.0]
    >>> compute_round_ticks(0)
    [0.0, 1.0]
    """
    if largest <= 0:
        return [0.0, 1.0]
    for exponent in range(floor(log10(largest)) - 1, floor(log10(largest)) + 2):
        for factor in (1.0, 2.0, 2.5, 5.0):
            step = factor * 10.0**exponent
            tick_count = ceil(largest / step)
            if tick_count < max_count:
                return [index * step for index in range(tick_count + 1)]
    raise ValueError(f"an axis cannot have at most {max_count} ticks; allow 3 or more")
