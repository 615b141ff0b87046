"""A compiled model as an `fpga.Program`: settings of the count-action datapath `photonic_dot`, layer by layer.

A count-action datapath counts events, and acts when a count reaches its target. The targets are its settings. This
module uses only their names; the driver maps them to registers.

In each clock cycle the datapath multiplies the values of all lanes: one beat. A row of weights takes as many beats as
the target `adder.beats` says. If products with weight 0 are skipped, rows need different numbers of beats, so rows with
equal numbers form a segment with its own targets. Otherwise a layer is one segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fpga.program import Layer, Program, ProgramError
from lightning.compiler.datapath.schedule import count_passes, schedule_layer
from lightning.compiler.model import CompiledModel, Hardware, PhotonicLayer
from lightning.errors import CompileError
from lightning.optional import require

Integers = npt.NDArray[np.int64]
DARK_TERM = -1
"""Marks a dark lane in place of a term."""

DATAPATH = "photonic_dot"
"""Name of the datapath in the library of the count-action language (`fpga/library`)."""
DATAPATH_LANE_COUNT = 16
_WRAPPING_SUM_BITS, _WIDE_SUM_BITS = 16, 32


@dataclass(frozen=True)
class Segment:
    """Rows of one layer with the same number of beats, at least one."""

    beats_per_row: int
    """Beats of one row, in one position and pass."""
    row_indices: Integers
    """(n,) index of each row among the rows of all groups."""
    term_indices: Integers
    """(n, beats * lanes) index of the activation in each lane, among all groups; `DARK_TERM` for none."""
    weights: Integers
    """(n, beats * lanes) signed weights; 0 in dark lanes."""


def split_into_segments(layer: PhotonicLayer, hardware: Hardware) -> tuple[Segment, ...]:
    """Group the rows of a layer by their number of beats, most beats first. Omit rows without products.

    >>> layer = PhotonicLayer("fc", np.array([[[3, 0, -5], [0, 0, 0]]], np.int16), None, 1.0, None)
    >>> [
    ...     (each.row_indices.tolist(), each.term_indices[0, :3].tolist())
    ...     for each in split_into_segments(layer, Hardware())
    ... ]
    [([0, 1], [0, 1, 2])]
    >>> [
    ...     (each.row_indices.tolist(), each.term_indices[0, :3].tolist())
    ...     for each in split_into_segments(layer, Hardware(skip_zeros=True))
    ... ]
    [([0], [0, 2, -1])]
    """
    term_indices, row_lengths = _join_groups(layer, hardware)
    row_beats = -(-row_lengths // hardware.lanes)
    return tuple(
        _make_segment(
            layer, term_indices, np.flatnonzero(row_beats == beat_count), beat_count, hardware.lanes
        )
        for beat_count in sorted(set(row_beats.tolist()) - {0}, reverse=True)
    )


def _make_segment(
    layer: PhotonicLayer, all_term_indices: Integers, row_indices: Integers, beat_count: int, lane_count: int
) -> Segment:
    weights = layer.weights.reshape(len(all_term_indices), -1).astype(np.int64)[row_indices]
    term_indices = _resize_terms(all_term_indices[row_indices], beat_count * lane_count)
    row_weights = np.take_along_axis(weights, term_indices % weights.shape[1], axis=1)
    return Segment(beat_count, row_indices, term_indices, np.where(term_indices == DARK_TERM, 0, row_weights))


def _join_groups(layer: PhotonicLayer, hardware: Hardware) -> tuple[Integers, Integers]:
    """Return the index of the term of each readout, (rows of all groups, longest row), and the lengths of the rows."""
    schedules = schedule_layer(layer, hardware)
    max_row_length = max(group.term_indices.shape[1] for group in schedules)
    term_count = layer.weights.shape[2]
    group_term_indices = [
        _resize_terms(schedule.term_indices[:, :, 0].astype(np.int64), max_row_length)
        for schedule in schedules
    ]
    layer_term_indices = [
        np.where(order == DARK_TERM, DARK_TERM, order + index * term_count)
        for index, order in enumerate(group_term_indices)
    ]
    return np.concatenate(layer_term_indices), np.concatenate([group.readout_counts for group in schedules])


def _resize_terms(term_indices: Integers, length: int) -> Integers:
    """Return the terms cut to this length, or padded with `DARK_TERM`, (rows, length)."""
    missing_count = max(0, length - term_indices.shape[1])
    return np.pad(term_indices, ((0, 0), (0, missing_count)), constant_values=DARK_TERM)[:, :length]


@dataclass(frozen=True)
class ProgramEntry:
    """One entry of the program: a segment of rows in one pass of one layer."""

    layer: PhotonicLayer
    pass_number: int
    """Number of the pass: 0, or 1 for the negative part of activations."""
    segment: Segment
    beats_per_pass: int
    """Beats of this layer in one whole pass."""


def make_program(model: CompiledModel) -> Program:
    """Return the program with one set of targets for each entry of `list_entries`.

    Raise `CompileError` if the datapath does not have the model's hardware, or a layer is too large for its counters.
    """
    hardware = model.hardware
    if (hardware.lanes, hardware.wavelengths, hardware.cores) != (DATAPATH_LANE_COUNT, 1, 1):
        raise CompileError(
            f"the datapath {DATAPATH} has {DATAPATH_LANE_COUNT} lanes, 1 wavelength and 1 core; the model is"
            " compiled for"
            f" {hardware.lanes} lanes, {hardware.wavelengths} wavelengths and {hardware.cores} cores",
            hint="Compile it again without --lanes, --wavelengths and --cores",
        )

    require("lark", "to read the library of count-action modules")
    from fpga.photonic_mac.control import load_library_datapath

    sum_bits = _WRAPPING_SUM_BITS if model.wrap else _WIDE_SUM_BITS
    datapath = load_library_datapath(DATAPATH, {"width": sum_bits})
    entries = tuple(list_entries(model))
    pass_count = len({(entry.layer.name, entry.pass_number) for entry in entries})
    try:
        return Program(datapath, tuple(_make_targets(entry, pass_count) for entry in entries) or ({},))
    except ProgramError as error:
        raise CompileError(
            f"a layer of {model.network.name} is too large for the counters of datapath {DATAPATH}: {error}",
            hint="Take a smaller network, or run it with --fidelity exact or noisy",
        ) from error


def list_entries(model: CompiledModel) -> Iterator[ProgramEntry]:
    """Yield the entries for one image, ordered by layer, pass and segment."""
    for _, layer in order_layers(model):
        segments = split_into_segments(layer, model.hardware)
        beats_per_pass = layer.position_count * sum(
            segment.beats_per_row * len(segment.row_indices) for segment in segments
        )
        for pass_number in range(count_passes(layer)):
            for segment in segments:
                yield ProgramEntry(layer, pass_number, segment, beats_per_pass)


def order_layers(model: CompiledModel) -> Iterator[tuple[str, PhotonicLayer]]:
    """Yield the photonic layers in the order of execution, as (node name, layer)."""
    for node in model.network.nodes:
        if node.name in model.layers:
            yield node.name, model.layers[node.name]


def _make_targets(entry: ProgramEntry, pass_count: int) -> Layer:
    return {
        "adder.beats": entry.segment.beats_per_row,
        "adder.products": entry.beats_per_pass,
        "layers.layers": pass_count,
    }
