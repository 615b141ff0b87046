"""Dot products as waveforms: vectors are played as envelopes, and the detector's light is added up.

    from lightning.dot import VectorCore
    core = VectorCore(soc)
    core.dot(weights, inputs)            # sum of products over 255, for vectors of any length
    core.matvec(matrix, vector, shots=4)
    look(soc, calibration, weights, inputs)     # every product by itself, as a waveform

| module | what it is for |
|---|---|
| `symbol` | how many samples carry an operand, and which of them count |
| `packing` | which product goes into which symbol of which tile |
| `envelope` | from values to samples |
| `program` | tiles on a device: many in one program |
| `tuning` | the gates' curves, and what a tile brings |
| `core` | `VectorCore` |
| `look` | a vector seen as a waveform |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from lightning.dot.core import VectorCore
from lightning.dot.look import Look, look
from lightning.dot.packing import Integers
from lightning.dot.symbol import Symbol

if TYPE_CHECKING:
    from lightning.compute import LightningCompute

__all__ = ["Look", "Symbol", "VectorCore", "core_of", "dot", "look", "matvec"]


def core_of(compute: LightningCompute) -> VectorCore:
    """The core that shares device and calibration with a `LightningCompute`."""
    return compute.vectors


def dot(
    compute: LightningCompute, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int | None = None
) -> Any:
    """As `VectorCore.dot`, with the shots of `compute` unless others are given."""
    return compute.dot(weights, inputs, shots=shots)


def matvec(
    compute: LightningCompute, matrix: npt.ArrayLike, vector: npt.ArrayLike, *, shots: int | None = None
) -> Integers:
    """As `VectorCore.matvec`, with the shots of `compute` unless others are given."""
    return compute.matvec(matrix, vector, shots=shots)
