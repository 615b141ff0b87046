"""The order of products: rows are tiled over detector samples, beats, cores and passes.

A detector sums the light of `wavelengths` products in one sample. Light has no sign, so each sample gets its sign after
the converter, and holds only terms of one sign. Positive terms of a row come first, then negative terms, and zeros fill
the gaps. Such a sample is a readout. With one wavelength the terms keep their order.

    W = 2, weights 3 -1 4 0 -5:    | 3 4 | -1 -5 | 0 . |        signs  + - +
    with zeros skipped:            | 3 4 | -1 -5 |              signs  + -

Signed activations take two passes: first the positive ones, then the negative ones. The readouts of the second pass
count with the opposite sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fpga.photonic_mac.cycles import DETECTION_CYCLES, TURNAROUND_CYCLES, LayerCycles, Timing
from lightning.compiler.model import CompiledModel, Hardware, LayerWork, PhotonicLayer

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.int16]

TIMING = Timing()
"""Timing of the published datapath: a preamble of ten cycles, and a light delay of seven."""


@dataclass(frozen=True)
class GroupSchedule:
    """The readouts of all rows of one group of a layer, in one pass."""

    term_indices: npt.NDArray[np.int32]
    """(rows, readouts, wavelengths) index of the term in every place; -1 in dark places."""
    signs: npt.NDArray[np.int8]
    """(rows, readouts) sign of each sample in the sum, 1 or -1; 0 after a row's last readout."""

    @property
    def readout_counts(self) -> Integers:
        """The number of readouts in each row, (rows,)."""
        return np.asarray(np.count_nonzero(self.signs, axis=1), np.int64)


@dataclass(frozen=True)
class ReadoutCounts:
    """Numbers of detector readouts for every sum, in one pass. Each readout draws noise."""

    counts: Integers
    """(groups, rows) number of readouts."""
    net_signs: Integers
    """(groups, rows) positive minus negative readouts. A mean error per readout enters the sum with this factor."""


def count_passes(layer: PhotonicLayer) -> int:
    """Return the number of passes: 2 for signed activations, else 1."""
    return 2 if layer.signed else 1


def count_layer_readouts(
    layer: PhotonicLayer, hardware: Hardware, *, sends_zeros: bool | None = None
) -> ReadoutCounts:
    """Return the readouts of every row in a pass. `sends_zeros` also sends products whose weight is 0.

    P positive and N negative weights take ceil(P / W) and ceil(N / W) readouts. Zeros fill the unused places; the other
    zeros take further positive readouts. With one wavelength every term has its own readout, and a zero counts as
    positive.

    >>> layer = PhotonicLayer("fc", np.array([[[3, -1, 4, 0, -5]]], np.int16), None, 1.0, None)
    >>> count_layer_readouts(layer, Hardware(wavelengths=2)).counts.tolist()
    [[3]]
    >>> count_layer_readouts(layer, Hardware(wavelengths=2, skip_zeros=True)).net_signs.tolist()
    [[0]]
    """
    return count_weight_readouts(layer.weights, hardware, sends_zeros=sends_zeros)


def count_weight_readouts(
    weights: Weights, hardware: Hardware, *, sends_zeros: bool | None = None
) -> ReadoutCounts:
    """Return the readouts like `count_layer_readouts`, for weights (groups, rows, terms)."""
    positive_counts = _count_readouts((weights > 0).sum(axis=2), hardware.wavelengths)
    negative_counts = _count_readouts((weights < 0).sum(axis=2), hardware.wavelengths)
    if sends_zeros if sends_zeros is not None else not hardware.skip_zeros:
        min_count = _count_readouts(np.int64(weights.shape[2]), hardware.wavelengths)
        positive_counts = np.maximum(positive_counts, min_count - negative_counts)
    return ReadoutCounts(positive_counts + negative_counts, positive_counts - negative_counts)


def schedule_layer(
    layer: PhotonicLayer, hardware: Hardware, *, sends_zeros: bool | None = None
) -> tuple[GroupSchedule, ...]:
    """Return the schedule of each group, the same for both passes. `sends_zeros` is as in `count_layer_readouts`.

    >>> layer = PhotonicLayer("fc", np.array([[[3, -1, 4, 0, -5]]], np.int16), None, 1.0, None)
    >>> (group,) = schedule_layer(layer, Hardware(wavelengths=2))
    >>> group.term_indices[0].tolist(), group.signs[0].tolist()
    ([[0, 2], [1, 4], [3, -1]], [1, -1, 1])
    """
    readout_counts = count_layer_readouts(layer, hardware, sends_zeros=sends_zeros).counts
    are_zeros_sent = sends_zeros if sends_zeros is not None else not hardware.skip_zeros
    make_schedule = _schedule_in_order if hardware.wavelengths == 1 else _schedule_by_sign
    return tuple(
        make_schedule(weights, int(row_readout_counts.max(initial=0)), hardware.wavelengths, are_zeros_sent)
        for weights, row_readout_counts in zip(layer.weights, readout_counts, strict=True)
    )


def _schedule_in_order(weights: Weights, readout_count: int, _: int, are_zeros_sent: bool) -> GroupSchedule:
    """Return a schedule with one term per readout, in the order of terms."""
    is_sent = np.ones_like(weights, bool) if are_zeros_sent else weights != 0
    term_indices = np.full((len(weights), readout_count), -1, np.int32)
    rows, terms = np.nonzero(is_sent)
    term_indices[rows, _rank_terms(is_sent)[rows, terms]] = terms
    signs = np.where(np.take_along_axis(weights, np.maximum(term_indices, 0), axis=1) < 0, -1, 1)
    return GroupSchedule(term_indices[..., None], np.where(term_indices < 0, 0, signs).astype(np.int8))


