"""Test the paths from this host to many addresses at once: pings, pings of the full size, and a short TCP exchange.

    python3 ping.py --deadline 2.0 [--size 8972 --bind 10.0.0.1 --port 24001 --bytes 20000 --later 0.2] ADDRESS[=25]...

Peers run the same program. It prints one JSON event per line: `ready` when it listens for the peers' exchanges, and
`ways` after a line of input. In the event `ways`, the key `listens` lists the addresses of this host whose port was
free. The key `ways` maps each address to `{"ttl": 62, "seconds": 0.0004, "sent": 25, "received": 25, "large": true,
"tcp": true}`, or to null if the address does not answer. `large` and `tcp` are null if they were not requested. The
program serves its peers until its input ends. It needs root (raw ICMP socket). It uses only the standard library,
because this file is copied to the hosts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import selectors
import socket
import struct
import sys
import time

ECHO_REPLY, ECHO_REQUEST = 0, 8
REPEAT_PAUSE_S = 0.1
PING_PAUSE_S = 0.005
"""Time between two counted pings of one address."""
STRAGGLER_WAIT_S = 1.0
"""Time after which a ping without an answer counts as lost: a busy machine may stall for a while."""
LARGE_PING_WAIT_S = 1.2
MAX_EXCHANGES = 64
TCP_TIMEOUT_S = 2.0
"""Time limit of an exchange. A lost SYN is sent again after a second."""
BUFFER_BYTES = 8 << 20
SO_RCVBUFFORCE = 33
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
SOL_RAW, ICMP_FILTER = 255, 1
MAGIC = b"lightbed"
MAX_RUN_S = 60.0
"""Time after which the program ends even if its input stays open."""
LARGE_PING_ROUND = 0xFFFF
"""Round number of full-size pings. Pings before the first answer have round 0. Counted pings have rounds from 1 on."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError)


