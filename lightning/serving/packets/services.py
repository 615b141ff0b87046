"""Answers of a loaded model as datagrams, with buffers that are allocated once."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.execution.interface import find_classes
from lightning.serving.model_instance import ModelInstance
from lightning.serving.packets.codec import (
    ANSWER_HEADER,
    DTYPE_BY_DATATYPE,
    HEADER,
    MAGIC,
    MAX_PAYLOAD_BYTES,
    VERSION,
    Datatype,
    Kind,
    RefusalCode,
)
from lightning.serving.packets.mmsg import Inbox
from lightning.serving.packets.reassembly import ReplayCache

_VARYING_FIELDS = struct.Struct(">IQ")
_VARYING_OFFSET = 12
"""Format and offset of time and request number. All other header fields are equal in all answers."""
Bytes = npt.NDArray[np.uint8]


class FastPath:
    """Compiled code that answers the requests to one model in an inbox (`packet_kernel.answer_datagrams`).

    `answer` is the datagram of an answer with its constant fields. `scores` (1, rows) is a buffer for the
    scores.
    """

    def __init__(self, chain: Any, model_number: int, answer: Bytes, scores: npt.NDArray[np.float32]) -> None:
        from lightning.serving.packets.packet_kernel import answer_datagrams

        self._answer_datagrams = answer_datagrams
        self._arrays = chain.kernel_arguments
        request = _make_header(Kind.REQUEST, model_number, length=chain.input_count)
        self._templates = (
            request,
            answer,
            _make_header(Kind.REFUSAL, model_number, code=RefusalCode.LATE),
        )
        self._scratch = (
            np.zeros((1, chain.input_count), np.uint8),
            np.zeros(1, np.uint64),
            scores,
            scores.view(np.uint8).ravel(),
            np.zeros(2, np.int64),
            np.zeros(2, np.int64),
        )

    def answer_requests(
        self, inbox: Inbox, slot_count: int, replay_cache: ReplayCache, outcomes: npt.NDArray[np.int8]
    ) -> None:
        """Answer or refuse the simple requests among the first datagrams, and write their outcomes."""
        self._answer_datagrams(
            slot_count,
            inbox.slot_bytes,
            inbox.datagram_sizes,
            inbox.arrival_times,
            inbox.sender_addresses,
            inbox.file_descriptor,
            self._templates,
            self._arrays,
            self._scratch,
            replay_cache.table,
            outcomes,
        )


def _make_header(kind: Kind, model_number: int, *, length: int = 0, code: int = 0) -> Bytes:
    header = bytearray(HEADER.size)
    HEADER.pack_into(
        header, 0, MAGIC, VERSION, kind, Datatype.UINT8, code, model_number, 0, 0, 0, 1, length, 0
    )
    return np.frombuffer(header, np.uint8)


class PacketService:
    """Computes the answers of one version of a model, and packs them into datagrams.

    An instance belongs to one thread, and the caller must hold the lock of the model.
    """

    def __init__(self, instance: ModelInstance) -> None:
        self.instance = instance
        self.input_size = int(np.prod(instance.raw_shape))
        """Number of values in an image."""
        first_answer = instance.executor.run(
            np.zeros((1, *instance.raw_shape), np.uint8), np.zeros(1, np.uint64)
        )
        self._scores = np.zeros((1, first_answer.scores.size), np.float32)
        self._buffer = bytearray(HEADER.size + ANSWER_HEADER.size + self._scores.nbytes)
        self._datagram = np.frombuffer(self._buffer, np.uint8)
        self._score_fields = np.frombuffer(self._buffer, ">f4", offset=HEADER.size + ANSWER_HEADER.size)
        length = len(self._buffer) - HEADER.size
        HEADER.pack_into(
            self._buffer, 0, MAGIC, VERSION, Kind.ANSWER, Datatype.FLOAT32, 0, instance.number,
            0, 0, 0, 1, length, 0,
        )  # fmt: skip
        ANSWER_HEADER.pack_into(self._buffer, HEADER.size, 0, self._scores.size, first_answer.cycles)
        self.datagram_address = self._datagram.ctypes.data
        """Memory address of the datagram that `fill_datagram` fills."""
        self.fits_datagram = length <= MAX_PAYLOAD_BYTES
        """True if an answer fits into one datagram."""
        chain = getattr(instance.executor, "chain", None)
        is_simple = (
            chain is not None
            and not chain.tail_nodes
            and self.fits_datagram
            and self.input_size <= MAX_PAYLOAD_BYTES
        )
        self.fast_path = FastPath(chain, instance.number, self._datagram, self._scores) if is_simple else None
        """The compiled code for a chain whose request and answer fit into one datagram each; None for other models."""

    def compute(self, payload: bytes, datatype: int, noise_key: int) -> None:
        """Compute the scores of an image. Raise `InputError` for input that the model does not accept."""
        inputs = decode_inputs(self.instance, payload, datatype)
        self._scores[0] = self.instance.executor.run(inputs, np.array([noise_key], np.uint64)).scores.ravel()

    def fill_datagram(self, request_number: int, elapsed_us: int) -> int:
        """Fill the datagram of the answer, and return its length."""
        _VARYING_FIELDS.pack_into(self._buffer, _VARYING_OFFSET, elapsed_us, request_number)
        struct.pack_into(">I", self._buffer, HEADER.size, int(find_classes(self._scores)[0]))
        self._score_fields[:] = self._scores[0]
        return len(self._buffer)

    @property
    def message(self) -> bytes:
        """The last answer without its header, for answers too long for one datagram. Call `fill_datagram` first."""
        return bytes(self._buffer[HEADER.size :])


def decode_inputs(instance: ModelInstance, payload: bytes, datatype: int) -> npt.NDArray[np.generic]:
    """Return the input of a request, (1, *shape). Raise `InputError` if its size differs from the model's input."""
    dtype, size = DTYPE_BY_DATATYPE[Datatype(datatype)], int(np.prod(instance.raw_shape))
    if len(payload) != size * dtype.itemsize:
        raise InputError(
            (
                f"the request carries {len(payload)} bytes, but the model takes {size} numbers of "
                f"{dtype.itemsize} bytes"
            ),
            hint="Send one input of the model's shape",
        )
    native = np.frombuffer(payload, dtype).astype(dtype.newbyteorder("="))
    return native.reshape(1, *instance.raw_shape)
