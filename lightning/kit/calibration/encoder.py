"""The encoder: it converts a value of 0 to 255 to the gain word of a modulator.

The words of a modulator run from its null to its peak, or as near as the generator reaches. Value x gets the word
whose share of the modulator's transmission is

    s(x) = floor + (top - floor) * x / 255

so that the light is linear in the value. Words are integers, so the effective operand differs slightly from x/255.
The encoder stores both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.fringe import Floats, Fringe

Words = npt.NDArray[np.int64]

LEVEL_COUNT = 256
WORD_LIMIT = 32766
"""Greatest magnitude of a gain word that a QICK generator accepts."""
MIN_RANGE_SHARE = 0.1
"""Minimum share of a modulator's range that the available words must cover."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """Gain words of the 256 values of one modulator, and the operands that they give."""

    words: Words
    """(256,) gain words."""
    operands: Floats
    """(256,) operand that each word produces: about value/255, scaled by the factor of `dim_encoder`."""
    floor: float
    """Share of the transmission (between null and peak of the modulator) at value 0."""
    top: float
    """Share of the transmission at value 255."""


def make_encoder(curve: Fringe, *, top: float = 1.0, word_limit: int = WORD_LIMIT) -> Encoder:
    """Return the words that make a modulator with this curve linear, up to the share `top` of its peak.

    Raise `ValueError` if words up to `word_limit` open the modulator by less than a tenth of its range.
    """
    low, high = max(-word_limit, curve.null), min(word_limit, curve.peak)
    floor, max_share = (float(share) for share in curve.compute_share([low, high]))
    top = min(top, max_share)
    if high <= low or top - floor < MIN_RANGE_SHARE:
        raise ValueError(
            f"words up to {word_limit} open the modulator to only {top - floor:.3f} of its range"
        )
    targets = floor + (top - floor) * np.arange(LEVEL_COUNT) / (LEVEL_COUNT - 1)
    # The phase grows over [low, high], so a table of all words inverts the curve.
    all_words = np.arange(int(np.ceil(low)), int(np.floor(high)) + 1)
    angles = np.arcsin(np.sqrt(np.clip(targets, 0.0, 1.0)))
    words = np.rint(np.interp(angles, curve.compute_angle(all_words), all_words)).astype(np.int64)
    return Encoder(words, (curve.compute_share(words) - floor) / (top - floor), floor, top)


def dim_encoder(curve: Fringe, full_encoder: Encoder, factor: float) -> Encoder:
    """Return the encoder of a modulator that opens `factor` (0..1) times as far.

    Operands keep the unit of `full_encoder`.
    Raise `ValueError` if that leaves less than a tenth of the modulator's range.
    """
    dimmed_encoder = make_encoder(
        curve, top=full_encoder.floor + factor * (full_encoder.top - full_encoder.floor)
    )
    return replace(
        dimmed_encoder,
        operands=dimmed_encoder.operands
        * (dimmed_encoder.top - dimmed_encoder.floor)
        / (full_encoder.top - full_encoder.floor),
    )
