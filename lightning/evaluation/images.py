"""Conversion of data sets, images and array files to the shape of a model's raw input."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.execution.interface import get_raw_shape
from lightning.networks.network import Network
from lightning.networks.preprocess import pack_named_inputs
from lightning.optional import require

Raw = npt.NDArray[Any]


def fit_axes(x: Raw, network: Network) -> Raw:
    """Reshape inputs to the network's raw input, for example (n, 28, 28) to (n, 784) or (n, 1, 28, 28).

    Values are neither cropped, padded nor reordered. Raise `InputError` if the number of values differs.
    """
    shape = get_raw_shape(network)
    if x.shape[1:] == shape:
        return x
    if math.prod(x.shape[1:]) != math.prod(shape):
        raise InputError(
            f"an image has {_describe_shape(x.shape[1:])} values, but {network.name} takes {_describe_shape(shape)}",
            hint="Use data that the network was trained for",
        )
    return x.reshape(len(x), *shape)


def read_input(path: Path, network: Network, *, resize: bool = False) -> Raw:
    """Return one raw input, (1, ...), from an image, an `.npy`, or an `.npz` of named inputs. Raise `InputError`."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", hint="Check the path")
    if path.suffix.lower() == ".npz":
        return pack_named_inputs(network, _read_arrays(path))
    if path.suffix.lower() == ".npy":
        return fit_axes(_read_array(path)[None], network)
    return fit_axes(read_image(path, get_raw_shape(network), resize=resize)[None], network)


def read_image(path: Path, shape: tuple[int, ...], *, resize: bool = False) -> Raw:
    """Return an image as levels 0 .. 255: (height, width), (3, height, width) or (height, width, 3).

    `shape` is the shape of the model's raw input. It selects one of these three shapes of the image. Raise `InputError`
    for a file that is not an image, and for another size unless `resize` is set.
    """
    image_module = require("PIL.Image", "to read images")
    width, height, colour_count = find_image_size(shape)
    try:
        with image_module.open(path) as image_file:
            picture = image_file.convert("RGB" if colour_count == 3 else "L")
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(
            f"{path} is not an image that can be read", hint="Name a PNG, or an .npy of raw values"
        ) from error
    if picture.size != (width, height):
        if not resize:
            raise InputError(
                f"{path} has {picture.width} x {picture.height} pixels, but the model takes {width} x {height}",
                hint="Pass --resize to scale it, or crop it yourself",
            )
        picture = picture.resize((width, height), image_module.Resampling.BILINEAR)
    levels = np.asarray(picture, dtype=np.uint8)
    return levels.transpose(2, 0, 1) if colour_count == 3 and shape[0] == 3 else levels


def loses_colours(path: Path, network: Network) -> bool:
    """Return whether the image has colours but the model takes grey levels."""
    if path.suffix.lower() in {".npy", ".npz"} or find_image_size(get_raw_shape(network))[2] == 3:
        return False
    with require("PIL.Image", "to read images").open(path) as image_file:
        red, green, blue = np.moveaxis(np.asarray(image_file.convert("RGB")), -1, 0)
    return not (np.array_equal(red, green) and np.array_equal(green, blue))


def find_image_size(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the width, height and number of colours of an image for a raw input of this shape.

    A flat input counts as a square of grey levels. Raise `InputError` if an image cannot have this shape.

    >>> find_image_size((784,)), find_image_size((1, 8, 6)), find_image_size((32, 32, 3))
    ((28, 28, 1), (6, 8, 1), (32, 32, 3))
    """
    side = math.isqrt(math.prod(shape))
    if len(shape) == 1 and side * side == shape[0]:
        return side, side, 1
    if len(shape) == 2:
        return shape[1], shape[0], 1
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape[2], shape[1], shape[0]
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[1], shape[0], shape[2]
    raise InputError(
        f"the model takes {_describe_shape(shape)} values, not an image",
        hint="Give the input as an .npy file",
    )


def _read_array(path: Path) -> Raw:
    try:
        values: Raw = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not an array of numbers", hint="Write it with numpy.save") from error
    return values


def _describe_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _read_arrays(path: Path) -> dict[str, Raw]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"{path} is not an .npz of arrays", hint="Write it with numpy.savez") from error
