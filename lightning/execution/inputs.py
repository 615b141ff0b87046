"""Checks of a model's input that preprocessing leaves out: the shape of raw inputs, and keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.execution.interface import Keys
from lightning.networks.network import Network


def raw_shape(network: Network) -> tuple[int, ...]:
    """Return the shape of one raw input: that of the network, or with channels last where preprocessing turns them."""
    shape = network.input_shape
    if network.preprocessing.layout == "HWC" and len(shape) == 3:
        return (*shape[1:], shape[0])
    return shape


def as_array(inputs: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the inputs as an array. Raises `InputError` for rows of unequal length."""
    try:
        return np.asarray(inputs)
    except ValueError as error:
        raise InputError(f"the inputs are no array: {error}", hint="Give rows of equal length") from error


def check_keys(keys: npt.ArrayLike | None, images: int) -> Keys:
    """Return one whole number an image; 0, 1, 2, ... by default. Raises `InputError`."""
    if keys is None:
        return np.arange(images, dtype=np.uint64)
    try:
        array = np.asarray(keys)
    except ValueError as error:
        raise InputError(f"the keys are no array: {error}", hint="Give one whole number an input") from error
    whole = array.dtype.kind == "u" or (array.dtype.kind == "i" and bool((array >= 0).all()))
    if array.shape != (images,) or not whole:
        raise InputError(
            f"keys of shape {array.shape} and type {array.dtype} do not go with {images} inputs",
            hint="Give one whole number of 0 .. 2**64 - 1 for each input: its index, or its request",
        )
    return np.ascontiguousarray(array, dtype=np.uint64)
