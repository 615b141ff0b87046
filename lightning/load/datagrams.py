"""Load of inference packets on a server. Each packet is sent when it is due, independent of answers.

A system call sends up to 64 due datagrams, or receives up to 64 pending datagrams, so the cost per datagram falls as
the rate rises.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter_ns as clock_ns

import numpy as np

from lightning.load.inputs import Rows, load_rows, make_random_rows
from lightning.load.outcome import NOT_HAPPENED, Outcome, Traces, make_traces
from lightning.load.schedule import Nanoseconds, draw_schedule
from lightning.load.targets import LoadError, Target
from lightning.serving.packets.codec import (
    DTYPE_BY_DATATYPE,
    HEADER,
    MAGIC,
    MAX_PAYLOAD_BYTES,
    VERSION,
    Datatype,
    Kind,
    RefusalCode,
)
from lightning.serving.packets.mmsg import (
    MESSAGE_DTYPE,
    RECEIVE_BUFFER_BYTES,
    SLOT_BYTES,
    VECTOR_DTYPE,
    Inbox,
    find_memory_address,
    load_system_library,
)

DATAGRAMS_PER_CALL = 64
"""Maximum number of datagrams per system call."""

HEADER_DTYPE = np.dtype(
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
    """A sender of requests, numbered from `first_request_number`. Each holds the next row, in one or more datagrams."""

    def __init__(
        self, client: socket.socket, model: int, rows: Rows, first_request_number: int, deadline_us: int = 0
    ) -> None:
        datatype = Datatype.UINT8 if rows.dtype == np.uint8 else Datatype.FLOAT32
        self._library = load_system_library()
        self._descriptor = client.fileno()
        self._rows = np.ascontiguousarray(
            rows.reshape(len(rows), -1), dtype=DTYPE_BY_DATATYPE[datatype]
        ).view(np.uint8)
        self._first_request = first_request_number
        self.fragments_per_request = max(-(-self._rows.shape[1] // MAX_PAYLOAD_BYTES), 1)
        self._headers = np.zeros(DATAGRAMS_PER_CALL, HEADER_DTYPE)
        constant_fields = {
            "magic": MAGIC,
            "version": VERSION,
            "kind": Kind.REQUEST,
            "datatype": datatype,
            "model": model,
            "time_us": deadline_us,
            "fragments": self.fragments_per_request,
        }
        for name, value in constant_fields.items():
            self._headers[name] = value
        self._iovecs = np.zeros((DATAGRAMS_PER_CALL, 2), VECTOR_DTYPE)
        self._iovecs["base"][:, 0] = (
            find_memory_address(self._headers) + np.arange(DATAGRAMS_PER_CALL) * HEADER.size
        )
        self._iovecs["length"][:, 0] = HEADER.size
        self._messages = np.zeros(DATAGRAMS_PER_CALL, MESSAGE_DTYPE)
        self._messages["vectors"] = (
            find_memory_address(self._iovecs) + np.arange(DATAGRAMS_PER_CALL) * 2 * VECTOR_DTYPE.itemsize
        )
        self._messages["vector_count"] = 2
        self._messages_address = find_memory_address(self._messages)

    def send(self, first_datagram: int, datagram_count: int) -> int:
        """Send the next `datagram_count` datagrams from number `first_datagram` on, at most `DATAGRAMS_PER_CALL`.

        Numbers count from 0 over all requests. Return the number of datagrams that the kernel accepted.
        """
        datagram_numbers = np.arange(first_datagram, first_datagram + min(datagram_count, DATAGRAMS_PER_CALL))
        request_indices, fragment_indices = np.divmod(datagram_numbers, self.fragments_per_request)
        starts = fragment_indices * MAX_PAYLOAD_BYTES
        lengths = np.minimum(self._rows.shape[1] - starts, MAX_PAYLOAD_BYTES)
        message_count = len(datagram_numbers)
        self._headers["request"][:message_count] = self._first_request + request_indices
        self._headers["fragment"][:message_count] = fragment_indices
        self._headers["length"][:message_count] = lengths
        row_indices = request_indices % len(self._rows)
        self._iovecs["base"][:message_count, 1] = (
            find_memory_address(self._rows) + row_indices * self._rows.shape[1] + starts
        )
        self._iovecs["length"][:message_count, 1] = lengths
        accepted_count: int = self._library.sendmmsg(
            self._descriptor, self._messages_address, message_count, socket.MSG_DONTWAIT
        )
        return max(accepted_count, 0)


def drive_datagrams(
    target: Target,
    model: int,
    rate_per_s: float,
    duration_s: float,
    *,
    data: str = "random",
    size: int = 784,
    seed: int = 0,
    deadline_us: int = 0,
) -> Outcome:
    """Send `rate_per_s` requests per second on average to a model. A request of random data has `size` values.

    Raise `LoadError` if the data cannot be read, the schedule is empty or invalid, or no server receives packets.
    """
    due_times_ns = draw_schedule(rate_per_s, duration_s, seed)
    rows = make_random_rows((size,), seed) if data == "random" else load_rows(data)
    traces = exchange(
        target, model, rows, due_times_ns, first_request=compute_first_number(seed), deadline_us=deadline_us
    )
    return Outcome(
        target.url,
        rate_per_s,
        seed,
        traces,
        deadline_us,
        {code.value: code.name.lower() for code in RefusalCode},
    )


def compute_first_number(seed: int) -> int:
    """Return the number of the first request. The ranges of different seeds below 2^31 do not overlap."""
    return seed % (1 << 31) << 32


def exchange(
    target: Target,
    model: int,
    rows: Rows,
    due_times_ns: Nanoseconds,
    *,
    first_request: int = 0,
    deadline_us: int = 0,
) -> Traces:
    """Send the rows in turn when due, and receive the answers. Raise `LoadError` if no server receives packets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        try:
            client.connect(target.resolve_address())
            return _LoadRun(
                client, Outbox(client, model, rows, first_request, deadline_us), due_times_ns, first_request
            ).run()
        except OSError as error:
            raise LoadError(
                f"{target.url} cannot be reached ({error})", hint="Give the address of a running server"
            ) from error


