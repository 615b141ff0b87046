"""Costs of a photonic layer: products, readouts, and cycles line by line, as the datapath itemises them."""

from __future__ import annotations

import numpy as np

from fpga.photonic_mac.cycles import DETECTION, TURNAROUND, LayerCycles, Timing
from lightning.compiler.datapath.schedule import passes_of, readouts_of
from lightning.compiler.hardware import Hardware, LayerWork
from lightning.compiler.model import CompiledModel, PhotonicLayer

TIMING = Timing()
"""Of the published datapath: ten cycles of preamble, light under way for seven."""


def work_of(layer: PhotonicLayer, hardware: Hardware) -> LayerWork:
    """Return what one image costs in `layer`.

    A row takes ceil(readouts / lanes) beats; rows are dealt out to the cores in turn, and the slowest core counts.
    So it is for every position and every pass. Every group of a convolution follows the one before without a gap;
    a pass begins with a preamble.
    """
    lines = cycles_of(layer, hardware)
    passes = passes_of(layer)
    sent = int(np.count_nonzero(layer.weights)) if hardware.skip_zeros else int(layer.weights.size)
    often = layer.positions * passes
    return LayerWork(
        macs=layer.macs,
        products=sent * often,
        readouts=int(readouts_of(layer, hardware).count.sum()) * often,
        beats=lines.beats,
        passes=passes,
        overhead=lines.total - lines.beats,
    )


def cycles_of(layer: PhotonicLayer, hardware: Hardware, timing: Timing = TIMING) -> LayerCycles:
    """Return the lines of a layer, of all its passes together."""
    passes = passes_of(layer)
    return LayerCycles(
        beats=_beats(layer, hardware) * layer.positions * passes,
        preamble=timing.preamble * passes,
        detection=DETECTION * passes,
        fill=timing.fill * passes,
        turnaround=TURNAROUND * passes,
    )


def _beats(layer: PhotonicLayer, hardware: Hardware) -> int:
    """Return the beats of one position and pass: for each group the core that has most to send."""
    rows = -(-readouts_of(layer, hardware).count // hardware.lanes)
    return int(
        sum(max(each[core :: hardware.cores].sum() for core in range(hardware.cores)) for each in rows)
    )


def cycles_of_model(model: CompiledModel) -> int:
    """Return the cycles from an image to its answer: all photonic layers in turn; digital work is not counted."""
    return sum(work_of(layer, model.hardware).cycles for layer in model.layers.values())
