"""Data sets by name.

| name | contents | test part | training part |
|---|---|---|---|
| `digits` | scikit-learn's bundled 8 x 8 digits, levels 0 .. 16 scaled to 0 .. 255 | the last 500 | the first 1,297 |
| `mnist:DIR` | IDX files, compressed by gzip or not | `t10k-*` | `train-*`, if present |
| `nsl-kdd:DIR` | connections, normal or attack | `KDDTest+` | `KDDTrain+_20Percent`, or `KDDTrain+` |
| `FILE.npz` | arrays of your own | `x`, `y` or `x_test`, `y_test` | `x_train`, `y_train`, if present |

The parts are fixed, so a name always yields the same images. The digits are ordered by writer, so the writers of the
test part wrote few of the training images.

MNIST uses the IDX format. MNIST's page describes its layout: two zero bytes, a byte for the type (8: unsigned bytes), a
byte for the number of axes, the length of each axis as a big-endian 32-bit number, then the values in row-major order.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lightning.errors import DatasetError
from lightning.evaluation.dataset import Classes, Dataset, Raw, hash_content, read_content
from lightning.evaluation.nsl_kdd import load_nsl_kdd
from lightning.evaluation.sources import NAMES_HELP
from lightning.optional import require

TRAINING_DIGIT_COUNT = 1297

_EXPECTED_ARRAYS = "Write x (n, ...) and y (n,) with numpy.savez, and x_train and y_train if there are any"
Bytes = npt.NDArray[np.uint8]
IDX_UNSIGNED_BYTE = 8
GZIP_MAGIC = b"\x1f\x8b"
_DOWNLOAD_HINT = "Get the file again"


def load_dataset(name: str | os.PathLike[str]) -> Dataset:
    """Load a data set by name (see the module). Raise `DatasetError` if it is unknown, missing or unreadable."""
    text = os.fspath(name)
    source, _, folder = text.partition(":")
    if text == "digits":
        return _load_digits()
    if source == "mnist" and folder:
        return load_mnist(Path(folder).expanduser())
    if source == "nsl-kdd" and folder:
        return load_nsl_kdd(Path(folder).expanduser())
    if text.endswith(".npz"):
        return _load_arrays(Path(text).expanduser())
    raise DatasetError(f"{text!r} is not a known dataset", hint=f"Use {NAMES_HELP}")


def _load_digits() -> Dataset:
    datasets = require("sklearn.datasets", "for its bundled digits")
    sklearn = require("sklearn", "for its bundled digits")
    bunch = datasets.load_digits()
    # + 8 rounds to the nearest level.
    x = ((bunch.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)
    y = bunch.target.astype(np.int64)
    train_slice, test_slice = slice(None, TRAINING_DIGIT_COUNT), slice(TRAINING_DIGIT_COUNT, None)
    origin = {"scikit-learn": str(sklearn.__version__), "digits": hash_content(x.tobytes() + y.tobytes())}
    return Dataset("digits", x[test_slice], y[test_slice], x[train_slice], y[train_slice], origin)


def _load_arrays(path: Path) -> Dataset:
    content = read_content(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError) as error:
        raise DatasetError(
            f"{path} is not an .npz of plain arrays ({error})", hint=_EXPECTED_ARRAYS
        ) from error
    except Exception as error:  # zipfile and zlib have errors of their own
        raise DatasetError(f"{path} is damaged ({error})", hint="Write it again with numpy.savez") from error
    test = _find_arrays(arrays, ("x", "y"), ("x_test", "y_test"))
    if test is None:
        arrays_text = f"the arrays {', '.join(sorted(arrays))}" if arrays else "no arrays"
        raise DatasetError(
            f"{path} has {arrays_text}, but needs x and y, or x_test and y_test", hint=_EXPECTED_ARRAYS
        )
    train = _find_arrays(arrays, ("x_train", "y_train")) or (test[0][:0], test[1][:0])
    origin = {path.name: hash_content(content)}
    return Dataset(
        path.name, test[0], _check_classes(test[1], path), train[0], _check_classes(train[1], path), origin
    )


def _find_arrays(arrays: Mapping[str, Raw], *names: tuple[str, str]) -> tuple[Raw, Raw] | None:
    """Return the inputs and classes of the first pair of names that is present, or None."""
    for x, y in names:
        if x in arrays and y in arrays:
            return arrays[x], arrays[y]
    return None


def _check_classes(y: Raw, path: Path) -> Classes:
    if y.size and not (np.issubdtype(y.dtype, np.number) and np.array_equal(y, np.rint(y.real))):
        raise DatasetError(
            f"{path}: y has classes that are not integers", hint="Number the classes 0, 1, ..."
        )
    return y.astype(np.int64)


def read_idx(path: Path) -> Bytes:
    """Return the array of an IDX file. Raise `DatasetError` for another type or a wrong number of values."""
    return parse_idx(read_content(path), str(path))


def parse_idx(content: bytes, name: str = "the file") -> Bytes:
    """Return the array in the content of an IDX file. Errors contain `name`.

    >>> parse_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9])).tolist()
    [[7, 8, 9]]
    """
    decompressed = _unpack(content, name)
    if len(decompressed) < 4 or decompressed[:2] != b"\0\0" or decompressed[2] != IDX_UNSIGNED_BYTE:
        raise DatasetError(
            (
                f"{name} is not a valid IDX file of bytes: it begins with {decompressed[:4].hex(' ') or 'nothing'} "
                "instead of 00 00 08 and the number of axes"
            ),
            hint="Use MNIST's own files, compressed or not",
        )
    data_offset = 4 + 4 * decompressed[3]
    if len(decompressed) < data_offset:
        raise DatasetError(f"{name} ends within its header", hint=_DOWNLOAD_HINT)
    shape = tuple(np.frombuffer(decompressed, ">u4", decompressed[3], 4).tolist())
    # Python integers (dtype=object), because a forged header must not overflow 64 bits.
    size = int(np.prod(shape, dtype=object))
    if len(decompressed) - data_offset != size:
        raise DatasetError(
            f"{name} has {len(decompressed) - data_offset} values, but its header announces {size}",
            hint=_DOWNLOAD_HINT,
        )
    return np.frombuffer(decompressed, np.uint8, offset=data_offset).reshape(shape)


def load_mnist(folder: Path) -> Dataset:
    """Load the test images of a folder, and the training images if present. Raise `DatasetError` for invalid files."""
    test_part, hashes = _read_pair(folder, "t10k")
    train_images, train_classes = test_part[0][:0], test_part[1][:0]
    train_hashes: dict[str, str] = {}
    if _find_file(folder, "train-images-idx3-ubyte") is not None:
        (train_images, train_classes), train_hashes = _read_pair(folder, "train")
    return Dataset(
        f"mnist:{folder}", test_part[0], test_part[1], train_images, train_classes, hashes | train_hashes
    )


def _read_pair(folder: Path, prefix: str) -> tuple[tuple[Bytes, npt.NDArray[np.int64]], dict[str, str]]:
    """Return the images and classes, and the hashes of their files."""
    paths = [_require_file(folder, f"{prefix}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1")]
    contents = [read_content(path) for path in paths]
    images, labels = (parse_idx(content, str(path)) for content, path in zip(contents, paths, strict=True))
    if (images.ndim, labels.ndim) != (3, 1):
        raise DatasetError(
            f"{paths[0]} has {images.ndim} axes and {paths[1]} {labels.ndim} instead of 3 and 1",
            hint="Check that images and labels are not swapped",
        )
    hashes = {path.name: hash_content(content) for path, content in zip(paths, contents, strict=True)}
    return (images, labels.astype(np.int64)), hashes


def _require_file(folder: Path, name: str) -> Path:
    path = _find_file(folder, name)
    if path is None:
        raise DatasetError(
            f"{folder} holds no {name}, nor {name}.gz" if folder.is_dir() else f"{folder} is not a folder",
            hint="Name the folder of MNIST's files",
        )
    return path


def _find_file(folder: Path, name: str) -> Path | None:
    """Return the path of the file, or None. Its name may end in `.gz`. Some copies have `.idx` instead of `-idx`."""
    dotted_name = name.replace("-idx", ".idx")
    names = (f"{base_name}{ending}" for base_name in (name, dotted_name) for ending in ("", ".gz"))
    return next((folder / candidate for candidate in names if (folder / candidate).is_file()), None)


def _unpack(content: bytes, name: str) -> bytes:
    if content[:2] != GZIP_MAGIC:
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{name} cannot be unpacked ({error})", hint=_DOWNLOAD_HINT) from error
