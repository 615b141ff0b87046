"""The decimation filter of the readouts: one output sample for eight input samples.

Firmware `axis_readout_v2` and `axis_dyn_readout_v1` decimate by 8 with a symmetric low-pass filter of 120 taps. It is
6 dB down at 0.766 of half the output rate, and 68 dB down in its stop band. Its gain is 270382 / 2**19 at
zero frequency.

Filter `fir` is a Kaiser window (beta 5.65, 60 dB) with the same length, edge and gain. Filter `mean` is the mean of the
eight samples, with the same gain; its neighbouring output samples are independent. Both filters are centred, because
the plant's delay includes the delays of filter, converters and queues.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

DECIMATION = 8
TAP_COUNT = 120
GAIN = 270382 / 2**19
CUTOFF_FREQUENCY = 0.766 / 16
"""Frequency at which the filter is 6 dB down, in cycles per input sample."""
KAISER_BETA = 5.65

FILTER_NAMES = ("fir", "mean")


@cache
def make_taps(filter_name: str) -> npt.NDArray[np.float64]:
    """Return the taps of a filter, a read-only array. Their sum is the gain. Raise `ValueError` for an unknown kind.

    >>> round(float(make_taps("fir").sum()), 4), len(make_taps("mean"))
    (0.5157, 8)
    """
    if filter_name not in FILTER_NAMES:
        raise ValueError(f"filter must be one of {', '.join(FILTER_NAMES)}, not {filter_name!r}")
    unscaled_taps = np.ones(DECIMATION) if filter_name == "mean" else _make_low_pass()
    coefficients = np.asarray(GAIN * unscaled_taps / unscaled_taps.sum())
    coefficients.flags.writeable = False
    return coefficients


def _make_low_pass() -> npt.NDArray[np.float64]:
    tap_positions = np.arange(TAP_COUNT) - (TAP_COUNT - 1) / 2
    return np.asarray(np.sinc(2 * CUTOFF_FREQUENCY * tap_positions) * np.kaiser(TAP_COUNT, KAISER_BETA))


def count_margin_samples(count: int) -> int:
    """Return how many samples before the eight samples of an output sample a filter of `count` taps reads.

    >>> count_margin_samples(120), count_margin_samples(8)
    (56, 0)
    """
    return (count - DECIMATION) // 2
