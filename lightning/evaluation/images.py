"""Raw inputs in the shape that a model takes them in: of a data set, of an image, of an array in a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.execution.interface import raw_shape
from lightning.networks.network import Network
from lightning.networks.preprocess import raw_of
from lightning.optional import require

Raw = npt.NDArray[Any]


def fit_axes(x: Raw, network: Network) -> Raw:
    """Return the inputs with the axes of the network's raw input: (n, 784) or (n, 1, 28, 28).

    Nothing is cut, padded or exchanged. Raises `InputError` where the numbers are not as many.
    """
    wanted = raw_shape(network)
    if x.shape[1:] == wanted:
        return x
    if math.prod(x.shape[1:]) != math.prod(wanted):
        raise InputError(
            f"an image has {_describe_shape(x.shape[1:])} values, but {network.name} takes {_describe_shape(wanted)}",
            hint="Use data that the network was trained for",
        )
    return x.reshape(len(x), *wanted)


def read_input(path: Path, network: Network, *, resize: bool = False) -> Raw:
    """Return the raw input from an image, an `.npy`, or an `.npz` of inputs by name, (1, ...). Raises `InputError`."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", hint="Check the path")
    if path.suffix.lower() == ".npz":
        return raw_of(network, _arrays(path))
    if path.suffix.lower() == ".npy":
        return fit_axes(_array(path)[None], network)
    return fit_axes(read_image(path, raw_shape(network), resize=resize)[None], network)


def read_image(path: Path, shape: tuple[int, ...], *, resize: bool = False) -> Raw:
    """Return the levels 0 .. 255 of an image, (height, width), with 3 colours where the raw `shape` has them.

    Colours come where `shape` has them, in front or behind. Raises `InputError` for what is not an image, and for
    another size unless `resize`.
    """
    image = require("PIL.Image", "to read images")
    width, height, colours = image_size(shape)
    try:
        with image.open(path) as opened:
            found = opened.convert("RGB" if colours == 3 else "L")
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(
            f"{path} is not an image that can be read", hint="Name a PNG, or an .npy of raw values"
        ) from error
    if found.size != (width, height):
        if not resize:
            raise InputError(
                f"{path} has {found.width} x {found.height} pixels, but the model takes {width} x {height}",
                hint="Pass --resize to scale it, or crop it yourself",
            )
        found = found.resize((width, height), image.Resampling.BILINEAR)
    levels = np.asarray(found, dtype=np.uint8)
    return levels.transpose(2, 0, 1) if colours == 3 and shape[0] == 3 else levels


def loses_colours(path: Path, network: Network) -> bool:
    """Return whether an image has colours, and the model takes grey levels."""
    if path.suffix.lower() in {".npy", ".npz"} or image_size(raw_shape(network))[2] == 3:
        return False
    with require("PIL.Image", "to read images").open(path) as opened:
        red, green, blue = np.moveaxis(np.asarray(opened.convert("RGB")), -1, 0)
    return not (np.array_equal(red, green) and np.array_equal(green, blue))


def image_size(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return width, height and colours of images for a raw input of this shape. Raises `InputError`.

    >>> image_size((784,)), image_size((1, 8, 6)), image_size((32, 32, 3))
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


def _array(path: Path) -> Raw:
    try:
        found: Raw = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not an array of numbers", hint="Write it with numpy.save") from error
    return found


def _describe_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _arrays(path: Path) -> dict[str, Raw]:
    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"{path} is not an .npz of arrays", hint="Write it with numpy.savez") from error
