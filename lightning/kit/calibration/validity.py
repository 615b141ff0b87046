"""Checks that a calibration's numbers can be those of a device.

A damaged or edited file must not become wrong products. Shapes and types are read in `form`; here ranges are
looked at, and that words and operands belong to their curve. Everything raises `ValueError`, which `form`
tells as a `CalibrationError` with the name of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from lightning.kit.calibration.decoder import Decoder
from lightning.kit.calibration.document import Calibration, Modulator, Timing
from lightning.kit.calibration.encoder import WORD_LIMIT, Encoder
from lightning.kit.calibration.noise import NoiseModel

ORIGINS = ("measured", "factory")
CHANNELS = 16
"""Generators and readouts that one processor of QICK can have."""
LATEST_TICKS = 8_192
"""Light is looked for in four windows of about a thousand ticks; nothing can have been found later than this."""
SLOWEST_TICK_NS = 1_000.0
HIGHEST_COUNT = 2.0**31
"""Of an accumulated reading."""
BENT = 0.25
"""Share of the full scale that curvature can take; beyond, levels would not grow with the light."""
SAME_OPERAND = 1e-6
"""Operands are kept with nine digits."""
LEAST_OPENING = 0.09
"""`encoder` refuses a modulator that opens by less than a tenth."""


def validated(calibration: Calibration) -> Calibration:
    """Return the same calibration, checked. Raises `ValueError` that names the first thing that cannot be."""
    if not calibration.device:
        raise ValueError("device has no name")
    if calibration.origin not in ORIGINS:
        raise ValueError(f"origin is {calibration.origin!r}, not one of {', '.join(ORIGINS)}")
    _beside(calibration.raw)
    _channels(calibration)
    for index, modulator in enumerate(calibration.modulators):
        _modulator(f"modulator {index}", modulator)
    _decoder(calibration.decoder)
    _noise(calibration.noise)
    _timing(calibration.timing)
    return calibration


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number between the ends. Raises `TypeError` and `ValueError`.

    >>> number("gain", 2, 1, 3)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r:.40}, no number")
    found = float(value)
    if not (math.isfinite(found) and low <= found <= high):
        raise ValueError(f"{name} is {found:g}, not between {low:g} and {high:g}")
    return found


def whole(name: str, value: Any, low: int, high: int) -> int:
    """Return a whole number between the ends. Raises `ValueError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.40}, no whole number of {low} to {high}")
    return value


def _beside(raw: str) -> None:
    """Raw data lie next to the document, nowhere else."""
    if raw and (PurePosixPath(raw).name != raw or "\\" in raw or raw == ".."):
        raise ValueError(f"raw is {raw!r}, no plain file name")


def _channels(calibration: Calibration) -> None:
    channels = [modulator.channel for modulator in calibration.modulators]
    for channel in channels:
        whole("channel", channel, 0, CHANNELS - 1)
    if len(set(channels)) != len(channels):
        raise ValueError(f"channels {channels} name a generator twice")
    whole("readout", calibration.readout, 0, CHANNELS - 1)


def _modulator(name: str, modulator: Modulator) -> None:
    curve = modulator.curve
    if len(curve.phase) not in (2, 4):
        raise ValueError(f"the phase of {name} has {len(curve.phase)} coefficients, not 2 or 4")
    _all(f"phase of {name}", curve.phase, -1e3, 1e3)
    number(f"slope of the phase of {name}", curve.phase[1], 1e-3)
    number(f"centre of {name}", curve.centre, -1e6, 1e6)
    number(f"scale of {name}", curve.scale, 1.0, 1e6)
    number(f"baseline of {name}", curve.baseline, -HIGHEST_COUNT, HIGHEST_COUNT)
    number(f"amplitude of {name}", curve.amplitude, 1e-6, HIGHEST_COUNT)
    number(f"rms of {name}", curve.rms, 0.0, curve.amplitude)
    number(f"partner's share of {name}", modulator.partner_share, 1e-6, 1 + 1e-9)
    opening = modulator.encoder.top - modulator.encoder.floor
    _encoder(f"encoder of {name}", modulator, modulator.encoder, opening)
    _encoder(f"shared encoder of {name}", modulator, modulator.shared, opening)


def _encoder(name: str, modulator: Modulator, encoder: Encoder, opening: float) -> None:
    """Check that words grow with the value, and that operands are what the curve says of the words."""
    floor, top = (
        number(f"floor of the {name}", encoder.floor, 0, 1),
        number(f"top of the {name}", encoder.top, 0, 1),
    )
    if not (top - floor >= LEAST_OPENING and opening >= LEAST_OPENING):
        raise ValueError(f"the {name} opens by {top - floor:g}")
    if np.abs(encoder.words).max() > WORD_LIMIT or (np.diff(encoder.words) < 0).any():
        raise ValueError(f"words of the {name} do not grow with the value within ±{WORD_LIMIT}")
    expected = (modulator.curve.share(encoder.words) - floor) / opening
    if not (np.abs(encoder.operands - expected) <= SAME_OPERAND).all():
        raise ValueError(f"operands of the {name} are not what its curve says of its words")


def _decoder(decoder: Decoder) -> None:
    top = number("full scale", decoder.full_scale, 1.0, HIGHEST_COUNT)
    number("offset", decoder.offset, -top, top)
    _all("leak", decoder.leak, -top, top)
    _all("gain", decoder.gain, 1e-4 * top, 4 * top)
    number("shared gain", decoder.shared, 1e-4 * top, 4 * top)
    number("curvature", decoder.curvature, -BENT / top, BENT / top)
    number("residual of the regression", decoder.residual_rms, 0.0)


def _noise(noise: NoiseModel) -> None:
    for name in ("constant", "shot", "rin"):
        number(f"noise {name}", getattr(noise, name), 0.0)
    number("mean error", noise.mean, -255, 255)
    whole("window of the noise", noise.window, 1, 2**31)


def _timing(timing: Timing) -> None:
    _all("arrival", timing.arrival, -LATEST_TICKS, LATEST_TICKS)
    number("tick", timing.tick_ns, 1e-3, SLOWEST_TICK_NS)
    whole("trigger offset", timing.offset_trigger, 0, 2**31)


def _all(name: str, values: Iterable[Any], low: float, high: float) -> None:
    for value in values:
        number(name, value, low, high)
