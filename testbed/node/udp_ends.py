"""The ends of a job's bursts over our transport on UDP. Standard library only: this file is copied to the hosts."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from testbed.node.transport import PAYLOAD, Receiver, make_sender
except ModuleNotFoundError:  # a copy on a host, beside a copy of that file
    sys.path.insert(0, str(Path(__file__).parent))
    from transport import PAYLOAD, Receiver, make_sender  # type: ignore[import-not-found,no-redef]

TOGETHER = 8
"""Maximum number of packets that one acknowledgement covers."""


def prepare(connection: socket.socket, job: dict[str, Any]) -> None:
    """Set the priority of a socket's packets, and bind it to its source address."""
    if job["mark"]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, job["mark"])
    connection.bind((job["source"], 0))


class UdpOut:
    """A part as packets of our transport."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        prepare(self.connection, job)
        self.connection.connect((job["next"], job["port"]))
        self.connection.setblocking(False)
        self.sending = make_sender(job["control"], job["slope"], job["intercept"])
        self.began_s = self.pace = 0.0
        self.sent = 0

    @property
    def is_done(self) -> bool:
        """True when all packets are acknowledged."""
        return self.sending.is_done

    @property
    def retransmits(self) -> int:
        """Packets that were sent again."""
        return self.sending.retransmits

    def begin(self, size: int, pace: float) -> None:
        """Begin a part."""
        self.sending.begin(max(1, round(size / PAYLOAD)))
        self.began_s, self.pace, self.sent = time.monotonic(), pace, 0

    def write(self) -> float | None:
        """Send what window and pace allow."""
        now = time.monotonic()
        room = int((now - self.began_s) * self.pace / PAYLOAD) + 1 - self.sent if self.pace else None
        for packet in [*self.sending.on_time(now), *self.sending.poll(now, room)]:
            self.sent += 1
            with suppress(OSError):  # a full socket buffer loses a packet as a full link does
                self.connection.send(packet)
        due = self.sending.deadline
        if self.pace and self.sending.has_waiting:
            next_s = self.began_s + self.sent * PAYLOAD / self.pace
            if next_s > now:  # else it is the window that has no room, and an acknowledgement makes it
                return min(due or next_s, next_s)
        return due

    def read(self) -> None:
        """Take acknowledgements, as many as are here."""
        with suppress(OSError):
            while True:
                self.sending.on_packet(self.connection.recv(2048), time.monotonic())

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()


class UdpIn:
    """The end that acknowledges packets."""

    def __init__(self, address: str) -> None:
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.connection.bind((address, 0))
        self.connection.setblocking(False)
        self.port = int(self.connection.getsockname()[1])
        self.receiver, self.expected = Receiver(), 0

    @property
    def is_done(self) -> bool:
        """True when as many packets as were expected are here."""
        return self.receiver.received >= self.expected

    def expect(self, size: int) -> None:
        """Expect a part."""
        self.expected += max(1, round(size / PAYLOAD))

    def write(self) -> float | None:
        """Do nothing: this end only answers."""
        return None

    def read(self) -> None:
        """Acknowledge the packets that have arrived, several with one acknowledgement."""
        acknowledgement, waiting = None, 0
        with suppress(BlockingIOError):
            while True:
                packet, sender_address = self.connection.recvfrom(2048)
                acknowledgement = self.receiver.on_packet(packet) or acknowledgement
                waiting += 1
                if waiting == TOGETHER and acknowledgement:
                    self._answer(acknowledgement, sender_address)
                    acknowledgement, waiting = None, 0
        if acknowledgement:
            self._answer(acknowledgement, sender_address)

    def _answer(self, acknowledgement: bytes, sender_address: Any) -> None:
        with suppress(OSError):
            self.connection.sendto(acknowledgement, sender_address)

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()
