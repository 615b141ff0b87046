"""Conversion of beats between arrays and registers: shapes, signs, packing into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpga.count_action.model import Signal

Samples = NDArray[np.int64]


@dataclass(frozen=True)
class Beats:
    """Beats for all streams that share a name; each beat may omit some of those streams.

    `samples`: beats × streams × lanes. `valid`: beats × streams, True if the stream takes part in the beat.
    """

    samples: ArrayLike
    valid: ArrayLike


def pack_beats(signal: Signal, beats: ArrayLike | Beats) -> list[tuple[int, int]]:
    """Return, for every beat, the valid bits and the data bits of all streams of the signal.

    In an array, all streams are valid. Its shape is beats × streams × lanes, where axes of length 1 may be
    omitted: for one stream of one lane, give one number per beat. Raise ValueError for other shapes, and for samples
    that do not fit.
    """
    samples, valid = (beats.samples, beats.valid) if isinstance(beats, Beats) else (beats, None)
    sample_array = _fit_shape(signal, np.asarray(samples))
    _check_range(signal, sample_array)
    valid_masks = _pack_valid_bits(signal, len(sample_array), valid)
    return [
        (mask, pack(beat, signal.width))
        for mask, beat in zip(
            valid_masks, sample_array.reshape(len(sample_array), signal.size * signal.lanes), strict=True
        )
    ]


def pack(samples: Sequence[Any] | NDArray[Any], width: int) -> int:
    """Return the concatenation of samples, the first in the lowest bits, negative samples in two's complement.

    >>> hex(pack([1, -1], 8))
    '0xff01'
    """
    mask = (1 << width) - 1
    return sum((int(sample) & mask) << width * position for position, sample in enumerate(samples))


def unpack(bits: int, count: int, width: int, *, signed: bool) -> list[int]:
    """Return the samples in `bits`: the inverse of `pack`.

    >>> unpack(0xFF01, 2, 8, signed=True)
    [1, -1]
    """
    mask = (1 << width) - 1
    values = [bits >> width * position & mask for position in range(count)]
    return [value - (value >> width - 1 << width) for value in values] if signed else values


def make_data_mask(valid_mask: int, signal: Signal) -> int:
    """Return the mask of the data bits of the streams whose bit in `valid_mask` is 1."""
    data_width = signal.lanes * signal.width
    all_ones = (1 << data_width) - 1
    return sum(all_ones << data_width * index for index in range(signal.size) if valid_mask >> index & 1)


def _fit_shape(signal: Signal, samples: NDArray[Any]) -> NDArray[Any]:
    shape = (signal.size, signal.lanes)
    beat_count = len(samples) if samples.ndim else 0
    if samples.shape == (0,):
        return np.zeros((0, *shape), np.int64)  # an empty list
    allowed_shapes = {(beat_count, *shape), (beat_count, *(axis for axis in shape if axis > 1))}
    if not samples.ndim or samples.shape not in allowed_shapes:
        raise ValueError(
            f"{signal.name}: samples have shape {samples.shape}, not beats x {signal.size} streams x "
            f"{signal.lanes} lanes (axes of length 1 may be left out)."
        )
    if samples.size and samples.dtype.kind not in "iu":
        raise ValueError(f"{signal.name}: samples are {samples.dtype}, not integers.")
    return samples.reshape(beat_count, *shape)


def _check_range(signal: Signal, samples: NDArray[Any]) -> None:
    if not samples.size:
        return
    min_allowed = -(1 << signal.width - 1) if signal.signed else 0
    max_allowed = min_allowed + (1 << signal.width) - 1
    lowest, highest = int(samples.min()), int(samples.max())
    if lowest < min_allowed or highest > max_allowed:
        raise ValueError(
            f"{signal.name}: samples range from {lowest} to {highest}, but {signal.width} bits hold only {min_allowed} "
            f"to {max_allowed}."
        )


def _pack_valid_bits(signal: Signal, beat_count: int, valid: ArrayLike | None) -> list[int]:
    if valid is None:
        return [(1 << signal.size) - 1] * beat_count
    valid_bits = np.asarray(valid, bool)
    if valid_bits.shape != (beat_count, signal.size):
        raise ValueError(
            f"{signal.name}: valid has shape {valid_bits.shape}, not {beat_count} beats x {signal.size} streams."
        )
    return [pack(row, 1) for row in valid_bits]
