"""The interface of all fidelities: multipliers, executors, results, and checks of inputs before preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.errors import InputError
from lightning.networks.network import Network

Keys = npt.NDArray[np.uint64]
Activations = npt.NDArray[np.int16]
Fidelity = Literal["exact", "noisy", "device", "datapath"]


class Multiplier(Protocol):
    """Computes the sums of products of a layer. Each fidelity has its own multiplier."""

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> npt.NDArray[Any]:
        """Return the sums of products, of shape (images, positions, groups, rows).

        `activations` have the shape (images, positions, groups, terms). The sums are int32, or float32 with noise.
        `keys`, of shape (images,), identify the images, so that the noise of an image does not depend on its batch.
        """
        ...


@dataclass(frozen=True)
class Answers:
    """Results for a batch."""

    scores: npt.NDArray[np.float32]
    """Outputs of the network, of shape (images, ...). In the `published` scheme they are the last layer's integers."""
    cycles: int = 0
    """Cycles of the datapath for one image."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Counts of events: `clipped_activations`, `clipped_readouts` (only with noise) and `wrapped_sums` (only with
    `wrap`, and not in hardware). Events that cannot be observed are omitted."""

    @property
    def classes(self) -> npt.NDArray[np.int64]:
        """The class of each image, of shape (images,); see `find_classes`."""
        return find_classes(self.scores)


def find_classes(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the index of the largest score of each image, of shape (images,).

    Of equal scores, the first wins. A single score is a logit: its class is 1 if it is above 0, else 0.

    >>> (
    ...     find_classes(np.float32([[1, 3, 3], [2, 1, 0]])).tolist(),
    ...     find_classes(np.float32([[-1], [2]])).tolist(),
    ... )
    ([1, 0], [0, 1])
    """
    flat_scores = scores.reshape(len(scores), -1)
    classes = flat_scores[:, 0] > 0 if flat_scores.shape[1] == 1 else flat_scores.argmax(axis=1)
    return np.asarray(classes, np.int64)


class Executor(Protocol):
    """An executable model. Not safe for several threads at a time."""

    model: CompiledModel
    fidelity: Fidelity

    def run(self, inputs: npt.ArrayLike, keys: npt.ArrayLike | None = None) -> Answers:
        """Return the results for raw inputs (images, ...), to which the model's preprocessing is applied.

        `keys` are integers, one per image; by default 0, 1, 2, ... Raise `InputError` for a shape, a data type or
        values (NaN, infinity) that the model does not accept.
        """
        ...

    def warm(self) -> None:
        """Compile and load everything that the first run needs, for one image and for a batch."""
        ...

    def close(self) -> None:
        """Release the devices."""
        ...


def get_raw_shape(network: Network) -> tuple[int, ...]:
    """Return the shape of one raw input: the network's input shape, or channels last if preprocessing transposes."""
    shape = network.input_shape
    if network.preprocessing.layout == "HWC" and len(shape) == 3:
        return (*shape[1:], shape[0])
    return shape


def as_array(inputs: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the inputs as an array. Raise `InputError` for rows of unequal length."""
    try:
        return np.asarray(inputs)
    except ValueError as error:
        raise InputError(f"the inputs are not an array: {error}", hint="Give rows of equal length") from error


def check_keys(keys: npt.ArrayLike | None, image_count: int) -> Keys:
    """Return one integer per image, by default 0, 1, 2, ... Raise `InputError` for other counts or types."""
    if keys is None:
        return np.arange(image_count, dtype=np.uint64)
    try:
        array = np.asarray(keys)
    except ValueError as error:
        raise InputError(f"the keys are not an array: {error}", hint="Give one integer per input") from error
    is_integer = array.dtype.kind == "u" or (array.dtype.kind == "i" and bool((array >= 0).all()))
    if array.shape != (image_count,) or not is_integer:
        raise InputError(
            f"keys of shape {array.shape} and type {array.dtype} do not match {image_count} inputs",
            hint="Give one integer from 0 to 2**64 - 1 for each input, for example its index or its request",
        )
    return np.ascontiguousarray(array, dtype=np.uint64)
