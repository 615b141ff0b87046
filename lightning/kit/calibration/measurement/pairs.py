"""Encoders and decoder of a device, from sweeps and from measured pairs of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.decoder import FULL_VALUE, Decoder, fit_decoder
from lightning.kit.calibration.encoder import LEVEL_COUNT, Encoder, dim_encoder, make_encoder
from lightning.kit.calibration.fringe import Floats
from lightning.kit.calibration.measurement.transfer import PARTNERS, RowReader, Sweep

TRAINING_PAIR_COUNT = 160
"""Random pairs of values per product, besides the corners."""
MAX_SCALE_SHARE = 0.96
"""Share of the converter's range that the sum of two full products may fill. Noise needs the rest."""

Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Encoders:
    """Encoders of the four modulators: fully open, and open as far as a sum of two products allows."""

    full_encoders: tuple[Encoder, ...]
    shared_encoders: tuple[Encoder, ...]
    range_shares: tuple[float, float]
    """Share of its full range to which the first modulator of each pair opens in a sum."""

    def look_up_words(self, values: npt.ArrayLike) -> Table:
        """Return the words (n, 4) for (n, 4) values. Rows with both pairs lit use the shared encoders."""
        table = np.atleast_2d(np.asarray(values, dtype=np.int64))
        return _look_up_values(self, table, _find_lit_pairs(table), "words").astype(np.int64)


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """Rows of values, and the measured levels."""

    values: Table
    """(n, 4) of 0..255."""
    operands: Floats
    """(n, 4) operands (0..1) that the words produce."""
    levels: Floats
    """(n,) counts above idle."""
    idle_level: float
    is_pair_lit: npt.NDArray[np.bool_]
    """(n, 2) mask of the pairs with a value above 0."""


def make_encoders(sweeps: Mapping[int, Sweep], *, full_scale: float, idle_level: float) -> Encoders:
    """Return the encoders. In a sum both products get the same weight, the greatest that the converter allows.

    Raise `ValueError` if the available words do not open a modulator.
    """
    full_encoders = tuple(make_encoder(sweeps[index].curve) for index in range(4))
    full_product_levels = [compute_pair_strength(sweeps, pair) for pair in (0, 1)]
    max_level = min(*full_product_levels, MAX_SCALE_SHARE * (full_scale - idle_level) / 2)
    range_shares = (max_level / full_product_levels[0], max_level / full_product_levels[1])
    shared_encoders = list(full_encoders)
    for pair, factor in enumerate(range_shares):
        shared_encoders[2 * pair] = dim_encoder(sweeps[2 * pair].curve, full_encoders[2 * pair], factor)
    return Encoders(full_encoders, tuple(shared_encoders), range_shares)


def compute_pair_strength(sweeps: Mapping[int, Sweep], pair: int) -> float:
    """Return the counts above dark of a full product of this pair, as the mean of its two sweeps."""
    first_modulator, second_modulator = 2 * pair, 2 * pair + 1
    amplitudes = [
        sweeps[index].curve.amplitude
        / float(sweeps[PARTNERS[index]].curve.compute_share(sweeps[index].partner_word))
        for index in (first_modulator, second_modulator)
    ]
    return float(np.mean(amplitudes))


def measure_rows(reader: RowReader, encoders: Encoders, values: npt.ArrayLike, *, shots: int) -> MeasuredRows:
    """Measure rows of four values on the device. Rows with both pairs lit use the shared encoders."""
    table = np.atleast_2d(np.asarray(values, dtype=np.int64))
    is_pair_lit = _find_lit_pairs(table)
    readings = reader.read(encoders.look_up_words(table), shots=shots)
    return MeasuredRows(
        table,
        _look_up_values(encoders, table, is_pair_lit, "operands"),
        readings.levels,
        readings.idle_level,
        is_pair_lit,
    )


def train_decoder(
    reader: RowReader, encoders: Encoders, *, full_scale: float, rng: np.random.Generator, shots: int
) -> tuple[Decoder, MeasuredRows]:
    """Measure single products and sums of random values; return the decoder and the rows of single products.

    Raise `ValueError` if the rows do not determine all of the decoder's coefficients.
    """
    single_product_rows = measure_rows(reader, encoders, _draw_single_rows(rng), shots=shots)
    full_product_level = float(single_product_rows.levels.max())
    first_decoder = fit_decoder(
        single_product_rows.levels,
        single_product_rows.operands,
        shared_gain=full_product_level,
        full_scale=full_scale,
    )
    sum_rows = measure_rows(
        reader, encoders, rng.integers(1, LEVEL_COUNT, (TRAINING_PAIR_COUNT, 4)), shots=shots
    )
    shared_gain = _fit_shared_gain(first_decoder, encoders, sum_rows)
    decoder = fit_decoder(
        single_product_rows.levels,
        single_product_rows.operands,
        shared_gain=shared_gain,
        full_scale=full_scale,
    )
    return decoder, single_product_rows


def compute_true_sums(values: npt.ArrayLike) -> Floats:
    """Return a*b/255 + c*d/255, (n,), for (n, 4) values.

    >>> compute_true_sums([[255, 2, 255, 3]]).tolist()
    [5.0]
    """
    v = np.atleast_2d(np.asarray(values, dtype=float))
    truth: Floats = (v[:, 0] * v[:, 1] + v[:, 2] * v[:, 3]) / FULL_VALUE
    return truth


def _draw_single_rows(rng: np.random.Generator) -> Table:
    """Return the corners and random pairs of each product, with the other pair at value 0."""
    pairs = np.concatenate(
        [[[0, 0], [0, 255], [255, 0], [255, 255]] * 4, rng.integers(0, LEVEL_COUNT, (TRAINING_PAIR_COUNT, 2))]
    )
    dark_pairs = np.zeros_like(pairs)
    return np.concatenate([np.hstack([pairs, dark_pairs]), np.hstack([dark_pairs, pairs])])


def _fit_shared_gain(decoder: Decoder, encoders: Encoders, sum_rows: MeasuredRows) -> float:
    """Return the counts of a full product in a sum: the slope of a line through the origin, light over sum."""
    linear_levels = sum_rows.levels + decoder.curvature * sum_rows.levels**2
    light = linear_levels - decoder.offset - sum_rows.operands @ np.array(decoder.leak)
    factors = np.array([encoders.range_shares[0], 1.0, encoders.range_shares[1], 1.0])
    v = sum_rows.operands / factors
    true_sums = v[:, 0] * v[:, 1] + v[:, 2] * v[:, 3]
    return float(light @ true_sums / (true_sums @ true_sums))


def _find_lit_pairs(table: Table) -> npt.NDArray[np.bool_]:
    """Return a mask (n, 2) of the pairs with a value above 0."""
    return np.stack([table[:, :2].any(axis=1), table[:, 2:].any(axis=1)], axis=1)


def _look_up_values(
    encoders: Encoders, table: Table, is_pair_lit: npt.NDArray[np.bool_], attribute: str
) -> Floats:
    """Return the words or operands, (n, 4). Rows with both pairs lit use the shared encoders."""
    is_both_lit = is_pair_lit.all(axis=1)
    columns = [
        np.where(
            is_both_lit,
            getattr(encoders.shared_encoders[modulator], attribute)[table[:, modulator]],
            getattr(encoders.full_encoders[modulator], attribute)[table[:, modulator]],
        )
        for modulator in range(4)
    ]
    return np.stack(columns, axis=1)
