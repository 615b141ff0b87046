"""What a model takes: raw inputs and keys, checked before anything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.execution.seam import Keys
from lightning.networks.network import Network


def raw_shape(network: Network) -> tuple[int, ...]:
    """Of one raw input: that of the network, or with channels last where preprocessing turns them."""
    shape = network.input_shape
    if network.preprocessing.layout == "HWC" and len(shape) == 3:
        return (*shape[1:], shape[0])
    return shape


def checked_inputs(network: Network, inputs: npt.ArrayLike) -> npt.NDArray[Any]:
    """The inputs as an array (images, ...). Raises `InputError`, which says what was expected."""
    array = np.asarray(inputs)
    if array.dtype.kind not in "uifb":
        raise InputError(
            f"inputs of data type {array.dtype} are no numbers",
            cure="Give whole numbers or floats: uint8 for images, float32 for features",
        )
    _check_shape(array.shape, raw_shape(network))
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(
            "inputs hold NaN or infinity, which light cannot carry",
            cure="Replace missing values before inference",
        )
    return array


def _check_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    expected = f"(images, {', '.join(map(str, wanted))})"
    if shape[1:] != wanted or not shape:
        raise InputError(
            f"inputs have shape {shape}; the model takes {expected}",
            cure="Reshape the inputs; a single one needs an axis of length 1 in front",
        )
    if shape[0] == 0:
        raise InputError("the batch is empty", cure=f"Give at least one input: {expected}")


def checked_keys(keys: npt.ArrayLike | None, images: int) -> Keys:
    """One whole number an image; 0, 1, 2, ... by default. Raises `InputError`."""
    if keys is None:
        return np.arange(images, dtype=np.uint64)
    array = np.asarray(keys)
    whole = array.dtype.kind == "u" or (array.dtype.kind == "i" and bool((array >= 0).all()))
    if array.shape != (images,) or not whole:
        raise InputError(
            f"keys of shape {array.shape} and type {array.dtype} do not go with {images} inputs",
            cure="Give one whole number of 0 .. 2**64 - 1 for each input: its index, or its request",
        )
    return np.ascontiguousarray(array, dtype=np.uint64)
