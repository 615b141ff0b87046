"""Try the ways from this host to many addresses at once: pings, pings of the full size, and a short TCP exchange.

    python3 ping.py --deadline 2.0 [--size 8972 --count 25 --port 24001 --bytes 20000] ADDRESS...

Prints one JSON object: `listens`, and `ways`, `{address: {"ttl": 62, "seconds": 0.0004, "sent": 25, "received": 25,
"large": true, "tcp": true}}`, or null for an address that does not answer. `large` and `tcp` are null where they were
not asked for. Peers run the same program: each listens on the port until it has served all others; `listens` is false
where the port is taken. Needs root (raw ICMP socket). Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import struct
import time

ECHO_REPLY, ECHO_REQUEST = 0, 8
REPEAT_S = 0.1
PAUSE_S = 0.005
"""Time between two pings of one address that are sent to count the lost ones."""
STRAGGLERS_S = 0.3
"""Time that is left to an answer before its ping counts as lost."""
LARGE_S = 0.6
TCP_S = 1.3
"""Time for the exchange: a lost SYN is sent again after a second."""
BUFFER_BYTES = 8 << 20
SO_RCVBUFFORCE = 33
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
LARGE = 0xFFFF
"""Round of a ping of the full size; 0 are pings until the first answer, the others are counted."""
_NOTHING_YET = (BlockingIOError, InterruptedError)


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071).

    >>> hex(checksum(bytes.fromhex("0001f203f4f5f6f7")))
    '0x220d'
    """
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo_request(identifier: int, sequence: int, number: int = 0, size: int = 10) -> bytes:
    """Return an ICMP echo request whose `size` bytes of payload say the number of its round."""
    payload = b"lightbed" + struct.pack("!H", number)
    payload += b"\0" * (size - len(payload))
    head = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, identifier, sequence)
    return struct.pack("!BBHHH", ECHO_REQUEST, 0, checksum(head + payload), identifier, sequence) + payload


def read_reply(packet: bytes, identifier: int) -> tuple[int, int, int] | None:
    """Return (sequence, TTL, round) of an echo reply to us, else None. `packet` begins with its IPv4 header."""
    header = (packet[0] & 0x0F) * 4 if packet else 0
    if len(packet) < header + 18 or header < 20:
        return None
    kind, _, _, who, sequence = struct.unpack_from("!BBHHH", packet, header)
    (number,) = struct.unpack_from("!H", packet, header + 16)
    return (sequence, packet[8], number) if (kind, who) == (ECHO_REPLY, identifier) else None


