"""Stand-in for `lightning serve --nic`: it answers ARP, pings, and datagrams with their bytes in reverse.

Run with the interface, its IPv4 address and its MAC.
"""

import json
import socket
import struct
import sys

INTERFACE, ADDRESS, MAC = (
    sys.argv[1],
    socket.inet_aton(sys.argv[2]),
    bytes.fromhex(sys.argv[3].replace(":", "")),
)


def checksum(data):
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def answer(frame):
    """Return the answer to a frame, or None."""
    head = frame[6:12] + MAC + frame[12:14]
    if frame[12:14] == b"\x08\x06" and frame[38:42] == ADDRESS and frame[21] == 1:
        return head + frame[14:21] + b"\x02" + MAC + ADDRESS + frame[22:32]
    if frame[12:14] != b"\x08\x00" or frame[30:34] != ADDRESS:
        return None
    payload = frame[34 : 14 + int.from_bytes(frame[16:18], "big")]
    if frame[23] == 1 and payload[0] == 8:
        body = b"\0\0\0\0" + payload[4:]
        body = body[:2] + checksum(body) + body[4:]
    elif frame[23] == 17:
        body = payload[2:4] + payload[:2] + payload[4:6] + b"\0\0" + payload[8:][::-1]
    else:
        return None
    ip = frame[14:24] + b"\0\0" + frame[30:34] + frame[26:30]
    return head + ip[:10] + checksum(ip) + ip[12:] + body


with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as wire:
    wire.bind((INTERFACE, 3))
    print(json.dumps({"ready": True, "nic": {"interface": INTERFACE}}), flush=True)
    while True:
        data, sender = wire.recvfrom(9100)
        reply = answer(data) if sender[2] != socket.PACKET_OUTGOING else None
        if reply is not None:
            wire.send(reply)
