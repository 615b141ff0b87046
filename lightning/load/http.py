"""Load on a server of the Open Inference Protocol: keep-alive connections, one request at a time on each.

A request that is due while all connections are busy waits for the next free one; its latency counts from when it was
due. Requests are made beforehand, and sockets are raw: the generator must not be what is measured.
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
from time import perf_counter_ns as clock
from typing import Any

import numpy as np

from lightning.load.http_messages import ModelInput, input_of, reply_in, requests_of
from lightning.load.inputs import rows_of
from lightning.load.outcome import WAITING, Outcome, Traces, traces_of
from lightning.load.schedule import Times, poisson_schedule
from lightning.load.targets import CONNECTIONS, LoadError, Target

GRACE_S = 2.0
"""How long answers are waited for after the last request was due."""
SPIN_NS = 1_500_000
"""Waits shorter than this are spent asking: the kernel's own waiting has a grain of a millisecond."""
RECEIVE = 1 << 16
BROKEN = 599
"""Stands for a status where the connection broke."""
ECHOED = ModelInput("input", "UINT8", (784,))
"""What an echo is sent: it knows no models."""


def drive_http(
    target: Target,
    model: str,
    rate: float,
    seconds: float,
    *,
    data: str = "random",
    binary: bool = False,
    seed: int = 0,
    connections: int = CONNECTIONS,
    deadline_us: int = 0,
    into: ModelInput | None = None,
) -> Outcome:
    """Ask a model `rate` times a second on average. The server tells what the model takes, unless `into` does.

    Raises `LoadError` where the server or the model is not there.
    """
    into = into or input_of(metadata_of(target, model))
    due = poisson_schedule(rate, seconds, seed)
    rows = rows_of(data, into.shape, seed)
    requests = requests_of(target, model, into, rows, binary=binary)
    traces = send_on_time(target.address(), requests, due, connections=connections)
    return Outcome(target.url, rate, seed, traces, deadline_us, {BROKEN: "broken"})


def metadata_of(target: Target, model: str) -> Any:
    """Return what the server tells of a model. Raises `LoadError`."""
    status, content = _request(target, "GET", f"/v2/models/{model}")
    if status != http.client.OK:
        raise LoadError(
            f"{target.url} has no model {model!r} (status {status})",
            hint="Give the name of a model that the server has loaded",
        )
    return content


def only_model(target: Target) -> str:
    """Return the name of the one model that a server has loaded.

    Raises `LoadError` where there are several, or none.
    """
    status, listed = _request(target, "POST", "/v2/repository/index", b'{"ready": true}')
    try:
        names = [str(each["name"]) for each in listed] if status == http.client.OK else []
    except (TypeError, KeyError):
        names = []
    if len(names) != 1:
        raise LoadError(
            f"{target.url} names {', '.join(names) or 'no model'}, and nothing says which is to be asked",
            hint="Pass --model NAME",
        )
    return names[0]


