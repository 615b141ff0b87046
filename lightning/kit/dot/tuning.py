"""Tuning of a device for vectors: the gates' curves, and the decoder of tiles.

The calibration covers constant words. A gate's pulse has edges, so its light is not quite proportional to the light of
a constant word. It follows another fringe, which a sweep of pulses measures. Then the light of a tile is

    sum over pairs of ( gain sum_k h_k g_k + leak_h sum_k h_k + leak_g sum_k g_k )

with operands h of the first modulator and g of the gate. The controller knows the sums in the leak terms and subtracts
these terms. All coefficients come from a regression over random tiles.

The formula is linear in the light. A receiver that compresses increases the residual, and the tuning fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lightning.errors import CalibrationError
from lightning.kit.calibration.decoder import FULL_VALUE
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.encoder import LEVEL_COUNT, Encoder, make_encoder
from lightning.kit.calibration.fringe import Floats, Fringe, fit_fringe
from lightning.kit.dot.program import SignalPath
from lightning.kit.dot.symbol import GATE_INDICES, Coding, Integers, Samples, Symbol, Tile, make_envelopes
from lightning.kit.settings import MODULATOR_COUNT

SWEPT_SYMBOL_COUNT = 8
"""Equal symbols in one tile of a sweep."""
SWEPT_POINT_COUNT = 64
RANGE_MARGIN = 0.08
"""A gate's sweep starts this share of the half-wave word below the null and ends as far above the peak."""
TRAINING_TILE_COUNT = 64
TRAINING_SYMBOL_COUNT = 128
SHOT_COUNT = 8
WORD_LIMIT = 32_760
MIN_LIGHT_SHARE = 0.3
"""Minimum of the measured light, as a share of the light that the calibration predicts."""
MAX_TILE_RESIDUAL = 0.6
"""Largest residual, in units of 1/255 of a product per root of the number of symbols. Compression exceeds it; noise
does not."""


class TileMeter(Protocol):
    """Measurement of tiles, such as `program.TileReader`."""

    signal_path: SignalPath

    def make_tile(self, symbol_count: int, symbol: Symbol) -> Tile:
        """Return the dimensions of a tile."""
        ...

    def count_max_symbols(self, symbol: Symbol) -> int:
        """Return the number of symbols in the longest tile."""
        ...

    def measure_sums(self, envelopes: Samples, tile: Tile, dark_envelopes: Samples, *, shots: int) -> Floats:
        """Return the light above dark, (tiles, shots)."""
        ...


@dataclass(frozen=True, slots=True)
class TileDecoder:
    """Decoder of the light of tiles, in counts times ticks."""

    leak: tuple[float, ...]
    """(4,) light per unit of the sum of a modulator's operands."""
    gain: tuple[float, float]
    """Light per unit of the sum of a pair's products."""
    full_product_level: float
    """Light of a full product. It is the same for both pairs, because the brighter pair is dimmed."""
    rms_residual: float
    """Rms residual of the regression, in units of 1/255 of a product per root of a tile's symbols."""

    def decode(self, levels: Floats, operand_sums: Floats) -> Floats:
        """Return the sums of products (tiles,), in units of 1/255, for levels (tiles,) and operand sums (tiles, 4)."""
        product_sums: Floats = (
            FULL_VALUE * (levels - operand_sums @ np.array(self.leak)) / self.full_product_level
        )
        return product_sums


@dataclass(frozen=True, slots=True)
class Tuning:
    """The data for playing and decoding vectors, besides the calibration."""

    symbol: Symbol
    coding: Coding
    gate_curves: tuple[Fringe, Fringe]
    decoder: TileDecoder


def measure_tiles(
    tile_meter: TileMeter, words: Integers, dark_words: tuple[int, ...], symbol: Symbol, *, shots: int
) -> Floats:
    """Play (tiles, symbols, 4) words and return their light above dark, (tiles, shots), in counts times ticks."""
    tile = tile_meter.make_tile(words.shape[1], symbol)
    dark_tile_words = np.broadcast_to(np.array(dark_words), (1, words.shape[1], MODULATOR_COUNT))
    alignment = tile_meter.signal_path.alignment
    envelopes = make_envelopes(words, dark_words, tile, alignment)
    return tile_meter.measure_sums(
        envelopes, tile, make_envelopes(dark_tile_words, dark_words, tile, alignment)[:, 0], shots=shots
    )


