"""Preamble detection as `fpga/rtl/preamble_detector.sv` does it, and as the published detector does.

A preamble is `length` cycles of eight high and eight low samples. Light is late by some samples, so that it stands
anywhere in the sixteen of a cycle, over two cycles. Both detectors compare samples with a mean that is taken by a tree
of pairwise means, each rounded down; they differ in which samples they compare, and in how many matches they want.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LANES = 16
LATENCY = 5
"""Cycles from a sample's arrival to its leaving: four stages of means, and the lock."""
PREAMBLE = np.arange(LANES) < LANES // 2
HIGH = 255 << 7
"""A sample of full light: bits [14:7]."""

Samples = NDArray[np.uint16]


@dataclass(frozen=True)
class Detection:
    """Result of a detector in a run: when it opened (None: never), at which place, and the realigned samples.

    `samples` is cycles × 16 and valid from `opened` on; the cycle of a sample is that in which it leaves.
    """

    opened: int | None
    place: int
    samples: Samples


def detect(received: Samples, length: int, *, published: bool = False) -> Detection:
    """Run a detector over cycles × 16 samples, beginning with the first cycle after its restart.

    It opens in the cycle after the one in which the last match was counted. Raises ValueError for a length that the
    hardware cannot count to.
    """
    if not 0 < length < 256:
        raise ValueError(f"a preamble is 1 .. 255 cycles long, not {length}")
    late = np.concatenate([np.zeros((LATENCY, LANES), np.uint16), np.asarray(received, np.uint16)])[
        : len(received)
    ]
    after = np.concatenate([late[1:], received[len(received) - LATENCY :][:1]])
    windows = np.concatenate([late, after], axis=1)
    if published and length == 1:
        return _opened(windows, 0, 1)  # place 1 waits for no match at all
    found = _matches(late, windows, published=published)
    targets = np.full(LANES, length)
    targets[1:] -= published
    done = np.cumsum(found, axis=0) >= targets
    if not done.any():
        return Detection(None, 0, late)
    cycle = int(done.any(axis=1).argmax())
    return _opened(windows, cycle + 1, int(done[cycle].argmax()))


def _opened(windows: Samples, cycle: int, place: int) -> Detection:
    return Detection(cycle if cycle < len(windows) else None, place, windows[:, place : place + LANES])


def _matches(late: Samples, windows: Samples, *, published: bool) -> NDArray[np.bool_]:
    """Return whether the preamble stands at each of the places: cycles × places."""
    if published:
        high = late >= means(late)[:, None]
        rotations = np.stack([np.roll(PREAMBLE, place) for place in range(LANES)])
        return np.asarray((high[:, None, :] == rotations).all(axis=2))
    runs = np.lib.stride_tricks.sliding_window_view(windows, LANES, axis=1)[:, :LANES]
    high = runs >= means(runs)[..., None]
    return np.asarray((high == PREAMBLE).all(axis=2))


def means(samples: Samples) -> Samples:
    """Return the mean of the last axis as the hardware takes it: halves of sums of two, rounded down in every stage.

    >>> int(means(np.array([1, 2, 2, 2], np.uint16)))
    1
    """
    sums = samples.astype(np.uint32)
    while sums.shape[-1] > 1:
        sums = (sums[..., ::2] + sums[..., 1::2]) // 2
    return sums[..., 0].astype(np.uint16)


def received_stream(
    data: Samples,
    *,
    length: int,
    shift: int,
    idle_cycles: int = 5,
    idle: int = 0,
    high: int = HIGH,
    low: int = 0,
) -> Samples:
    """Return what optics send back: idle light, preamble, data, idle light, all `shift` samples late."""
    preamble = np.tile(np.where(PREAMBLE, high, low), length)
    before = np.full(idle_cycles * LANES + shift, idle)
    after = np.full(2 * LATENCY * LANES - shift, idle)
    return np.concatenate([before, preamble, np.ravel(data), after]).astype(np.uint16).reshape(-1, LANES)
