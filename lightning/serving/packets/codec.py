"""Codec of inference packets: a request, an answer, or a refusal, each in one datagram or in numbered fragments.

Every datagram has a big-endian header of 32 bytes and a payload of at most 1440 bytes, so that it fits into an Ethernet
frame (1472 bytes). The codec has no sockets. It converts bytes to a `Packet`, or raises a `PacketError` that names the
wrong field. docs/reference/inference-packets.md has the same table.

| offset | bytes | field |
|---|---|---|
| 0 | 4 | magic, `LBIP` |
| 4 | 1 | version of this format, 1 |
| 5 | 1 | kind: 1 request, 2 answer, 3 refusal |
| 6 | 1 | datatype of a request's numbers, and of an answer's scores: 1 uint8, 2 float32 |
| 7 | 1 | code of a refusal, else 0 |
| 8 | 4 | model |
| 12 | 4 | time in microseconds: in a request the deadline after arrival, 0 for none; else from arrival to sending |
| 16 | 8 | number of the request, chosen by the client; also the key of its noise |
| 24 | 2 | fragment, 0 .. fragments - 1 |
| 26 | 2 | fragments, 1 .. 65,535 |
| 28 | 2 | bytes after the header |
| 30 | 2 | spare: 0 |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import ServingError
from lightning.execution.interface import find_classes

MAGIC = b"LBIP"
VERSION = 1
HEADER = struct.Struct(">4sBBBBIIQHHHH")
MAX_DATAGRAM_BYTES = 1472
"""Maximum size of a datagram: the 1500 bytes of an Ethernet frame minus the headers of IPv4 and UDP."""
MAX_PAYLOAD_BYTES = MAX_DATAGRAM_BYTES - HEADER.size
"""Maximum size of a payload: the bytes of a message that fit into one datagram."""


class Kind(IntEnum):
    """Kind of a packet."""

    REQUEST = 1
    ANSWER = 2
    REFUSAL = 3


class Datatype(IntEnum):
    """Type of the numbers in a payload. float32 is big-endian, like the header."""

    UINT8 = 1
    FLOAT32 = 2


DTYPE_BY_DATATYPE: dict[Datatype, np.dtype[Any]] = {
    Datatype.UINT8: np.dtype("u1"),
    Datatype.FLOAT32: np.dtype(">f4"),
}


class RefusalCode(IntEnum):
    """Reasons for refusing a request."""

    MALFORMED = 1
    UNKNOWN_MODEL = 2
    LATE = 3
    INPUT = 4
    """The model does not accept the numbers, because there are too many, too few, or NaN."""
    FAILED = 5
    """The model itself failed."""
    BUSY = 6
    """Too many requests wait for slow models."""


class PacketError(ServingError, code="serving.packet"):
    """A datagram that is not a valid inference packet. `reason` names the wrong field."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"not a valid inference packet: {reason} is wrong",
            hint="See the table of docs/reference/inference-packets.md",
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Packet:
    """A datagram. Raise `PacketError` if a field is out of its range."""

    kind: Kind
    model: int
    request: int
    payload: bytes = b""
    time_us: int = 0
    """In a request: its deadline after arrival. Otherwise: the time from the arrival of the request to sending."""
    datatype: Datatype = Datatype.UINT8
    code: int = 0
    fragment: int = 0
    fragments: int = 1

    def __post_init__(self) -> None:
        invalid_field = find_invalid_field(
            MAGIC, VERSION, self.kind, self.datatype, self.code, self.fragment, self.fragments,
            len(self.payload), 0, HEADER.size + len(self.payload),
        )  # fmt: skip
        if invalid_field:
            raise PacketError(invalid_field)


def find_invalid_field(
    magic: bytes,
    version: int,
    kind: int,
    datatype: int,
    code: int,
    fragment_index: int,
    fragment_count: int,
    payload_length: int,
    reserved: int,
    size: int,
) -> str:
    """Return the name of the first wrong field in a datagram of `size` bytes, or "" if it is valid."""
    # All fragments but the last are full, so that the number of a fragment gives its position.
    is_complete = payload_length == size - HEADER.size and size <= MAX_DATAGRAM_BYTES
    if magic != MAGIC or version != VERSION:
        return "magic" if magic != MAGIC else "version"
    if not 1 <= kind <= 3 or not 1 <= datatype <= 2:
        return "kind" if not 1 <= kind <= 3 else "datatype"
    if (code != 0) != (kind == Kind.REFUSAL):
        return "code"
    if fragment_index >= fragment_count:
        return "fragment"
    if not is_complete or (fragment_index + 1 < fragment_count and size != MAX_DATAGRAM_BYTES):
        return "length"
    return "spare" if reserved else ""


