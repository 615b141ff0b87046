"""The calibration as a document: versioned JSON that a person can read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from lightning import errors
from lightning.kit.calibration.decoder import Decoder
from lightning.kit.calibration.document import HINT, Calibration, Modulator, Outcome, Timing
from lightning.kit.calibration.encoder import WORD_LIMIT, Encoder
from lightning.kit.calibration.fringe import Fringe
from lightning.kit.calibration.noise import NoiseModel
from lightning.kit.calibration.validity import number, validated, whole

FORMAT = "lightbed.calibration"
VERSION = 1


def to_json(calibration: Calibration) -> dict[str, Any]:
    """Return the document: numbers, text, lists and dictionaries only."""
    plain = _plain(asdict(calibration))
    return {"format": FORMAT, "version": VERSION, **plain, "made": calibration.made.isoformat()}


def to_text(calibration: Calibration) -> str:
    """Return the document as it is kept: one line for each list of numbers."""
    indented = json.dumps(to_json(calibration), indent=1)
    flat = re.sub(r"\[\n[^\[\]{}]*\]", lambda found: re.sub(r"\n\s*", " ", found.group()), indented)
    return flat + "\n"


def from_json(document: Any, *, source: str = "this document") -> Calibration:
    """Return the calibration that `to_json` wrote.

    Raises `UnknownVersion` for another format or a version that is not ours, `CalibrationError` for one that is
    damaged, or whose numbers cannot be those of a device (`validity`).
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise errors.UnknownVersion(
            f"{source} is not a valid calibration (format {FORMAT!r} is missing)", hint=HINT
        )
    if document.get("version") != VERSION:
        raise errors.UnknownVersion(
            f"{source} has version {document.get('version')!r}; this library reads version {VERSION}",
            hint=f"install the library that wrote it, or {HINT}",
        )
    try:
        return validated(_calibration(document))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise errors.CalibrationError(f"{source} is damaged ({error!r})", hint=HINT) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return [round(entry, 9) if isinstance(entry, float) else entry for entry in value.tolist()]
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


def _calibration(d: Mapping[str, Any]) -> Calibration:
    one, two, three, four = (_modulator(m) for m in d["modulators"])
    made = datetime.fromisoformat(d["made"])
    return Calibration(
        device=_text(d["device"]),
        made=made if made.tzinfo else made.replace(tzinfo=UTC),
        origin=_text(d["origin"]),
        simulated=_truth(d["simulated"]),
        readout=d["readout"],
        modulators=(one, two, three, four),
        decoder=_decoder(d["decoder"]),
        noise=NoiseModel(**d["noise"]),
        timing=Timing(**{**d["timing"], "arrival": _four(d["timing"]["arrival"])}),
        conditions={_text(name): _condition(value) for name, value in d["conditions"].items()},
        outcomes=tuple(_outcome(outcome) for outcome in d["outcomes"]),
        raw=_text(d["raw"]),
    )


def _modulator(d: Mapping[str, Any]) -> Modulator:
    curve = Fringe(**{**d["curve"], "phase": tuple(number("phase", p) for p in d["curve"]["phase"])})
    full, shared = _encoder(d["encoder"]), _encoder(d["shared"])
    return Modulator(d["channel"], curve, full, shared, number("partner's share", d["partner_share"]))


def _encoder(d: Mapping[str, Any]) -> Encoder:
    words = np.array([whole("word", word, -WORD_LIMIT, WORD_LIMIT) for word in d["words"]], dtype=np.int64)
    operands = np.array([number("operand", operand) for operand in d["operands"]])
    if words.shape != (256,) or operands.shape != (256,):
        raise ValueError("an encoder has 256 words and 256 operands")
    return Encoder(words, operands, number("floor", d["floor"]), number("top", d["top"]))


def _decoder(d: Mapping[str, Any]) -> Decoder:
    first, second = (number("gain", gain) for gain in d["gain"])
    return Decoder(**{**d, "leak": _four(d["leak"]), "gain": (first, second)})


def _four(values: Sequence[float]) -> tuple[float, float, float, float]:
    one, two, three, four = (number("one of four", value) for value in values)
    return one, two, three, four


def _outcome(d: Mapping[str, Any]) -> Outcome:
    outcome = Outcome(**d)
    for text in (outcome.step, outcome.figure, outcome.limit, outcome.hint):
        _text(text)
    _truth(outcome.passed)
    _truth(outcome.skipped)
    return outcome


def _condition(value: Any) -> float | str:
    return value if isinstance(value, str) else number("a condition", value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value
