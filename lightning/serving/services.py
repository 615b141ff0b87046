"""A loaded model as packets see it: bytes in, a whole answer out, nothing made anew that can be kept."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.serving.loaded import Loaded
from lightning.serving.many import Inbox
from lightning.serving.packets import ANSWER, DTYPES, HEADER, MAGIC, ROOM, VERSION, Datatype, Kind
from lightning.serving.replays import Replays

_VARYING = struct.Struct(">IQ")
_VARYING_AT = 12
"""Time and number of the request: what differs in the headers of answers."""

Bytes = npt.NDArray[np.uint8]
Express = Callable[[Inbox, int, Replays, npt.NDArray[np.int8]], None]
"""Answers the simple requests among the first datagrams of an inbox, and writes down which those were."""


class Service:
    """Answers for one version of a model. Belongs to one thread. `express` where machine code can do it alone."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.size = int(np.prod(loaded.raw_shape))
        """Numbers of an image."""
        first = loaded.run(np.zeros((1, *loaded.raw_shape), np.uint8), np.zeros(1, np.uint64))
        self._scores = np.zeros((1, first.scores.size), np.float32)
        self._buffer = bytearray(HEADER.size + ANSWER.size + self._scores.nbytes)
        self._datagram = np.frombuffer(self._buffer, np.uint8)
        self._big_endian = np.frombuffer(self._buffer, ">f4", offset=HEADER.size + ANSWER.size)
        length = len(self._buffer) - HEADER.size
        HEADER.pack_into(
            self._buffer, 0, MAGIC, VERSION, Kind.ANSWER, Datatype.FLOAT32, 0, loaded.number, 0, 0, 0, 1, length, 0
        )  # fmt: skip
        ANSWER.pack_into(self._buffer, HEADER.size, 0, self._scores.size, first.cycles)
        self.where = self._datagram.ctypes.data
        """Of the answer that `packet` has made, in memory."""
        self.fits = length <= ROOM
        """Whether an answer is one datagram."""
        chain = getattr(loaded.executor, "chain", None)
        self.express = self._express(chain) if chain is not None and self.fits and not chain.tail else None

    def compute(self, numbers: Bytes, datatype: int, key: int) -> None:
        """Have the model answer. Raises `InputError` for what it does not take."""
        kind = DTYPES[Datatype(datatype)]
        if numbers.size != self.size * kind.itemsize:
            raise InputError(
                f"a request carries {numbers.size} bytes; the model takes {self.size} numbers of {kind.itemsize}",
                cure="Send one input of the model's shape",
            )
        inputs = np.frombuffer(numbers.tobytes(), kind).astype(kind.newbyteorder("="))
        answers = self.loaded.run(inputs.reshape(1, *self.loaded.raw_shape), np.array([key], np.uint64))
        self._scores[0] = answers.scores.ravel()

    def packet(self, key: int, elapsed_us: int) -> int:
        """Make the answer's datagram; its length."""
        _VARYING.pack_into(self._buffer, _VARYING_AT, elapsed_us, key)
        struct.pack_into(">I", self._buffer, HEADER.size, int(self._scores.argmax()))
        self._big_endian[:] = self._scores[0]
        return len(self._buffer)

    @property
    def message(self) -> bytes:
        """The answer behind its header, after `packet`; for answers that do not fit."""
        return bytes(self._buffer[HEADER.size :])

    def _express(self, chain: Any) -> Express | None:
        if self.size > ROOM:
            return None
        from lightning.serving.round_kernel import answer_round

        header = bytearray(HEADER.size)
        HEADER.pack_into(
            header, 0, MAGIC, VERSION, Kind.REQUEST, Datatype.UINT8, 0, self.loaded.number, 0, 0, 0, 1, self.size, 0
        )  # fmt: skip

        expected = np.frombuffer(header, np.uint8)
        scratch = (
            np.zeros((1, self.size), np.uint8),
            np.zeros(1, np.uint64),
            np.zeros(2, np.int64),
            np.zeros(2, np.int64),
            self._scores.view(np.uint8).ravel(),
        )

        def answer(inbox: Inbox, found: int, replays: Replays, outcomes: npt.NDArray[np.int8]) -> None:
            answer_round(
                found, inbox.bytes, inbox.sizes, inbox.times, inbox.senders, inbox.descriptor, expected,
                chain.arrays, scratch, self._datagram, self._scores, replays.table, outcomes,
            )  # fmt: skip

        return answer