def _schedule_by_sign(
    weights: Weights, readout_count: int, wavelength_count: int, are_zeros_sent: bool
) -> GroupSchedule:
    """Return a schedule of positive, then negative terms. Zeros fill the gaps in both, then further readouts."""
    term_indices = np.full((len(weights), readout_count * wavelength_count), -1, np.int32)
    is_positive, is_negative = weights > 0, weights < 0
    positive_counts, negative_counts = (
        _count_readouts(sign_mask.sum(axis=1), wavelength_count)[:, None]
        for sign_mask in (is_positive, is_negative)
    )
    _place_terms(term_indices, is_positive, _rank_terms(is_positive))
    _place_terms(term_indices, is_negative, positive_counts * wavelength_count + _rank_terms(is_negative))
    if are_zeros_sent:
        is_gap = (
            term_indices[:, : int((positive_counts + negative_counts).max(initial=0)) * wavelength_count] < 0
        )
        _place_terms(
            term_indices,
            weights == 0,
            _find_zero_positions(
                is_gap, (positive_counts + negative_counts) * wavelength_count, _rank_terms(weights == 0)
            ),
        )
    positions = np.arange(readout_count)
    signs = np.where((positions >= positive_counts) & (positions < positive_counts + negative_counts), -1, 1)
    indices_by_readout = term_indices.reshape(len(weights), readout_count, wavelength_count)
    return GroupSchedule(
        indices_by_readout, np.where(indices_by_readout[..., 0] < 0, 0, signs).astype(np.int8)
    )


def _find_zero_positions(is_gap: Mask, end_positions: Integers, ranks: Integers) -> Integers:
    """Return the position of each zero, (rows, terms), by its rank: gaps before `end_positions`, then later ones."""
    is_gap = is_gap & (np.arange(is_gap.shape[1]) < end_positions)
    gap_counts = is_gap.sum(axis=1, keepdims=True)
    gap_positions = np.argsort(~is_gap, axis=1, kind="stable")
    positions_in_gaps = (
        np.take_along_axis(gap_positions, np.minimum(ranks, max(gap_positions.shape[1] - 1, 0)), axis=1)
        if gap_positions.size
        else ranks
    )
    return np.asarray(
        np.where(ranks < gap_counts, positions_in_gaps, end_positions + ranks - gap_counts), np.int64
    )


def _place_terms(term_indices: npt.NDArray[np.int32], is_chosen: Mask, positions: Integers) -> None:
    rows, terms = np.nonzero(is_chosen)
    term_indices[rows, positions[rows, terms]] = terms


def _rank_terms(is_chosen: Mask) -> Integers:
    """Return the number of chosen terms before each term, (rows, terms)."""
    return np.asarray(np.cumsum(is_chosen, axis=1) - is_chosen, np.int64)


def _count_readouts(term_counts: Integers | np.int64, wavelength_count: int) -> Integers:
    return np.asarray(-(-term_counts // wavelength_count), np.int64)


def compute_layer_work(layer: PhotonicLayer, hardware: Hardware) -> LayerWork:
    """Return the work of one image in `layer`.

    A row takes ceil(readouts / lanes) beats. The cores take rows in turn, and the slowest core determines the time of
    each position and pass. The groups of a convolution follow each other without a gap. A pass starts with a preamble.
    """
    cycles = count_layer_cycles(layer, hardware)
    pass_count = count_passes(layer)
    sent_weight_count = (
        int(np.count_nonzero(layer.weights)) if hardware.skip_zeros else int(layer.weights.size)
    )
    repeat_count = layer.position_count * pass_count
    return LayerWork(
        macs=layer.macs,
        products=sent_weight_count * repeat_count,
        readouts=int(count_layer_readouts(layer, hardware).counts.sum()) * repeat_count,
        beats=cycles.beats,
        passes=pass_count,
        overhead=cycles.total - cycles.beats,
    )


def count_layer_cycles(layer: PhotonicLayer, hardware: Hardware, timing: Timing = TIMING) -> LayerCycles:
    """Return the cycles of a layer by kind, summed over its passes."""
    pass_count = count_passes(layer)
    return LayerCycles(
        beats=_count_beats(layer, hardware) * layer.position_count * pass_count,
        preamble=timing.preamble * pass_count,
        detection=DETECTION_CYCLES * pass_count,
        fill=timing.fill * pass_count,
        turnaround=TURNAROUND_CYCLES * pass_count,
    )


def _count_beats(layer: PhotonicLayer, hardware: Hardware) -> int:
    """Return the beats of one position and pass: the sum over groups of the busiest core's beats."""
    beats_by_row = -(-count_layer_readouts(layer, hardware).counts // hardware.lanes)
    return int(
        sum(
            max(row_beats[core :: hardware.cores].sum() for core in range(hardware.cores))
            for row_beats in beats_by_row
        )
    )


def count_model_cycles(model: CompiledModel) -> int:
    """Return the cycles of all photonic layers for one image, without digital work."""
    return sum(compute_layer_work(layer, model.hardware).cycles for layer in model.layers.values())
