"""Data to evaluate on, by name: raw inputs as a data file holds them, and the class of each.

| name | what it is | test part | training part |
|---|---|---|---|
| `digits` | scikit-learn's bundled 8 x 8 digits, levels 0 .. 16 spread over 0 .. 255 | the last 500 | the first 1,297 |
| `mnist:DIR` | IDX files, compressed by gzip or not | `t10k-*` | `train-*`, where they are |
| `nsl-kdd:DIR` | connections, normal or attack | `KDDTest+` | `KDDTrain+_20Percent`, or `KDDTrain+` |
| `FILE.npz` | arrays of your own | `x`, `y` or `x_test`, `y_test` | `x_train`, `y_train`, where they are |

Parts are fixed: two people who name the same data see the same images. Digits come writer by writer, so those who
wrote the last ones did not write most of the first.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lightning.errors import DatasetError
from lightning.evaluation.dataset import Classes, Dataset, Raw, content_of, sha256_of
from lightning.evaluation.idx import load_mnist
from lightning.evaluation.nsl_kdd import load_nsl_kdd
from lightning.evaluation.sources import NAMES
from lightning.optional import needed

DIGITS_OF_TRAINING = 1297


def load_dataset(name: str | os.PathLike[str]) -> Dataset:
    """Return data by its name (see above). Raises `DatasetError` for what is not there or cannot be read."""
    text = os.fspath(name)
    kind, _, folder = text.partition(":")
    if text == "digits":
        return _digits()
    if kind == "mnist" and folder:
        return load_mnist(Path(folder).expanduser())
    if kind == "nsl-kdd" and folder:
        return load_nsl_kdd(Path(folder).expanduser())
    if text.endswith(".npz"):
        return _arrays(Path(text).expanduser())
    raise DatasetError(f"{text!r} names no data", hint=f"Name {NAMES}")


def _digits() -> Dataset:
    datasets = needed("sklearn.datasets", "for its bundled digits")
    sklearn = needed("sklearn", "for its bundled digits")
    bunch = datasets.load_digits()
    x = ((bunch.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)
    y = bunch.target.astype(np.int64)
    train, test = slice(None, DIGITS_OF_TRAINING), slice(DIGITS_OF_TRAINING, None)
    origin = {"scikit-learn": str(sklearn.__version__), "digits": sha256_of(x.tobytes() + y.tobytes())}
    return Dataset("digits", x[test], y[test], x[train], y[train], origin)


def _arrays(path: Path) -> Dataset:
    content = content_of(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError) as error:
        raise DatasetError(f"{path} is no .npz of plain arrays ({error})", hint=_WANTED) from error
    except Exception as error:  # zipfile and zlib have errors of their own
        raise DatasetError(f"{path} is damaged ({error})", hint="Write it again with numpy.savez") from error
    test = _part(arrays, ("x", "y"), ("x_test", "y_test"))
    if test is None:
        raise DatasetError(f"{path} has the arrays {', '.join(sorted(arrays)) or 'none'}", hint=_WANTED)
    train = _part(arrays, ("x_train", "y_train")) or (test[0][:0], test[1][:0])
    kept = {path.name: sha256_of(content)}
    return Dataset(path.name, test[0], _classes(test[1], path), train[0], _classes(train[1], path), kept)


_WANTED = "Write x (n, ...) and y (n,) with numpy.savez, and x_train and y_train if there are any"


def _part(arrays: Mapping[str, Raw], *names: tuple[str, str]) -> tuple[Raw, Raw] | None:
    """Return the inputs and classes under the first of these names that both are there."""
    for x, y in names:
        if x in arrays and y in arrays:
            return arrays[x], arrays[y]
    return None


def _classes(y: Raw, path: Path) -> Classes:
    if y.size and not (np.issubdtype(y.dtype, np.number) and np.array_equal(y, np.rint(y.real))):
        raise DatasetError(
            f"{path}: y has classes that are no whole numbers", hint="Number the classes 0, 1, ..."
        )
    return y.astype(np.int64)
