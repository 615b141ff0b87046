"""The filter of the readouts: eight samples in, one out.

Firmware `axis_readout_v2` and `axis_dyn_readout_v1` decimate by 8 with a symmetric low-pass filter of 120 taps,
6 dB down at 0.766 of half the output rate, 68 dB down beyond it, and with a gain of 270382 / 2**19 at zero
frequency. Ours is a Kaiser window's (beta 5.65, 60 dB) of the same length, edge and gain. `mean` is a plain mean of the
eight samples with the same gain, for those who want no sample to know of its neighbours.

Both are centred: the delay of a real filter, like that of converters and queues, counts as the plant's.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

DECIMATION = 8
TAPS = 120
GAIN = 270382 / 2**19
EDGE = 0.766 / 16
"""Where the filter is 6 dB down, in turns per sample."""
BETA = 5.65

FILTERS = ("fir", "mean")


@cache
def taps(kind: str) -> npt.NDArray[np.float64]:
    """Return the taps (an even number, not to be written to) of a filter; their sum is the gain. Raises `ValueError`.

    >>> round(float(taps("fir").sum()), 4), len(taps("mean"))
    (0.5157, 8)
    """
    if kind not in FILTERS:
        raise ValueError(f"filter must be one of {', '.join(FILTERS)}, not {kind!r}")
    shape = np.ones(DECIMATION) if kind == "mean" else _low_pass()
    coefficients = np.asarray(GAIN * shape / shape.sum())
    coefficients.flags.writeable = False
    return coefficients


def _low_pass() -> npt.NDArray[np.float64]:
    places = np.arange(TAPS) - (TAPS - 1) / 2
    return np.asarray(np.sinc(2 * EDGE * places) * np.kaiser(TAPS, BETA))


def margin(count: int) -> int:
    """Return samples that a filter of `count` taps looks at before the eight of its output.

    >>> margin(120), margin(8)
    (56, 0)
    """
    return (count - DECIMATION) // 2
