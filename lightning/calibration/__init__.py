"""Calibration: which word opens a modulator how far, and which level means which product.

| module | what it is for |
|---|---|
| `fringe` | the curve of a modulator, found in a sweep |
| `encoder` | from a value of 0..255 to a word |
| `decoder` | from a level to a product |
| `noise` | which noise there is |
| `delay` | when the light arrives |
| `accuracy` | how good answers are, and what they are compared with |
| `document`, `form`, `store` | the calibration, as a document, as a file; `find(device)` |
| `batch` | many rows of words measured inside one program |
| `transfer`, `pairs`, `bias`, `probe` | what is measured on a device |
| `alignment`, `steps`, `guided` | the guided run |
| `drift` | whether a calibration still holds |
"""

from __future__ import annotations

from lightning.calibration.document import Calibration, Outcome
from lightning.calibration.form import from_json, to_json
from lightning.calibration.store import find, load, require, save

__all__ = ["Calibration", "Outcome", "find", "from_json", "load", "require", "save", "to_json"]
