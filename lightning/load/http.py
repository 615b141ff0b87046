"""Load on a server of the Open Inference Protocol: keep-alive connections with one request at a time.

If all connections are busy when a request is due, it waits for the next free connection. Its latency still counts from
the due time. Requests are encoded in advance and sent through plain sockets, so that the generator does not limit the
measurement.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns as clock_ns
from typing import Any

import numpy as np

from lightning.load.http_messages import ModelInput, encode_requests, parse_input, parse_reply
from lightning.load.inputs import make_rows
from lightning.load.outcome import NOT_HAPPENED, Outcome, Traces, make_traces
from lightning.load.schedule import Nanoseconds, draw_schedule
from lightning.load.targets import CONNECTION_COUNT, LoadError, Target

GRACE_S = 2.0
"""Time to wait for answers after the last request is due."""
SPIN_NS = 1_500_000
"""Shorter waits poll the sockets instead of sleeping, because `epoll` waits in steps of a millisecond."""
RECEIVE_BYTES = 1 << 16
BROKEN_STATUS = 599
"""Pseudo HTTP status of a request whose connection broke."""
ECHO_INPUT = ModelInput("input", "UINT8", (784,))
"""Input for an echo server, which has no model metadata."""


def drive_http(
    target: Target,
    model: str,
    rate_per_s: float,
    duration_s: float,
    *,
    data: str = "random",
    binary: bool = False,
    seed: int = 0,
    connections: int = CONNECTION_COUNT,
    deadline_us: int = 0,
    model_input: ModelInput | None = None,
) -> Outcome:
    """Send a model `rate_per_s` requests per second on average.

    `model_input` defaults to the input in the server's metadata.
    Raise `LoadError` if the server or the model is missing, or the data does not fit the input.
    """
    model_input = model_input or parse_input(read_metadata(target, model))
    due_times_ns = draw_schedule(rate_per_s, duration_s, seed)
    rows = make_rows(data, model_input.shape, seed)
    requests = encode_requests(target, model, model_input, rows, binary=binary)
    traces = send_on_time(target.resolve_address(), requests, due_times_ns, connection_count=connections)
    return Outcome(target.url, rate_per_s, seed, traces, deadline_us, {BROKEN_STATUS: "broken"})


def read_metadata(target: Target, model: str) -> Any:
    """Return the metadata of a model from the server. Raise `LoadError` if the server lacks the model."""
    status, metadata = _send_request(target, "GET", f"/v2/models/{model}")
    if status != http.client.OK:
        raise LoadError(
            f"{target.url} has no model {model!r} (status {status})",
            hint="Give the name of a model that the server has loaded",
        )
    return metadata


def find_only_model(target: Target) -> str:
    """Return the name of the only model in service.

    Raise `LoadError` unless there is exactly one.
    """
    status, index = _send_request(target, "POST", "/v2/repository/index", b'{"ready": true}')
    try:
        names = [str(entry["name"]) for entry in index] if status == http.client.OK else []
    except (TypeError, KeyError):
        names = []
    if len(names) != 1:
        raise LoadError(
            f"{target.url} lists {', '.join(names) or 'no model'} instead of exactly one model",
            hint="Pass --model NAME",
        )
    return names[0]


def _send_request(target: Target, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    """Return the status, and the document if the status is 200, else None. Raise `LoadError` without an answer."""
    connection = http.client.HTTPConnection(target.host, target.port, timeout=10)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LoadError(
            f"{target.url} does not answer {method} {path} ({error})",
            hint="Start a server of the Open Inference Protocol there, or give another address",
        ) from error
    finally:
        connection.close()


@dataclass
class _Connection:
    """A connection. `request_number` is the number of the pending request, or -1."""

    socket: socket.socket
    request_number: int = -1
    receive_buffer: bytes = b""


@dataclass
class _LoadRun:
    """A load in progress."""

    address: tuple[str, int]
    requests: Sequence[bytes]
    due_times_ns: Nanoseconds
    latency_ns: Nanoseconds
    lag_ns: Nanoseconds
    statuses: Any
    start_ns: int
    poller: select.epoll = field(default_factory=select.epoll)
    connection_by_descriptor: dict[int, _Connection] = field(default_factory=dict)
    idle_connections: deque[_Connection] = field(default_factory=deque)

    def connect(self) -> None:
        """Open another connection."""
        client = socket.create_connection(self.address, timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(False)
        self.connection_by_descriptor[client.fileno()] = connection = _Connection(client)
        self.poller.register(client, select.EPOLLIN)
        self.idle_connections.append(connection)

    def send(self, request_number: int) -> None:
        """Send request `request_number` on an idle connection."""
        connection = self.idle_connections.popleft()
        connection.request_number = request_number
        self.lag_ns[request_number] = clock_ns() - self.start_ns - self.due_times_ns[request_number]
        request = self.requests[request_number % len(self.requests)]
        try:
            sent_bytes = connection.socket.send(request)
            if sent_bytes < len(request):
                _send_remaining(connection.socket, request[sent_bytes:])
        except OSError:
            self.replace_connection(connection)

    def receive(self, descriptor: int) -> None:
        """Read from a connection. If its answer is complete, record the answer and make the connection idle."""
        connection = self.connection_by_descriptor[descriptor]
        try:
            chunk = connection.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.replace_connection(connection)
            return
        buffer = connection.receive_buffer + chunk if connection.receive_buffer else chunk
        reply = parse_reply(buffer)
        if reply is None:
            connection.receive_buffer = buffer
        elif reply.closes_connection:
            self.record_answer(connection, reply.status)
            self.replace_connection(connection)
        else:
            self.record_answer(connection, reply.status)
            connection.receive_buffer = buffer[reply.length :]
            self.idle_connections.append(connection)

    def record_answer(self, connection: _Connection, status: int) -> None:
        """Record the answer to the pending request of a connection."""
        request_number, connection.request_number = connection.request_number, -1
        if request_number >= 0:
            self.latency_ns[request_number] = clock_ns() - self.start_ns - self.due_times_ns[request_number]
            self.statuses[request_number] = 0 if 200 <= status < 300 else status

    def replace_connection(self, connection: _Connection) -> None:
        """Close a connection, and open another if the server accepts it. A pending request counts as broken."""
        self.record_answer(connection, BROKEN_STATUS)
        descriptor = connection.socket.fileno()
        self.poller.unregister(descriptor)
        del self.connection_by_descriptor[descriptor]
        if connection in self.idle_connections:
            self.idle_connections.remove(connection)
        connection.socket.close()
        with contextlib.suppress(OSError):
            self.connect()

    def close(self) -> None:
        """Close all connections."""
        self.poller.close()
        for connection in self.connection_by_descriptor.values():
            connection.socket.close()


def _send_remaining(client: socket.socket, unsent: bytes) -> None:
    client.settimeout(10)
    try:
        client.sendall(unsent)
    finally:
        client.setblocking(False)


def send_on_time(
    address: tuple[str, int],
    requests: Sequence[bytes],
    due_times_ns: Nanoseconds,
    *,
    connection_count: int = CONNECTION_COUNT,
    grace_s: float = GRACE_S,
) -> Traces:
    """Send the requests cyclically at the due times, and return the traces. Raise `LoadError` if no server listens."""
    latencies_ns = np.full(len(due_times_ns), NOT_HAPPENED, dtype=np.int64)
    load_run = _LoadRun(
        address,
        requests,
        due_times_ns,
        latencies_ns,
        latencies_ns.copy(),
        np.zeros(len(due_times_ns), dtype=np.int32),
        clock_ns(),
    )
    try:
        for _ in range(connection_count):
            load_run.connect()
        load_run.start_ns = clock_ns()
        _run_load(load_run, int(grace_s * 1e9))
    except OSError as error:
        raise LoadError(
            f"{address[0]}:{address[1]} does not accept connections ({error})",
            hint="Start a server there, or give another address",
        ) from error
    finally:
        load_run.close()
    return make_traces(due_times_ns, load_run.latency_ns, load_run.lag_ns, load_run.statuses)


def _run_load(load_run: _LoadRun, grace_ns: int) -> None:
    due_times_ns = load_run.due_times_ns.tolist()
    request_count, next_request_number = len(due_times_ns), 0
    end_ns = (due_times_ns[-1] if due_times_ns else 0) + grace_ns
    poll, idle_connections = load_run.poller.poll, load_run.idle_connections
    while True:
        elapsed_ns = clock_ns() - load_run.start_ns
        while (
            next_request_number < request_count
            and due_times_ns[next_request_number] <= elapsed_ns
            and idle_connections
        ):
            load_run.send(next_request_number)
            next_request_number += 1
        if elapsed_ns > end_ns or (
            next_request_number == request_count
            and len(idle_connections) == len(load_run.connection_by_descriptor)
        ):
            return
        next_event_ns = (
            due_times_ns[next_request_number]
            if next_request_number < request_count and idle_connections
            else end_ns
        )
        for descriptor, _ in poll(_compute_sleep_s(next_event_ns - elapsed_ns)):
            if descriptor in load_run.connection_by_descriptor:
                load_run.receive(descriptor)


def _compute_sleep_s(wait_ns: int) -> float:
    """Return the seconds to sleep before a deadline in `wait_ns`: one whole millisecond less than the wait."""
    return 0 if wait_ns < SPIN_NS else (wait_ns // 1_000_000 - 1) / 1000
