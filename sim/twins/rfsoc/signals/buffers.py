"""The memories behind a readout (`axis_avg_buffer`): sums of windows, and the samples of windows.

Both write on from their start address as long as they stay enabled, and begin again at the bottom behind the top.
Lengths that fit, and the type of errors, are those of QICK's driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


class AverageBuffer:
    """One readout's memories: `avg_maxlen` sums (I, Q) of 32 bits each, `buf_maxlen` samples of 16 bits each."""

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._sums = np.zeros((cfg["avg_maxlen"], 2), np.int32)
        self._samples = np.zeros((cfg["buf_maxlen"], 2), np.int16)
        self._avg = (0, 1)
        self._buf = (0, 1)
        self._next_sum = 0
        self._next_sample = 0
        self.is_summing = False
        self.is_sampling = False

    @property
    def length(self) -> int:
        """Of a window in decimated samples; 0 while nothing is enabled."""
        lengths = ([self._avg[1]] if self.is_summing else []) + ([self._buf[1]] if self.is_sampling else [])
        return max(lengths, default=0)

    @property
    def last_sum(self) -> npt.NDArray[np.int32]:
        """I and Q of the window last written: what the processor reads at its input."""
        return np.asarray(self._sums[(self._next_sum - 1) % len(self._sums)])

    def config_avg(self, address: int, length: int) -> None:
        """Set where sums go, and over how many samples; disable both memories."""
        self.disable()
        self._avg = (int(address), int(length))

    def config_buf(self, address: int, length: int) -> None:
        """Set where samples go, and how many a window has; disable both memories. Raises `RuntimeError`."""
        self.disable()
        _fits(length, len(self._samples), "samples")
        self._buf = (int(address), int(length))

    def enable(self, *, avg: bool, buf: bool) -> None:
        """Ready for triggers, from the start addresses on."""
        if avg:
            self._next_sum, self.is_summing = self._avg[0], True
        if buf:
            self._next_sample, self.is_sampling = self._buf[0], True

    def disable(self) -> None:
        """Deaf to triggers."""
        self.is_summing = self.is_sampling = False

    def store(self, windows: npt.NDArray[np.int16]) -> None:
        """Write windows (windows, length, 2) as they come."""
        if self.is_summing:
            sums = windows[:, : self._avg[1]].sum(axis=1, dtype=np.int64).astype(np.int32)
            self._next_sum = _written(self._sums, self._next_sum, sums)
        if self.is_sampling:
            samples = windows[:, : self._buf[1]].reshape(-1, 2)
            self._next_sample = _written(self._samples, self._next_sample, samples)

    def sums(self, address: int, length: int) -> npt.NDArray[np.int32]:
        """Return (length, 2), a copy. Raises `RuntimeError` for more than the memory gives in one go."""
        _fits(length, len(self._sums), "sums")
        return _read(self._sums, address, length)

    def samples(self, address: int, length: int) -> npt.NDArray[np.int16]:
        """Return (length, 2), a copy. Raises `RuntimeError` for more than the memory gives in one go."""
        _fits(length, len(self._samples), "samples")
        return _read(self._samples, address, length)


def _fits(length: int, size: int, what: str) -> None:
    """Raise `RuntimeError` for a length that does not fit: QICK's driver uses one place less than there is."""
    if length >= size:
        raise RuntimeError(
            f"{length} {what} in one go are too many: the memory has {size} places, of which all but one can be used; "
            "shorten the readout, or take fewer repetitions at a time"
        )


def _written(memory: npt.NDArray[Any], address: int, rows: npt.NDArray[Any]) -> int:
    """Write rows from an address on, around the top; the address behind the last."""
    end = address + len(rows)
    if end <= len(memory):
        memory[address:end] = rows
    else:
        kept = rows[-len(memory) :]
        memory[np.arange(end - len(kept), end) % len(memory)] = kept
    return end % len(memory)


def _read(memory: npt.NDArray[Any], address: int, length: int) -> npt.NDArray[Any]:
    if address + length <= len(memory):
        return memory[address : address + length].copy()
    return memory[np.arange(address, address + length) % len(memory)]
