"""An interface for all fidelities: the multiplier, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import CompiledModel, PhotonicLayer

Keys = npt.NDArray[np.uint64]
Activations = npt.NDArray[np.int16]
Fidelity = Literal["exact", "noisy", "device", "datapath"]


class Multiplier(Protocol):
    """Sums of products of one layer; where fidelities differ."""

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> npt.NDArray[Any]:
        """Return sums (images, positions, groups, rows) of activations (images, positions, groups, terms).

        They are int32, or float32 with noise. `keys` (images,) say which image each is, so that its noise
        does not depend on its neighbours.
        """
        ...


@dataclass(frozen=True)
class Answers:
    """Answers for a batch."""

    scores: npt.NDArray[np.float32]
    """(images, ...) of the network's output; integers of the last layer in the `published` scheme."""
    cycles: int = 0
    """Of the datapath, for one image."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Things that happened: `clipped_activations`; with noise `clipped_readouts`; with `wrap`, other than in hardware,
    `wrapped_sums`. What cannot be seen is left out."""

    @property
    def classes(self) -> npt.NDArray[np.int64]:
        """(images,) as `classes_of` finds them."""
        return classes_of(self.scores)


def classes_of(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the first of the largest scores, (images,); of a single one, a logit, 1 where it is above 0.

    >>> classes_of(np.float32([[1, 3, 3], [2, 1, 0]])).tolist(), classes_of(np.float32([[-1], [2]])).tolist()
    ([1, 0], [0, 1])
    """
    flat = scores.reshape(len(scores), -1)
    found = flat[:, 0] > 0 if flat.shape[1] == 1 else flat.argmax(axis=1)
    return np.asarray(found, np.int64)


class Executor(Protocol):
    """A model that answers. Not for several threads at a time."""

    model: CompiledModel
    fidelity: Fidelity

    def run(self, inputs: npt.ArrayLike, keys: npt.ArrayLike | None = None) -> Answers:
        """Return the answers for raw inputs (images, ...), to which the model's preprocessing is applied.

        `keys` are whole numbers, one an image; by default 0, 1, 2, ... Raises `InputError` for a shape, a data type
        or values (NaN, infinity) that the model does not take.
        """
        ...

    def warm(self) -> None:
        """Compile and touch everything that the first answer needs, for one image and for a batch."""
        ...

    def close(self) -> None:
        """Release the devices."""
        ...
