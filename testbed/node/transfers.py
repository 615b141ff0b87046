"""Bursts of a job over TCP or over `transport.py` on UDP, and the loop that serves both ends while a job computes.

Over TCP, the receiver answers each part of a burst with one byte, so the sender knows when all of it has arrived.
Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

try:
    from testbed.node.udp_ends import UdpReceiver, UdpSender, bind_socket
except ModuleNotFoundError:  # a copy on a host, beside a copy of that file
    sys.path.insert(0, str(Path(__file__).parent))
    from udp_ends import UdpReceiver, UdpSender, bind_socket  # type: ignore[import-not-found,no-redef]

SEGMENT_BYTES = 1448
"""Payload of a TCP segment with time stamps in a packet of 1500 bytes. The MTU of a lab may be larger."""
CONNECT_TIMEOUT_S = 10.0
MAX_IDLE_S = 0.25
CHUNK_BYTES = 1 << 16
_ZERO_BYTES = bytes(CHUNK_BYTES)
_TCP_CONGESTION, _SO_MAX_PACING_RATE = 13, 47
_RETRANSMITTED_FIELD = struct.Struct("=100xI")  # tcpi_total_retrans of struct tcp_info


class Endpoint(Protocol):
    """One end of a job's traffic."""

    connection: socket.socket

    @property
    def is_done(self) -> bool:
        """True when the current part has arrived."""
        ...

    def read(self) -> None:
        """Receive what has arrived."""
        ...

    def write(self) -> float | None:
        """Send what can be sent. Return when to call this again, or None to wait for input."""
        ...

    def close(self) -> None:
        """Close the sockets."""
        ...


class SendingEnd(Endpoint, Protocol):
    """The sending end."""

    @property
    def retransmit_count(self) -> int:
        """Packets that were sent again."""
        ...

    def begin(self, size: int, pace_bytes_per_s: float) -> None:
        """Begin a part of `size` bytes, at no more than `pace_bytes_per_s` bytes per second (0: no limit)."""
        ...


class ReceivingEnd(Endpoint, Protocol):
    """The receiving end."""

    port: int

    def expect(self, size: int) -> None:
        """Expect a part of `size` bytes."""
        ...


class TcpSender:
    """The sending end over TCP."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, job["control"].encode())
        bind_socket(self.connection, job)
        self.connection.settimeout(CONNECT_TIMEOUT_S)
        self.connection.connect((job["next"], job["port"]))
        self.connection.setblocking(False)
        self.remaining_bytes = 0
        self.is_done = True

    def begin(self, size: int, pace_bytes_per_s: float) -> None:
        """Begin a part."""
        if pace_bytes_per_s:
            self.connection.setsockopt(
                socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("@L", int(pace_bytes_per_s))
            )
        self.remaining_bytes, self.is_done = size, False

    def write(self) -> float | None:
        """Send as much as the socket accepts."""
        with suppress(BlockingIOError):
            while self.remaining_bytes:
                self.remaining_bytes -= self.connection.send(
                    _ZERO_BYTES[: min(self.remaining_bytes, CHUNK_BYTES)]
                )
        return None

    def read(self) -> None:
        """Receive the byte that confirms that the part has arrived."""
        with suppress(BlockingIOError):
            if not self.connection.recv(1):
                raise ConnectionError("the receiving host ended")
            self.is_done = True

    @property
    def retransmit_count(self) -> int:
        """Segments that were sent again."""
        info = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RETRANSMITTED_FIELD.size)
        return int(_RETRANSMITTED_FIELD.unpack(info)[0]) if len(info) == _RETRANSMITTED_FIELD.size else 0

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class TcpReceiver:
    """The receiving end over TCP, which counts bytes and answers each part with one byte."""

    def __init__(self, address: str) -> None:
        self.server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        self.server.bind((address, 0))
        self.server.listen(1)
        self.port = int(self.server.getsockname()[1])
        self.connection = self.server
        self.arrived_bytes = self.expected_bytes = 0
        self.is_done = True

    def expect(self, size: int) -> None:
        """Expect a part of `size` bytes, some of which may have arrived already."""
        self.expected_bytes, self.is_done = size, False
        self._confirm_part()

    def write(self) -> float | None:
        """Do nothing: this end only answers."""
        return None

    def read(self) -> None:
        """Accept the connection, or receive bytes."""
        if self.connection is self.server:
            self.connection, _ = self.server.accept()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection.setblocking(False)
            return
        with suppress(BlockingIOError):
            data = self.connection.recv(CHUNK_BYTES)
            if not data:
                raise ConnectionError("the sending host ended")
            self.arrived_bytes += len(data)
        self._confirm_part()

    def _confirm_part(self) -> None:
        if not self.is_done and self.arrived_bytes >= self.expected_bytes:
            self.arrived_bytes -= self.expected_bytes
            self.is_done = True
            self.connection.send(b".")

    def close(self) -> None:
        """Close the sockets."""
        self.connection.close()
        self.server.close()


def open_outgoing(job: dict[str, Any]) -> SendingEnd:
    """Return the sending end of a job. Raises `OSError`."""
    return TcpSender(job) if job["transport"] == "tcp" else UdpSender(job)


def open_incoming(member: dict[str, Any]) -> ReceivingEnd | None:
    """Return the receiving end of a job, or None if the job receives nothing here."""
    if member["listen"] is None:
        return None
    return TcpReceiver(member["listen"]) if member["transport"] == "tcp" else UdpReceiver(member["listen"])


class EventLoop:
    """Event loop of the ends of a job."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.endpoints = endpoints

    def serve_until(self, end_s: float) -> None:
        """Serve until a time of the monotonic clock."""
        while (now_s := time.monotonic()) < end_s:
            self._serve_once(end_s - now_s)

    def run(self, is_over: Callable[[], bool], deadline_s: float) -> None:
        """Serve until `is_over()`. Raise `TimeoutError` at `deadline_s`."""
        while not is_over():
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise TimeoutError("a burst did not end in time: check the other hosts of the job")
            self._serve_once(deadline_s - now_s)

    def linger(self, max_wait_s: float) -> None:
        """Serve until nothing has arrived for a while: the last acknowledgement may be lost."""
        end_s = time.monotonic() + max_wait_s
        while time.monotonic() < end_s and self._serve_once(MAX_IDLE_S):
            pass

    def _serve_once(self, wait_s: float) -> bool:
        """Send what can be sent and wait for input; return False if no socket became ready."""
        now_s = time.monotonic()
        due_times_s = [due_s for endpoint in self.endpoints if (due_s := endpoint.write()) is not None]
        writers = [
            endpoint.connection for endpoint in self.endpoints if getattr(endpoint, "remaining_bytes", 0)
        ]
        wait_s = max(0.0, min([wait_s, *(due_s - now_s for due_s in due_times_s)]))
        readable_connections, writable_connections, _ = select.select(
            [endpoint.connection for endpoint in self.endpoints], writers, [], wait_s
        )
        for endpoint in self.endpoints:
            if endpoint.connection in readable_connections:
                self._read(endpoint)
        return bool(readable_connections or writable_connections)

    def _read(self, ready_endpoint: Endpoint) -> None:
        """Read from an end. Drop it if it is done and its peer has closed the connection."""
        try:
            ready_endpoint.read()
        except ConnectionError:
            if not ready_endpoint.is_done:
                raise
            self.endpoints = [endpoint for endpoint in self.endpoints if endpoint is not ready_endpoint]
