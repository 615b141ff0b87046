"""A vector as a waveform: the products of each symbol, from decimated samples.

The readout's filter reaches 7.5 ticks either way, so a symbol must last 15 ticks for one sample to be settled, the
one in its middle; all others are guard. The waveform suits a person, and shows which symbol is wrong. Sums of products
are faster and more accurate with `VectorCore.dot` (its symbols are shorter by a factor of 7.5, and all of their light
counts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import OutOfRange
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.fringe import Floats
from lightning.kit.dot.packing import PAIRS, operands
from lightning.kit.dot.program import TileReader
from lightning.kit.dot.symbol import REACH_TICKS, Coding, Integers, Symbol, Tile, envelopes

SYMBOL = Symbol(samples=240, guard=7)
"""15 ticks, in the middle of which one sample is settled."""
ROUNDS = 4
FILTER_TICKS = 8


@dataclass(frozen=True, slots=True)
class Inspection:
    """One acquisition of a vector."""

    counts: Floats
    """(samples,) decimated, idle included."""
    tick_ns: float
    """Between two samples."""
    settled: Integers
    """(symbols,) index of the settled sample."""
    sums: Floats
    """(symbols,) sum of the magnitudes of a symbol's two products, in units of 1/255."""


def inspect(
    device: Any,
    calibration: Calibration,
    weights: npt.ArrayLike,
    inputs: npt.ArrayLike,
    *,
    rounds: int = ROUNDS,
) -> Inspection:
    """Play magnitudes of two vectors, products 0 and 1 in the first symbol, 2 and 3 in the second, and so on.

    Raise `OutOfRange` for vectors longer than `capacity`, and the errors of `VectorCore`.
    """
    reader = TileReader(device, calibration)
    first, second = operands(weights, inputs)
    room = capacity(reader)
    if first.ndim != 1 or first.size > room:
        raise OutOfRange(
            f"an inspection shows one vector of up to {room} entries, not shape {first.shape}",
            hint="Inspect a part of it; VectorCore.dot takes vectors of any length",
        )
    values = _group_by_symbol(np.abs(first), np.abs(second))
    tile = reader.tile(len(values), SYMBOL)

    one, two, three, four = (modulator.encoder for modulator in calibration.modulators)
    words = calibration.word_table(values)[None]
    dark = Coding((one, two, three, four)).dark
    waveforms = envelopes(words, dark, tile, reader.wiring.alignment)[:, 0]  # (4, samples)
    counts = reader.trace(waveforms, tile, rounds=rounds)
    settled = settled_samples(tile)
    # Samples at either end are beyond the filter's reach of any symbol, so they show the idle level.
    clear = REACH_TICKS - FILTER_TICKS
    idle = float(np.concatenate([counts[:clear], counts[-clear:]]).mean())
    sums = calibration.decode_table(counts[settled] - idle, values)
    return Inspection(counts, calibration.timing.tick_ns, settled, sums)


def capacity(reader: TileReader) -> int:
    """Return the products that the decimated buffer of one acquisition holds.

    132 on the kit's firmware: 66 for either pair.
    """
    ticks = reader.decimated - 2 * REACH_TICKS
    return PAIRS * (ticks * reader.samples_per_tick // SYMBOL.samples)


def settled_samples(tile: Tile) -> Integers:
    """Return the index of the sample in the middle of each symbol, (symbols,).

    >>> settled_samples(Tile(3, SYMBOL, 16)).tolist()
    [17, 32, 47]
    """
    per_symbol = tile.symbol.samples / tile.samples_per_tick
    middle = REACH_TICKS + (np.arange(tile.symbols) + 0.5) * per_symbol
    samples: Integers = np.floor(middle - 0.5 + 1e-9).astype(np.int64)
    return samples


def _group_by_symbol(first: Integers, second: Integers) -> Integers:
    """Return (n,) magnitudes of both operands as values per symbol, (symbols, 4)."""
    symbols = -(-first.size // PAIRS)
    values = np.zeros((symbols, PAIRS, 2), dtype=np.int64)
    flat = values.reshape(-1, 2)
    flat[: first.size, 0], flat[: first.size, 1] = first, second
    return values.reshape(symbols, 2 * PAIRS)
