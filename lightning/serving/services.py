"""A loaded model as packets see it: bytes in, a whole answer out, nothing made anew that can be kept."""

from __future__ import annotations

import struct
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.serving.loaded import Loaded
from lightning.serving.packets import ANSWER, DTYPES, HEADER, MAGIC, ROOM, VERSION, Datatype, Kind

_VARYING = struct.Struct(">IQ")
_VARYING_AT = 12
"""Time and number of the request: what differs in the headers of answers."""

Bytes = npt.NDArray[np.uint8]


class Chain(Protocol):
    """`lightning.execution.chain.Chain`: a chain of dense layers in one compiled function."""

    def answer_one(self, raw: Bytes, key: int, out: npt.NDArray[np.float32]) -> Any:
        """Write the scores of one image."""
        ...


class Service:
    """Answers for one version of a model. Belongs to one thread."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.size = int(np.prod(loaded.raw_shape))
        """Numbers of an image."""
        self._chain: Chain | None = getattr(loaded.executor, "chain", None)
        first = loaded.run(np.zeros((1, *loaded.raw_shape), np.uint8), np.zeros(1, np.uint64))
        self._cycles = first.cycles
        self._scores = np.zeros(first.scores.size, np.float32)
        self._datagram = bytearray(HEADER.size + ANSWER.size + 4 * self._scores.size)
        HEADER.pack_into(
            self._datagram, 0, MAGIC, VERSION, Kind.ANSWER, Datatype.FLOAT32, 0, loaded.number,
            0, 0, 0, 1, len(self._datagram) - HEADER.size, 0,
        )  # fmt: skip
        self._big_endian = np.frombuffer(self._datagram, ">f4", offset=HEADER.size + ANSWER.size)
        self.fits = len(self._datagram) - HEADER.size <= ROOM
        """Whether an answer is one datagram."""
        self.where = np.frombuffer(self._datagram, np.uint8).ctypes.data
        """Of the answer that `packet` has made, in memory."""

    def compute(self, numbers: Bytes, datatype: int, key: int) -> None:
        """Have the model answer. Raises `InputError` for what it does not take."""
        if datatype == Datatype.UINT8 and self._chain is not None and numbers.size == self.size:
            self._chain.answer_one(numbers, key, self._scores)
            return
        kind = DTYPES[Datatype(datatype)]
        if numbers.size != self.size * kind.itemsize:
            raise InputError(
                f"a request carries {numbers.size} bytes; the model takes {self.size} numbers of {kind.itemsize}",
                cure="Send one input of the model's shape",
            )
        inputs = numbers.view(kind).astype(kind.newbyteorder("=")).reshape(1, *self.loaded.raw_shape)
        self._scores[:] = self.loaded.run(inputs, np.array([key], np.uint64)).scores.ravel()

    def packet(self, key: int, elapsed_us: int) -> int:
        """Make the answer's datagram; its length."""
        _VARYING.pack_into(self._datagram, _VARYING_AT, min(elapsed_us, 0xFFFFFFFF), key)
        ANSWER.pack_into(
            self._datagram, HEADER.size, int(self._scores.argmax()), self._scores.size, self._cycles
        )
        self._big_endian[:] = self._scores
        return len(self._datagram)

    @property
    def message(self) -> bytes:
        """The answer behind its header, after `packet`; for answers that do not fit."""
        return bytes(self._datagram[HEADER.size :])
