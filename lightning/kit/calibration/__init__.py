"""Calibration: drive codes for transmissions, and products from detector levels.

| module | purpose |
|---|---|
| `fringe` | the curve of a modulator, fitted to a sweep |
| `encoder` | converts a value of 0..255 to a gain word |
| `decoder` | converts a level to a product; the accuracy of products |
| `noise` | thermal, shot and relative intensity noise |
| `document`, `form`, `store` | the calibration, its JSON form, its file; `find(device)` |
| `measurement` | the measurements on a device |
| `guided` | the guided run |
| `drift` | whether a calibration still holds |
"""

from __future__ import annotations

from lightning.kit.calibration.document import Calibration, Outcome
from lightning.kit.calibration.form import from_json, to_json
from lightning.kit.calibration.store import find, load, require, save

__all__ = ["Calibration", "Outcome", "find", "from_json", "load", "require", "save", "to_json"]
