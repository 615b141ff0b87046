"""Ping many addresses at once from this host and say which answered and with what TTL.

    python3 ping.py --deadline 2.0 ADDRESS...

Prints one JSON object, `{address: {"ttl": 62, "seconds": 0.0004} or null}`. Needs root (raw ICMP socket).
Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import struct
import time

ECHO_REPLY, ECHO_REQUEST = 0, 8
REPEAT_S = 0.1


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes.

    >>> hex(checksum(bytes.fromhex("0001f203f4f5f6f7")))
    '0x220d'
    """
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo_request(identifier: int, sequence: int) -> bytes:
    """Return an ICMP echo request with eight bytes of payload."""
    head = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, identifier, sequence)
    payload = b"lightbed"
    return struct.pack("!BBHHH", ECHO_REQUEST, 0, checksum(head + payload), identifier, sequence) + payload


def read_reply(packet: bytes, identifier: int) -> tuple[int, int] | None:
    """Return (sequence, TTL) of an echo reply to us, else None. `packet` begins with its IPv4 header."""
    header = (packet[0] & 0x0F) * 4 if packet else 0
    if len(packet) < header + 8 or header < 20:
        return None
    kind, _, _, who, sequence = struct.unpack_from("!BBHHH", packet, header)
    return (sequence, packet[8]) if (kind, who) == (ECHO_REPLY, identifier) else None


def ping(addresses: list[str], deadline_s: float) -> dict[str, dict[str, float] | None]:
    """Ask until everybody answered or the deadline passed; silent ones are asked again every 0.1 s."""
    identifier = os.getpid() & 0xFFFF
    answers: dict[str, dict[str, float] | None] = dict.fromkeys(addresses)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as connection:
        begin = time.monotonic()
        while None in answers.values() and time.monotonic() < begin + deadline_s:
            ask(connection, identifier, addresses, answers)
            until = min(time.monotonic() + REPEAT_S, begin + deadline_s)
            listen(connection, identifier, addresses, answers, begin, until)
    return answers


def ask(
    connection: socket.socket,
    identifier: int,
    addresses: list[str],
    answers: dict[str, dict[str, float] | None],
) -> None:
    """Send one echo request to each address that has not answered."""
    for sequence, address in enumerate(addresses):
        if answers[address] is None:
            try:
                connection.sendto(echo_request(identifier, sequence), (address, 0))
            except OSError:
                continue  # no route yet counts as no answer; the next round asks again


def listen(
    connection: socket.socket,
    identifier: int,
    addresses: list[str],
    answers: dict[str, dict[str, float] | None],
    begin: float,
    until: float,
) -> None:
    """Collect replies until everybody answered or `until` on the monotonic clock."""
    while None in answers.values():
        ready, _, _ = select.select([connection], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return
        packet, (sender, _) = connection.recvfrom(65535)
        reply = read_reply(packet, identifier)
        if reply and reply[0] < len(addresses) and addresses[reply[0]] == sender and answers[sender] is None:
            answers[sender] = {"ttl": reply[1], "seconds": round(time.monotonic() - begin, 6)}


def main() -> None:
    """Read the command line, ping, print."""
    parser = argparse.ArgumentParser(description="Ping many addresses at once.")
    parser.add_argument("--deadline", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("addresses", nargs="+")
    options = parser.parse_args()
    print(json.dumps(ping(options.addresses, options.deadline)), flush=True)


if __name__ == "__main__":
    main()