class _LoadRun:
    """A load in progress."""

    def __init__(
        self, client: socket.socket, outbox: Outbox, due_times_ns: Nanoseconds, first_request_number: int
    ) -> None:
        self.socket = client
        self.outbox = outbox
        self.due_ns = due_times_ns
        self.first_request = first_request_number
        self.inbox = Inbox(client, DATAGRAMS_PER_CALL)
        self.headers = np.ndarray(
            (DATAGRAMS_PER_CALL,), HEADER_DTYPE, self.inbox.slot_bytes, strides=(SLOT_BYTES,)
        )
        self.latency_ns = np.full(len(due_times_ns), NOT_HAPPENED, dtype=np.int64)
        self.lag_ns = self.latency_ns.copy()
        self.refusal_codes = np.zeros(len(due_times_ns), dtype=np.int32)
        self.fragment_counts = np.zeros(len(due_times_ns), dtype=np.int64)
        self.answered_count = 0

    def run(self) -> Traces:
        """Send and receive until all requests are answered or the grace period is over; return the traces."""
        fragments_per_request = self.outbox.fragments_per_request
        datagram_count, sent_count = len(self.due_ns) * fragments_per_request, 0
        datagram_due_times_ns = np.repeat(self.due_ns, fragments_per_request).tolist()
        end_ns = (datagram_due_times_ns[-1] if datagram_due_times_ns else 0) + GRACE_NS
        start_ns = clock_ns()
        while True:
            elapsed_ns = clock_ns() - start_ns
            ready_count = sent_count
            while (
                ready_count < datagram_count
                and ready_count - sent_count < DATAGRAMS_PER_CALL
                and datagram_due_times_ns[ready_count] <= elapsed_ns
            ):
                ready_count += 1
            if ready_count > sent_count:
                sent_count += self._send(sent_count, ready_count - sent_count, elapsed_ns)
            received_count = self._receive(start_ns)
            if elapsed_ns > end_ns or self.answered_count == len(self.due_ns):
                return make_traces(self.due_ns, self.latency_ns, self.lag_ns, self.refusal_codes)
            if self.inbox.is_peer_unreachable and not self.answered_count:
                host, port = self.socket.getpeername()
                raise LoadError(
                    f"no server receives packets at {host}:{port}",
                    hint="Give the address of a running server",
                )
            if not received_count:
                self._wait(
                    (datagram_due_times_ns[sent_count] if sent_count < datagram_count else end_ns)
                    - elapsed_ns
                )

    def _send(self, sent_count: int, count: int, elapsed_ns: int) -> int:
        accepted_count = self.outbox.send(sent_count, count)
        request_indices = (
            np.arange(sent_count, sent_count + accepted_count) // self.outbox.fragments_per_request
        )
        self.lag_ns[request_indices] = elapsed_ns - self.due_ns[request_indices]
        return accepted_count

    def _receive(self, start_ns: int) -> int:
        count = self.inbox.receive()
        if count:
            elapsed_ns = clock_ns() - start_ns
            headers = self.headers[:count]
            request_indices = headers["request"].astype(np.int64) - self.first_request
            is_own = (
                (headers["magic"] == MAGIC) & (request_indices >= 0) & (request_indices < len(self.due_ns))
            )
            self._record_answers(headers[is_own], request_indices[is_own], elapsed_ns)
        return count

    def _record_answers(self, headers: Rows, request_indices: Nanoseconds, elapsed_ns: int) -> None:
        np.add.at(self.fragment_counts, request_indices, 1)
        is_refusal = headers["kind"] == Kind.REFUSAL
        is_complete = (is_refusal | (self.fragment_counts[request_indices] >= headers["fragments"])) & (
            self.latency_ns[request_indices] == NOT_HAPPENED
        )
        completed_requests = request_indices[is_complete]
        self.latency_ns[completed_requests] = elapsed_ns - self.due_ns[completed_requests]
        self.refusal_codes[completed_requests] = headers["code"][is_complete]
        self.answered_count = int(self.answered_count + len(np.unique(completed_requests)))

    def _wait(self, wait_ns: int) -> None:
        if wait_ns > SPIN_NS:
            select.select([self.socket], [], [], (wait_ns - SPIN_NS) / 1e9)