def compute_checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071).

    >>> hex(compute_checksum(bytes.fromhex("0001f203f4f5f6f7")))
    '0x220d'
    """
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def make_echo_request(identifier: int, sequence: int, round_number: int = 0, size: int = 10) -> bytes:
    """Return an ICMP echo request with the number of its round in `size` bytes of payload."""
    payload = MAGIC + struct.pack("!H", round_number)
    payload += b"\0" * (size - len(payload))
    header = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, identifier, sequence)
    return (
        struct.pack("!BBHHH", ECHO_REQUEST, 0, compute_checksum(header + payload), identifier, sequence)
        + payload
    )


def read_reply(packet: bytes, identifier: int) -> tuple[int, int, int] | None:
    """Return (sequence, TTL, round) of an echo reply to this process, or None. `packet` begins with its IPv4 header."""
    header_bytes = (packet[0] & 0x0F) * 4 if packet else 0
    if (
        len(packet) < header_bytes + 18
        or header_bytes < 20
        or packet[header_bytes + 8 : header_bytes + 16] != MAGIC
    ):
        return None
    kind, _, _, sender_identifier, sequence = struct.unpack_from("!BBHHH", packet, header_bytes)
    (round_number,) = struct.unpack_from("!H", packet, header_bytes + 16)
    return (
        (sequence, packet[8], round_number) if (kind, sender_identifier) == (ECHO_REPLY, identifier) else None
    )


class PathState:
    """State of the path to one address."""

    def __init__(self, text: str) -> None:
        self.address, _, count_text = text.partition("=")
        self.planned_count = int(count_text or 0)
        """Number of counted pings."""
        self.ttl: int | None = None
        self.first_reply_s = 0.0
        self.last_ping_s = 0.0
        self.attempt_count = 0
        self.sent_count = 0
        self.last_counted_s = 0.0
        self.answered_rounds: set[int] = set()
        self.is_large_answered: bool | None = None
        self.last_large_s = 0.0
        self.is_tcp_complete: bool | None = None
        self.exchange: Exchange | None = None

    def as_json(self, begin_s: float) -> dict[str, object] | None:
        """Return the entry of the output, or None without an answer; `begin_s` is the start of the trial."""
        if self.ttl is None:
            return None
        return {
            "ttl": self.ttl,
            "seconds": round(self.first_reply_s - begin_s, 6),
            "sent": self.sent_count,
            "received": len(self.answered_rounds),
            "large": self.is_large_answered,
            "tcp": self.is_tcp_complete,
        }


class PathTrial:
    """Running pings and exchanges of this host."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.paths = [PathState(text) for text in options.addresses]
        self.deadline_s: float = options.deadline
        self.large_delay_s: float = options.later
        """Seconds in which only small pings are sent. Larger traffic fills queues, and full queues drop pings."""
        self.large_start_s = math.inf
        """Time from which larger traffic is sent: after `large_delay_s`, and after all counted pings."""
        self.large_bytes: int = options.size
        self.port: int = options.port
        """TCP port of the exchanges; 0 for none."""
        self.exchange_bytes: int = options.bytes
        self.identifier = os.getpid() & 0xFFFF
        self.selector = selectors.DefaultSelector()
        self.icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.icmp.setblocking(False)
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES),
            (socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES),
            (SOL_RAW, ICMP_FILTER, ~(1 << ECHO_REPLY) & 0xFFFFFFFF),
        ):
            try:
                self.icmp.setsockopt(level, option, struct.pack("I", value))
            except OSError:
                continue
        self.selector.register(self.icmp, selectors.EVENT_READ, self.read_replies)
        self.listening_addresses = [address for address in options.bind if self.port and self.listen(address)]
        self.begin_s = time.monotonic()

    def run(self) -> list[PathState]:
        """Test all paths; return when all results are known, or the deadline has passed."""
        self.begin_s = now_s = time.monotonic()
        while not self.is_over(now_s):
            if now_s >= self.begin_s + self.large_delay_s and self.has_sent_counted_pings():
                self.large_start_s = min(self.large_start_s, now_s)
            for sequence, path in enumerate(self.paths):
                self.send_due_pings(sequence, path, now_s)
            self.handle_ready_sockets()
            now_s = time.monotonic()
        return self.paths

    def handle_ready_sockets(self) -> None:
        """Handle the ready sockets of this host's exchanges and of its peers' exchanges."""
        for key, _ in self.selector.select(PING_PAUSE_S):
            key.data()

    def is_over(self, now_s: float) -> bool:
        """Return whether no path needs more time."""
        is_late = now_s >= self.begin_s + self.deadline_s
        return all(is_late if path.ttl is None else self.is_done(path, now_s) for path in self.paths)

    def is_done(self, path: PathState, now_s: float) -> bool:
        """Return whether all tests of a path that answers have succeeded or timed out."""
        is_counting_done = path.attempt_count >= path.planned_count and (
            len(path.answered_rounds) >= path.sent_count or now_s >= path.last_counted_s + STRAGGLER_WAIT_S
        )
        is_large_tried = (
            not self.large_bytes
            or path.is_large_answered is True
            or now_s >= self.find_large_start(path) + LARGE_PING_WAIT_S
        )
        is_tcp_tried = not self.port or path.is_tcp_complete is not None
        return is_counting_done and is_large_tried and is_tcp_tried

    def find_large_start(self, path: PathState) -> float:
        """Return the time from which a path that answers gets full-size pings and TCP."""
        return max(path.first_reply_s, self.large_start_s)

    def has_sent_counted_pings(self) -> bool:
        """Return whether all counted pings were sent."""
        return all(path.ttl is None or path.attempt_count >= path.planned_count for path in self.paths)

    def begin_exchange(self, path: PathState) -> None:
        """Start an exchange, unless too many are running: each needs a descriptor at both ends."""
        if sum(path.exchange is not None for path in self.paths) < MAX_EXCHANGES:
            try:
                path.exchange = Exchange(self, path)
            except OSError:
                return

    def send_due_pings(self, sequence: int, path: PathState, now_s: float) -> None:
        """Send what is due to one address."""
        if path.ttl is None:
            if now_s >= path.last_ping_s + REPEAT_PAUSE_S and now_s < self.begin_s + self.deadline_s:
                path.last_ping_s = now_s
                self.send_ping(sequence, path, 0)
            return
        if path.attempt_count < path.planned_count and now_s >= path.last_counted_s + PING_PAUSE_S:
            path.attempt_count, path.last_counted_s = path.attempt_count + 1, now_s
            path.sent_count += self.send_ping(sequence, path, path.attempt_count)
        if path.exchange and now_s >= path.exchange.end_s:
            path.exchange.finish(is_complete=False)
        elapsed_s = now_s - self.find_large_start(path)
        if elapsed_s >= 0 and self.port and path.exchange is None and path.is_tcp_complete is None:
            self.begin_exchange(path)
        if (
            0 <= elapsed_s < LARGE_PING_WAIT_S
            and self.large_bytes
            and not path.is_large_answered
            and now_s >= path.last_large_s + REPEAT_PAUSE_S
        ):
            path.is_large_answered, path.last_large_s = False, now_s
            self.send_ping(sequence, path, LARGE_PING_ROUND)

    def send_ping(self, sequence: int, path: PathState, round_number: int) -> bool:
        """Send one echo request. Return False if this machine could not: no route, a smaller MTU or no buffer."""
        size = self.large_bytes if round_number == LARGE_PING_ROUND else 10
        self.icmp.setsockopt(
            socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO if round_number == LARGE_PING_ROUND else 0
        )
        try:
            self.icmp.sendto(
                make_echo_request(self.identifier, sequence, round_number, size), (path.address, 0)
            )
        except OSError:
            return False
        return True

    def read_replies(self) -> None:
        """Record the replies that have arrived."""
        while True:
            try:
                packet, (sender, _) = self.icmp.recvfrom(65535)
            except OSError:
                return
            reply = read_reply(packet, self.identifier)
            if reply is None or reply[0] >= len(self.paths) or self.paths[reply[0]].address != sender:
                continue
            self.record_reply(self.paths[reply[0]], *reply[1:])

    def record_reply(self, path: PathState, ttl: int, round_number: int) -> None:
        """Record a reply."""
        if round_number == LARGE_PING_ROUND:
            path.is_large_answered = True
        elif 0 < round_number <= path.planned_count:
            path.answered_rounds.add(round_number)
        elif path.ttl is None:
            path.ttl, path.first_reply_s = ttl, time.monotonic()

    # -- TCP

    def listen(self, address: str) -> bool:
        """Accept peers' exchanges at an address; return False if the port is not free."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        try:
            listener.bind((address, self.port))
        except OSError:
            listener.close()
            return False
        listener.listen(128)
        self.selector.register(listener, selectors.EVENT_READ, lambda: self.accept(listener))
        return True

    def accept(self, listener: socket.socket) -> None:
        """Serve one more peer."""
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        EchoConnection(self, connection)


class Exchange:
    """A TCP exchange: it sends bytes to a peer, which sends as many back."""

    def __init__(self, trial: PathTrial, path: PathState) -> None:
        self.trial, self.path = trial, path
        self.unsent_bytes = self.awaited_bytes = trial.exchange_bytes
        self.end_s = time.monotonic() + TCP_TIMEOUT_S
        self.connection = socket.socket()
        self.connection.setblocking(False)
        self.connection.connect_ex((path.address, trial.port))
        trial.selector.register(
            self.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self.handle_ready
        )

    def handle_ready(self) -> None:
        """Send and receive what is possible. End when all bytes came back or the connection failed."""
        try:
            if self.unsent_bytes:
                self.unsent_bytes -= self.connection.send(b"\0" * self.unsent_bytes)
            elif (received_bytes := len(self.connection.recv(65536))) > 0:
                self.awaited_bytes -= received_bytes
            else:
                self.awaited_bytes = -1
        except _WOULD_BLOCK:
            return
        except OSError:
            self.awaited_bytes = -1
        if self.unsent_bytes == 0 and self.awaited_bytes > 0:
            self.trial.selector.modify(self.connection, selectors.EVENT_READ, self.handle_ready)
        if self.awaited_bytes <= 0:
            self.finish(is_complete=self.awaited_bytes == 0)

    def finish(self, *, is_complete: bool) -> None:
        """Record the result, and close the connection."""
        self.path.is_tcp_complete, self.path.exchange = is_complete, None
        self.trial.selector.unregister(self.connection)
        self.connection.close()


class EchoConnection:
    """The other end of an exchange, which sends all bytes back."""

    def __init__(self, trial: PathTrial, connection: socket.socket) -> None:
        self.trial, self.connection = trial, connection
        self.unsent_data = b""
        connection.setblocking(False)
        trial.selector.register(connection, selectors.EVENT_READ, self.handle_ready)

    def handle_ready(self) -> None:
        """Send back the received bytes. The peer closes the connection."""
        try:
            if self.unsent_data:
                self.unsent_data = self.unsent_data[self.connection.send(self.unsent_data) :]
            elif not (data := self.connection.recv(65536)):
                raise ConnectionError
            else:
                self.unsent_data = data
        except _WOULD_BLOCK:
            return
        except OSError:
            self.trial.selector.unregister(self.connection)
            self.connection.close()
            return
        self.trial.selector.modify(
            self.connection,
            selectors.EVENT_WRITE if self.unsent_data else selectors.EVENT_READ,
            self.handle_ready,
        )


def main() -> None:
    """Read the command line, test all paths after a line of input, print, and serve the peers until the input ends."""
    parser = argparse.ArgumentParser(description="Test the paths to many addresses at once.")
    parser.add_argument("--deadline", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--size", type=int, default=0, help="payload of a ping that may not be fragmented")
    parser.add_argument(
        "--bind", action="append", default=[], help="address at which this host accepts exchanges"
    )
    parser.add_argument("--port", type=int, default=0, help="TCP port of the exchanges")
    parser.add_argument("--bytes", type=int, default=20000, help="bytes of an exchange, each way")
    parser.add_argument("--later", type=float, default=0.0, help="seconds of small pings before larger ones")
    parser.add_argument(
        "addresses", nargs="*", metavar="ADDRESS[=COUNT]", help="address to ping, and how many pings to count"
    )
    trial = PathTrial(parser.parse_args())
    print(json.dumps({"event": "ready"}), flush=True)
    if not sys.stdin.readline():
        return
    entry_by_address = {path.address: path.as_json(trial.begin_s) for path in trial.run()}
    print(
        json.dumps({"event": "ways", "ways": entry_by_address, "listens": trial.listening_addresses}),
        flush=True,
    )
    end_events: list[bool] = []
    trial.selector.register(sys.stdin, selectors.EVENT_READ, lambda: end_events.append(True))
    while not end_events and time.monotonic() < trial.begin_s + MAX_RUN_S:
        trial.handle_ready_sockets()


if __name__ == "__main__":
    main()
