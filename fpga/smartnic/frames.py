"""Ethernet frames with UDP datagrams, for a client of the smartNIC that has no network stack."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

_IPV4, _UDP = 0x0800, 17
_HEADERS = struct.Struct(">6s6sHBBHHHBBH4s4sHHHH")
"""Ethernet, IPv4 without options, UDP."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """MAC address, IPv4 address and UDP port."""

    mac: str
    address: str
    port: int

    @property
    def mac_bytes(self) -> bytes:
        """The MAC address in wire order."""
        return bytes.fromhex(self.mac.replace(":", ""))


def make_datagram(payload: bytes, source: Endpoint, target: Endpoint) -> bytes:
    """Return the frame of a UDP datagram with both checksums, without frame check sequence.

    >>> ends = Endpoint("02:00:00:00:00:01", "10.77.0.1", 9), Endpoint("02:00:00:00:00:02", "10.77.0.2", 8500)
    >>> make_datagram(b"hi", *ends)[14:].hex(" ", -4)
    '4500001e 00004000 40112633 0a4d0001 0a4d0002 00092134 000a6197 6869'
    """
    udp_length = 8 + len(payload)
    addresses = IPv4Address(source.address).packed, IPv4Address(target.address).packed
    ip_header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + udp_length, 0, 0x4000, 64, _UDP, 0, *addresses)
    pseudo_header = b"".join(addresses) + struct.pack(
        ">BBHHHHH", 0, _UDP, udp_length, source.port, target.port, udp_length, 0
    )
    return _HEADERS.pack(
        target.mac_bytes, source.mac_bytes, _IPV4,
        0x45, 0, 20 + udp_length, 0, 0x4000, 64, _UDP, compute_checksum(ip_header), *addresses,
        source.port, target.port, udp_length, compute_checksum(pseudo_header + payload) or 0xFFFF,
    ) + payload  # fmt: skip


def get_payload(frame: bytes) -> bytes:
    """Return the payload of a UDP datagram in a frame, without padding. The headers are not checked."""
    length = int.from_bytes(frame[38:40], "big")
    return frame[42 : 34 + length]


def compute_checksum(data: bytes) -> int:
    """Return the internet checksum of RFC 1071: the complement of the ones' complement sum of 16-bit words.

    >>> hex(compute_checksum(bytes.fromhex("0001f203f4f5f6f7")))
    '0x220d'
    """
    padded_data = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f">{len(padded_data) // 2}H", padded_data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
