"""Dot products as waveforms: vectors are played as envelopes, and the detector's light is added up.

    from lightning.kit.dot import VectorCore
    core = VectorCore(soc)
    core.dot(weights, inputs)            # sum of products over 255, for vectors of any length
    core.matvec(matrix, vector, shots=4)
    inspect(soc, calibration, weights, inputs)     # every product by itself, as a waveform

| module | what it is for |
|---|---|
| `symbol` | how many samples carry an operand, and which of them count; from values to samples |
| `packing` | which product goes into which symbol of which tile |
| `program` | tiles on a device: many in one program |
| `tuning` | the gates' curves, and what a tile brings |
| `core` | `VectorCore` |
| `inspection` | a vector seen as a waveform |
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt

from lightning.kit.dot.core import VectorCore
from lightning.kit.dot.inspection import Inspection, inspect
from lightning.kit.dot.packing import Integers
from lightning.kit.dot.symbol import Symbol

__all__ = ["Inspection", "Symbol", "VectorCore", "core_of", "dot", "inspect", "matvec"]


class Computes(Protocol):
    """As much of `LightningCompute` as is needed here."""

    @property
    def vectors(self) -> VectorCore:
        """The core for vectors on its device."""
        ...

    def dot(self, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int | None = None) -> Any:
        """Return the sum of products of two vectors."""
        ...

    def matvec(self, matrix: npt.ArrayLike, vector: npt.ArrayLike, *, shots: int | None = None) -> Integers:
        """Return a matrix times a vector."""
        ...


def core_of(compute: Computes) -> VectorCore:
    """Return the core that shares device and calibration with a `LightningCompute`."""
    return compute.vectors


def dot(compute: Computes, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int | None = None) -> Any:
    """Return the product as `VectorCore.dot` does, with the shots of `compute` unless others are given."""
    return compute.dot(weights, inputs, shots=shots)


def matvec(
    compute: Computes, matrix: npt.ArrayLike, vector: npt.ArrayLike, *, shots: int | None = None
) -> Integers:
    """Return the product as `VectorCore.matvec` does, with the shots of `compute` unless others are given."""
    return compute.matvec(matrix, vector, shots=shots)
