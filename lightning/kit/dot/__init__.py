"""Dot products as waveforms: the generators play vectors as envelopes, and the readout sums the detected light.

    from lightning.kit.dot import VectorCore
    core = VectorCore(soc)
    core.dot(weights, inputs)            # sum of products over 255, for vectors of any length
    core.matvec(matrix, vector, shots=4)
    inspect(soc, calibration, weights, inputs)     # the products of each symbol, as a waveform

| module | purpose |
|---|---|
| `symbol` | converts values to samples |
| `packing` | assigns products to symbols, and symbols to tiles (one envelope each) |
| `program` | measures many tiles in one program |
| `tuning` | measures the modulators' curves, and decodes the light of a tile into a sum |
| `core` | `VectorCore` |
| `inspection` | a vector as a waveform |
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt

from lightning.kit.dot.core import VectorCore
from lightning.kit.dot.inspection import Inspection, inspect
from lightning.kit.dot.packing import Integers
from lightning.kit.dot.symbol import Symbol

__all__ = ["Inspection", "Symbol", "VectorCore", "dot", "get_core", "inspect", "matvec"]


class ProductComputer(Protocol):
    """The methods of `LightningCompute` that this module needs."""

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


def get_core(compute: ProductComputer) -> VectorCore:
    """Return the vector core of a `LightningCompute`, on the same device and calibration."""
    return compute.vectors


def dot(
    compute: ProductComputer, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int | None = None
) -> Any:
    """Return the result of `VectorCore.dot`. `shots` defaults to `compute.shots`."""
    return compute.dot(weights, inputs, shots=shots)


def matvec(
    compute: ProductComputer, matrix: npt.ArrayLike, vector: npt.ArrayLike, *, shots: int | None = None
) -> Integers:
    """Return the result of `VectorCore.matvec`. `shots` defaults to `compute.shots`."""
    return compute.matvec(matrix, vector, shots=shots)
