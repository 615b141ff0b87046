"""Raw inputs as a data file holds them, and the class of each: those of a test, and those of training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import DatasetError

Raw = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]

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
        """Return the data with no more than `count` images to test on."""
        return self if count is None else replace(self, x=self.x[:count], y=self.y[:count])

    def of_training(self) -> Dataset:
        """Return the training part in the place of the test part. Raises `DatasetError` where there is none."""
        if not len(self.train_x):
            raise DatasetError(
                f"{self.name} has no training part", hint="Put the training files next to the others"
            )
        return replace(self, x=self.train_x, y=self.train_y)

    def with_samples(self, count: int = SAMPLES) -> Dataset:
        """Return the data with a training part: its own, or `count` images taken out of the test images.

        Ranges of activations are taken from such samples, never from images that the accuracy is counted on. Raises
        `DatasetError` where nothing would be left.
        """
        if len(self.train_x):
            return self
        if len(self.x) <= count:
            raise DatasetError(
                f"{self.name} has no training part, and {len(self.x)} images are too few to set {count} aside",
                hint="Add x_train and y_train, or compile the model with samples first: lightning compile",
            )
        aside = np.zeros(len(self.x), bool)
        aside[evenly(len(self.x), count)] = True
        return replace(self, x=self.x[~aside], y=self.y[~aside], train_x=self.x[aside], train_y=self.y[aside])


def evenly(there: int, count: int) -> npt.NDArray[np.int64]:
    """Return at most `count` indices from all over 0 .. there - 1: data may be sorted by class.

    >>> evenly(10, 4).tolist(), evenly(2, 4).tolist()
    ([0, 2, 5, 7], [0, 1])
    """
    taken = min(there, count)
    return np.arange(taken, dtype=np.int64) * there // max(taken, 1)


def sha256_of(content: bytes) -> str:
    """Return the hash by which a file is known, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def content_of(path: Path) -> bytes:
    """Return the bytes of a file. Raises `DatasetError`."""
    if not path.exists():
        raise DatasetError(f"there is no file {path}", hint="Check the path")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror})", hint="Check the path") from error


def _check(x: Raw, y: Classes, name: str, part: str) -> None:
    if y.ndim != 1 or x.ndim < 2 or len(x) != len(y):
        raise DatasetError(
            f"{name}: inputs {x.shape} and classes {y.shape} of the {part} part do not match",
            hint="Give inputs (n, ...) and as many classes (n,)",
        )
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        raise DatasetError(
            f"{name}: the {part} part holds NaN or infinity", hint="Replace or leave out these rows"
        )
    if not np.issubdtype(x.dtype, np.number) and x.dtype != np.bool_:
        raise DatasetError(f"{name}: inputs of the {part} part are {x.dtype}", hint="Give numbers")
