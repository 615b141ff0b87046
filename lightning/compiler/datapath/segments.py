"""Beats that go through the datapath for a layer: rows in segments of equal length.

The datapath adds up a fixed number of beats for a sum, its target `adder.beats`. Rows of which zeros are left out take
fewer beats than others; so they are sent in segments of rows with equally many, each with targets of its own, which
come into force in one cycle. Where no zeros are left out a layer is one segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.compiler.datapath.schedule import schedule_of
from lightning.compiler.hardware import Hardware
from lightning.compiler.model import PhotonicLayer

Whole = npt.NDArray[np.int64]
DARK = -1
"""In the place of a term: nothing is sent in this lane."""


@dataclass(frozen=True)
class Segment:
    """Rows of one layer that take equally many beats, at least one each."""

    beats: int
    """Of one row, in one position and pass."""
    rows: Whole
    """(n,) which they are, all groups counted through."""
    terms: Whole
    """(n, beats * lanes) which activation goes into each lane, all groups counted through; `DARK` for none."""
    weights: Whole
    """(n, beats * lanes) with their signs; 0 in dark lanes."""


def segments_of(layer: PhotonicLayer, hardware: Hardware) -> tuple[Segment, ...]:
    """Return the rows of a layer by their beats, most beats first. Rows without products are in none.

    >>> layer = PhotonicLayer("fc", np.array([[[3, 0, -5], [0, 0, 0]]], np.int16), None, 1.0, None)
    >>> [(each.rows.tolist(), each.terms[0, :3].tolist()) for each in segments_of(layer, Hardware())]
    [([0, 1], [0, 1, 2])]
    >>> [
    ...     (each.rows.tolist(), each.terms[0, :3].tolist())
    ...     for each in segments_of(layer, Hardware(skip_zeros=True))
    ... ]
    [([0], [0, 2, -1])]
    """
    terms, readouts = _all_groups(layer, hardware)
    beats = -(-readouts // hardware.lanes)
    return tuple(
        _stretch(layer, terms, np.flatnonzero(beats == each), each, hardware.lanes)
        for each in sorted(set(beats.tolist()) - {0}, reverse=True)
    )


def _stretch(layer: PhotonicLayer, terms: Whole, rows: Whole, beats: int, lanes: int) -> Segment:
    weights = layer.weights.reshape(len(terms), -1).astype(np.int64)[rows]
    places = _as_long(terms[rows], beats * lanes)
    chosen = np.take_along_axis(weights, places % weights.shape[1], axis=1)
    return Segment(beats, rows, places, np.where(places == DARK, 0, chosen))


def _all_groups(layer: PhotonicLayer, hardware: Hardware) -> tuple[Whole, Whole]:
    """Return the term of each readout, (groups * rows, readouts), and how many there are, (groups * rows,)."""
    groups = schedule_of(layer, hardware)
    most = max(each.order.shape[1] for each in groups)
    width = layer.weights.shape[2]
    orders = [_as_long(each.order[:, :, 0].astype(np.int64), most) for each in groups]
    terms = [np.where(each == DARK, DARK, each + group * width) for group, each in enumerate(orders)]
    return np.concatenate(terms), np.concatenate([each.readouts for each in groups])


def _as_long(terms: Whole, length: int) -> Whole:
    """Return the lanes cut to this length, or filled with dark ones, (rows, length)."""
    spare = max(0, length - terms.shape[1])
    return np.pad(terms, ((0, 0), (0, spare)), constant_values=DARK)[:, :length]
