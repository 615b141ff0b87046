"""Load of inference packets on a server. Each packet is sent when it is due, independent of answers.

A system call sends up to 64 due datagrams, or receives up to 64 pending datagrams, so the cost per datagram falls as
the rate rises.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter_ns as clock

import numpy as np

from lightning.load.inputs import Rows, load_rows, make_random_rows
from lightning.load.outcome import NOT_HAPPENED, Outcome, Traces, make_traces
from lightning.load.schedule import Times, draw_schedule
from lightning.load.targets import LoadError, Target
from lightning.serving.packets.codec import (
    DTYPES,
    HEADER,
    MAGIC,
    MAX_PAYLOAD_BYTES,
    VERSION,
    Code,
    Datatype,
    Kind,
)
from lightning.serving.packets.mmsg import (
    MESSAGE,
    RECEIVE_BUFFER_BYTES,
    SLOT_BYTES,
    VECTOR,
    Inbox,
    find_memory_address,
    load_system_library,
)

DATAGRAMS_PER_CALL = 64
"""Maximum number of datagrams per system call."""

HEADER_FIELDS = np.dtype(
    [
        ("magic", "S4"),
        ("version", "u1"),
        ("kind", "u1"),
        ("datatype", "u1"),
        ("code", "u1"),
        ("model", ">u4"),
        ("time_us", ">u4"),
        ("request", ">u8"),
        ("fragment", ">u2"),
        ("fragments", ">u2"),
        ("length", ">u2"),
        ("spare", ">u2"),
    ]
)
"""The header of `lightning.serving.packets.codec` as a numpy type, for arrays of headers."""

GRACE_NS = 500_000_000
"""Time to wait for answers after the last request is due."""
SPIN_NS = 200_000
"""A shorter wait polls the socket instead of sleeping, because a sleep would end late."""


class Outbox:
    """A sender of requests, numbered from `first_request`. Each holds the next row of data in `fragments` datagrams."""

    def __init__(
        self, sender: socket.socket, model: int, rows: Rows, first_request: int, deadline_us: int = 0
    ) -> None:
        datatype = Datatype.UINT8 if rows.dtype == np.uint8 else Datatype.FLOAT32
        self._library = load_system_library()
        self._descriptor = sender.fileno()
        self._rows = np.ascontiguousarray(rows.reshape(len(rows), -1), dtype=DTYPES[datatype]).view(np.uint8)
        self._first_request = first_request
        self.fragments = max(-(-self._rows.shape[1] // MAX_PAYLOAD_BYTES), 1)
        self._headers = np.zeros(DATAGRAMS_PER_CALL, HEADER_FIELDS)
        fixed = {
            "magic": MAGIC,
            "version": VERSION,
            "kind": Kind.REQUEST,
            "datatype": datatype,
            "model": model,
            "time_us": deadline_us,
            "fragments": self.fragments,
        }
        for name, value in fixed.items():
            self._headers[name] = value
        self._vectors = np.zeros((DATAGRAMS_PER_CALL, 2), VECTOR)
        self._vectors["base"][:, 0] = (
            find_memory_address(self._headers) + np.arange(DATAGRAMS_PER_CALL) * HEADER.size
        )
        self._vectors["length"][:, 0] = HEADER.size
        self._messages = np.zeros(DATAGRAMS_PER_CALL, MESSAGE)
        self._messages["vectors"] = (
            find_memory_address(self._vectors) + np.arange(DATAGRAMS_PER_CALL) * 2 * VECTOR.itemsize
        )
        self._messages["vector_count"] = 2
        self._messages_address = find_memory_address(self._messages)

    def send(self, datagram: int, count: int) -> int:
        """Send the next `count` datagrams from number `datagram` on, at most `DATAGRAMS_PER_CALL`.

        Numbers count from 0 over all requests. Return the number of datagrams that the kernel accepted.
        """
        numbers = np.arange(datagram, datagram + min(count, DATAGRAMS_PER_CALL))
        requests, fragments = np.divmod(numbers, self.fragments)
        starts = fragments * MAX_PAYLOAD_BYTES
        lengths = np.minimum(self._rows.shape[1] - starts, MAX_PAYLOAD_BYTES)
        count_now = len(numbers)
        self._headers["request"][:count_now] = self._first_request + requests
        self._headers["fragment"][:count_now] = fragments
        self._headers["length"][:count_now] = lengths
        rows = requests % len(self._rows)
        self._vectors["base"][:count_now, 1] = (
            find_memory_address(self._rows) + rows * self._rows.shape[1] + starts
        )
        self._vectors["length"][:count_now, 1] = lengths
        accepted: int = self._library.sendmmsg(
            self._descriptor, self._messages_address, count_now, socket.MSG_DONTWAIT
        )
        return max(accepted, 0)


def drive_datagrams(
    target: Target,
    model: int,
    rate: float,
    seconds: float,
    *,
    data: str = "random",
    size: int = 784,
    seed: int = 0,
    deadline_us: int = 0,
) -> Outcome:
    """Send `rate` requests per second on average to a model. A request of random data has `size` values.

    Raise `LoadError` if the data cannot be read, the schedule is empty or invalid, or no server receives packets.
    """
    due = draw_schedule(rate, seconds, seed)
    rows = make_random_rows((size,), seed) if data == "random" else load_rows(data)
    traces = exchange(
        target, model, rows, due, first_request=compute_first_number(seed), deadline_us=deadline_us
    )
    return Outcome(
        target.url, rate, seed, traces, deadline_us, {code.value: code.name.lower() for code in Code}
    )


def compute_first_number(seed: int) -> int:
    """Return the number of the first request. The ranges of different seeds below 2^31 do not overlap."""
    return seed % (1 << 31) << 32


def exchange(
    target: Target, model: int, rows: Rows, due: Times, *, first_request: int = 0, deadline_us: int = 0
) -> Traces:
    """Send the rows in turn when due, and receive the answers. Raise `LoadError` if no server receives packets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        try:
            client.connect(target.address())
            return _LoadRun(
                client, Outbox(client, model, rows, first_request, deadline_us), due, first_request
            ).run()
        except OSError as error:
            raise LoadError(
                f"{target.url} cannot be reached ({error})", hint="Give the address of a running server"
            ) from error


