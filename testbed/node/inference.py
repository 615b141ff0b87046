"""Send inference requests to a board, one after the other, and compare its answers with the expected answers.

    python3 inference.py --to 10.100.20.1:8500 [--timeout 1.0] [--tries 5] [--deadline 60] [FILE]

Reads the lines of `lightning packets` from FILE or from standard input: `{"number": 7, "request": HEX, "answer": HEX}`,
where `request` is a datagram, and `answer` the class, the number of scores and the scores. If no answer comes within
`--timeout` seconds, the program sends the same datagram again, up to `--tries` times in all. It prints one JSON
document:

    {"requests", "answered", "wrong", "lost", "repeated", "refused": {"LATE": 1}, "error": "No route to host",
     "latencies_us": [...], "cycles": [...], "differences": [{"number", "expected", "answer"}]}

`answered` counts wrong answers too. A latency lasts from the first datagram of a request to its answer. `cycles` holds
the cycles of the board's datapath that each answer reports. `differences` shows the first wrong answers. For the packet
format, see docs/reference/inference-packets.md. Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HEADER = struct.Struct(">4sBBBBIIQHHHH")
MAGIC, VERSION = b"LBIP", 1
ANSWER_KIND, REFUSAL_KIND = 2, 3
REFUSALS = {1: "MALFORMED", 2: "UNKNOWN_MODEL", 3: "LATE", 4: "INPUT", 5: "FAILED", 6: "BUSY"}
MIN_ANSWER_BYTES = 16
MAX_DATAGRAM_BYTES = 2048
MAX_DIFFERENCES = 5
IP_RECVERR = 11
"""Linux socket option that reports an error if a host does not answer ARP."""
MAX_UNANSWERED = 3
"""Number of lost requests after which a board that has never replied gets no more requests."""


def split_answer(payload: bytes) -> tuple[bytes, int]:
    """Return the class, count and scores of an answer as bytes, and its cycles.

    >>> split_answer(bytes.fromhex("00000001 00000002 00000000 00000068 3f800000 40400000"))[1]
    104
    """
    (cycles,) = struct.unpack_from(">Q", payload, 8)
    return payload[:8] + payload[16:], cycles


def read_reply(datagram: bytes, number: int) -> tuple[int, int, bytes] | None:
    """Return (kind, code, payload) of a complete answer or refusal of this request, or None for any other datagram."""
    if len(datagram) < HEADER.size:
        return None
    magic, version, kind, _, code, _, _, request_number, _, fragments, payload_length, _ = HEADER.unpack_from(
        datagram
    )
    payload = datagram[HEADER.size :]
    if (magic, version, request_number, fragments, payload_length) != (
        MAGIC,
        VERSION,
        number,
        1,
        len(payload),
    ):
        return None
    is_answer = kind == ANSWER_KIND and payload_length >= MIN_ANSWER_BYTES
    return (kind, code, payload) if is_answer or kind == REFUSAL_KIND else None


class RequestTrial:
    """The requests to one board, and their outcomes."""

    def __init__(
        self, connection: socket.socket, timeout_s: float, max_tries: int, deadline_s: float
    ) -> None:
        self.connection = connection
        connection.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        self.timeout_s = timeout_s
        self.max_tries = max_tries
        self.end_s = time.monotonic() + deadline_s
        """Time after which the remaining requests count as lost and are not sent."""
        self.request_count = self.wrong_count = self.lost_count = self.repeated_count = 0
        self.count_by_refusal: dict[str, int] = {}
        self.error = ""
        self.latencies_us: list[float] = []
        self.cycles: list[int] = []
        self.differences: list[dict[str, Any]] = []

    def send_request(self, number: int, request: bytes, expected_answer: bytes) -> None:
        """Send a request until its reply comes, and count the outcome."""
        self.request_count += 1
        if self.lost_count >= MAX_UNANSWERED and not (self.latencies_us or self.count_by_refusal):
            self.lost_count += 1
            return
        begin_ns = time.perf_counter_ns()
        for attempt in range(self.max_tries):
            if time.monotonic() >= self.end_s:
                break
            self.repeated_count += attempt == 1
            self.connection.settimeout(self.timeout_s)
            self._send(request)
            reply = self._await_reply(number)
            if reply is not None:
                self._count_reply(number, reply, expected_answer, time.perf_counter_ns() - begin_ns)
                return
        self.lost_count += 1

    def _send(self, request: bytes) -> None:
        try:
            self.connection.send(request)
        except OSError as error:  # perhaps an ICMP error of an earlier datagram; the next try may succeed
            self._store_error(error)

    def _await_reply(self, number: int) -> tuple[int, int, bytes] | None:
        """Return the reply to a request, or None if it does not come in time."""
        end_s = min(time.monotonic() + self.timeout_s, self.end_s)
        while (remaining_s := end_s - time.monotonic()) > 0:
            self.connection.settimeout(remaining_s)
            try:
                reply = read_reply(self.connection.recv(MAX_DATAGRAM_BYTES), number)
            except TimeoutError:
                return None
            except OSError as error:  # keep waiting after an ICMP error, so that requests are not sent faster
                self._store_error(error)
                continue
            if reply is not None:  # None: a late reply to an earlier request
                return reply
        return None

    def _store_error(self, error: OSError) -> None:
        """Keep a network error, and empty the socket's error queue, which would otherwise end every wait at once."""
        self.error = error.strerror or str(error)
        self.connection.setblocking(False)
        with contextlib.suppress(OSError):
            while True:
                self.connection.recv(MAX_DATAGRAM_BYTES, socket.MSG_ERRQUEUE)

    def _count_reply(
        self, number: int, reply: tuple[int, int, bytes], expected_answer: bytes, latency_ns: int
    ) -> None:
        kind, code, payload = reply
        if kind == REFUSAL_KIND:
            refusal_name = REFUSALS.get(code, str(code))
            self.count_by_refusal[refusal_name] = self.count_by_refusal.get(refusal_name, 0) + 1
            return
        answer, cycles = split_answer(payload)
        self.latencies_us.append(latency_ns / 1e3)
        self.cycles.append(cycles)
        if answer != expected_answer:
            self.wrong_count += 1
            if len(self.differences) < MAX_DIFFERENCES:
                self.differences.append(
                    {"number": number, "expected": expected_answer.hex(), "answer": answer.hex()}
                )

    def make_report(self) -> dict[str, Any]:
        """Return the document to print."""
        return {
            "requests": self.request_count,
            "answered": len(self.latencies_us),
            "wrong": self.wrong_count,
            "lost": self.lost_count,
            "repeated": self.repeated_count,
            "refused": self.count_by_refusal,
            "error": self.error,
            "latencies_us": self.latencies_us,
            "cycles": self.cycles,
            "differences": self.differences,
        }


def main() -> None:
    """Read the command line and the requests, send them, report."""
    parser = argparse.ArgumentParser(description="Send inference requests, and compare the answers.")
    parser.add_argument("--to", required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--timeout", type=float, default=1.0)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--deadline", type=float, default=60.0)
    parser.add_argument("file", nargs="?", type=Path)
    options = parser.parse_args()
    address, _, port = options.to.rpartition(":")
    with contextlib.ExitStack() as stack:
        lines: Iterable[str] = stack.enter_context(options.file.open()) if options.file else sys.stdin
        requests = [json.loads(line) for line in lines]  # read all first, so that reading delays no request
        connection = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        connection.connect((address, int(port)))
        trial = RequestTrial(connection, options.timeout, options.tries, options.deadline)
        for request in requests:
            trial.send_request(
                request["number"], bytes.fromhex(request["request"]), bytes.fromhex(request["answer"])
            )
    print(json.dumps(trial.make_report()))


if __name__ == "__main__":
    main()
