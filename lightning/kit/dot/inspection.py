"""A vector as a waveform: the products of each symbol, from decimated samples.

The readout's filter reaches 7.5 ticks either way. A symbol must therefore last 15 ticks, so that the sample in its
middle is settled. The waveform shows a person which symbol is wrong. `VectorCore.dot` computes sums of products faster
and more accurately: its symbols are 7.5 times shorter, and all of their light counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import OutOfRange
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.fringe import Floats
from lightning.kit.dot.packing import PAIR_COUNT, check_operands
from lightning.kit.dot.program import TileReader
from lightning.kit.dot.symbol import REACH_TICKS, Coding, Integers, Symbol, Tile, make_envelopes

SYMBOL = Symbol(sample_count=240, guard_sample_count=7)
"""A symbol of 15 ticks, with one settled sample in its middle."""
ROUND_COUNT = 4
FILTER_TICKS = 8


@dataclass(frozen=True, slots=True)
class Inspection:
    """One acquisition of a vector."""

    counts: Floats
    """(samples,) decimated counts, including the idle level."""
    tick_ns: float
    """Time between two samples."""
    settled_indices: Integers
    """(symbols,) index of the settled sample."""
    sums: Floats
    """(symbols,) sum of the magnitudes of a symbol's two products, in units of 1/255."""


def inspect(
    device: Any,
    calibration: Calibration,
    weights: npt.ArrayLike,
    inputs: npt.ArrayLike,
    *,
    round_count: int = ROUND_COUNT,
) -> Inspection:
    """Play the magnitudes of two vectors, with products 0 and 1 in the first symbol, 2 and 3 in the second, and so on.

    Raise `OutOfRange` for a vector longer than `count_max_products`, and the errors of `TileReader`.
    """
    reader = TileReader(device, calibration)
    left, right = check_operands(weights, inputs)
    max_products = count_max_products(reader)
    if left.ndim != 1 or left.size > max_products:
        raise OutOfRange(
            f"an inspection shows one vector of up to {max_products} entries, not shape {left.shape}",
            hint="Inspect a part of it; VectorCore.dot takes vectors of any length",
        )
    values = _group_by_symbol(np.abs(left), np.abs(right))
    tile = reader.make_tile(len(values), SYMBOL)

    encoder_0, encoder_1, encoder_2, encoder_3 = (modulator.encoder for modulator in calibration.modulators)
    words = calibration.look_up_words(values)[None]
    dark_words = Coding((encoder_0, encoder_1, encoder_2, encoder_3)).dark_words
    envelopes = make_envelopes(words, dark_words, tile, reader.signal_path.alignment)[:, 0]  # (4, samples)
    counts = reader.measure_trace(envelopes, tile, round_count=round_count)
    settled_indices = find_settled_samples(tile)
    # The filter does not reach from any symbol to the samples at the ends, so they show the idle level.
    idle_sample_count = REACH_TICKS - FILTER_TICKS
    idle_level = float(np.concatenate([counts[:idle_sample_count], counts[-idle_sample_count:]]).mean())
    sums = calibration.decode_table(counts[settled_indices] - idle_level, values)
    return Inspection(counts, calibration.timing.tick_ns, settled_indices, sums)


def count_max_products(reader: TileReader) -> int:
    """Return the number of products that fit in the decimated buffer of one acquisition.

    The kit's firmware holds 132: 66 for each pair.
    """
    ticks = reader.decimated_length - 2 * REACH_TICKS
    return PAIR_COUNT * (ticks * reader.samples_per_tick // SYMBOL.sample_count)


def find_settled_samples(tile: Tile) -> Integers:
    """Return the index of the sample in the middle of each symbol, (symbols,).

    >>> find_settled_samples(Tile(3, SYMBOL, 16)).tolist()
    [17, 32, 47]
    """
    ticks_per_symbol = tile.symbol.sample_count / tile.samples_per_tick
    middle_ticks = REACH_TICKS + (np.arange(tile.symbol_count) + 0.5) * ticks_per_symbol
    indices: Integers = np.floor(middle_ticks - 0.5 + 1e-9).astype(np.int64)
    return indices


def _group_by_symbol(left: Integers, right: Integers) -> Integers:
    """Return values per symbol, (symbols, 4), from (n,) magnitudes of both operands."""
    symbol_count = -(-left.size // PAIR_COUNT)
    values = np.zeros((symbol_count, PAIR_COUNT, 2), dtype=np.int64)
    flat_values = values.reshape(-1, 2)
    flat_values[: left.size, 0], flat_values[: left.size, 1] = left, right
    return values.reshape(symbol_count, 2 * PAIR_COUNT)