class _LoadRun:
    """A load in progress."""

    def __init__(self, client: socket.socket, outbox: Outbox, due: Times, first_request: int) -> None:
        self.socket = client
        self.outbox = outbox
        self.due = due
        self.first_request = first_request
        self.inbox = Inbox(client, DATAGRAMS_PER_CALL)
        self.headers = np.ndarray(
            (DATAGRAMS_PER_CALL,), HEADER_FIELDS, self.inbox.bytes, strides=(SLOT_BYTES,)
        )
        self.latency = np.full(len(due), NOT_HAPPENED, dtype=np.int64)
        self.lag = self.latency.copy()
        self.refusal = np.zeros(len(due), dtype=np.int32)
        self.pieces = np.zeros(len(due), dtype=np.int64)
        self.answered = 0

    def run(self) -> Traces:
        """Send and receive until all requests are answered or the grace period is over; return the traces."""
        fragments = self.outbox.fragments
        count, sent_datagrams = len(self.due) * fragments, 0
        due = np.repeat(self.due, fragments).tolist()
        end = (due[-1] if due else 0) + GRACE_NS
        start = clock()
        while True:
            elapsed_ns = clock() - start
            ready = sent_datagrams
            while ready < count and ready - sent_datagrams < DATAGRAMS_PER_CALL and due[ready] <= elapsed_ns:
                ready += 1
            if ready > sent_datagrams:
                sent_datagrams += self._send(sent_datagrams, ready - sent_datagrams, elapsed_ns)
            received = self._receive(start)
            if elapsed_ns > end or self.answered == len(self.due):
                return make_traces(self.due, self.latency, self.lag, self.refusal)
            if self.inbox.is_peer_unreachable and not self.answered:
                raise LoadError(
                    "no server receives packets there", hint="Give the address of a running server"
                )
            if not received:
                self._wait((due[sent_datagrams] if sent_datagrams < count else end) - elapsed_ns)

    def _send(self, sent_datagrams: int, count: int, elapsed_ns: int) -> int:
        accepted = self.outbox.send(sent_datagrams, count)
        requests = np.arange(sent_datagrams, sent_datagrams + accepted) // self.outbox.fragments
        self.lag[requests] = elapsed_ns - self.due[requests]
        return accepted

    def _receive(self, start: int) -> int:
        count = self.inbox.receive()
        if count:
            elapsed_ns = clock() - start
            headers = self.headers[:count]
            numbers = headers["request"].astype(np.int64) - self.first_request
            belongs_here = (headers["magic"] == MAGIC) & (numbers >= 0) & (numbers < len(self.due))
            self._record_answers(headers[belongs_here], numbers[belongs_here], elapsed_ns)
        return count

    def _record_answers(self, headers: Rows, numbers: Times, elapsed_ns: int) -> None:
        np.add.at(self.pieces, numbers, 1)
        is_refusal = headers["kind"] == Kind.REFUSAL
        is_complete = (is_refusal | (self.pieces[numbers] >= headers["fragments"])) & (
            self.latency[numbers] == NOT_HAPPENED
        )
        complete = numbers[is_complete]
        self.latency[complete] = elapsed_ns - self.due[complete]
        self.refusal[complete] = headers["code"][is_complete]
        self.answered = int(self.answered + len(np.unique(complete)))

    def _wait(self, wait_ns: int) -> None:
        if wait_ns > SPIN_NS:
            select.select([self.socket], [], [], (wait_ns - SPIN_NS) / 1e9)
