"""Datagrams answered without a step of Python in between: those that ask a chain for one image of bytes. Machine code.

All others are left to Python, which also decides everything that is not an answer. System calls are those of the C
library. To be imported inside functions only: numba takes its time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from lightning.execution.kernels.chain import answers
from lightning.execution.kernels.compiled import compile_kernel
from lightning.serving.packets.codec import ANSWER, HEADER
from lightning.serving.packets.counts import ANSWERED, FAILED, LATE, REPLAYED
from lightning.serving.packets.mmsg import ADDRESS
from lightning.serving.packets.reassembly import PEER_FACTOR, REQUEST_FACTOR, SHIFT

Array = npt.NDArray[Any]

HEAD = HEADER.size
SCORES = HEADER.size + ANSWER.size

_WALL_CLOCK = 0
_DO_NOT_WAIT = 0x40
_sendto: Any = types.ExternalFunction(
    "sendto",
    types.intp(types.int32, types.uintp, types.uintp, types.int32, types.uintp, types.uint32),
)
_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))


@compile_kernel()
def answer_round(
    slots: Any,
    datagrams: Array,
    lengths: Array,
    arrivals: Array,
    senders: Array,
    descriptor: Any,
    templates: Any,
    arrays: Any,
    scratch: Any,
    replay_cache: Array,
    outcomes: Array,
) -> None:
    """Answer, or refuse as late, what is a whole request for this model, slot by slot.

    `arrivals` (slots, 2) are seconds and nanoseconds. `templates` are the header of such a request, but for deadline
    and number, and the datagrams of an answer and of a refusal, but for what differs. `arrays` are those of the chain.
    `replay_cache`, the table of a `ReplayCache`, is written to, and so is `scratch`: an image (1, terms), its key,
    scores (1, rows), their bytes, counters (2,), and the clock (2,).
    """
    expected, answer, refusal = templates
    raw, key, scores, score_bytes, counters, clock = scratch
    terms = raw.shape[1]
    for slot in range(slots):
        datagram = datagrams[slot]
        if lengths[slot] != HEAD + terms or not alike(datagram, expected):
            continue
        arrived = arrivals[slot, 0] * 1_000_000_000 + arrivals[slot, 1]
        deadline = np.int64(number_at(datagram, 12, 4)) * 1000
        in_time = deadline == 0 or wall_clock(clock) - arrived <= deadline
        if in_time:
            copy(datagram, HEAD, raw[0], 0, terms)
            key[0] = number_at(datagram, 16, 8)
            answers(raw, key, *arrays, scores, counters)  # type: ignore[call-arg]
            write(answer, HEAD, 4, class_of(scores))
            swap(score_bytes, answer, SCORES)
        elapsed = max(wall_clock(clock) - arrived, 0)
        if not in_time or (deadline > 0 and elapsed > deadline):
            send(refusal, datagram, elapsed, descriptor, senders, slot)
            outcomes[slot] = LATE
        elif not send(answer, datagram, elapsed, descriptor, senders, slot):
            outcomes[slot] = FAILED
        elif check_replay(replay_cache, number_at(senders[slot], 2, 6), key[0]):
            outcomes[slot] = REPLAYED
        else:
            outcomes[slot] = ANSWERED


@compile_kernel()
def send(reply: Array, datagram: Array, elapsed: Any, descriptor: Any, senders: Array, slot: Any) -> bool:
    """Send a reply to who sent the datagram, with its number and the time since then; whether the network took it."""
    write(reply, 12, 4, np.uint64(min(elapsed // 1000, 0xFFFFFFFF)))
    copy(datagram, 16, reply, 16, 8)
    to = np.uintp(senders.ctypes.data) + np.uintp(slot * ADDRESS)
    sent = _sendto(descriptor, reply.ctypes.data, len(reply), _DO_NOT_WAIT, to, ADDRESS)
    return bool(sent == len(reply))


@compile_kernel()
def copy(source: Array, start: Any, target: Array, place: Any, length: Any) -> None:
    """Copy bytes. Loops are translated several times faster than slices are."""
    for each in range(length):
        target[place + each] = source[start + each]


@compile_kernel()
def alike(datagram: Array, expected: Array) -> bool:
    """Return whether all of the header is as expected but for deadline and number of the request, bytes 12 to 23."""
    same = True
    for place in range(HEAD):
        same &= 12 <= place < 24 or datagram[place] == expected[place]
    return same


@compile_kernel()
def number_at(datagram: Array, start: Any, length: Any) -> Any:
    """Return a big-endian number."""
    found = np.uint64(0)
    for place in range(start, start + length):
        found = (found << np.uint64(8)) | np.uint64(datagram[place])
    return found


@compile_kernel()
def write(datagram: Array, start: Any, length: Any, number: Any) -> None:
    """Write a big-endian number."""
    for place in range(length):
        datagram[start + length - 1 - place] = np.uint8((number >> np.uint64(8 * place)) & np.uint64(255))


@compile_kernel()
def class_of(scores: Array) -> Any:
    """Return the class of one image, as `lightning.execution.interface.classes_of` finds it."""
    if scores.shape[1] == 1:
        return np.uint64(scores[0, 0] > 0)
    chosen = 0
    for row in range(1, scores.shape[1]):
        if scores[0, row] > scores[0, chosen]:
            chosen = row
    return np.uint64(chosen)


@compile_kernel()
def swap(words: Array, answer: Array, start: Any) -> None:
    """Swap the bytes of words of four, the last first: from little-endian to big-endian."""
    for place in range(len(words)):
        answer[start + place] = words[place ^ 3]


@compile_kernel()
def check_replay(replay_cache: Array, peer: Any, request: Any) -> bool:
    """Return whether a request was seen, as `ReplayCache.seen` does."""
    place = (peer * np.uint64(PEER_FACTOR) + request * np.uint64(REQUEST_FACTOR)) >> np.uint64(SHIFT)
    if replay_cache[place, 0] == peer and replay_cache[place, 1] == request:
        return True
    replay_cache[place, 0] = peer
    replay_cache[place, 1] = request
    return False


@compile_kernel()
def wall_clock(clock: Array) -> Any:
    """Return the nanoseconds, as `time.time_ns` gives them."""
    _clock_gettime(_WALL_CLOCK, clock.ctypes.data)
    return clock[0] * 1_000_000_000 + clock[1]
