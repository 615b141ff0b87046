"""Rates of links that are believed: a slip of the keyboard is told before it becomes a plan of 10^300 seconds."""

from __future__ import annotations

from testbed.errors import TopologyError

LEAST_GBPS = 1e-6
MOST_GBPS = 1e6
"""A kilobit and a petabit a second: no link that is planned for is slower or faster."""


def check_rate(rate_gbps: float) -> None:
    """Raise `TopologyError` unless it is a number between `LEAST_GBPS` and `MOST_GBPS`."""
    if not LEAST_GBPS <= rate_gbps <= MOST_GBPS:
        raise TopologyError(f"a link of {rate_gbps:g} Gbit/s: give {LEAST_GBPS:g} to {MOST_GBPS:g} Gbit/s")
