"""NSL-KDD: network connections, normal or attack, encoded as values 0 .. 1 for light.

A line has 41 features, the name of the attack (or `normal`), and a difficulty, which is ignored. Three features are
categories. They are one-hot encoded over the categories of the training part, and unknown categories are 0 in all
columns. Rates are already 0 .. 1. Counts, sizes and durations are encoded as

    log(1 + value) / log(1 + largest value in the training part)

and clipped at 1. No input is negative, so light needs a single pass. KDDTest+ contains attacks that do not occur in the
training part. It is therefore a better test of detectors than a random split (M. Tavallaee et al., A detailed analysis
of the KDD CUP 99 data set, CISDA 2009).
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lightning.errors import DatasetError
from lightning.evaluation.dataset import Dataset, hash_content, read_content

Floats = npt.NDArray[np.float32]
Rows = list[list[str]]

FEATURE_COUNT = 41
CATEGORY_COLUMNS = (1, 2, 3)
"""Columns of protocol, service and flag."""
COUNT_COLUMNS = (0, 4, 5, 7, 8, 9, 10, 12, 15, 16, 17, 18, 19, 22, 23, 31, 32)
"""Columns of unbounded features: durations, bytes, and numbers of events and connections."""
CLASSES = ("normal", "attack")
TRAINING_NAMES = ("KDDTrain+_20Percent", "KDDTrain+")
TEST_NAMES = ("KDDTest+",)
FILE_ENDINGS = (".txt", ".csv", ".txt.gz", ".csv.gz")


@dataclass(frozen=True)
class Encoding:
    """Encoding of features, fitted to the training part."""

    categories: tuple[tuple[str, ...], ...]
    """The categories of each categorical feature, sorted."""
    feature_maxima: Floats
    """Largest value, at least 1, of each numerical feature, (38,); 1 for features outside `COUNT_COLUMNS`."""

    @property
    def column_count(self) -> int:
        """Number of columns of an encoded connection."""
        return len(self.feature_maxima) + sum(map(len, self.categories))


def load_nsl_kdd(folder: Path) -> Dataset:
    """Load both parts, encoded with the categories and largest values of the training part. Raise `DatasetError`."""
    paths = [_require_file(folder, names) for names in (TRAINING_NAMES, TEST_NAMES)]
    contents = [read_content(path) for path in paths]
    train, test = (parse_rows(content, str(path)) for content, path in zip(contents, paths, strict=True))
    encoding = fit_encoding(train)
    origin = {path.name: hash_content(content) for path, content in zip(paths, contents, strict=True)}
    return Dataset(
        f"nsl-kdd:{folder}",
        encode_rows(test, encoding),
        read_labels(test),
        encode_rows(train, encoding),
        read_labels(train),
        origin,
        CLASSES,
    )


def parse_rows(content: bytes, name: str = "the file") -> Rows:
    """Split the lines of a file into columns. Raise `DatasetError` with `name` for a malformed line."""
    try:
        decompressed = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        lines = decompressed.decode("ascii").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DatasetError(f"{name} cannot be read ({error})", hint="Download the file again") from error
    rows = [line.split(",") for line in lines if line]
    for number, row in enumerate(rows, 1):
        if len(row) not in (FEATURE_COUNT + 1, FEATURE_COUNT + 2):
            raise DatasetError(
                f"{name}, line {number} has {len(row)} columns instead of {FEATURE_COUNT + 1} or {FEATURE_COUNT + 2}",
                hint="Name the folder of NSL-KDD's own text files, which have no header line",
            )
    if not rows:
        raise DatasetError(f"{name} has no lines", hint="Download the file again")
    return rows


def fit_encoding(rows: Rows) -> Encoding:
    """Return the encoding fitted to these rows."""
    columns = list(zip(*rows, strict=False))
    categories = tuple(tuple(sorted(set(columns[index]))) for index in CATEGORY_COLUMNS)
    feature_maxima = np.maximum(_read_numbers(rows).max(axis=0), 1)
    is_count = np.isin(_list_numerical_columns(), COUNT_COLUMNS)
    return Encoding(categories, np.where(is_count, feature_maxima, 1).astype(np.float32))


def encode_rows(rows: Rows, encoding: Encoding) -> Floats:
    """Encode rows as values 0 .. 1, (n, width), with numerical features first, then a column for each category."""
    numbers = _read_numbers(rows)
    is_count = np.isin(_list_numerical_columns(), COUNT_COLUMNS)
    scaled_features = np.where(
        is_count, np.log1p(np.maximum(numbers, 0)) / np.log1p(encoding.feature_maxima), numbers
    )
    columns = [np.clip(scaled_features, 0, 1)]
    for index, known_values in zip(CATEGORY_COLUMNS, encoding.categories, strict=True):
        values = np.array([row[index] for row in rows])
        columns.append(values[:, None] == np.array(known_values)[None, :])
    return np.concatenate(columns, axis=1).astype(np.float32)


def read_labels(rows: Rows) -> npt.NDArray[np.int64]:
    """Return the classes, (n,): 0 for normal, 1 for every attack."""
    return np.array([row[FEATURE_COUNT] != "normal" for row in rows], dtype=np.int64)


def _list_numerical_columns() -> list[int]:
    """Return the columns of the numerical features."""
    return [index for index in range(FEATURE_COUNT) if index not in CATEGORY_COLUMNS]


def _read_numbers(rows: Rows) -> npt.NDArray[np.float64]:
    try:
        return np.array([[float(row[index]) for index in _list_numerical_columns()] for row in rows])
    except ValueError as error:
        raise DatasetError(
            f"a feature in the NSL-KDD files is not a valid number ({error})", hint="Download the files again"
        ) from error


def _require_file(folder: Path, names: tuple[str, ...]) -> Path:
    candidates = [folder / f"{name}{ending}" for name in names for ending in FILE_ENDINGS]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise DatasetError(
            f"{folder} holds no {names[0]}.txt, nor {names[0]}.txt.gz"
            if folder.is_dir()
            else f"{folder} is not a folder",
            hint="Name the folder of NSL-KDD's text files",
        )
    return path
