"""Messages between the hosts of a job: one connection for each pair and set of routes, and one loop that serves them.

`iteration.py` uses this file, and both are copied to the hosts. Standard library only.
"""

from __future__ import annotations

import heapq
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

HELLO = struct.Struct("!cI")
"""First bytes of a connection: `d` for data or `b` for barriers, and the rank of the sender."""
HEADER = struct.Struct("!IQ")
"""Number of the task, and number of bytes that follow."""
PIECE_BYTES = 1 << 18
ZEROS = memoryview(bytes(PIECE_BYTES))
_SO_MAX_PACING_RATE = 47  # bytes/s; asm-generic/socket.h
SEND_BUFFER_BYTES = 1 << 16
"""Send buffer of a connection in bytes. The buffers of all connections fit into the queues of the NICs."""

_RETRANSMITTED_OFFSET, _INFO_BYTES = 208, 232
"""Offset of `tcpi_bytes_retrans` in `struct tcp_info` (linux/tcp.h, since Linux 4.19), and bytes to read."""


class OutgoingQueue:
    """Queue of messages to one host on one set of routes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.queued_messages: deque[tuple[bytes, int, Callable[[], None]]] = deque()
        self.header = b""
        self.remaining_bytes = 0

    def queue_message(self, header: bytes, size: int, on_sent: Callable[[], None]) -> None:
        """Queue a message. `on_sent` is called when the kernel has accepted its last byte."""
        if not self.queued_messages:
            self.header, self.remaining_bytes = header, size
        self.queued_messages.append((header, size, on_sent))

    def write(self) -> None:
        """Write as much as the kernel accepts."""
        while self.queued_messages:
            try:
                written_bytes = self.connection.sendmsg([self.header, ZEROS[: self.remaining_bytes]])
            except BlockingIOError:
                return
            header_bytes = min(written_bytes, len(self.header))
            self.header, self.remaining_bytes = (
                self.header[header_bytes:],
                self.remaining_bytes - (written_bytes - header_bytes),
            )
            if self.header or self.remaining_bytes:
                continue
            on_sent = self.queued_messages.popleft()[2]
            if self.queued_messages:
                self.header, self.remaining_bytes, _ = self.queued_messages[0]
            on_sent()

    def count_retransmitted_bytes(self) -> int:
        """Return the bytes that TCP has retransmitted so far."""
        info = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        offset = _RETRANSMITTED_OFFSET
        return int(struct.unpack_from("=Q", info, offset)[0]) if len(info) >= offset + 8 else 0


class IncomingConnection:
    """Messages that arrive on one connection."""

    receive_buffer = memoryview(bytearray(PIECE_BYTES))

    def __init__(self, connection: socket.socket, on_arrival: Callable[[int], None]) -> None:
        self.connection = connection
        self.on_arrival = on_arrival
        self.header = b""
        self.remaining_bytes = -1

    def read(self) -> None:
        """Read what has arrived. Raise `ConnectionError` if the peer has closed the connection."""
        try:
            received_bytes = self.connection.recv_into(self.receive_buffer)
        except BlockingIOError:
            return
        if not received_bytes:
            raise ConnectionError("another host closed its connection")
        offset = 0
        while offset < received_bytes or not self.remaining_bytes:
            if self.remaining_bytes < 0:
                part_bytes = min(HEADER.size - len(self.header), received_bytes - offset)
                self.header += bytes(self.receive_buffer[offset : offset + part_bytes])
                offset += part_bytes
                if len(self.header) < HEADER.size:
                    return
                self.remaining_bytes = HEADER.unpack(self.header)[1]
            part_bytes = min(self.remaining_bytes, received_bytes - offset)
            self.remaining_bytes -= part_bytes
            offset += part_bytes
            if not self.remaining_bytes:
                self.on_arrival(HEADER.unpack(self.header)[0])
                self.header, self.remaining_bytes = b"", -1


class HostConnections:
    """Connections of this host, and an event loop that serves them and its timers.

    `waiting_s` is the time so far in which the loop had nothing to do.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.server = socket.create_server(("", 0), backlog=1024)
        self.incoming: dict[int, IncomingConnection] = {}
        self.outgoing: dict[tuple[int, int], OutgoingQueue] = {}
        self.timers: list[tuple[float, int, Callable[[float], None]]] = []
        self.barrier_connections: list[socket.socket] = []
        self.timer_count = 0
        self.on_arrival: Callable[[int], None] = lambda _task: None
        self.waiting_s = 0.0

    def schedule_call(self, due_s: float, callback: Callable[[float], None]) -> None:
        """Schedule `callback(due_s)` at that time of the monotonic clock."""
        self.timer_count += 1
        heapq.heappush(self.timers, (due_s, self.timer_count, callback))

    def serve_once(self, deadline_s: float) -> None:
        """Serve a timer that is due, or else wait for connections. Raise `TimeoutError` from `deadline_s` on."""
        now_s = time.monotonic()
        if now_s >= deadline_s:
            raise TimeoutError("the job did not end in time")
        if self.timers and self.timers[0][0] <= now_s:
            due_s, _, callback = heapq.heappop(self.timers)
            callback(due_s)
            return
        outgoing_by_descriptor = {
            outgoing.connection.fileno(): outgoing
            for outgoing in self.outgoing.values()
            if outgoing.queued_messages
        }
        wake_s = min(deadline_s, self.timers[0][0]) if self.timers else deadline_s
        readable_descriptors, writable_descriptors, _ = select.select(
            list(self.incoming), list(outgoing_by_descriptor), [], max(0.0, wake_s - now_s)
        )
        self.waiting_s += time.monotonic() - now_s
        for descriptor in writable_descriptors:
            outgoing_by_descriptor[descriptor].write()
        for descriptor in readable_descriptors:
            self.incoming[descriptor].read()

    def _report_arrival(self, task_number: int) -> None:
        self.on_arrival(task_number)

    def connect(self, job: dict[str, Any]) -> None:
        """Connect to each host and set of routes that this host sends to, and accept the connections of the others."""
        target_route_sets = sorted(
            {(target, route_set) for task in job["tasks"] for target, route_set, _ in task["send"]}
        )
        addresses, timeout_s = job["addresses"], job["timeout_s"]
        for target, route_set in target_route_sets:
            source = (addresses[self.rank][route_set], 0)
            connection = socket.create_connection(
                (addresses[target][route_set], job["ports"][target]), timeout_s, source
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _limit_rate(connection, job["pace_bytes"])
            connection.sendall(HELLO.pack(b"d", self.rank))
            connection.setblocking(False)
            self.outgoing[target, route_set] = OutgoingQueue(connection)
        address, _, port = job["barrier"].rpartition(":")
        self.barrier_connection = socket.create_connection((address, int(port)), timeout_s)
        self.barrier_connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.barrier_connection.sendall(HELLO.pack(b"b", self.rank))
        self.server.settimeout(timeout_s)
        connection_count = job["incoming"] + (0 if self.rank else job["nodes"])
        for _ in range(connection_count):
            self._accept(timeout_s)

    def _accept(self, timeout_s: float) -> None:
        connection, _ = self.server.accept()
        connection.settimeout(timeout_s)
        kind, _ = HELLO.unpack(connection.recv(HELLO.size, socket.MSG_WAITALL))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind == b"b":
            self.barrier_connections.append(connection)
        else:
            connection.setblocking(False)
            self.incoming[connection.fileno()] = IncomingConnection(connection, self._report_arrival)

    def wait_for_all(self) -> None:
        """Wait until all hosts have called this."""
        self.barrier_connection.sendall(b".")
        if self.rank == 0:
            for connection in self.barrier_connections:
                _receive_mark(connection)
            for connection in self.barrier_connections:
                connection.sendall(b".")
        _receive_mark(self.barrier_connection)


def _limit_rate(connection: socket.socket, pace_bytes_per_s: int) -> None:
    """Limit a connection to a link's rate and queue length: bytes lost on a long path load its first links twice."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("@L", pace_bytes_per_s))


def _receive_mark(connection: socket.socket) -> None:
    if not connection.recv(1):
        raise ConnectionError("another host ended before a barrier")
