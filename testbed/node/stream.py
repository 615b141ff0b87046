"""A steady TCP stream between two hosts, to see how long a change of circuits stalls it.

    python3 stream.py receive ADDRESS PORT
    python3 stream.py send ADDRESS PORT SOURCE   connects from SOURCE and sends a small piece every 2 ms

The receiver prints `{"event": "listening"}`, then `{"event": "flowing"}` once data comes, and records arrival times.
When its input ends, it prints `{"event": "stall", "longest_gap_s", "median_gap_s", "received_bytes"}` and ends. The
sender ends when the connection or its input ends. Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import statistics
import sys
import time

PIECE_DATA = b"." * 256
INTERVAL_S = 0.002
FLOWING_PIECES = 20


def print_event(event: str, **details: object) -> None:
    """Print one JSON line on standard output."""
    print(json.dumps({"event": event, **details}), flush=True)


def receive(address: str, port: int) -> None:
    """Accept one connection and record the arrival times of its data until the standard input ends."""
    with socket.create_server((address, port)) as server:
        print_event("listening")
        if 0 in select.select([server.fileno(), 0], [], [])[0]:
            return
        connection, _ = server.accept()
    arrivals: list[float] = []
    total = 0
    with connection:
        while True:
            ready, _, _ = select.select([connection.fileno(), 0], [], [])
            if 0 in ready:
                break
            data = connection.recv(65536)
            if not data:
                break
            total += len(data)
            arrivals.append(time.monotonic())
            if len(arrivals) == FLOWING_PIECES:
                print_event("flowing")
        arrivals.append(time.monotonic())
    gaps = [after - before for before, after in itertools.pairwise(arrivals)] or [0.0]
    print_event("stall", longest_gap_s=max(gaps), median_gap_s=statistics.median(gaps), received_bytes=total)


def send(address: str, port: int, source: str) -> None:
    """Send a piece every `INTERVAL_S` until the connection or the standard input ends."""
    with socket.create_connection((address, port), timeout=10, source_address=(source, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        while not select.select([0], [], [], INTERVAL_S)[0]:
            # A stalled connection accepts no data, perhaps for minutes. The standard input may end in this time.
            readable, _, _ = select.select([0], [connection], [])
            if readable:
                return
            try:
                connection.send(PIECE_DATA)
            except OSError:
                return


def main() -> None:
    """Receive or send, as the first argument says."""
    role, address, port, *options = sys.argv[1:]
    if role == "receive":
        receive(address, int(port))
    else:
        send(address, int(port), options[0])


if __name__ == "__main__":
    main()
