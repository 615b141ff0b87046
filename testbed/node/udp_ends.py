"""Sender and receiver of a job's bursts over the transport of `transport.py`, on UDP.

This file uses the standard library only, because it is copied to the hosts.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from testbed.node.transport import PAYLOAD_BYTES, Receiver, make_sender
except ModuleNotFoundError:  # a copy on a host, beside a copy of transport.py
    sys.path.insert(0, str(Path(__file__).parent))
    from transport import PAYLOAD_BYTES, Receiver, make_sender  # type: ignore[import-not-found,no-redef]

MAX_PACKETS_PER_ACK = 8
"""Maximum number of packets that one acknowledgement covers."""


def bind_socket(outgoing_socket: socket.socket, job: dict[str, Any]) -> None:
    """Set the priority of a socket's packets, and bind it to its source address."""
    if job["mark"]:
        outgoing_socket.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, job["mark"])
    outgoing_socket.bind((job["source"], 0))


class UdpSender:
    """The end that sends the parts of a burst as packets of the transport."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bind_socket(self.connection, job)
        self.connection.connect((job["next"], job["port"]))
        self.connection.setblocking(False)
        self.sender = make_sender(job["control"], job["slope"], job["intercept"])
        self.start_s = self.pace_bytes_per_s = 0.0
        self.sent_count = 0

    @property
    def is_done(self) -> bool:
        """True when all packets are acknowledged."""
        return self.sender.is_done

    @property
    def retransmit_count(self) -> int:
        """Packets that were sent again."""
        return self.sender.retransmit_count

    def begin(self, size: int, pace_bytes_per_s: float) -> None:
        """Begin a part of `size` bytes; `pace_bytes_per_s` limits it to that many bytes per second (0: no limit)."""
        self.sender.begin(max(1, round(size / PAYLOAD_BYTES)))
        self.start_s, self.pace_bytes_per_s, self.sent_count = time.monotonic(), pace_bytes_per_s, 0

    def write(self) -> float | None:
        """Send the packets that window and pace allow. Return the time of the next call, or None without a deadline."""
        now_s = time.monotonic()
        max_packets = (
            int((now_s - self.start_s) * self.pace_bytes_per_s / PAYLOAD_BYTES) + 1 - self.sent_count
            if self.pace_bytes_per_s
            else None
        )
        for packet in [*self.sender.on_time(now_s), *self.sender.poll(now_s, max_packets)]:
            self.sent_count += 1
            with suppress(OSError):  # a full socket buffer loses a packet as a full link does
                self.connection.send(packet)
        deadline_s = self.sender.deadline_s
        if self.pace_bytes_per_s and self.sender.has_waiting_chunks:
            next_s = self.start_s + self.sent_count * PAYLOAD_BYTES / self.pace_bytes_per_s
            if next_s > now_s:  # otherwise the window stays full until an acknowledgement comes
                return min(deadline_s or next_s, next_s)
        return deadline_s

    def read(self) -> None:
        """Handle all acknowledgements that have arrived."""
        with suppress(OSError):
            while True:
                self.sender.on_packet(self.connection.recv(2048), time.monotonic())

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()


class UdpReceiver:
    """The end that acknowledges packets."""

    def __init__(self, address: str) -> None:
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.connection.bind((address, 0))
        self.connection.setblocking(False)
        self.port = int(self.connection.getsockname()[1])
        self.receiver, self.expected_count = Receiver(), 0

    @property
    def is_done(self) -> bool:
        """True when all expected packets have arrived."""
        return self.receiver.received_count >= self.expected_count

    def expect(self, size: int) -> None:
        """Expect a part of `size` bytes."""
        self.expected_count += max(1, round(size / PAYLOAD_BYTES))

    def write(self) -> float | None:
        """Do nothing: this end only answers."""
        return None

    def read(self) -> None:
        """Acknowledge the packets that have arrived, several with one acknowledgement."""
        acknowledgement, packet_count = None, 0
        with suppress(BlockingIOError):
            while True:
                packet, sender_address = self.connection.recvfrom(2048)
                acknowledgement = self.receiver.on_packet(packet) or acknowledgement
                packet_count += 1
                if packet_count == MAX_PACKETS_PER_ACK and acknowledgement:
                    self._answer(acknowledgement, sender_address)
                    acknowledgement, packet_count = None, 0
        if acknowledgement:
            self._answer(acknowledgement, sender_address)

    def _answer(self, acknowledgement: bytes, sender_address: Any) -> None:
        with suppress(OSError):
            self.connection.sendto(acknowledgement, sender_address)

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()
