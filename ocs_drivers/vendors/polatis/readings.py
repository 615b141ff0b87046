"""Power readings, and port lists split to fit into a query, for all protocols of a Polatis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ocs_drivers.model import Power

DARK_FLOOR_DBM = -55.0
"""Highest power at which a port counts as dark. Vendors' floors lie near -60 dBm; not confirmed on a unit."""


def make_power_reading(dbm: float | None) -> Power | None:
    """Return a reading with its flag `below_floor`, or None if `dbm` is None.

    >>> make_power_reading(-29.55), make_power_reading(-60.0).below_floor, make_power_reading(None)
    (Power(dbm=-29.55, below_floor=False), True, None)
    """
    return None if dbm is None else Power(dbm, below_floor=dbm <= DARK_FLOOR_DBM)


def split_ports(ports: Sequence[int], max_count: int) -> Iterator[Sequence[int]]:
    """Yield the ports in order, at most `max_count` at a time.

    >>> list(split_ports([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    for start in range(0, len(ports), max_count):
        yield ports[start : start + max_count]
