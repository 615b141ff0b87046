"""Departures of the published artifact from what its datapath computes, each to be chosen by name.

Facts: Lightning, SIGCOMM 2023 artifact, `rtl/tb/lightning_emulator.py` and `rtl/datapath`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import Integers
from lightning.errors import InputError
from lightning.execution.interface import Activations

EXPONENTS = (1, 3, 7, 20, 55, 148, 403, 1096, 2980, 8103, 22026, 59874)
"""exp(0) .. exp(11) in the log-softmax block, rounded to whole numbers: exp(11) is 59874.14."""
MISPRINTED = 2206
"""What its table holds for exp(10)."""


def shift_normalised(sums: npt.NDArray[np.float32] | Integers) -> Activations:
    """Return the sums (images, ...) as the datapath makes activations of them.

    Negative ones are 0, the others shifted, image by image, so that the highest set bit of the largest
    becomes bit 7.

    >>> shift_normalised(np.array([[1000, -7, 3], [5, 1, 0]], np.int32)).tolist()
    [[250, 0, 0], [160, 32, 0]]
    """
    return _shifted(np.maximum(sums, 0).astype(np.int64)).astype(np.int16)


def perfectly_scaled(sums: npt.NDArray[np.float32] | Integers) -> Activations:
    """Return the same by the emulator's perfect scaling: times 255 over the largest, ties to even.

    >>> perfectly_scaled(np.array([[1000, -7, 3]], np.int32)).tolist()
    [[255, 0, 1]]
    """
    return _scaled(np.maximum(sums, 0).astype(np.int64)).astype(np.int16)


def last_normalised(sums: Integers, *, perfect: bool) -> Integers:
    """Return the sums (images, ...) of the last layer as the emulator shifts them: negative ones down.

    >>> last_normalised(np.array([[1000, -7, 3]], np.int32), perfect=False).tolist()
    [[250, -2, 0]]
    """
    wide = sums.astype(np.int64)
    return (_scaled(wide) if perfect else _shifted(wide)).astype(np.int32)


def log_softmax(results: Sequence[int] | Integers, *, misprinted: bool = False) -> npt.NDArray[np.float64]:
    """Return the log-softmax as the datapath's block begins it.

    Results are raised so that the largest is 11, exponentials come from a table of twelve whole numbers, 0
    below. The logarithm of their sum is exact here, not from a table. No executor has this block, as it
    changes no class. `misprinted`: the artifact's table, in which a digit is missing.

    >>> log_softmax([5, 4]).round(3).tolist()  # 11 and 10: ln(59874 + 22026) = 11.313
    [-0.313, -1.313]
    >>> log_softmax([5, 4], misprinted=True).round(3).tolist()
    [-0.036, -1.036]
    """
    values = np.asarray(results)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise InputError(
            f"log-softmax takes the whole numbers of one image, not {values.dtype} of shape {values.shape}"
        )
    raised = values.astype(np.int64) + (len(EXPONENTS) - 1 - int(values.max()))
    table = np.array(EXPONENTS)
    if misprinted:
        table[10] = MISPRINTED
    total = table[raised[raised >= 0]].sum()
    return np.asarray(raised - np.log(total), np.float64)


def _shifted(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    _, exponents = np.frexp(_largest(sums))  # exact below 2**53: m * 2**exponent with 0.5 <= m < 1
    return np.asarray((sums << 7) >> np.maximum(exponents.astype(np.int64) - 1, 0))


def _scaled(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.asarray(np.rint(sums * (255 / np.maximum(_largest(sums), 1))))


def _largest(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the largest magnitude of every image, shaped to broadcast."""
    largest = np.abs(sums).reshape(len(sums), -1).max(axis=1)
    return np.asarray(largest.reshape(-1, *([1] * (sums.ndim - 1))))