class Way:
    """What is known of the way to one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ttl: int | None = None
        self.seconds = 0.0
        self.first_s = 0.0
        self.asked_s = 0.0
        self.sent = 0
        self.sent_s = 0.0
        self.heard: set[int] = set()
        self.large: bool | None = None
        self.large_s = 0.0
        self.tcp: bool | None = None
        self.exchange: Exchange | None = None

    def as_json(self) -> dict[str, object] | None:
        """Return the entry of the answer."""
        if self.ttl is None:
            return None
        return {
            "ttl": self.ttl,
            "seconds": round(self.seconds, 6),
            "sent": self.sent,
            "received": len(self.heard),
            "large": self.large,
            "tcp": self.tcp,
        }


class Trial:
    """Pings and exchanges of this host, under way."""

    def __init__(
        self, addresses: list[str], deadline_s: float, size: int, count: int, port: int, length: int
    ) -> None:
        self.ways = [Way(address) for address in addresses]
        self.deadline_s, self.size, self.count, self.port, self.length = deadline_s, size, count, port, length
        self.identifier = os.getpid() & 0xFFFF
        self.selector = selectors.DefaultSelector()
        self.icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.icmp.setblocking(False)
        for option in (socket.SO_RCVBUF, SO_RCVBUFFORCE):
            try:
                self.icmp.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            except OSError:
                continue
        self.selector.register(self.icmp, selectors.EVENT_READ, self.take_replies)
        self.served: set[str] = set()
        self.listener: socket.socket | None = None
        self.begin_s = time.monotonic()

    def run(self) -> list[Way]:
        """Try all ways; return when nothing more can be learned, or helped with, or the deadline has passed."""
        if self.port:
            self.listen()
        self.begin_s = now_s = time.monotonic()
        while not self.is_over(now_s):
            for sequence, way in enumerate(self.ways):
                self.advance(sequence, way, now_s)
            for key, _ in self.selector.select(PAUSE_S):
                key.data()
            now_s = time.monotonic()
        return self.ways

    def is_over(self, now_s: float) -> bool:
        """Return whether no way needs more time, ours or that of a peer whose exchange we serve."""
        is_late = now_s >= self.begin_s + self.deadline_s
        if any(way.ttl is None for way in self.ways):
            return is_late and all(way.ttl is None or self.is_done(way, now_s) for way in self.ways)
        if not all(self.is_done(way, now_s) for way in self.ways):
            return False
        return is_late or self.listener is None or self.served >= {way.address for way in self.ways}

    def is_done(self, way: Way, now_s: float) -> bool:
        """Return whether all that is asked of a way that answers was answered, or had its time."""
        is_counted = way.sent >= self.count and (
            len(way.heard) >= self.count or now_s >= way.sent_s + STRAGGLERS_S
        )
        is_large_tried = not self.size or way.large is True or now_s >= way.first_s + LARGE_S
        is_tcp_tried = not self.port or way.tcp is not None
        return is_counted and is_large_tried and is_tcp_tried

    def advance(self, sequence: int, way: Way, now_s: float) -> None:
        """Send what is due to one address."""
        if way.ttl is None:
            if now_s >= way.asked_s + REPEAT_S and now_s < self.begin_s + self.deadline_s:
                way.asked_s = now_s
                self.ask(sequence, way, 0)
            return
        if way.sent < self.count and now_s >= way.sent_s + PAUSE_S:
            way.sent, way.sent_s = way.sent + 1, now_s
            self.ask(sequence, way, way.sent)
        if way.exchange:
            way.exchange.look_at_time(now_s)
        if self.size and not way.large and now_s >= way.large_s + REPEAT_S and now_s < way.first_s + LARGE_S:
            way.large, way.large_s = False, now_s
            self.ask(sequence, way, LARGE)

    def ask(self, sequence: int, way: Way, number: int) -> None:
        """Send one echo request; no route, or one with a smaller MTU, is as no answer."""
        size = self.size if number == LARGE else 10
        self.icmp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO if number == LARGE else 0)
        try:
            self.icmp.sendto(echo_request(self.identifier, sequence, number, size), (way.address, 0))
        except OSError:
            return

    def take_replies(self) -> None:
        """Take in the replies that have arrived."""
        while True:
            try:
                packet, (sender, _) = self.icmp.recvfrom(65535)
            except OSError:
                return
            reply = read_reply(packet, self.identifier)
            if reply is None or reply[0] >= len(self.ways) or self.ways[reply[0]].address != sender:
                continue
            self.take(self.ways[reply[0]], *reply[1:])

    def take(self, way: Way, ttl: int, number: int) -> None:
        """Note a reply."""
        if number == LARGE:
            way.large = True
        elif number:
            way.heard.add(number)
        elif way.ttl is None:
            now_s = time.monotonic()
            way.ttl, way.seconds, way.first_s = ttl, now_s - self.begin_s, now_s
            if self.port:
                way.exchange = Exchange(self, way)

    # -- TCP

    def listen(self) -> None:
        """Serve the exchanges of the peers, unless somebody else has the port."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        try:
            listener.bind(("", self.port))
        except OSError:
            listener.close()
            return
        listener.listen(128)
        self.listener = listener
        self.selector.register(listener, selectors.EVENT_READ, self.accept)

    def accept(self) -> None:
        """Serve one more peer."""
        assert self.listener is not None
        try:
            connection, (peer, _) = self.listener.accept()
        except OSError:
            return
        Service(self, connection, peer)


