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
from lightning.load.schedule import Times, draw_schedule
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
    rate: float,
    seconds: float,
    *,
    data: str = "random",
    binary: bool = False,
    seed: int = 0,
    connections: int = CONNECTION_COUNT,
    deadline_us: int = 0,
    model_input: ModelInput | None = None,
) -> Outcome:
    """Send a model `rate` requests per second on average. `model_input` defaults to the input in the server's metadata.

    Raise `LoadError` if the server or the model is missing, or the data does not fit the input.
    """
    model_input = model_input or parse_input(read_metadata(target, model))
    due_ns = draw_schedule(rate, seconds, seed)
    rows = make_rows(data, model_input.shape, seed)
    requests = encode_requests(target, model, model_input, rows, binary=binary)
    traces = send_on_time(target.resolve_address(), requests, due_ns, connections=connections)
    return Outcome(target.url, rate, seed, traces, deadline_us, {BROKEN_STATUS: "broken"})


def read_metadata(target: Target, model: str) -> Any:
    """Return the metadata of a model from the server. Raise `LoadError` if the server lacks the model."""
    status, content = _request(target, "GET", f"/v2/models/{model}")
    if status != http.client.OK:
        raise LoadError(
            f"{target.url} has no model {model!r} (status {status})",
            hint="Give the name of a model that the server has loaded",
        )
    return content


def find_only_model(target: Target) -> str:
    """Return the name of the only model in service.

    Raise `LoadError` unless there is exactly one.
    """
    status, index = _request(target, "POST", "/v2/repository/index", b'{"ready": true}')
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


def _request(target: Target, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
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
    """A connection. `request` is the number of the pending request, or -1."""

    socket: socket.socket
    request: int = -1
    received: bytes = b""


@dataclass
class _LoadRun:
    """A load in progress."""

    address: tuple[str, int]
    requests: Sequence[bytes]
    due_ns: Times
    latency_ns: Times
    lag_ns: Times
    status: Any
    start_ns: int
    poll: select.epoll = field(default_factory=select.epoll)
    connection_by_descriptor: dict[int, _Connection] = field(default_factory=dict)
    idle_connections: deque[_Connection] = field(default_factory=deque)

    def connect(self) -> None:
        """Open another connection."""
        client = socket.create_connection(self.address, timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(False)
        self.connection_by_descriptor[client.fileno()] = connection = _Connection(client)
        self.poll.register(client, select.EPOLLIN)
        self.idle_connections.append(connection)

    def send(self, number: int) -> None:
        """Send request `number` on an idle connection."""
        connection = self.idle_connections.popleft()
        connection.request = number
        self.lag_ns[number] = clock_ns() - self.start_ns - self.due_ns[number]
        request = self.requests[number % len(self.requests)]
        try:
            sent_bytes = connection.socket.send(request)
            if sent_bytes < len(request):
                _send_remaining(connection.socket, request[sent_bytes:])
        except OSError:
            self.replace(connection)

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
            self.replace(connection)
            return
        buffer = connection.received + chunk if connection.received else chunk
        reply = parse_reply(buffer)
        if reply is None:
            connection.received = buffer
        elif reply.closes_connection:
            self.finish(connection, reply.status)
            self.replace(connection)
        else:
            self.finish(connection, reply.status)
            connection.received = buffer[reply.length :]
            self.idle_connections.append(connection)

    def finish(self, connection: _Connection, status: int) -> None:
        """Record the answer to the pending request of a connection."""
        number, connection.request = connection.request, -1
        if number >= 0:
            self.latency_ns[number] = clock_ns() - self.start_ns - self.due_ns[number]
            self.status[number] = 0 if 200 <= status < 300 else status

    def replace(self, connection: _Connection) -> None:
        """Close a connection, and open another if the server accepts it. A pending request counts as broken."""
        self.finish(connection, BROKEN_STATUS)
        descriptor = connection.socket.fileno()
        self.poll.unregister(descriptor)
        del self.connection_by_descriptor[descriptor]
        if connection in self.idle_connections:
            self.idle_connections.remove(connection)
        connection.socket.close()
        with contextlib.suppress(OSError):
            self.connect()

    def close(self) -> None:
        """Close all connections."""
        self.poll.close()
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
    due_ns: Times,
    *,
    connections: int = CONNECTION_COUNT,
    grace_s: float = GRACE_S,
) -> Traces:
    """Send the requests cyclically at the due times, and return the traces. Raise `LoadError` if no server listens."""
    latencies = np.full(len(due_ns), NOT_HAPPENED, dtype=np.int64)
    load = _LoadRun(
        address,
        requests,
        due_ns,
        latencies,
        latencies.copy(),
        np.zeros(len(due_ns), dtype=np.int32),
        clock_ns(),
    )
    try:
        for _ in range(connections):
            load.connect()
        load.start_ns = clock_ns()
        _run_load(load, int(grace_s * 1e9))
    except OSError as error:
        raise LoadError(
            f"{address[0]}:{address[1]} does not accept connections ({error})",
            hint="Start a server there, or give another address",
        ) from error
    finally:
        load.close()
    return make_traces(due_ns, load.latency_ns, load.lag_ns, load.status)


def _run_load(load: _LoadRun, grace_ns: int) -> None:
    due_ns = load.due_ns.tolist()
    count, number = len(due_ns), 0
    end_ns = (due_ns[-1] if due_ns else 0) + grace_ns
    poll, idle = load.poll.poll, load.idle_connections
    while True:
        elapsed_ns = clock_ns() - load.start_ns
        while number < count and due_ns[number] <= elapsed_ns and idle:
            load.send(number)
            number += 1
        if elapsed_ns > end_ns or (number == count and len(idle) == len(load.connection_by_descriptor)):
            return
        next_event_ns = due_ns[number] if number < count and idle else end_ns
        for descriptor, _ in poll(_compute_sleep_s(next_event_ns - elapsed_ns)):
            if descriptor in load.connection_by_descriptor:
                load.receive(descriptor)


def _compute_sleep_s(wait_ns: int) -> float:
    """Return the seconds to sleep before a deadline in `wait_ns`: one whole millisecond less than the wait."""
    return 0 if wait_ns < SPIN_NS else (wait_ns // 1_000_000 - 1) / 1000
