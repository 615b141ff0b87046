"""From the values of symbols to the samples that four generators play."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.encoder import Encoder
from lightning.kit.calibration.fringe import Floats
from lightning.kit.dot.symbol import EDGE_TICKS, Alignment, Tile
from lightning.kit.settings import MODULATORS

GATES = (1, 3)
"""The second modulator of each pair."""
HALF_STEP = 2
"""A generator's converter drops the two lowest bits of a word; half of what they count makes that a rounding."""

Integers = npt.NDArray[np.int64]
Samples = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Coding:
    """Words and operands of the four modulators: the first of each pair held, the second gated."""

    encoders: tuple[Encoder, Encoder, Encoder, Encoder]

    @property
    def dark(self) -> tuple[int, ...]:
        """The word of value 0 per modulator."""
        return tuple(int(encoder.words[0]) for encoder in self.encoders)

    @property
    def fullest(self) -> Floats:
        """(2,) product of the operands of value 255, per pair."""
        top = np.array([encoder.operands[-1] for encoder in self.encoders])
        return np.asarray(top[0::2] * top[1::2])

    def words(self, values: Integers) -> Integers:
        """Return the words for (..., 4) values, (..., 4)."""
        return np.stack([e.words[values[..., i]] for i, e in enumerate(self.encoders)], axis=-1)

    def operands(self, values: Integers) -> Floats:
        """Return the operands that these words give, (..., 4)."""
        return np.stack([e.operands[values[..., i]] for i, e in enumerate(self.encoders)], axis=-1)


def envelopes(words: Integers, dark: tuple[int, ...], tile: Tile, alignment: Alignment) -> Samples:
    """Return the envelopes for (tiles, symbols, 4) words, symbols beyond these dark, (4, tiles, samples).

    The shift of an alignment moves symbols into the dark edge, which is longer than any shift.
    """
    tiles, symbols, _ = words.shape
    made = np.empty((MODULATORS, tiles, tile.samples), dtype=np.int16)
    form = tile.symbol
    for index in range(MODULATORS):
        within = slice(form.guard, form.samples - form.guard) if index in GATES else slice(None)
        pattern = np.full((tiles, symbols, form.samples), dark[index], dtype=np.int64)
        pattern[:, :, within] = words[:, :, index, None]
        begin = EDGE_TICKS * tile.samples_per_tick + alignment.shifts[index]
        made[index] = dark[index] + HALF_STEP
        made[index, :, begin : begin + symbols * form.samples] = pattern.reshape(tiles, -1) + HALF_STEP
    return made
