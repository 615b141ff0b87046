r"""The shape of a symbol: the samples of a generator that carry one operand.

Two modulators are in series. The first holds its operand for the whole symbol. The second, the gate, is dark while the
first changes. It opens to its operand in the middle of the symbol, and closes before the first changes again:

    first    ____/¯¯¯¯¯¯¯¯¯¯¯¯¯¯¯¯¯¯\______________________/¯¯¯
    gate     _______/¯¯¯¯¯¯¯¯¯¯¯¯\___________/¯¯¯¯¯¯¯¯¯¯¯¯\____
             |guard |   settled   |  guard  |

The light of a symbol, integrated over time, is the first operand times the light of the gate's pulse, including its
edges. As long as the skew is shorter than the guard, this is a product of one function of each operand, for any shape
of the edges. The readout need not resolve symbols: its filter preserves sums, and a window that starts and ends in the
dark sums all light of its tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.errors import OutOfRange
from lightning.kit.calibration.document import Timing
from lightning.kit.calibration.encoder import Encoder
from lightning.kit.calibration.fringe import Floats
from lightning.kit.settings import MODULATOR_COUNT

REACH_TICKS = 10
"""The window extends beyond the symbols by this time at both ends. So the window includes all light, even if the
readout's filter (120 samples, 8 ticks either way) and shifts below one tick spread the light."""
EDGE_TICKS = 2 * REACH_TICKS
"""Dark ticks before the first symbol of a tile and after the last, so that the filter sees no other tile."""

GATE_INDICES = (1, 3)
"""The second modulator of each pair."""
HALF_STEP_WORDS = 2
"""Half the range of the two lowest bits of a word. The converter truncates these bits. If this number is added first,
the word is rounded."""
Integers = npt.NDArray[np.int64]
Samples = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Symbol:
    """Numbers of samples of one operand, at the rate of the generators' converters.

    By default, at 6.144 GS/s, a symbol lasts 5.2 ns, which gives 192 million products a second for each pair.
    Raise `OutOfRange` for guards below 1 sample, or fewer than 4 samples between the guards.
    """

    sample_count: int = 32
    """Samples of one symbol."""
    guard_sample_count: int = 4
    """Dark samples of the gate at each end of a symbol: more than the residual skew plus one rise time."""

    def __post_init__(self) -> None:
        if self.guard_sample_count < 1 or self.open_sample_count < 4:
            raise OutOfRange(
                f"a symbol of {self.sample_count} samples with guards of {self.guard_sample_count} leaves"
                f" {self.open_sample_count} in between",
                hint="Use guards of at least 1, and leave at least 4 samples",
            )

    @property
    def open_sample_count(self) -> int:
        """Samples for which the gate is open."""
        return self.sample_count - 2 * self.guard_sample_count


@dataclass(frozen=True, slots=True)
class Alignment:
    """Delays that make the light of four generators act at the same time."""

    delay_ticks: tuple[int, int, int, int]
    """Delay of each generator, in ticks."""
    shift_samples: tuple[int, int, int, int]
    """Further delay of each envelope in samples, less than one tick."""
    arrival_ticks: int
    """Ticks from the pulses to the arrival of all their light."""

    @classmethod
    def from_timing(cls, timing: Timing, samples_per_tick: int) -> Alignment:
        """Return the alignment for the measured arrivals, to the nearest sample.

        >>> Alignment.from_timing(Timing((146.0, 146.25, 140.0, 145.5), 2.6, 0), 16)
        Alignment(delay_ticks=(1, 0, 7, 1), shift_samples=(0, 12, 0, 8), arrival_ticks=147)
        """
        last_tick = math.floor(max(timing.arrival)) + 1
        delays = [round((last_tick - ticks) * samples_per_tick) for ticks in timing.arrival]
        delay_0, delay_1, delay_2, delay_3 = (divmod(samples, samples_per_tick) for samples in delays)
        return cls(
            (delay_0[0], delay_1[0], delay_2[0], delay_3[0]),
            (delay_0[1], delay_1[1], delay_2[1], delay_3[1]),
            last_tick,
        )


@dataclass(frozen=True, slots=True)
class Tile:
    """Dimensions of one tile: a row of symbols between two dark edges. One window sums its light."""

    symbol_count: int
    symbol: Symbol
    samples_per_tick: int

    @property
    def lit_ticks(self) -> int:
        """Ticks of the symbols, rounded up."""
        return -(-self.symbol_count * self.symbol.sample_count // self.samples_per_tick)

    @property
    def ticks(self) -> int:
        """Ticks of the whole envelope."""
        return self.lit_ticks + 2 * EDGE_TICKS

    @property
    def sample_count(self) -> int:
        """Samples of the whole envelope, per generator."""
        return self.ticks * self.samples_per_tick

    @property
    def window_ticks(self) -> int:
        """Length of the readout's window in ticks."""
        return self.lit_ticks + 2 * REACH_TICKS

    @property
    def offset_ticks(self) -> int:
        """Ticks from the arrival of the envelope's first sample to the start of the window."""
        return EDGE_TICKS - REACH_TICKS


@dataclass(frozen=True, slots=True)
class Coding:
    """Words and operands of the four modulators. The second of each pair is the gate."""

    encoders: tuple[Encoder, Encoder, Encoder, Encoder]

    @property
    def dark_words(self) -> tuple[int, ...]:
        """The word of value 0 of each modulator."""
        return tuple(int(encoder.words[0]) for encoder in self.encoders)

    @property
    def full_products(self) -> Floats:
        """(2,) product of each pair's operands at value 255."""
        top = np.array([encoder.operands[-1] for encoder in self.encoders])
        return np.asarray(top[0::2] * top[1::2])

    def encode(self, values: Integers) -> Integers:
        """Return the words for (..., 4) values, (..., 4)."""
        return np.stack(
            [encoder.words[values[..., modulator]] for modulator, encoder in enumerate(self.encoders)],
            axis=-1,
        )

    def compute_operands(self, values: Integers) -> Floats:
        """Return the operands that the words of these values produce, (..., 4)."""
        return np.stack(
            [encoder.operands[values[..., modulator]] for modulator, encoder in enumerate(self.encoders)],
            axis=-1,
        )


def make_envelopes(words: Integers, dark_words: tuple[int, ...], tile: Tile, alignment: Alignment) -> Samples:
    """Return the envelopes (4, tiles, samples) for (tiles, symbols, 4) words. The rest of each tile is dark.

    The shift of an alignment moves symbols into the dark edge, which is longer than any shift.
    """
    tile_count, symbol_count, _ = words.shape
    envelopes = np.empty((MODULATOR_COUNT, tile_count, tile.sample_count), dtype=np.int16)
    symbol = tile.symbol
    for index in range(MODULATOR_COUNT):
        open_samples = (
            slice(symbol.guard_sample_count, symbol.sample_count - symbol.guard_sample_count)
            if index in GATE_INDICES
            else slice(None)
        )
        pattern = np.full((tile_count, symbol_count, symbol.sample_count), dark_words[index], dtype=np.int64)
        pattern[:, :, open_samples] = words[:, :, index, None]
        first_sample = EDGE_TICKS * tile.samples_per_tick + alignment.shift_samples[index]
        envelopes[index] = dark_words[index] + HALF_STEP_WORDS
        envelopes[index, :, first_sample : first_sample + symbol_count * symbol.sample_count] = (
            pattern.reshape(tile_count, -1) + HALF_STEP_WORDS
        )
    return envelopes
