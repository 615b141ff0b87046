"""The compiled fast path of packets. It answers requests to a chain, each with one image of bytes, without Python code.

It leaves all other datagrams and most refusals to Python. System calls go through the C library. Import this module
only inside functions, because numba is slow to import.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from lightning.execution.kernels.chain import write_answers
from lightning.execution.kernels.compiled import compile_kernel
from lightning.serving.packets.codec import ANSWER_HEADER, HEADER
from lightning.serving.packets.counts import ANSWERED, FAILED, LATE, REPLAYED
from lightning.serving.packets.mmsg import ADDRESS_BYTES
from lightning.serving.packets.reassembly import HASH_SHIFT, PEER_FACTOR, REQUEST_FACTOR

Array = npt.NDArray[Any]

HEADER_BYTES = HEADER.size
SCORES_OFFSET = HEADER.size + ANSWER_HEADER.size

_WALL_CLOCK = 0
_DO_NOT_WAIT = 0x40
_sendto: Any = types.ExternalFunction(
    "sendto",
    types.intp(types.int32, types.uintp, types.uintp, types.int32, types.uintp, types.uint32),
)
_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))


@compile_kernel()
def answer_datagrams(
    slot_count: Any,
    datagrams: Array,
    lengths: Array,
    arrival_times: Array,
    sender_addresses: Array,
    descriptor: Any,
    templates: Any,
    chain_arguments: Any,
    scratch: Any,
    replay_cache: Array,
    outcomes: Array,
) -> None:
    """Answer the complete requests for a model in the first `slot_count` slots, or refuse them as late.

    `arrival_times` (slots, 2) are seconds and nanoseconds. `templates` are the expected header of a request, the
    datagram of an answer, and the datagram of a refusal, all without the fields that vary. `chain_arguments` are
    `Chain.kernel_arguments`. The function writes to `outcomes`, to `replay_cache` (the table of a `ReplayCache`), and
    to `scratch`: an image (1, terms), its key, scores (1, rows), their bytes, counters (2,), and the clock (2,).
    """
    expected_header, answer, refusal = templates
    image, noise_key, scores, score_bytes, counters, clock = scratch
    term_count = image.shape[1]
    for slot in range(slot_count):
        datagram = datagrams[slot]
        if lengths[slot] != HEADER_BYTES + term_count or not has_expected_header(datagram, expected_header):
            continue
        arrival_ns = arrival_times[slot, 0] * 1_000_000_000 + arrival_times[slot, 1]
        deadline_ns = np.int64(read_number(datagram, 12, 4)) * 1000
        is_in_time = deadline_ns == 0 or read_wall_clock_ns(clock) - arrival_ns <= deadline_ns
        if is_in_time:
            copy_bytes(datagram, HEADER_BYTES, image[0], 0, term_count)
            noise_key[0] = read_number(datagram, 16, 8)
            write_answers(image, noise_key, *chain_arguments, scores, counters)  # type: ignore[call-arg]
            write_number(answer, HEADER_BYTES, 4, find_class(scores))
            write_big_endian(score_bytes, answer, SCORES_OFFSET)
        elapsed_ns = max(read_wall_clock_ns(clock) - arrival_ns, 0)
        if not is_in_time or (deadline_ns > 0 and elapsed_ns > deadline_ns):
            send_reply(refusal, datagram, elapsed_ns, descriptor, sender_addresses, slot)
            outcomes[slot] = LATE
        elif not send_reply(answer, datagram, elapsed_ns, descriptor, sender_addresses, slot):
            outcomes[slot] = FAILED
        elif record_request(replay_cache, read_number(sender_addresses[slot], 2, 6), noise_key[0]):
            outcomes[slot] = REPLAYED
        else:
            outcomes[slot] = ANSWERED


@compile_kernel()
def send_reply(
    reply: Array, datagram: Array, elapsed_ns: Any, descriptor: Any, sender_addresses: Array, slot: Any
) -> bool:
    """Send a reply with number and elapsed time to a datagram's sender; return whether the kernel accepted it."""
    write_number(reply, 12, 4, np.uint64(min(elapsed_ns // 1000, 0xFFFFFFFF)))
    copy_bytes(datagram, 16, reply, 16, 8)
    address = np.uintp(sender_addresses.ctypes.data) + np.uintp(slot * ADDRESS_BYTES)
    sent_bytes = _sendto(descriptor, reply.ctypes.data, len(reply), _DO_NOT_WAIT, address, ADDRESS_BYTES)
    return bool(sent_bytes == len(reply))


@compile_kernel()
def copy_bytes(source: Array, start: Any, target: Array, offset_in_target: Any, length: Any) -> None:
    """Copy bytes. Numba compiles this loop several times faster than a slice."""
    for offset in range(length):
        target[offset_in_target + offset] = source[start + offset]


@compile_kernel()
def has_expected_header(datagram: Array, expected_header: Array) -> bool:
    """Return whether the header is as expected, ignoring deadline and number of the request (bytes 12 to 23)."""
    is_same = True
    for index in range(HEADER_BYTES):
        is_same &= 12 <= index < 24 or datagram[index] == expected_header[index]
    return is_same


@compile_kernel()
def read_number(datagram: Array, start: Any, length: Any) -> Any:
    """Read a big-endian number."""
    number = np.uint64(0)
    for index in range(start, start + length):
        number = (number << np.uint64(8)) | np.uint64(datagram[index])
    return number


@compile_kernel()
def write_number(datagram: Array, start: Any, length: Any, number: Any) -> None:
    """Write a big-endian number."""
    for index in range(length):
        datagram[start + length - 1 - index] = np.uint8((number >> np.uint64(8 * index)) & np.uint64(255))


@compile_kernel()
def find_class(scores: Array) -> Any:
    """Return the class of an image, as `lightning.execution.interface.find_classes` does."""
    if scores.shape[1] == 1:
        return np.uint64(scores[0, 0] > 0)
    best_class = 0
    for row in range(1, scores.shape[1]):
        if scores[0, row] > scores[0, best_class]:
            best_class = row
    return np.uint64(best_class)


@compile_kernel()
def write_big_endian(word_bytes: Array, answer: Array, start: Any) -> None:
    """Copy 4-byte words into the answer, from little-endian to big-endian."""
    for index in range(len(word_bytes)):
        answer[start + index] = word_bytes[index ^ 3]


@compile_kernel()
def record_request(replay_cache: Array, peer: Any, request_number: Any) -> bool:
    """Return whether a request is in the cache, and store it, like `ReplayCache.record_request`."""
    cache_slot = (peer * np.uint64(PEER_FACTOR) + request_number * np.uint64(REQUEST_FACTOR)) >> np.uint64(
        HASH_SHIFT
    )
    if replay_cache[cache_slot, 0] == peer and replay_cache[cache_slot, 1] == request_number:
        return True
    replay_cache[cache_slot, 0] = peer
    replay_cache[cache_slot, 1] = request_number
    return False


@compile_kernel()
def read_wall_clock_ns(clock: Array) -> Any:
    """Return the nanoseconds of the wall clock, as `time.time_ns` does."""
    _clock_gettime(_WALL_CLOCK, clock.ctypes.data)
    return clock[0] * 1_000_000_000 + clock[1]