class Exchange:
    """As many bytes to a peer as come back from it, over one connection."""

    def __init__(self, trial: Trial, way: Way) -> None:
        self.trial, self.way = trial, way
        self.end_s = time.monotonic() + TCP_S
        self.again_s: float | None = None
        self.begin()

    def begin(self) -> None:
        """Connect. A peer's kernel answers pings before its program listens: that is tried again."""
        self.left = self.expected = self.trial.length
        self.again_s = None
        self.connection = socket.socket()
        self.connection.setblocking(False)
        self.connection.connect_ex((self.way.address, self.trial.port))
        self.trial.selector.register(
            self.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self.go_on
        )

    def look_at_time(self, now_s: float) -> None:
        """End what takes too long; begin again what was refused."""
        if now_s >= self.end_s:
            self.end(is_whole=False)
        elif self.again_s is not None and now_s >= self.again_s:
            self.begin()

    def go_on(self) -> None:
        """Send and receive what can be; end when all came back, or nothing can."""
        try:
            if self.left:
                self.left -= self.connection.send(b"\0" * self.left)
            elif (received := len(self.connection.recv(65536))) > 0:
                self.expected -= received
            else:
                self.expected = -1
        except _NOTHING_YET:
            return
        except ConnectionRefusedError:
            self.close()
            self.again_s = time.monotonic() + REPEAT_S
            return
        except OSError:
            self.expected = -1
        if self.left == 0 and self.expected > 0:
            self.trial.selector.modify(self.connection, selectors.EVENT_READ, self.go_on)
        if self.expected <= 0:
            self.end(is_whole=self.expected == 0)

    def end(self, *, is_whole: bool) -> None:
        """Note how it ended."""
        self.way.tcp, self.way.exchange = is_whole, None
        if self.again_s is None:
            self.close()

    def close(self) -> None:
        """Let the connection go."""
        self.trial.selector.unregister(self.connection)
        self.connection.close()


class Service:
    """The other side of an exchange: what comes is sent back."""

    def __init__(self, trial: Trial, connection: socket.socket, peer: str) -> None:
        self.trial, self.connection, self.peer = trial, connection, peer
        self.waiting = b""
        connection.setblocking(False)
        trial.selector.register(connection, selectors.EVENT_READ, self.go_on)

    def go_on(self) -> None:
        """Send back what came; the peer closes."""
        try:
            if self.waiting:
                self.waiting = self.waiting[self.connection.send(self.waiting) :]
            elif not (data := self.connection.recv(65536)):
                raise ConnectionError
            else:
                self.waiting = data
        except _NOTHING_YET:
            return
        except OSError:
            self.trial.served.add(self.peer)
            self.trial.selector.unregister(self.connection)
            self.connection.close()
            return
        self.trial.selector.modify(
            self.connection, selectors.EVENT_WRITE if self.waiting else selectors.EVENT_READ, self.go_on
        )


def main() -> None:
    """Read the command line, try all ways, print."""
    parser = argparse.ArgumentParser(description="Try the ways to many addresses at once.")
    parser.add_argument("--deadline", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--size", type=int, default=0, help="payload of a ping that may not be fragmented")
    parser.add_argument("--count", type=int, default=0, help="pings of each address that are counted")
    parser.add_argument("--port", type=int, default=0, help="TCP port of the exchanges")
    parser.add_argument("--bytes", type=int, default=20000, help="bytes of an exchange, each way")
    parser.add_argument("addresses", nargs="+")
    options = parser.parse_args()
    trial = Trial(
        options.addresses, options.deadline, options.size, options.count, options.port, options.bytes
    )
    ways = {way.address: way.as_json() for way in trial.run()}
    print(json.dumps({"ways": ways, "listens": trial.listener is not None}), flush=True)


if __name__ == "__main__":
    main()
