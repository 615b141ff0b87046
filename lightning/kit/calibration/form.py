"""The calibration as a document: versioned JSON that a person can read.

A damaged or edited file must not lead to wrong products. The checks therefore cover every range, and compare words
and operands with their curve. They raise `ValueError` or `TypeError`; `from_json` converts these to a
`CalibrationError` that names the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from lightning import errors
from lightning.kit.calibration.decoder import Decoder
from lightning.kit.calibration.document import CALIBRATE_HINT, Calibration, Modulator, Outcome, Timing
from lightning.kit.calibration.encoder import WORD_LIMIT, Encoder
from lightning.kit.calibration.fringe import Fringe
from lightning.kit.calibration.noise import NoiseModel

FORMAT = "lightbed.calibration"
VERSION = 1

KNOWN_ORIGINS = ("measured", "factory")
CHANNEL_COUNT = 16
"""Greatest number of generators, and of readouts, of one QICK processor."""
LATEST_TICKS = 8_192
"""Latest valid arrival. The search for light covers four windows of about a thousand ticks."""
SLOWEST_TICK_NS = 1_000.0
HIGHEST_COUNT = 2.0**31
"""Magnitude limit of an accumulated reading."""
MAX_CURVATURE_SHARE = 0.25
"""Greatest curvature times full scale. With a greater curvature, levels would not grow with the light."""
OPERAND_TOLERANCE = 1e-6
"""Tolerance of operands. They are stored with nine digits."""
MIN_OPENING = 0.09
"""Slightly below `encoder.MIN_RANGE_SHARE`, to allow for rounding."""


def to_json(calibration: Calibration) -> dict[str, Any]:
    """Return the JSON document: numbers, text, lists and dictionaries only."""
    plain = _make_plain(asdict(calibration))
    return {"format": FORMAT, "version": VERSION, **plain, "made": calibration.made.isoformat()}


def to_text(calibration: Calibration) -> str:
    """Return the text of the document file, with each list of numbers on one line."""
    indented = json.dumps(to_json(calibration), indent=1)
    compact = re.sub(r"\[\n[^\[\]{}]*\]", lambda match: re.sub(r"\n\s*", " ", match.group()), indented)
    return compact + "\n"


def from_json(document: Any, *, source: str = "this document") -> Calibration:
    """Return the calibration of a document that `to_json` wrote.

    Raise `UnknownVersion` for another format or version, and `CalibrationError` for a damaged document or one that
    `validate` rejects.
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise errors.UnknownVersion(
            f"{source} is not a valid calibration (format {FORMAT!r} is missing)", hint=CALIBRATE_HINT
        )
    if document.get("version") != VERSION:
        raise errors.UnknownVersion(
            f"{source} has version {document.get('version')!r}; this library reads version {VERSION}",
            hint=f"install the library that wrote it, or {CALIBRATE_HINT}",
        )
    try:
        return validate(_read_calibration(document))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise errors.CalibrationError(f"{source} is damaged ({error!r})", hint=CALIBRATE_HINT) from error


def _make_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _make_plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return [round(entry, 9) if isinstance(entry, float) else entry for entry in value.tolist()]
    if isinstance(value, (list, tuple)):
        return [_make_plain(entry) for entry in value]
    return value


def _read_calibration(document: Mapping[str, Any]) -> Calibration:
    modulator_0, modulator_1, modulator_2, modulator_3 = (
        _read_modulator(modulator) for modulator in document["modulators"]
    )
    made = datetime.fromisoformat(document["made"])
    return Calibration(
        device=_check_text("device", document["device"]),
        made=made if made.tzinfo else made.replace(tzinfo=UTC),
        origin=_check_text("origin", document["origin"]),
        simulated=_check_bool("simulated", document["simulated"]),
        readout=document["readout"],
        modulators=(modulator_0, modulator_1, modulator_2, modulator_3),
        decoder=_read_decoder(document["decoder"]),
        noise=NoiseModel(**document["noise"]),
        timing=Timing(**{**document["timing"], "arrival": _read_four_numbers(document["timing"]["arrival"])}),
        conditions={
            _check_text("the name of a condition", name): _read_condition(value)
            for name, value in document["conditions"].items()
        },
        outcomes=tuple(_read_outcome(outcome) for outcome in document["outcomes"]),
        raw=_check_text("raw", document["raw"]),
    )


