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

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import DatasetError
from lightning.evaluation.sources import NAMES
from lightning.optional import needed

Raw = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]

DIGITS_OF_TRAINING = 1297
SAMPLES = 500
"""Images by which ranges of activations are measured: enough for them to be stable, few enough to be quick."""


@dataclass(frozen=True)
class Dataset:
    """Raw inputs (n, ...) and their classes (n,): those to be tested on, and those that training may see."""

    name: str
    x: Raw
    y: Classes
    train_x: Raw
    """As `x`; of length 0 where there is no training part."""
    train_y: Classes
    origin: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every file by its name; versions of libraries that bring data along."""
    classes: tuple[str, ...] = ()
    """Names of the classes, where numbers do not say it."""

    def __post_init__(self) -> None:
        _check(self.x, self.y, self.name, "test")
        if len(self.train_x) or len(self.train_y):
            _check(self.train_x, self.train_y, self.name, "training")
        if not len(self.x):
            raise DatasetError(f"{self.name} has no images", hint="Name data of at least one image")

    def first(self, count: int | None) -> Dataset:
        """With no more than `count` images to test on."""
        return self if count is None else replace(self, x=self.x[:count], y=self.y[:count])

    def of_training(self) -> Dataset:
        """The training part in the place of the test part. Raises `DatasetError` where there is none."""
        if not len(self.train_x):
            raise DatasetError(
                f"{self.name} has no training part", hint="Put the training files beside the others"
            )
        return replace(self, x=self.train_x, y=self.train_y)

    def with_samples(self, count: int = SAMPLES) -> Dataset:
        """With a training part: its own, or `count` images from all over, which are then no test images any more.

        Ranges of activations are taken from such samples, never from images that the accuracy is counted on. Raises
        `DatasetError` where nothing would be left.
        """
        if len(self.train_x):
            return self
        if len(self.x) <= count:
            raise DatasetError(
                f"{self.name} has no training part, and {len(self.x)} images are too few to put {count} aside",
                hint="Add x_train and y_train, or compile the model with samples first: lightning compile",
            )
        aside = np.zeros(len(self.x), bool)
        aside[evenly(len(self.x), count)] = True
        return replace(self, x=self.x[~aside], y=self.y[~aside], train_x=self.x[aside], train_y=self.y[aside])


def evenly(there: int, count: int) -> npt.NDArray[np.int64]:
    """At most `count` indices from all over 0 .. there - 1: data may be sorted by class.

    >>> evenly(10, 4).tolist(), evenly(2, 4).tolist()
    ([0, 2, 5, 7], [0, 1])
    """
    taken = min(there, count)
    return np.arange(taken, dtype=np.int64) * there // max(taken, 1)


def load_dataset(name: str | os.PathLike[str]) -> Dataset:
    """Data by its name (see above). Raises `DatasetError` for what is not there or cannot be read."""
    text = os.fspath(name)
    kind, _, folder = text.partition(":")
    if text == "digits":
        return _digits()
    if kind == "mnist" and folder:
        from lightning.evaluation.idx import load_mnist

        return load_mnist(Path(folder).expanduser())
    if kind == "nsl-kdd" and folder:
        from lightning.evaluation.nsl_kdd import load_nsl_kdd

        return load_nsl_kdd(Path(folder).expanduser())
    if text.endswith(".npz"):
        return _arrays(Path(text).expanduser())
    raise DatasetError(f"{text!r} names no data", hint=f"Name {NAMES}")


def sha256_of(content: bytes) -> str:
    """By which a file is known, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def content_of(path: Path) -> bytes:
    """The bytes of a file. Raises `DatasetError`."""
    if not path.exists():
        raise DatasetError(f"there is no file {path}", hint="Check the path")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read ({error.strerror})", hint="See that it is there"
        ) from error


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
    """Inputs and classes under the first of these names that both are there."""
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


def _check(x: Raw, y: Classes, name: str, part: str) -> None:
    if y.ndim != 1 or x.ndim < 2 or len(x) != len(y):
        raise DatasetError(
            f"{name}: inputs {x.shape} and classes {y.shape} of the {part} part do not belong together",
            hint="Give inputs (n, ...) and as many classes (n,)",
        )
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        raise DatasetError(
            f"{name}: the {part} part holds NaN or infinity", hint="Replace or leave out these rows"
        )
    if not np.issubdtype(x.dtype, np.number) and x.dtype != np.bool_:
        raise DatasetError(f"{name}: inputs of the {part} part are {x.dtype}", hint="Give numbers")