def parse(datagram: bytes | bytearray | memoryview) -> Packet:
    """Parse a datagram. Raise `PacketError` for any bytes that are not a valid packet."""
    if len(datagram) < HEADER.size:
        raise PacketError("length")
    magic, version, kind, datatype, code, model, time_us, request, fragment, fragments, length, spare = (
        HEADER.unpack_from(datagram)
    )
    invalid_field = find_invalid_field(
        magic, version, kind, datatype, code, fragment, fragments, length, spare, len(datagram)
    )
    if invalid_field:
        raise PacketError(invalid_field)
    payload = bytes(datagram[HEADER.size :])
    return Packet(Kind(kind), model, request, payload, time_us, Datatype(datatype), code, fragment, fragments)


def serialise(packet: Packet) -> bytes:
    """Return the datagram of a packet.

    >>> serialise(Packet(Kind.REQUEST, model=1, request=7, payload=bytes([0, 255]), time_us=500)).hex(" ", -4)
    '4c424950 01010100 00000001 000001f4 00000000 00000007 00000001 00020000 00ff'
    """
    return (
        HEADER.pack(
            MAGIC, VERSION, packet.kind, packet.datatype, packet.code, packet.model, packet.time_us,
            packet.request, packet.fragment, packet.fragments, len(packet.payload), 0,
        )
        + packet.payload
    )  # fmt: skip


def split(
    kind: Kind,
    model_number: int,
    request_number: int,
    message: bytes,
    *,
    time_us: int = 0,
    datatype: Datatype = Datatype.UINT8,
) -> list[Packet]:
    """Split a message into packets. Raise `PacketError` if it needs more than 65,535 packets.

    >>> [len(each.payload) for each in split(Kind.REQUEST, 1, 7, bytes(3136))]
    [1440, 1440, 256]
    """
    fragment_count = max(-(-len(message) // MAX_PAYLOAD_BYTES), 1)
    if fragment_count > 0xFFFF:
        raise PacketError("length")
    return [
        Packet(
            kind,
            model_number,
            request_number,
            message[fragment_index * MAX_PAYLOAD_BYTES : (fragment_index + 1) * MAX_PAYLOAD_BYTES],
            time_us,
            datatype,
            0,
            fragment_index,
            fragment_count,
        )
        for fragment_index in range(fragment_count)
    ]


ANSWER_HEADER = struct.Struct(">IIQ")
"""Header of an answer's message: class, number of scores, cycles of the datapath."""


@dataclass(frozen=True)
class DecodedAnswer:
    """Content of an answer."""

    class_index: int
    """The class, as `lightning.execution.interface.find_classes` finds it."""
    cycles: int
    """Cycles of the datapath for this answer."""
    scores: npt.NDArray[np.float32]


def encode_answer(scores: npt.NDArray[np.float32], cycles: int) -> bytes:
    """Encode the message of an answer.

    >>> encode_answer(np.array([1, 3], np.float32), 104).hex(" ", -4)
    '00000001 00000002 00000000 00000068 3f800000 40400000'
    """
    flat_scores = scores.reshape(1, -1)
    return (
        ANSWER_HEADER.pack(int(find_classes(flat_scores)[0]), flat_scores.size, cycles)
        + flat_scores.astype(">f4").tobytes()
    )


def decode_answer(message: bytes) -> DecodedAnswer:
    """Decode the message of an answer. Raise `PacketError` if its length or class contradicts the number of scores."""
    if len(message) < ANSWER_HEADER.size:
        raise PacketError("answer")
    class_index, score_count, cycles = ANSWER_HEADER.unpack_from(message)
    if len(message) != ANSWER_HEADER.size + 4 * score_count or class_index >= max(score_count, 2):
        raise PacketError("answer")
    return DecodedAnswer(
        class_index, cycles, np.frombuffer(message, ">f4", offset=ANSWER_HEADER.size).astype(np.float32)
    )
