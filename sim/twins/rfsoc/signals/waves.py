"""Words on a generator's port, decoded: both processors' forms become one table of columns.

A generator of type `axis_signal_gen_v6` takes 160 bits from version 1 of the processor: freq (32), phase (32),
envelope address (16 of 32), gain (16 of 32), and 32 of configuration: length (16), output (2), periodic, zero
after the end, phase reset. Version 2 sends freq, phase, address, gain, length and configuration (16) apart; its
upper byte of configuration is the lane of a multiplexer, where one stands before the generators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PRODUCT, OSCILLATOR, INPUT, ZERO = range(4)
"""What goes out: oscillator times envelope, the oscillator, the envelope, nothing. Readouts: the same with the
signal in the place of the envelope."""


@dataclass(frozen=True, slots=True)
class Waves:
    """Columns (n,), one row a word."""

    freq: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int64]
    address: npt.NDArray[np.int64]
    """Of the envelope, in ticks of the generator's fabric."""
    gain: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    """Ticks of the generator's fabric."""
    source: npt.NDArray[np.int64]
    is_periodic: npt.NDArray[np.bool_]
    is_held: npt.NDArray[np.bool_]
    """The last sample stands after the end."""
    is_reset: npt.NDArray[np.bool_]
    """The oscillator begins again with this word."""
    lane: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.freq)

    def rows(self, chosen: npt.NDArray[Any]) -> Waves:
        """Return some of the rows, by numbers or by a mask."""
        return Waves(*(getattr(self, name)[chosen] for name in self.__slots__))

    def contents(self) -> list[bytes]:
        """Return all that a row says, to compare rows by."""
        table = np.column_stack([getattr(self, name).astype(np.int64) for name in self.__slots__])
        return [row.tobytes() for row in table]


def decode(words: npt.NDArray[np.uint32], version: int) -> Waves:
    """Return words (n, 6) of a processor of this version."""
    return _decode_1(words.astype(np.int64)) if version == 1 else _decode_2(words.astype(np.int64))


def _decode_1(words: npt.NDArray[np.int64]) -> Waves:
    conf = words[:, 4] >> 16
    return _waves(words, length=words[:, 4] & 0xFFFF, conf=conf, lane=np.zeros(len(words), np.int64))


def _decode_2(words: npt.NDArray[np.int64]) -> Waves:
    conf = words[:, 5] & 0xFFFF
    return _waves(words, length=words[:, 4] & 0xFFFF, conf=conf, lane=conf >> 8)


def _waves(
    words: npt.NDArray[np.int64],
    *,
    length: npt.NDArray[np.int64],
    conf: npt.NDArray[np.int64],
    lane: npt.NDArray[np.int64],
) -> Waves:
    return Waves(
        freq=words[:, 0],
        phase=words[:, 1],
        address=words[:, 2] & 0xFFFF,
        gain=sign_16(words[:, 3]),
        length=length,
        source=conf & 3,
        is_periodic=(conf >> 2 & 1).astype(np.bool_),
        is_held=(conf >> 3 & 1) == 0,
        is_reset=(conf >> 4 & 1).astype(np.bool_),
        lane=lane,
    )


def sign_16(words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the lowest 16 bits as a number with a sign.

    >>> sign_16(np.array([1, 0xFFFF, 0x8000])).tolist()
    [1, -1, -32768]
    """
    return ((words & 0xFFFF) ^ 0x8000) - 0x8000