def _request(target: Target, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    """Return the status, and the document of a good answer. Raises `LoadError`."""
    asked = http.client.HTTPConnection(target.host, target.port, timeout=10)
    try:
        asked.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = asked.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LoadError(
            f"{target.url} does not answer {method} {path} ({error})",
            hint="Start a server of the Open Inference Protocol there, or give another address",
        ) from error
    finally:
        asked.close()


@dataclass
class _Connection:
    """`request` is the number of the one that it waits for."""

    socket: socket.socket
    request: int = -1
    received: bytes = b""


@dataclass
class _Load:
    """A load in progress."""

    address: tuple[str, int]
    requests: Sequence[bytes]
    due: Times
    latency: Times
    lag: Times
    status: Any
    start: int
    poll: select.epoll = field(default_factory=select.epoll)
    all: dict[int, _Connection] = field(default_factory=dict)
    idle: deque[_Connection] = field(default_factory=deque)

    def connect(self) -> None:
        """Open one connection more."""
        made = socket.create_connection(self.address, timeout=10)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        self.all[made.fileno()] = connection = _Connection(made)
        self.poll.register(made, select.EPOLLIN)
        self.idle.append(connection)

    def send(self, number: int) -> None:
        """Request `number`, on a connection that is free."""
        connection = self.idle.popleft()
        connection.request = number
        self.lag[number] = clock() - self.start - self.due[number]
        request = self.requests[number % len(self.requests)]
        try:
            left = connection.socket.send(request)
            if left < len(request):
                _send_rest(connection.socket, request[left:])
        except OSError:
            self.replace(connection)

    def receive(self, descriptor: int) -> None:
        """Return the messages that came on a connection; it is free again when its answer is whole."""
        connection = self.all[descriptor]
        try:
            came = connection.socket.recv(RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        if not came:
            self.replace(connection)
            return
        whole = connection.received + came if connection.received else came
        reply = reply_in(whole)
        if reply is None:
            connection.received = whole
        elif reply.closes:
            self.finish(connection, reply.status)
            self.replace(connection)
        else:
            self.finish(connection, reply.status)
            connection.received = whole[reply.length :]
            self.idle.append(connection)

    def finish(self, connection: _Connection, status: int) -> None:
        """Note that the answer to its request is there."""
        number, connection.request = connection.request, -1
        if number >= 0:
            self.latency[number] = clock() - self.start - self.due[number]
            self.status[number] = 0 if 200 <= status < 300 else status

    def replace(self, connection: _Connection) -> None:
        """Another takes its place, if the server lets it; the request that it carried, if any, is refused."""
        self.finish(connection, BROKEN)
        descriptor = connection.socket.fileno()
        self.poll.unregister(descriptor)
        del self.all[descriptor]
        if connection in self.idle:
            self.idle.remove(connection)
        connection.socket.close()
        with contextlib.suppress(OSError):
            self.connect()

    def close(self) -> None:
        """Close all connections."""
        self.poll.close()
        for each in self.all.values():
            each.socket.close()


def _send_rest(to: socket.socket, rest: bytes) -> None:
    to.settimeout(10)
    try:
        to.sendall(rest)
    finally:
        to.setblocking(False)


def send_on_time(
    address: tuple[str, int],
    requests: Sequence[bytes],
    due: Times,
    *,
    connections: int = CONNECTIONS,
    grace_s: float = GRACE_S,
) -> Traces:
    """Send the requests when they are due, in a cycle. Raise `LoadError` if no server listens."""
    waiting = np.full(len(due), WAITING, dtype=np.int64)
    load = _Load(address, requests, due, waiting, waiting.copy(), np.zeros(len(due), dtype=np.int32), clock())
    try:
        for _ in range(connections):
            load.connect()
        load.start = clock()
        _run(load, int(grace_s * 1e9))
    except OSError as error:
        raise LoadError(
            f"{address[0]}:{address[1]} does not accept connections ({error})",
            hint="Start a server there, or give another address",
        ) from error
    finally:
        load.close()
    return traces_of(due, load.latency, load.lag, load.status)


def _run(load: _Load, grace: int) -> None:
    due = load.due.tolist()
    count, number = len(due), 0
    end = (due[-1] if due else 0) + grace
    poll, idle = load.poll.poll, load.idle
    while True:
        now = clock() - load.start
        while number < count and due[number] <= now and idle:
            load.send(number)
            number += 1
        if now > end or (number == count and len(idle) == len(load.all)):
            return
        following = due[number] if number < count and idle else end
        for descriptor, _ in poll(_patience(following - now)):
            if descriptor in load.all:
                load.receive(descriptor)


def _patience(left: int) -> float:
    """Return the seconds to sleep when this many nanoseconds are left: whole milliseconds, one less than there are."""
    return 0 if left < SPIN_NS else (left // 1_000_000 - 1) / 1000