def _read_modulator(document: Mapping[str, Any]) -> Modulator:
    curve = Fringe(
        **{
            **document["curve"],
            "phase": tuple(check_number("phase", coefficient) for coefficient in document["curve"]["phase"]),
        }
    )
    encoder, shared_encoder = _read_encoder(document["encoder"]), _read_encoder(document["shared"])
    return Modulator(
        document["channel"],
        curve,
        encoder,
        shared_encoder,
        check_number("partner's share", document["partner_share"]),
    )


def _read_encoder(document: Mapping[str, Any]) -> Encoder:
    words = np.array(
        [check_integer("word", word, -WORD_LIMIT, WORD_LIMIT) for word in document["words"]], dtype=np.int64
    )
    operands = np.array([check_number("operand", operand) for operand in document["operands"]])
    if words.shape != (256,) or operands.shape != (256,):
        raise ValueError(f"an encoder has {words.size} words and {operands.size} operands, not 256 of each")
    return Encoder(
        words, operands, check_number("floor", document["floor"]), check_number("top", document["top"])
    )


def _read_decoder(document: Mapping[str, Any]) -> Decoder:
    gain_0, gain_1 = (check_number("gain", gain) for gain in document["gain"])
    return Decoder(**{**document, "leak": _read_four_numbers(document["leak"]), "gain": (gain_0, gain_1)})


def _read_four_numbers(values: Sequence[float]) -> tuple[float, float, float, float]:
    value_0, value_1, value_2, value_3 = (check_number("one of four", value) for value in values)
    return value_0, value_1, value_2, value_3


def _read_outcome(document: Mapping[str, Any]) -> Outcome:
    outcome = Outcome(**document)
    for name in ("step", "figure", "limit", "hint"):
        _check_text(f"{name} of an outcome", getattr(outcome, name))
    for name in ("passed", "skipped"):
        _check_bool(f"{name} of an outcome", getattr(outcome, name))
    return outcome


def _read_condition(value: Any) -> float | str:
    return value if isinstance(value, str) else check_number("a condition", value)


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.40}, not a string")
    return value


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r:.40}, not a boolean")
    return value


def validate(calibration: Calibration) -> Calibration:
    """Return the calibration unchanged. Raise `ValueError` or `TypeError` that names the first invalid field."""
    if not calibration.device:
        raise ValueError("the device has no name")
    if calibration.origin not in KNOWN_ORIGINS:
        raise ValueError(f"origin is {calibration.origin!r}, not one of {', '.join(KNOWN_ORIGINS)}")
    _check_raw_name(calibration.raw)
    _check_channels(calibration)
    for index, modulator in enumerate(calibration.modulators):
        _check_modulator(f"modulator {index}", modulator)
    _check_decoder(calibration.decoder)
    _check_noise(calibration.noise)
    _check_timing(calibration.timing)
    return calibration


def check_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Return `value` as a float. Raise `TypeError` if it is not a number, `ValueError` if outside `low` to `high`.

    >>> check_number("gain", 2, 1, 3)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r:.40}, not a number")
    number = float(value)
    if not (math.isfinite(number) and low <= number <= high):
        raise ValueError(f"{name} is {number:g}, not between {low:g} and {high:g}")
    return number


def check_integer(name: str, value: Any, low: int, high: int) -> int:
    """Return `value`. Raise `ValueError` if it is not an integer from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.40}, not an integer from {low} to {high}")
    return value


def _check_raw_name(raw: str) -> None:
    """Raise `ValueError` unless the raw data file is in the document's folder."""
    if raw and (PurePosixPath(raw).name != raw or "\\" in raw or raw == ".."):
        raise ValueError(f"raw is {raw!r}, not a plain file name")


