"""Calibration of the loss of light by a request: full light for a model of full weights.

    nic.load(NicProgram((make_calibration_model(),)))        with loss factor 128
    score = ...                                         the answer to CALIBRATION_INPUT
    find_loss_factor(score)                             for the setting `loss_factor`

The published datapath sends a wave and takes the mean of the returned light. A request does the same: its score is the
sum of 1,024 products of full light.
"""

from __future__ import annotations

import numpy as np

from fpga.photonic_mac.network import FULL_SCALE
from fpga.smartnic.program import MAX_ACTIVATIONS, NicLayer, NicModel

NO_LOSS_FACTOR = 128
"""The factor that changes nothing."""
MAX_LOSS_FACTOR = 1023
"""The largest factor, for an eighth of the light."""
CALIBRATION_INPUT = bytes([FULL_SCALE]) * MAX_ACTIVATIONS
_FULL_PRODUCT = FULL_SCALE * FULL_SCALE >> 8


def make_calibration_model() -> NicModel:
    """Return a model whose only score is the sum of the products of its input with full weights."""
    weights = np.full((1, MAX_ACTIVATIONS), FULL_SCALE, np.int16)
    return NicModel(
        "calibration",
        (NicLayer(weights, np.zeros(1, np.int32), np.ones(1, np.float32)),),
        follows_published_datapath=True,
    )


def find_loss_factor(score: float) -> int:
    """Return the loss factor that restores full light, from a score measured with factor 128 (no compensation).

    Raise ValueError if less than an eighth of the light came back.

    >>> find_loss_factor(254 * 1024), find_loss_factor(127 * 1024)
    (128, 256)
    """
    full_score = _FULL_PRODUCT * MAX_ACTIVATIONS
    if score * MAX_LOSS_FACTOR < full_score * NO_LOSS_FACTOR:
        raise ValueError(
            f"the score is {score:g} of {full_score}: less than an eighth of the light came back, too little to restore"
        )
    return round(NO_LOSS_FACTOR * full_score / score)
