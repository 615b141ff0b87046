"""Encoding of Chakra execution traces: length-prefixed messages of protocol buffers.

A file holds the trace of a rank: one `GlobalMetadata`, then the `Node`s, each preceded by its length as a varint
(MLCommons Chakra, `et_def.proto` since October 2023, versions 0.0.4 and 1.0.0). The reader skips fields that a job does
not need, as the encoding of protocol buffers allows. It refuses files of older schemas, which number their fields
differently.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import cast

Value = int | float | str

METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(1, 8)
"""Values of `NodeType`."""

(
    ALL_REDUCE,
    REDUCE,
    ALL_GATHER,
    GATHER,
    SCATTER,
    BROADCAST,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    BARRIER,
) = range(10)
"""Values of `CollectiveCommType`."""

VERSION = "0.0.4"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ID, _NAME, _TYPE, _CONTROL, _DATA, _DURATION, _INPUTS, _ATTRIBUTE, _FIRST_OLD_FIELD = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    10,
    11,
)
_OLD_SCHEMA = (
    "it has an older schema of Chakra: convert it to version 0.0.4 or later with the tools that wrote it"
)
_ATTRIBUTE_NAME, _DOUBLE, _INT64, _BOOL, _STRING = 1, 3, 9, 27, 29


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the trace of one rank. `inputs` holds the values of its inputs, as text.

    It waits for the nodes `after` (data dependencies) and `control`. Some nodes in `control` may not be in the trace:
    the converter of PyTorch's traces omits nodes that only call others.
    """

    number: int
    name: str
    kind: int
    after: tuple[int, ...] = ()
    duration_us: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)
    inputs: str = ""
    control: tuple[int, ...] = ()


def read_nodes(data: bytes) -> list[Node]:
    """Return the nodes in the bytes of a file. Raises `ValueError` if they are not a trace."""
    messages = list(_split_messages(data))
    if not messages:
        raise ValueError("it is empty: a trace begins with its metadata")
    if any(
        field_number > _NAME or isinstance(value, int) for field_number, value in _read_fields(messages[0])
    ):
        raise ValueError(f"it begins with a node instead of its metadata; {_OLD_SCHEMA}")
    return [_read_node(message) for message in messages[1:]]


def write_nodes(nodes: list[Node]) -> bytes:
    """Return the bytes of a file with these nodes.

    >>> node = Node(7, "send", SEND, (1, 300), 5, {"comm_dst": 3, "x": 0.5, "y": "z"})
    >>> read_nodes(write_nodes([node])) == [node]
    True
    """
    messages = [_encode_field(1, VERSION.encode()), *(_encode_node(node) for node in nodes)]
    return b"".join(_encode_varint(len(message)) + message for message in messages)


def _split_messages(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        size, offset = _read_varint(data, offset)
        if offset + size > len(data):
            raise ValueError(f"it ends within the message that starts at byte {offset}")
        yield data[offset : offset + size]
        offset += size


def _read_node(message: bytes) -> Node:
    number, name, kind, duration_us, inputs = 0, "", 0, 0, ""
    data_predecessors: list[int] = []
    control_predecessors: list[int] = []
    attributes: dict[str, Value] = {}
    for field_number, value in _read_fields(message):
        if field_number == _ID:
            number = _check_integer(value)
        elif field_number == _NAME:
            name = _decode_text(value)
        elif field_number == _TYPE:
            kind = _check_integer(value)
        elif field_number == _CONTROL:
            control_predecessors.extend(_unpack_repeated(value))
        elif field_number == _DATA:
            data_predecessors.extend(_unpack_repeated(value))
        elif field_number == _DURATION:
            duration_us = _check_integer(value)
        elif field_number == _INPUTS:
            inputs = next(
                (
                    _decode_text(part)
                    for inner_field_number, part in _read_fields(_check_bytes(value))
                    if inner_field_number == 1
                ),
                "",
            )
        elif field_number == _ATTRIBUTE:
            attributes.update(_read_attribute(_check_bytes(value)))
        elif field_number >= _FIRST_OLD_FIELD and kind <= COLLECTIVE:
            raise ValueError(f"node {number} has field {field_number}, which no node has; {_OLD_SCHEMA}")
    return Node(
        number,
        name,
        kind,
        _deduplicate(data_predecessors),
        duration_us,
        attributes,
        inputs,
        _deduplicate(control_predecessors, excluded=set(data_predecessors)),
    )


def _deduplicate(numbers: list[int], excluded: Collection[int] = ()) -> tuple[int, ...]:
    return tuple(number for number in dict.fromkeys(numbers) if number not in excluded)


def _read_attribute(message: bytes) -> dict[str, Value]:
    """Return the name and the value of an attribute, or an empty dict for a list."""
    name, attribute_value = "", cast("Value | None", None)
    for field_number, value in _read_fields(message):
        if field_number == _ATTRIBUTE_NAME:
            name = _decode_text(value)
        elif field_number in _VALUES:
            attribute_value = _VALUES[field_number](value)
    return {} if attribute_value is None else {name: attribute_value}


def _read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    offset = 0
    while offset < len(message):
        key, offset = _read_varint(message, offset)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, offset = _read_varint(message, offset)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, offset = _read_varint(message, offset)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"it has a field of the unknown wire type {wire_type}")
        if offset + size > len(message):
            raise ValueError(f"field {number} is longer than its message")
        yield number, message[offset : offset + size]
        offset += size


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(data) and shift < 70:
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        shift, offset = shift + 7, offset + 1
        if byte < 0x80:
            return value, offset
    raise ValueError(f"it has an unterminated number at byte {offset}")


