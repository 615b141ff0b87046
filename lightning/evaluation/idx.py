"""MNIST's files: IDX, compressed or not.

Layout, as MNIST's page states it: two zero bytes, a byte for the type (8: unsigned bytes), a byte for the number of
axes, the length of each axis as a big-endian 32-bit number, then the values, the last axis fastest.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lightning.errors import DatasetError
from lightning.evaluation.dataset import Dataset, content_of, sha256_of

Bytes = npt.NDArray[np.uint8]

UNSIGNED_BYTE = 8
GZIP = b"\x1f\x8b"
_AGAIN = "Get the file again"


def read_idx(path: Path) -> Bytes:
    """Return the array of one file. Raises `DatasetError` for another type, and for too few or too many values."""
    return parse_idx(content_of(path), str(path))


def parse_idx(content: bytes, name: str = "the file") -> Bytes:
    """Return the array in these bytes; `name` is for errors.

    >>> parse_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9])).tolist()
    [[7, 8, 9]]
    """
    plain = _unpacked(content, name)
    if len(plain) < 4 or plain[:2] != b"\0\0" or plain[2] != UNSIGNED_BYTE:
        raise DatasetError(
            f"{name} is not a valid IDX file of bytes: it begins with {plain[:4].hex(' ') or 'nothing'},"
            " where 00 00 08 and the number of axes are wanted",
            hint="Name MNIST's own files, compressed or not",
        )
    start = 4 + 4 * plain[3]
    if len(plain) < start:
        raise DatasetError(f"{name} ends within its head", hint=_AGAIN)
    shape = tuple(np.frombuffer(plain, ">u4", plain[3], 4).tolist())
    wanted = int(np.prod(shape, dtype=object))
    if len(plain) - start != wanted:
        raise DatasetError(f"{name} has {len(plain) - start} values instead of {wanted}", hint=_AGAIN)
    return np.frombuffer(plain, np.uint8, offset=start).reshape(shape)


def load_mnist(folder: Path) -> Dataset:
    """Test images of a folder, and the training images if they are there. Raises `DatasetError`."""
    test, kept = _pair(folder, "t10k")
    train, also_kept = test[0][:0], test[1][:0]
    training: dict[str, str] = {}
    if _found(folder, "train-images-idx3-ubyte") is not None:
        (train, also_kept), training = _pair(folder, "train")
    return Dataset(f"mnist:{folder}", test[0], test[1], train, also_kept, kept | training)


def _pair(folder: Path, part: str) -> tuple[tuple[Bytes, npt.NDArray[np.int64]], dict[str, str]]:
    """Return the images and classes, and the hashes of their files."""
    paths = [_required(folder, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1")]
    contents = [content_of(path) for path in paths]
    images, labels = (parse_idx(content, str(path)) for content, path in zip(contents, paths, strict=True))
    if (images.ndim, labels.ndim) != (3, 1):
        raise DatasetError(
            f"{paths[0]} has {images.ndim} axes and {paths[1]} {labels.ndim}, where 3 and 1 are wanted",
            hint="See that images and labels are not exchanged",
        )
    hashes = {path.name: sha256_of(content) for path, content in zip(paths, contents, strict=True)}
    return (images, labels.astype(np.int64)), hashes


def _required(folder: Path, name: str) -> Path:
    found = _found(folder, name)
    if found is None:
        raise DatasetError(
            f"{folder} holds no {name}, nor {name}.gz" if folder.is_dir() else f"{folder} is not a folder",
            hint="Name the folder of MNIST's files",
        )
    return found


def _found(folder: Path, name: str) -> Path | None:
    """Return the file under its name, compressed or not, with a point for the second hyphen as some keep it."""
    dotted = name.replace("-idx", ".idx")
    names = (f"{each}{ending}" for each in (name, dotted) for ending in ("", ".gz"))
    return next((folder / each for each in names if (folder / each).is_file()), None)


def _unpacked(content: bytes, name: str) -> bytes:
    if content[:2] != GZIP:
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{name} cannot be unpacked ({error})", hint=_AGAIN) from error
