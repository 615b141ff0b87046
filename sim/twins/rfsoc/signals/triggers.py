"""From levels on the processor's pins to the windows of a readout.

A rise of the trigger opens a window (`avg.sv`, `buffer.sv`). While it is open no other opens, and the machine needs
two ticks before it listens again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

REST = 2
"""Ticks of the output between the end of a window and the earliest next."""

Ticks = npt.NDArray[np.int64]


def rises(pins: npt.NDArray[Any], readout: Mapping[str, Any]) -> Ticks:
    """Return ticks of the processor at which the readout's trigger goes up."""
    kind = 1 if readout["trigger_type"] == "tport" else 0
    mine = pins[(pins["kind"] == kind) & (pins["port"] == readout["trigger_port"])]
    bit = 0 if kind else readout["trigger_bit"]
    is_high = (mine["word"] >> bit & 1).astype(np.bool_)
    was_high = np.concatenate([[False], is_high[:-1]])
    return np.asarray(mine["time"][is_high & ~was_high], dtype=np.int64)


def windows(rises: Ticks, ticks_per_time: float, length: int) -> Ticks:
    """Return first output ticks of the windows of `length` that those rises open.

    >>> windows(np.array([0, 50, 100, 205]), 1.0, 100).tolist()
    [0, 205]
    """
    starts = np.ceil(rises * ticks_per_time - 1e-9).astype(np.int64)
    if len(starts) < 2 or (np.diff(starts) >= length + REST).all():
        return np.asarray(starts)
    opened: list[int] = []
    for start in starts.tolist():
        if not opened or start >= opened[-1] + length + REST:
            opened.append(start)
    return np.array(opened, np.int64)
