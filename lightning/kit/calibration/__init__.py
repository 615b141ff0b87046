"""Calibration: drive codes for transmissions, and the product that a level means.

| module | what it is for |
|---|---|
| `fringe` | the curve of a modulator, found in a sweep |
| `encoder` | from a value of 0..255 to a word |
| `decoder` | from a level to a product, and how good products are |
| `noise` | which noise there is |
| `document`, `form`, `store` | the calibration, as a document that is checked, as a file; `find(device)` |
| `measurement` | what is measured on a device |
| `guided` | the guided run |
| `drift` | whether a calibration still holds |
"""

from __future__ import annotations

from lightning.kit.calibration.document import Calibration, Outcome
from lightning.kit.calibration.form import from_json, to_json
from lightning.kit.calibration.store import find, load, require, save

__all__ = ["Calibration", "Outcome", "find", "from_json", "load", "require", "save", "to_json"]
