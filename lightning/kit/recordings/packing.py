"""Packing of what goes to and from a QickSoc, as JSON with the arrays put aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def packed(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    """Return a value as JSON; arrays are put aside, tuples and dictionaries with other keys than texts marked."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"": "array", "name": f"array{len(arrays) - 1}"}
    if isinstance(value, tuple):
        return {"": "tuple", "items": [packed(each, arrays) for each in value]}
    if isinstance(value, list):
        return [packed(each, arrays) for each in value]
    if isinstance(value, Mapping):
        pairs = [[packed(k, arrays), packed(v, arrays)] for k, v in value.items()]
        return {"": "dict", "items": pairs}
    return _plain(value)


def _plain(value: Any) -> Any:
    """Return a number or a text as it is; what is neither, by its looks."""
    number = value.item() if isinstance(value, np.generic) else value
    if number is None or isinstance(number, (bool, int, float, str)):
        return number
    return {"": "other", "text": repr(value)}


def unpacked(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Back from `packed`; the arrays by name."""
    if isinstance(value, list):
        return [unpacked(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value[""]
    if kind == "array":
        return arrays[value["name"]]
    if kind == "tuple":
        return tuple(unpacked(each, arrays) for each in value["items"])
    if kind == "dict":
        return {unpacked(k, arrays): unpacked(v, arrays) for k, v in value["items"]}
    return value["text"]
