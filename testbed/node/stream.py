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
SEND_INTERVAL_S = 0.002
MIN_FLOWING_PIECES = 20


def print_event(event: str, **details: object) -> None:
    """Print one JSON line on standard output."""
    print(json.dumps({"event": event, **details}), flush=True)


def receive_stream(address: str, port: int) -> None:
    """Accept one connection and record the arrival times of its data until the standard input ends."""
    with socket.create_server((address, port)) as server:
        print_event("listening")
        if 0 in select.select([server.fileno(), 0], [], [])[0]:
            return
        connection, _ = server.accept()
    arrival_times_s: list[float] = []
    received_bytes = 0
    with connection:
        while True:
            ready_files, _, _ = select.select([connection.fileno(), 0], [], [])
            if 0 in ready_files:
                break
            data = connection.recv(65536)
            if not data:
                break
            received_bytes += len(data)
            arrival_times_s.append(time.monotonic())
            if len(arrival_times_s) == MIN_FLOWING_PIECES:
                print_event("flowing")
        arrival_times_s.append(time.monotonic())
    gaps_s = [after - before for before, after in itertools.pairwise(arrival_times_s)] or [0.0]
    print_event(
        "stall",
        longest_gap_s=max(gaps_s),
        median_gap_s=statistics.median(gaps_s),
        received_bytes=received_bytes,
    )


def send_stream(address: str, port: int, source: str) -> None:
    """Send a piece every `SEND_INTERVAL_S` until the connection or the standard input ends."""
    with socket.create_connection((address, port), timeout=10, source_address=(source, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        while not select.select([0], [], [], SEND_INTERVAL_S)[0]:
            # A stalled connection accepts no data, perhaps for minutes. The standard input may end in this time.
            readable_files, _, _ = select.select([0], [connection], [])
            if readable_files:
                return
            try:
                connection.send(PIECE_DATA)
            except OSError:
                return


def main() -> None:
    """Receive or send, as the first argument says."""
    role, address, port, *options = sys.argv[1:]
    if role == "receive":
        receive_stream(address, int(port))
    else:
        send_stream(address, int(port), options[0])


if __name__ == "__main__":
    main()
