"""Data sets: raw inputs and their classes, in a test part and a training part."""

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

SAMPLE_COUNT = 500
"""Number of images that determine activation ranges: enough for stable ranges, and few enough to be fast."""


@dataclass(frozen=True)
class Dataset:
    """Raw inputs (n, ...) and their classes (n,), for testing and for training."""

    name: str
    x: Raw
    y: Classes
    train_x: Raw
    """Training inputs in the shape of `x`, with length 0 if there is no training part."""
    train_y: Classes
    origin: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every file by name, and versions of libraries that bundle data."""
    classes: tuple[str, ...] = ()
    """Names of the classes; empty if the class numbers are the names."""

    def __post_init__(self) -> None:
        _check_part(self.x, self.y, self.name, "test")
        if len(self.train_x) or len(self.train_y):
            _check_part(self.train_x, self.train_y, self.name, "training")
        if not len(self.x):
            raise DatasetError(f"{self.name} has no images", hint="Name data of at least one image")

    def take_first(self, count: int | None) -> Dataset:
        """Return the data with the first `count` test images, or all test images if `count` is None."""
        return self if count is None else replace(self, x=self.x[:count], y=self.y[:count])

    def select_training(self) -> Dataset:
        """Return the data with the training part as the test part. Raise `DatasetError` without a training part."""
        if not len(self.train_x):
            raise DatasetError(
                f"{self.name} has no training part", hint="Put the training files next to the others"
            )
        return replace(self, x=self.train_x, y=self.train_y)

    def separate_samples(self, count: int = SAMPLE_COUNT) -> Dataset:
        """Return the data with a training part: its own, or else `count` images moved out of the test part.

        Activation ranges come from these samples, never from images that measure the accuracy. Raise `DatasetError` if
        no test image would remain.
        """
        if len(self.train_x):
            return self
        if len(self.x) <= count:
            raise DatasetError(
                f"{self.name} has no training part, and {len(self.x)} images are too few to set {count} aside",
                hint="Add x_train and y_train, or compile the model with samples first: lightning compile",
            )
        is_sample = np.zeros(len(self.x), bool)
        is_sample[spread_indices(len(self.x), count)] = True
        return replace(
            self,
            x=self.x[~is_sample],
            y=self.y[~is_sample],
            train_x=self.x[is_sample],
            train_y=self.y[is_sample],
        )


def spread_indices(length: int, count: int) -> npt.NDArray[np.int64]:
    """Return at most `count` evenly spaced indices below `length`, because data may be sorted by class.

    >>> spread_indices(10, 4).tolist(), spread_indices(2, 4).tolist()
    ([0, 2, 5, 7], [0, 1])
    """
    size = min(length, count)
    return np.arange(size, dtype=np.int64) * length // max(size, 1)


def hash_content(content: bytes) -> str:
    """Return the SHA-256 hash as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_content(path: Path) -> bytes:
    """Return the bytes of a file. Raise `DatasetError` if it does not exist or cannot be read."""
    if not path.exists():
        raise DatasetError(f"there is no file {path}", hint="Check the path")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror})", hint="Check the path") from error


def _check_part(x: Raw, y: Classes, name: str, part: str) -> None:
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
        raise DatasetError(f"{name}: the inputs in part {part} have the type {x.dtype}", hint="Give numbers")
