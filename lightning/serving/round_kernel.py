"""Datagrams answered without a step of Python in between: those that ask a chain for one image of bytes. Machine code.

All others are left to Python, which also decides everything that is not an answer. System calls are those of the C
library. To be imported inside functions only: numba takes its time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from lightning.execution.chain_kernels import answers
from lightning.execution.compiled import compiled
from lightning.serving.many import ADDRESS
from lightning.serving.packet_counts import ANSWERED, FAILED, REPLAYED
from lightning.serving.packets import ANSWER, HEADER
from lightning.serving.replays import PEER_FACTOR, REQUEST_FACTOR, SHIFT

Array = npt.NDArray[Any]

HEAD = HEADER.size
SCORES = HEADER.size + ANSWER.size

_WALL_CLOCK = 0
_DO_NOT_WAIT = 0x40
_sendto = types.ExternalFunction(
    "sendto",
    types.intp(types.int32, types.uintp, types.uintp, types.int32, types.uintp, types.uint32),
)
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))


@compiled()
def answer_round(
    slots: Any,
    datagrams: Array,
    lengths: Array,
    arrivals: Array,
    senders: Array,
    descriptor: Any,
    expected: Array,
    arrays: Any,
    terms: Any,
    answer: Array,
    scores: Array,
    replays: Array,
    outcomes: Array,
) -> None:
    """Answer what is a whole and timely request for this model, slot by slot.

    `expected` (32,) is a header that such a request has but for deadline and number; `arrivals` (slots, 2) seconds and
    nanoseconds; `answer` the datagram of an answer but for what differs; `scores` (1, rows) is written to, and so is
    `replays` (`lightning.serving.replays`).
    """
    raw, key = np.empty((1, terms), np.uint8), np.empty(1, np.uint64)
    clock, counters = np.empty(2, np.int64), np.zeros(2, np.int64)
    for slot in range(slots):
        datagram = datagrams[slot]
        if lengths[slot] != HEAD + terms or not alike(datagram, expected):
            continue
        arrived = arrivals[slot, 0] * 1_000_000_000 + arrivals[slot, 1]
        deadline = np.int64(number_at(datagram, 12, 4)) * 1000
        if deadline > 0 and wall_clock(clock) - arrived > deadline:
            continue
        raw[0] = datagram[HEAD : HEAD + terms]
        key[0] = number_at(datagram, 16, 8)
        answers(raw, key, *arrays, scores, counters)
        elapsed = max(wall_clock(clock) - arrived, 0)
        if deadline > 0 and elapsed > deadline:
            continue
        write(answer, 12, 4, np.uint64(min(elapsed // 1000, 0xFFFFFFFF)))
        answer[16:24] = datagram[16:24]
        write_scores(answer, scores[0])
        to = np.uintp(senders.ctypes.data) + np.uintp(slot * ADDRESS)
        if _sendto(descriptor, answer.ctypes.data, len(answer), _DO_NOT_WAIT, to, ADDRESS) != len(answer):
            outcomes[slot] = FAILED
        elif seen(replays, number_at(senders[slot], 2, 6), key[0]):
            outcomes[slot] = REPLAYED
        else:
            outcomes[slot] = ANSWERED


@compiled()
def alike(datagram: Array, expected: Array) -> bool:
    """Whether all of the header is as expected but for deadline and number of the request, bytes 12 to 23."""
    same = True
    for place in range(HEAD):
        same &= 12 <= place < 24 or datagram[place] == expected[place]
    return same


@compiled()
def number_at(datagram: Array, start: Any, length: Any) -> Any:
    """A big-endian number."""
    found = np.uint64(0)
    for place in range(start, start + length):
        found = (found << np.uint64(8)) | np.uint64(datagram[place])
    return found


@compiled()
def write(datagram: Array, start: Any, length: Any, number: Any) -> None:
    """A big-endian number."""
    for place in range(length):
        datagram[start + length - 1 - place] = np.uint8((number >> np.uint64(8 * place)) & np.uint64(255))


@compiled()
def write_scores(answer: Array, scores: Array) -> None:
    """The class, and the scores, big-endian."""
    write(answer, HEAD, 4, np.uint64(scores.argmax()))
    words = scores.view(np.uint32)
    for row in range(len(words)):
        write(answer, SCORES + 4 * row, 4, np.uint64(words[row]))


@compiled()
def seen(replays: Array, peer: Any, request: Any) -> bool:
    """As `Replays.seen`."""
    place = (peer * np.uint64(PEER_FACTOR) + request * np.uint64(REQUEST_FACTOR)) >> np.uint64(SHIFT)
    if replays[place, 0] == peer and replays[place, 1] == request:
        return True
    replays[place, 0] = peer
    replays[place, 1] = request
    return False


@compiled()
def wall_clock(clock: Array) -> Any:
    """Nanoseconds, as `time.time_ns` gives them."""
    _clock_gettime(_WALL_CLOCK, clock.ctypes.data)
    return clock[0] * 1_000_000_000 + clock[1]
