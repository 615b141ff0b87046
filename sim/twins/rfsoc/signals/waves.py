"""Decoding of the words on a generator's port. The formats of both processors become one table of columns.

Version 1 of the processor sends 160 bits to a generator of type `axis_signal_gen_v6`: freq (32), phase (32), envelope
address (16 of 32), gain (16 of 32), and 32 bits of configuration. The configuration is length (16), output (2),
periodic, zero after the end, and phase reset. Version 2 sends freq, phase, address, gain, length and configuration (16)
separately. If a multiplexer precedes the generators, the upper byte of the configuration is its lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PRODUCT, OSCILLATOR, INPUT, ZERO = range(4)
"""Output of a generator: oscillator times envelope, oscillator, envelope, or zero. For a readout, the input signal
replaces the envelope."""


@dataclass(frozen=True, slots=True)
class Waves:
    """Decoded words as columns (n,)."""

    freq: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int64]
    address: npt.NDArray[np.int64]
    """Address of the envelope, in ticks of the generator's fabric clock."""
    gain: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    """Length in ticks of the generator's fabric clock."""
    source: npt.NDArray[np.int64]
    is_periodic: npt.NDArray[np.bool_]
    is_held: npt.NDArray[np.bool_]
    """True if the last sample is held after the end."""
    is_reset: npt.NDArray[np.bool_]
    """True if the word resets the phase of the oscillator."""
    mux_channel: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.freq)

    def select_rows(self, selection: npt.NDArray[Any]) -> Waves:
        """Return the rows that `selection` selects by numbers or as a mask."""
        return Waves(*(getattr(self, name)[selection] for name in self.__slots__))

    def encode_rows(self) -> list[bytes]:
        """Return the content of each row as bytes, for comparisons."""
        table = np.column_stack([getattr(self, name).astype(np.int64) for name in self.__slots__])
        return [row.tobytes() for row in table]


def decode_words(words: npt.NDArray[np.uint32], version: int) -> Waves:
    """Decode words (n, 6) of a processor of version 1 or 2."""
    return _decode_1(words.astype(np.int64)) if version == 1 else _decode_2(words.astype(np.int64))


def _decode_1(words: npt.NDArray[np.int64]) -> Waves:
    conf = words[:, 4] >> 16
    return _make_waves(
        words, length=words[:, 4] & 0xFFFF, conf=conf, mux_channel=np.zeros(len(words), np.int64)
    )


def _decode_2(words: npt.NDArray[np.int64]) -> Waves:
    conf = words[:, 5] & 0xFFFF
    return _make_waves(words, length=words[:, 4] & 0xFFFF, conf=conf, mux_channel=conf >> 8)


def _make_waves(
    words: npt.NDArray[np.int64],
    *,
    length: npt.NDArray[np.int64],
    conf: npt.NDArray[np.int64],
    mux_channel: npt.NDArray[np.int64],
) -> Waves:
    return Waves(
        freq=words[:, 0],
        phase=words[:, 1],
        address=words[:, 2] & 0xFFFF,
        gain=sign_extend_16(words[:, 3]),
        length=length,
        source=conf & 3,
        is_periodic=(conf >> 2 & 1).astype(np.bool_),
        is_held=(conf >> 3 & 1) == 0,
        is_reset=(conf >> 4 & 1).astype(np.bool_),
        mux_channel=mux_channel,
    )


def sign_extend_16(words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the lowest 16 bits as a signed number.

    >>> sign_extend_16(np.array([1, 0xFFFF, 0x8000])).tolist()
    [1, -1, -32768]
    """
    return ((words & 0xFFFF) ^ 0x8000) - 0x8000