def tune(tile_meter: TileMeter, calibration: Calibration, symbol: Symbol, rng: np.random.Generator) -> Tuning:
    """Sweep both gates, fit the decoder to random tiles, and return the tuning.

    Raise `CalibrationError` if the device does not agree with its calibration: there is too little light, or the
    regression leaves too large a residual.
    """
    encoders = tuple(modulator.encoder for modulator in calibration.modulators)
    curves = [_measure_gate(tile_meter, calibration, symbol, pair, encoders) for pair in (0, 1)]
    gate_encoders = [make_encoder(curve) for curve in curves]
    shared_encoder_0, shared_encoder_1 = calibration.modulators[0].shared, calibration.modulators[2].shared
    symbol_encoder = Coding((shared_encoder_0, gate_encoders[0], shared_encoder_1, gate_encoders[1]))
    decoder = _train_decoder(tile_meter, symbol_encoder, symbol, rng)
    return Tuning(symbol, symbol_encoder, (curves[0], curves[1]), decoder)


def _measure_gate(
    tile_meter: TileMeter, calibration: Calibration, symbol: Symbol, pair: int, encoders: tuple[Encoder, ...]
) -> Fringe:
    """Measure and return the curve of a gate's pulses, with its partner open and the other pair dark.

    Raise `CalibrationError` for too little light.
    """
    gate = GATE_INDICES[pair]
    curve = calibration.modulators[gate].curve
    margin = RANGE_MARGIN * curve.half_wave
    low, high = max(curve.null - margin, -WORD_LIMIT), min(curve.peak + margin, WORD_LIMIT)
    sweep_words = np.rint(np.linspace(low, high, SWEPT_POINT_COUNT)).astype(np.int64)
    dark_words = tuple(int(encoder.words[0]) for encoder in encoders)
    words = np.tile(np.array(dark_words), (sweep_words.size, SWEPT_SYMBOL_COUNT, 1))
    words[:, :, gate - 1] = encoders[gate - 1].words[-1]
    words[:, :, gate] = sweep_words[:, None]
    levels = measure_tiles(tile_meter, words, dark_words, symbol, shots=SHOT_COUNT).mean(axis=1)
    expected_light = calibration.decoder.gain[pair] * _compute_open_ticks(tile_meter, symbol)
    swing = float(np.ptp(levels))
    if swing < MIN_LIGHT_SHARE * expected_light:
        raise CalibrationError(
            (
                f"the pulses of generator {calibration.modulators[gate].channel} give {swing:.0f} counts "
                f"instead of {expected_light:.0f}"
            ),
            device=calibration.device,
            hint="Check that the laser is on, then run `lightning calibrate` with this device",
        )
    return fit_fringe(sweep_words, levels)


def _compute_open_ticks(tile_meter: TileMeter, symbol: Symbol) -> float:
    """Return the total open time of the gate in a tile of a sweep, in ticks."""
    return SWEPT_SYMBOL_COUNT * symbol.open_sample_count / tile_meter.make_tile(1, symbol).samples_per_tick


def _train_decoder(
    tile_meter: TileMeter, symbol_encoder: Coding, symbol: Symbol, rng: np.random.Generator
) -> TileDecoder:
    symbol_count = min(TRAINING_SYMBOL_COUNT, tile_meter.count_max_symbols(symbol))
    values = draw_training_values(rng, symbol_count)
    levels = measure_tiles(
        tile_meter, symbol_encoder.encode(values), symbol_encoder.dark_words, symbol, shots=SHOT_COUNT
    ).mean(axis=1)
    operands = symbol_encoder.compute_operands(values)
    products = operands[..., 0::2] * operands[..., 1::2]
    design = np.column_stack([operands.sum(axis=1), products.sum(axis=1)])
    solution, *_ = np.linalg.lstsq(design, levels, rcond=None)
    residuals = levels - design @ solution
    coefficients = [float(weight) for weight in solution]
    gain = (coefficients[MODULATOR_COUNT], coefficients[MODULATOR_COUNT + 1])
    full_product_level = float(np.mean(np.array(gain) * symbol_encoder.full_products))
    rms = float(np.sqrt(np.mean(residuals**2) / symbol_count)) * FULL_VALUE / full_product_level
    if not rms <= MAX_TILE_RESIDUAL:
        raise CalibrationError(
            (
                f"products of random vectors are wrong by {rms:.2f} of 255 (rms); noise explains at most "
                f"{MAX_TILE_RESIDUAL}"
            ),
            hint=(
                "Run `lightning calibrate`; if the error stays, lower the laser's power: the receiver "
                "compresses"
            ),
        )
    return TileDecoder(tuple(coefficients[:MODULATOR_COUNT]), gain, full_product_level, rms)


def draw_training_values(rng: np.random.Generator, symbol_count: int) -> Integers:
    """Return random values, (tiles, length, 4).

    Each modulator of each tile has its own range, so that the regression can separate operand sums from product sums.
    """
    max_values = rng.integers(0, LEVEL_COUNT, (TRAINING_TILE_COUNT, 1, MODULATOR_COUNT))
    min_values = rng.integers(0, max_values + 1)
    return rng.integers(min_values, max_values + 1, (TRAINING_TILE_COUNT, symbol_count, MODULATOR_COUNT))
