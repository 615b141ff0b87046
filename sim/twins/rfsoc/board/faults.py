"""Faults of a board, by name."""

from __future__ import annotations

from collections.abc import Mapping

FAULTS: Mapping[str, str] = {
    "none": "all is well",
    "dead_board": "no call is answered: ConnectionError",
    "gone_in_acquisition": "the board answers until it is asked for the counter of a running program, and never again",
    "stuck_counter": "the counter of shots stays where it is, and programs seem never to end",
    "overrun": "whoever reads the counter comes so seldom that more shots have passed than the memory of sums holds",
    "wrong_clock": "the reference clock is 5 % low: clocks are not locked, and rates are not those of the profile",
}

OF_LIGHT = "laser_dropped"
"""The kit's own: its knob of this name can be set as a fault, too."""
OVERRUN_LOOK_S = 1.0
"""Device time between two looks at the counter under `overrun`."""
WRONG_CLOCK_FACTOR = 0.95


def checked(name: str) -> str:
    """Return the name of a fault. Raises `ValueError` for one that is none.

    >>> checked("dead_board")
    'dead_board'
    """
    if name not in FAULTS:
        raise ValueError(f"no fault {name!r}; the board knows {', '.join(FAULTS)}")
    return name
