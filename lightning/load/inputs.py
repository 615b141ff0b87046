"""Data of requests: rows of a file, rows of a data set of `lightning evaluate`, or random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.load.targets import LoadError

Rows = npt.NDArray[Any]

RANDOM_ROW_COUNT = 64


def make_random_rows(shape: Sequence[int], seed: int) -> Rows:
    """Return random integers from 0 to 255, (64, *shape)."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, size=(RANDOM_ROW_COUNT, *shape), dtype=np.uint8)


def load_rows(data: str) -> Rows:
    """Return the inputs, (rows, ...), of `digits`, `mnist:DIR` or `nsl-kdd:DIR`, or of an `.npy` file.

    Raise `LoadError` for a file, `DatasetError` for a data set that cannot be read.
    """
    file = Path(data)
    if data == "digits" or (":" in data and not file.is_file()):
        from lightning.evaluation import load_dataset

        rows = np.asarray(load_dataset(data).x)
    else:
        rows = _read_file(file)
    if not rows.size or rows.dtype.kind not in "uifb":
        raise LoadError(f"{data} holds no numbers", hint="Give an .npy file of numbers, shape (rows, ...)")
    return rows


def make_rows(data: str, shape: Sequence[int], seed: int) -> Rows:
    """Return inputs (rows, *shape), random or from `load_rows`. Raise `LoadError` if a row has another size."""
    if data == "random":
        return make_random_rows(shape, seed)
    rows = load_rows(data)
    size = int(np.prod(shape))
    if rows.size != len(rows) * size:
        raise LoadError(
            f"rows of {data} have {rows[0].size} values, the model takes {size}",
            hint="Give data of the model's shape, with one row for each input",
        )
    return rows.reshape(len(rows), *shape)


def _read_file(path: Path) -> Rows:
    if not path.is_file():
        raise LoadError(
            f"there is no file {str(path)!r}",
            hint="Give random, digits, mnist:DIR, nsl-kdd:DIR, or an .npy file of rows",
        )
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise LoadError(
            f"{str(path)!r} cannot be read ({error})", hint="Give an .npy file of rows"
        ) from error
    if not isinstance(rows, np.ndarray) or rows.ndim == 0:
        raise LoadError(f"{str(path)!r} holds no rows", hint="Give an .npy file of shape (rows, ...)")
    return rows
