"""Events that the machine noted, as the arrays of a `Run`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.processor import COUNT, PIN, WRITE, Run


def as_run(
    sent: npt.NDArray[np.int64], stored: npt.NDArray[np.int64], end: int, data_ports: Collection[int]
) -> Run:
    """Return the run of `sent` (words, 7: channel, time, five parts) and `stored` (words, 3: address, time, word).

    Words to `data_ports` are levels of pins, all others go to generators and readouts. Words of different ports
    that take effect at one tick stand in the order in which the program sent them.
    """
    in_time = sent[np.argsort(sent[:, 1], kind="stable")]
    on_pins = np.isin(in_time[:, 0], list(data_ports))
    return Run(_writes(in_time[~on_pins]), _pins(in_time[on_pins]), _counts(stored), end)


def _writes(sent: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    writes = np.zeros(len(sent), WRITE)
    writes["port"], writes["time"] = sent[:, 0], sent[:, 1]
    writes["words"][:, :5] = sent[:, 2:]
    return writes


def _pins(sent: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    pins = np.zeros(len(sent), PIN)
    pins["port"], pins["time"], pins["word"] = sent[:, 0], sent[:, 1], sent[:, 2]
    return pins


def _counts(stored: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    counts = np.zeros(len(stored), COUNT)
    counts["address"], counts["time"] = stored[:, 0], stored[:, 1]
    counts["value"] = stored[:, 2].astype(np.uint32).view(np.int32)
    return counts
