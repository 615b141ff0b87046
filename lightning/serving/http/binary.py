"""Codec of tensors: from bytes or JSON lists to arrays, and back to bytes (little-endian, row-major)."""

from __future__ import annotations

import math
from array import array
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import MalformedRequest

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

DTYPE_BY_DATATYPE: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""Numpy types by the datatype names of the Open Inference Protocol. BOOL and BYTES are not numbers."""

CODE_BY_DATATYPE = dict(zip(DTYPE_BY_DATATYPE, "BHIQbhiqefd", strict=True))
"""Type codes of the datatypes in the module `array` (https://docs.python.org/3/library/array.html)."""

BINARY_DATATYPE = "FP16"
"""Datatype without a common JSON form."""

MAX_AXES = 8
"""Maximum number of axes. No network needs more."""

MAX_ELEMENT_COUNT = 2**40
"""Maximum product of the nonzero lengths. Numpy refuses a shape whose product overflows, even of an empty array."""


def parse_datatype(name: object) -> np.dtype[Any]:
    """Return the numpy type of a datatype. Raise `MalformedRequest` for an unknown or non-numeric datatype."""
    dtype = DTYPE_BY_DATATYPE.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise MalformedRequest(
            f"datatype {name!r} is not supported", hint=f"Send one of {', '.join(DTYPE_BY_DATATYPE)}"
        )
    return dtype


def parse_shape(value: object) -> Shape:
    """Return the shape of a tensor from its entry in a document. Raise `MalformedRequest` if it is invalid."""
    if (
        isinstance(value, list)
        and 0 < len(value) <= MAX_AXES
        and all(type(length) is int and length >= 0 for length in value)
        and math.prod(length or 1 for length in value) <= MAX_ELEMENT_COUNT
    ):
        return tuple(value)
    raise MalformedRequest(
        f"{str(value)[:80]} is not a valid shape", hint=f"Write a list of 1 to {MAX_AXES} integers: [1, 784]"
    )


def from_bytes(raw: bytes, datatype: object, shape: Shape) -> Array:
    r"""Return the numbers in `raw` as a read-only view. Raise `MalformedRequest` if the size does not match the shape.

    >>> from_bytes(b"\x01\x00\xff\xff", "INT16", (1, 2)).tolist()
    [[1, -1]]
    """
    dtype = parse_datatype(datatype)
    size = math.prod(shape) * dtype.itemsize
    if len(raw) != size:
        raise MalformedRequest(
            f"a tensor of {datatype} and shape {list(shape)} has {size} bytes, but {len(raw)} arrived",
            hint="Send as many bytes as shape and datatype require",
        )
    return np.frombuffer(raw, dtype).reshape(shape)


def from_lists(data: object, datatype: object, shape: Shape) -> Array:
    """Return a read-only array of the numbers in a JSON list, flat or nested like the shape.

    Raise `MalformedRequest` for an invalid list.


    >>> from_lists([[1, 2], [3, 4]], "UINT8", (2, 2)).tolist()
    [[1, 2], [3, 4]]
    """
    dtype = parse_datatype(datatype)
    if datatype == BINARY_DATATYPE:
        raise MalformedRequest(
            f"JSON cannot carry {BINARY_DATATYPE}", hint="Send it as binary data, or send FP32"
        )
    numbers = _flatten(data, shape)
    if len(numbers) != math.prod(shape):
        raise MalformedRequest(
            f"a tensor of shape {list(shape)} does not have {len(numbers)} numbers",
            hint="Send all numbers in one flat list, or nested as the shape says",
        )
    tensor = np.frombuffer(_pack(numbers, str(datatype)), dtype).reshape(shape)
    tensor.flags.writeable = (
        False  # like arrays of `from_bytes`, because numba compiles separately for writable ones
    )
    return tensor


def to_bytes(numbers: Array) -> bytes:
    """Return the binary tensor data of an array."""
    return bytes(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).tobytes())


def _flatten(data: object, shape: Shape) -> list[Any]:
    """Return all numbers as a flat list. Do not use numpy, which would also convert text of any length."""
    if not isinstance(data, list):
        raise MalformedRequest(
            "`data` of a tensor is not a list", hint="Send its numbers as a list, or as binary data"
        )
    if not data or not isinstance(data[0], list):
        return data
    for length in shape[1:]:
        if len(data) == 0 or any(not isinstance(entry, list) or len(entry) != length for entry in data):
            raise MalformedRequest(
                f"`data` of a tensor is not nested like its shape {list(shape)}",
                hint="Send one flat list, or lists nested like the shape",
            )
        data = list(chain.from_iterable(data))
    return data


def _pack(numbers: list[Any], datatype: str) -> array[Any]:
    if bool in set(map(type, numbers)):
        raise MalformedRequest(
            f"`data` of a tensor holds booleans, which are not valid {datatype}", hint="Send 1 and 0"
        )
    try:
        return array(CODE_BY_DATATYPE[datatype], numbers)
    except (TypeError, OverflowError, ValueError) as error:
        raise MalformedRequest(
            f"`data` of a tensor holds values that are not valid {datatype} ({error})",
            hint="Send numbers only, of a datatype that holds them",
        ) from error