def _check_integer(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("it has bytes where a number belongs")  # noqa: TRY004 - of a file, not of a caller
    return value


def _check_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("it has a number where bytes belong")  # noqa: TRY004 - of a file, not of a caller
    return value


def _decode_text(value: int | bytes) -> str:
    return _check_bytes(value).decode("utf-8", "replace")


def _convert_to_signed(value: int | bytes) -> int:
    number = _check_integer(value)
    return number - ((number >> 63) << 64)


def _decode_zigzag(value: int | bytes) -> int:
    number = _check_integer(value)
    return (number >> 1) ^ -(number & 1)


def _make_unpacker(form: str) -> Callable[[int | bytes], Value]:
    def unpack(value: int | bytes) -> Value:
        raw = _check_bytes(value)
        if len(raw) != struct.calcsize(form):
            raise ValueError(f"it has {len(raw)} bytes instead of {struct.calcsize(form)}")
        number: Value = struct.unpack(form, raw)[0]
        return number

    return unpack


_VALUES: dict[int, Callable[[int | bytes], Value]] = {
    _DOUBLE: _make_unpacker("<d"),
    5: _make_unpacker("<f"),
    7: _convert_to_signed,
    _INT64: _convert_to_signed,
    11: _check_integer,
    13: _check_integer,
    15: _decode_zigzag,
    17: _decode_zigzag,
    19: _make_unpacker("<I"),
    21: _make_unpacker("<Q"),
    23: _make_unpacker("<i"),
    25: _make_unpacker("<q"),
    _BOOL: _check_integer,
    _STRING: _decode_text,
}
"""Decoders of the value of an attribute, by field number. Lists and bytes are skipped."""


def _unpack_repeated(value: int | bytes) -> list[int]:
    """Return the numbers of a repeated field, which may be packed."""
    if isinstance(value, int):
        return [value]
    numbers, offset = [], 0
    while offset < len(value):
        number, offset = _read_varint(value, offset)
        numbers.append(number)
    return numbers


def _encode_node(node: Node) -> bytes:
    parts = [
        _encode_number(_ID, node.number),
        _encode_field(_NAME, node.name.encode()),
        _encode_number(_TYPE, node.kind),
    ]
    if node.after:
        parts.append(_encode_field(_DATA, b"".join(map(_encode_varint, node.after))))
    parts.append(_encode_number(_DURATION, node.duration_us))
    parts += [_encode_field(_ATTRIBUTE, _encode_attribute(*item)) for item in node.attributes.items()]
    return b"".join(parts)


def _encode_attribute(name: str, value: Value) -> bytes:
    name_field = _encode_field(_ATTRIBUTE_NAME, name.encode())
    if isinstance(value, bool):
        return name_field + _encode_varint(_BOOL << 3) + _encode_varint(int(value))
    if isinstance(value, int):
        return name_field + _encode_varint(_INT64 << 3) + _encode_varint(value % (1 << 64))
    if isinstance(value, float):
        return name_field + _encode_varint(_DOUBLE << 3 | _FIXED64) + struct.pack("<d", value)
    return name_field + _encode_field(_STRING, value.encode())


def _encode_number(number: int, value: int) -> bytes:
    return _encode_varint(number << 3) + _encode_varint(value) if value else b""


def _encode_field(number: int, value: bytes) -> bytes:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
