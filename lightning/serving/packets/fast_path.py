"""The short way from a request to its answer: machine code, for chains of dense layers and images of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.serving.packets.codec import HEADER, MAGIC, VERSION, Code, Datatype, Kind
from lightning.serving.packets.mmsg import Inbox
from lightning.serving.packets.replay_cache import ReplayCache

Bytes = npt.NDArray[np.uint8]


class FastPath:
    """Answers the plain requests among the datagrams of an inbox, as `round_kernel` says, for one model.

    `answer` is the datagram of an answer with all that does not change; `scores` (1, rows) is what it is made of.
    """

    def __init__(self, chain: Any, number: int, answer: Bytes, scores: npt.NDArray[np.float32]) -> None:
        from lightning.serving.packets.packet_kernel import answer_round

        self._answer_round = answer_round
        self._arrays = chain.arrays
        request = _header(Kind.REQUEST, number, length=chain.inputs)
        self._templates = request, answer, _header(Kind.REFUSAL, number, code=Code.LATE)
        self._scratch = (
            np.zeros((1, chain.inputs), np.uint8),
            np.zeros(1, np.uint64),
            scores,
            scores.view(np.uint8).ravel(),
            np.zeros(2, np.int64),
            np.zeros(2, np.int64),
        )

    def answer(
        self, inbox: Inbox, found: int, replay_cache: ReplayCache, outcomes: npt.NDArray[np.int8]
    ) -> None:
        """Go through the first datagrams, and write down what became of those that were answered or refused."""
        self._answer_round(
            found,
            inbox.bytes,
            inbox.sizes,
            inbox.times,
            inbox.senders,
            inbox.descriptor,
            self._templates,
            self._arrays,
            self._scratch,
            replay_cache.table,
            outcomes,
        )


def _header(kind: Kind, number: int, *, length: int = 0, code: int = 0) -> Bytes:
    header = bytearray(HEADER.size)
    HEADER.pack_into(header, 0, MAGIC, VERSION, kind, Datatype.UINT8, code, number, 0, 0, 0, 1, length, 0)
    return np.frombuffer(header, np.uint8)
