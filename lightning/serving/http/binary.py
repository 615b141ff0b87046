"""Numbers of the protocol's datatypes: from bytes and from JSON lists, and back to bytes. Little-endian, row by row."""

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

DATATYPES: dict[str, np.dtype[Any]] = {
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
"""Names that the Open Inference Protocol gives them. BOOL and BYTES are not numbers."""

CODES = dict(zip(DATATYPES, "BHIQbhiqefd", strict=True))
"""Codes of the same types in the standard library (https://docs.python.org/3/library/array.html)."""

ONLY_BINARY = "FP16"
"""JSON has no form for it that all clients agree on."""

AXES = 8
"""More than any network takes."""

LARGEST = 2**40
"""Of the product of all lengths but 0: beyond what numpy can multiply, an empty array has no shape either."""


def datatype_named(name: object) -> np.dtype[Any]:
    """Return the type of numpy that a datatype means. Raises `MalformedRequest` for one that holds no numbers."""
    found = DATATYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise MalformedRequest(
            f"datatype {name!r} is not supported", hint=f"Send one of {', '.join(DATATYPES)}"
        )
    return found


def shape_of(given: object) -> Shape:
    """Return a tensor's shape from a document. Raises `MalformedRequest`."""
    if (
        isinstance(given, list)
        and 0 < len(given) <= AXES
        and all(type(each) is int and each >= 0 for each in given)
        and math.prod(each or 1 for each in given) <= LARGEST
    ):
        return tuple(given)
    raise MalformedRequest(
        f"{str(given)[:80]} is not a valid shape", hint=f"Write a list of 1 to {AXES} integers: [1, 784]"
    )


def from_bytes(raw: bytes, datatype: object, shape: Shape) -> Array:
    r"""Return the numbers in `raw`, which are not copied and so read-only. Raises `MalformedRequest`.

    >>> from_bytes(b"\x01\x00\xff\xff", "INT16", (1, 2)).tolist()
    [[1, -1]]
    """
    kind = datatype_named(datatype)
    size = math.prod(shape) * kind.itemsize
    if len(raw) != size:
        raise MalformedRequest(
            f"a tensor of {datatype} and shape {list(shape)} has {size} bytes, but {len(raw)} arrived",
            hint="Send as many bytes as shape and datatype require",
        )
    return np.frombuffer(raw, kind).reshape(shape)


def from_lists(data: object, datatype: object, shape: Shape) -> Array:
    """Return the numbers of a JSON list, flat or nested as the shape is; read-only. Raises `MalformedRequest`.

    >>> from_lists([[1, 2], [3, 4]], "UINT8", (2, 2)).tolist()
    [[1, 2], [3, 4]]
    """
    kind = datatype_named(datatype)
    if datatype == ONLY_BINARY:
        raise MalformedRequest(
            f"JSON cannot carry {ONLY_BINARY}", hint="Send it as binary data, or send FP32"
        )
    numbers = _flat(data, shape)
    if len(numbers) != math.prod(shape):
        raise MalformedRequest(
            f"a tensor of shape {list(shape)} does not have {len(numbers)} numbers",
            hint="Send all numbers in one flat list, or nested as the shape says",
        )
    found = np.frombuffer(_pack(numbers, str(datatype)), kind).reshape(shape)
    found.flags.writeable = False  # as those from bytes are: code is compiled for one kind
    return found


def to_bytes(numbers: Array) -> bytes:
    """Return the bytes that the protocol carries for these numbers."""
    return bytes(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).tobytes())


def _flat(data: object, shape: Shape) -> list[Any]:
    """Return all numbers in one list. Numpy is not used: it would accept text, also very long text."""
    if not isinstance(data, list):
        raise MalformedRequest(
            "`data` of a tensor is not a valid list", hint="Send its numbers as a list, or as binary data"
        )
    if not data or not isinstance(data[0], list):
        return data
    for length in shape[1:]:
        if len(data) == 0 or any(not isinstance(each, list) or len(each) != length for each in data):
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
        return array(CODES[datatype], numbers)
    except (TypeError, OverflowError, ValueError) as error:
        raise MalformedRequest(
            f"`data` of a tensor holds values that are not valid {datatype} ({error})",
            hint="Send numbers only, of a datatype that holds them",
        ) from error
