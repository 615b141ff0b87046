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
from lightning.calibration.decoder import Decoder
from lightning.calibration.document import CURE, Calibration, Modulator, Outcome, Timing
from lightning.calibration.encoder import Encoder
from lightning.calibration.fringe import Fringe
from lightning.calibration.noise import NoiseModel

FORMAT = "lightbed.calibration"
VERSION = 1


def to_json(calibration: Calibration) -> dict[str, Any]:
    """The document: numbers, text, lists and dictionaries only."""
    plain = _plain(asdict(calibration))
    return {"format": FORMAT, "version": VERSION, **plain, "made": calibration.made.isoformat()}


def to_text(calibration: Calibration) -> str:
    """The document as it is kept: one line for each list of numbers."""
    indented = json.dumps(to_json(calibration), indent=1)
    flat = re.sub(r"\[\n[^\[\]{}]*\]", lambda found: re.sub(r"\n\s*", " ", found.group()), indented)
    return flat + "\n"


def from_json(document: Any, *, source: str = "this document") -> Calibration:
    """The calibration that `to_json` wrote.

    Raises `UnknownVersion` for another format or a version that is not ours, `CalibrationError` for one that is
    damaged.
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise errors.UnknownVersion(f"{source} is no calibration (format {FORMAT!r} is missing)", cure=CURE)
    if document.get("version") != VERSION:
        raise errors.UnknownVersion(
            f"{source} has version {document.get('version')!r}; this library reads version {VERSION}",
            cure=f"install the library that wrote it, or {CURE}",
        )
    try:
        return _calibration(document)
    except (KeyError, TypeError, ValueError) as error:
        raise errors.CalibrationError(f"{source} is damaged ({error!r})", cure=CURE) from error


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
        device=str(d["device"]),
        made=made if made.tzinfo else made.replace(tzinfo=UTC),
        origin=str(d["origin"]),
        simulated=bool(d["simulated"]),
        readout=int(d["readout"]),
        modulators=(one, two, three, four),
        decoder=_decoder(d["decoder"]),
        noise=NoiseModel(**d["noise"]),
        timing=Timing(**{**d["timing"], "arrival": _four(d["timing"]["arrival"])}),
        conditions=dict(d["conditions"]),
        outcomes=tuple(Outcome(**outcome) for outcome in d["outcomes"]),
        raw=str(d["raw"]),
    )


def _modulator(d: Mapping[str, Any]) -> Modulator:
    curve = Fringe(**{**d["curve"], "phase": tuple(d["curve"]["phase"])})
    full, shared = _encoder(d["encoder"]), _encoder(d["shared"])
    return Modulator(int(d["channel"]), curve, full, shared, float(d["partner_share"]))


def _encoder(d: Mapping[str, Any]) -> Encoder:
    words = np.asarray(d["words"], dtype=np.int64)
    operands = np.asarray(d["operands"], dtype=float)
    if words.shape != (256,) or operands.shape != (256,):
        raise ValueError("an encoder has 256 words and 256 operands")
    return Encoder(words, operands, float(d["floor"]), float(d["top"]))


def _decoder(d: Mapping[str, Any]) -> Decoder:
    first, second = d["gain"]
    return Decoder(**{**d, "leak": _four(d["leak"]), "gain": (float(first), float(second))})


def _four(values: Sequence[float]) -> tuple[float, float, float, float]:
    one, two, three, four = (float(value) for value in values)
    return one, two, three, four