def _check_channels(calibration: Calibration) -> None:
    channels = [modulator.channel for modulator in calibration.modulators]
    for channel in channels:
        check_integer("channel", channel, 0, CHANNEL_COUNT - 1)
    if len(set(channels)) != len(channels):
        raise ValueError(f"channels {channels} name a generator twice")
    check_integer("readout", calibration.readout, 0, CHANNEL_COUNT - 1)


def _check_modulator(name: str, modulator: Modulator) -> None:
    curve = modulator.curve
    if len(curve.phase) not in (2, 4):
        raise ValueError(f"the phase of {name} has {len(curve.phase)} coefficients, not 2 or 4")
    _check_all(f"phase of {name}", curve.phase, -1e3, 1e3)
    check_number(f"slope of the phase of {name}", curve.phase[1], 1e-3)
    check_number(f"centre of {name}", curve.centre, -1e6, 1e6)
    check_number(f"scale of {name}", curve.scale, 1.0, 1e6)
    check_number(f"baseline of {name}", curve.baseline, -HIGHEST_COUNT, HIGHEST_COUNT)
    check_number(f"amplitude of {name}", curve.amplitude, 1e-6, HIGHEST_COUNT)
    check_number(f"rms of {name}", curve.rms, 0.0, curve.amplitude)
    check_number(f"partner's share of {name}", modulator.partner_share, 1e-6, 1 + 1e-9)
    opening = modulator.encoder.top - modulator.encoder.floor
    _check_encoder(f"encoder of {name}", modulator, modulator.encoder, opening)
    _check_encoder(f"shared encoder of {name}", modulator, modulator.shared, opening)


def _check_encoder(name: str, modulator: Modulator, encoder: Encoder, opening: float) -> None:
    """Raise `ValueError` unless words grow with the value and operands follow from curve and words."""
    floor, top = (
        check_number(f"floor of the {name}", encoder.floor, 0, 1),
        check_number(f"top of the {name}", encoder.top, 0, 1),
    )
    if not (top - floor >= MIN_OPENING and opening >= MIN_OPENING):
        raise ValueError(
            f"the {name} opens by {min(top - floor, opening):g} of its range; it must be {MIN_OPENING:g} or more"
        )
    if np.abs(encoder.words).max() > WORD_LIMIT or (np.diff(encoder.words) < 0).any():
        raise ValueError(f"words of the {name} do not grow with the value within ±{WORD_LIMIT}")
    expected_operands = (modulator.curve.compute_share(encoder.words) - floor) / opening
    if not (np.abs(encoder.operands - expected_operands) <= OPERAND_TOLERANCE).all():
        raise ValueError(f"operands of the {name} do not follow from its curve and its words")


def _check_decoder(decoder: Decoder) -> None:
    full_scale = check_number("full scale", decoder.full_scale, 1.0, HIGHEST_COUNT)
    check_number("offset", decoder.offset, -full_scale, full_scale)
    _check_all("leak", decoder.leak, -full_scale, full_scale)
    _check_all("gain", decoder.gain, 1e-4 * full_scale, 4 * full_scale)
    check_number("shared gain", decoder.shared, 1e-4 * full_scale, 4 * full_scale)
    check_number(
        "curvature", decoder.curvature, -MAX_CURVATURE_SHARE / full_scale, MAX_CURVATURE_SHARE / full_scale
    )
    check_number("residual of the regression", decoder.residual_rms, 0.0)


def _check_noise(noise: NoiseModel) -> None:
    for name in ("constant", "shot", "rin"):
        check_number(f"noise {name}", getattr(noise, name), 0.0)
    check_number("mean error", noise.mean, -255, 255)
    check_integer("window of the noise", noise.window, 1, 2**31)


def _check_timing(timing: Timing) -> None:
    _check_all("arrival", timing.arrival, -LATEST_TICKS, LATEST_TICKS)
    check_number("tick", timing.tick_ns, 1e-3, SLOWEST_TICK_NS)
    check_integer("trigger offset", timing.offset_trigger, 0, 2**31)


def _check_all(name: str, values: Iterable[Any], low: float, high: float) -> None:
    for value in values:
        check_number(name, value, low, high)
