"""Which product is sent when: rows of products tiled over detector samples, beats, cores and passes.

A detector adds up the light of `wavelengths` products in one sample, and light has no sign: a sign is put back per
sample, after the converter. Terms of a row are therefore sorted into positive and negative, zeros fill the holes, and
every sample (a readout) holds terms of one sign. With one wavelength the terms stay in their order.

    W = 2, weights 3 -1 4 0 -5:    | 3 4 | -1 -5 | 0 . |        signs  + - +
    with zeros left out:           | 3 4 | -1 -5 |              signs  + -

Signed activations are sent twice: first what is positive of them, then what is negative, whose readouts count with
the opposite sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.compiler.hardware import Hardware
from lightning.compiler.model import PhotonicLayer

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupSchedule:
    """The readouts of all rows of one group of a layer, in one pass."""

    order: npt.NDArray[np.int32]
    """(rows, readouts, wavelengths) the term in every place; -1 where a place stays dark."""
    signs: npt.NDArray[np.int8]
    """(rows, readouts) 1 or -1, what the sample counts as; 0 beyond a row's last readout."""

    @property
    def readouts(self) -> Counts:
        """(rows,) how many there are in each row."""
        return np.asarray(np.count_nonzero(self.signs, axis=1), np.int64)


@dataclass(frozen=True)
class Readouts:
    """How often the detector is read for every sum, in one pass: each reading is a draw of noise."""

    count: Counts
    """(groups, rows)."""
    net_sign: Counts
    """(groups, rows) positive readouts less negative ones: as often does a mean error that is not 0 count."""


def passes_of(layer: PhotonicLayer) -> int:
    """2 where activations are signed: what is positive of them, and what is negative."""
    return 2 if layer.signed else 1


def readouts_of(layer: PhotonicLayer, hardware: Hardware, *, dense: bool | None = None) -> Readouts:
    """Readouts of every row in a pass. `dense`: products whose weight is 0 are sent, too; else as the hardware says.

    Of P positive, N negative and Z zero weights: ceil(P / W) and ceil(N / W) readouts; zeros that find no room
    there have positive ones of their own. With one wavelength every term has its own, and a zero counts as positive.

    >>> layer = PhotonicLayer("fc", np.array([[[3, -1, 4, 0, -5]]], np.int16), None, 1.0, None)
    >>> readouts_of(layer, Hardware(wavelengths=2)).count.tolist()
    [[3]]
    >>> readouts_of(layer, Hardware(wavelengths=2, skip_zeros=True)).net_sign.tolist()
    [[0]]
    """
    positive = _places((layer.weights > 0).sum(axis=2), hardware.wavelengths)
    negative = _places((layer.weights < 0).sum(axis=2), hardware.wavelengths)
    if dense if dense is not None else not hardware.skip_zeros:
        terms = _places(np.int64(layer.weights.shape[2]), hardware.wavelengths)
        positive = np.maximum(positive, terms - negative)
    return Readouts(positive + negative, positive - negative)


def schedule_of(
    layer: PhotonicLayer, hardware: Hardware, *, dense: bool | None = None
) -> tuple[GroupSchedule, ...]:
    """Every readout of every row, group by group; the same in both passes. `dense` as in `readouts_of`."""
    counts = readouts_of(layer, hardware, dense=dense).count
    keep_zeros = dense if dense is not None else not hardware.skip_zeros
    return tuple(
        _group(weights, int(most.max(initial=0)), hardware.wavelengths, keep_zeros=keep_zeros)
        for weights, most in zip(layer.weights, counts, strict=True)
    )


def _group(weights: npt.NDArray[np.int16], readouts: int, width: int, *, keep_zeros: bool) -> GroupSchedule:
    order = np.full((len(weights), readouts, width), -1, np.int32)
    signs = np.zeros((len(weights), readouts), np.int8)
    for row, values in enumerate(weights):
        for place, (terms, sign) in enumerate(_row(values, width, keep_zeros=keep_zeros)):
            order[row, place, : len(terms)] = terms
            signs[row, place] = sign
    return GroupSchedule(order, signs)


def _row(values: npt.NDArray[np.int16], width: int, *, keep_zeros: bool) -> Iterator[tuple[list[int], int]]:
    """Readouts of a row: up to `width` terms of one sign, or 0, and that sign."""
    if width == 1:
        for term in range(len(values)) if keep_zeros else np.flatnonzero(values).tolist():
            yield [term], -1 if values[term] < 0 else 1
        return
    zeros = np.flatnonzero(values == 0).tolist() if keep_zeros else []
    for sign in (1, -1):
        terms = np.flatnonzero(values * sign > 0).tolist()
        holes = -len(terms) % width
        yield from ((each, sign) for each in _cut([*terms, *zeros[:holes]], width))
        zeros = zeros[holes:]
    yield from ((each, 1) for each in _cut(zeros, width))


def _cut(terms: list[int], width: int) -> Iterator[list[int]]:
    return (terms[start : start + width] for start in range(0, len(terms), width))


def _places(terms: Counts | np.int64, width: int) -> Counts:
    return np.asarray(-(-terms // width), np.int64)
