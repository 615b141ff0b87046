"""Frames that scapy builds for tests of the smartNIC: right, wrong, changed on their way, and for others."""

from __future__ import annotations

import random

from lightning.serving.packets.codec import HEADER, MAGIC
from witnesses.packet_ends import ADDRESS, MAC, MODELS, PORT, ones_sum

HOST, HOST_ADDRESS = "02:00:00:00:00:07", "10.1.2.9"
OURS, OUR_ADDRESS = MAC.hex(":"), ".".join(map(str, ADDRESS))


class Scapy:
    """The layers of scapy that the tests use."""

    def __init__(self):
        from scapy.layers import inet, l2

        self.Ether, self.ARP, self.IP, self.UDP, self.ICMP = l2.Ether, l2.ARP, inet.IP, inet.UDP, inet.ICMP


class Frames:
    """Frames of a host on the network, most of them for us."""

    def __init__(self, scapy, seed, models=MODELS):
        self.scapy, self.chance, self.models = scapy, random.Random(seed), models

    def packet(self, content, **fields):
        host = f"02:00:00:00:{self.chance.randrange(256):02x}:07"
        address = f"10.1.2.{self.chance.randrange(4, 256)}"
        fields = {"src": address, "dst": OUR_ADDRESS, "id": self.chance.randrange(2**16)} | fields
        frame = bytes(self.scapy.Ether(src=host, dst=OURS) / self.scapy.IP(**fields) / content)
        # Hosts pad short frames, most of them with zeros.
        pad = self.chance.choice([b"\0", b"\xee"])
        return frame.ljust(60, pad) if self.chance.random() < 0.9 else frame

    def datagram(self, payload, **fields):
        ports = {"sport": self.chance.randrange(1, 2**16), "dport": PORT}
        return self.packet(self.scapy.UDP(**(ports | fields)) / payload)

    def request(self, model=None, size=None, udp=None, payload=None, **fields):
        model = self.chance.choice(list(self.models)) if model is None else model
        if payload is None:
            payload = self.chance.randbytes(self.models.get(model, 8) if size is None else size)
        header = {
            "magic": MAGIC, "version": 1, "kind": 1, "datatype": 1, "code": 0, "model": model,
            "deadline": self.chance.getrandbits(32), "number": self.chance.getrandbits(64), "fragment": 0,
            "fragments": 1, "length": len(payload), "spare": 0,
        } | fields  # fmt: skip
        return self.datagram(HEADER.pack(*header.values()) + payload, **udp or {})

    def ping(self, size=None, **fields):
        size = (
            self.chance.choice([0, 1, 17, 18, 22, 23, 56, self.chance.randrange(1473)])
            if size is None
            else size
        )
        echo = {"type": 8, "id": self.chance.getrandbits(16), "seq": self.chance.getrandbits(16)} | fields
        return self.packet(self.scapy.ICMP(**echo) / self.chance.randbytes(size))

    def arp(self, **fields):
        to = self.chance.choice([OURS, "ff:ff:ff:ff:ff:ff"])
        asks = {"op": 1, "hwsrc": HOST, "psrc": HOST_ADDRESS, "pdst": OUR_ADDRESS} | fields
        frame = bytes(self.scapy.Ether(src=HOST, dst=to) / self.scapy.ARP(**asks))
        return frame.ljust(self.chance.choice([42, 60, 130]), b"\0")

    def wrong_request(self):
        """Return a request with a field that is not that of a valid one for its model."""
        fields = self.chance.choice([
            {"magic": b"LBIQ"}, {"version": 2}, {"kind": 2}, {"kind": 3, "code": 1}, {"kind": 0}, {"datatype": 0},
            {"datatype": 3}, {"code": 7}, {"fragment": 1}, {"fragments": 0}, {"fragments": 2}, {"length": 0},
            {"length": 1441}, {"spare": 1}, {"spare": 256}, {"model": 3}, {"model": 1 << 31}, {"datatype": 2},
            {"model": 2, "fragments": 2}, {"model": 2, "fragments": 65535, "fragment": 65534},
            {"model": 2, "fragments": 65535, "fragment": 65533}, {"size": 31}, {"size": 0}, {"size": 1440},
            {"model": 2, "fragment": 65535, "fragments": 65535},
        ])  # fmt: skip
        return self.request(**fields)

    def unserved(self):
        """Return a request that is valid, but for no model, or none of this length."""
        served = self.chance.choice([1, 5, 6])
        return self.request(
            **self.chance.choice([{"model": self.chance.getrandbits(32)}, {"model": served, "size": 99}])
        )

    def foreign(self):
        """Return a frame that is not for us, or that cannot be answered."""
        scapy, chance = self.scapy, self.chance
        return chance.choice([
            lambda: bytes(scapy.Ether(src=HOST, dst=OURS, type=0x86DD)) + chance.randbytes(80),
            lambda: chance.randbytes(chance.randrange(1, 1600)),
            lambda: self.arp(op=2),
            lambda: self.arp(pdst="10.1.2.4"),
            lambda: self.arp(hwsrc="03:00:00:00:00:07"),
            lambda: self.request(udp={"dport": PORT ^ 256}),
            lambda: self.request(udp={"sport": 0}),
            lambda: self.ping(type=0),
            lambda: self.ping(code=1),
            lambda: self.packet(scapy.UDP(sport=5, dport=PORT) / bytes(40), flags="MF"),
            lambda: self.packet(scapy.UDP(sport=5, dport=PORT) / bytes(40), frag=3),
            lambda: self.packet(scapy.UDP(sport=5, dport=PORT) / bytes(40), dst="10.1.2.255"),
            lambda: self.packet(scapy.UDP(sport=5, dport=PORT) / bytes(40), proto=6),
            lambda: self.packet(scapy.UDP(sport=5, dport=PORT) / bytes(40), options=[b"\1\1\1\0"]),
            lambda: self.packet(
                scapy.UDP(sport=5, dport=PORT) / bytes(40),
                src=chance.choice(["0.0.0.1", "127.0.0.1", "224.0.0.1", "255.255.255.255", OUR_ADDRESS]),
            ),
            lambda: bytes([chance.choice([0x03, 0x06, 0xFF])]) + self.request()[1:],
            lambda: (frame := self.request())[:6] + bytes([3]) + frame[7:],
        ])()  # fmt: skip

    def any(self):
        """Return a frame of any kind and whether its frame check is wrong."""
        kinds = [
            self.request, self.request, self.ping, self.arp, self.wrong_request, self.wrong_request, self.foreign,
            self.corrupt, self.unserved,
        ]  # fmt: skip
        return self.chance.choice(kinds)(), self.chance.random() < 0.04

    def corrupt(self):
        """Return a frame that was changed on its way: a bit, its end, or a length that says something else."""
        frame = bytearray(self.chance.choice([self.request, self.request, self.ping, self.arp])())
        change = self.chance.randrange(5)
        if change == 0:
            return bytes(frame[: self.chance.randrange(1, len(frame))])
        if change == 1:
            # Of the headers, at best; the sums do not tell.
            place = self.chance.choice([each for each in (16, 17, 38, 39, 70, 71) if each < len(frame)])
            frame[place] = self.chance.randrange(256)
            return self.with_checksums(bytes(frame))
        if change == 2:
            return bytes(frame).ljust(self.chance.choice([1513, 1514, 1515, 1600, 2100]), b"\0")
        for _ in range(self.chance.choice([1, 1, 2])):
            bit = self.chance.randrange(8 * len(frame))
            frame[bit // 8] ^= 1 << bit % 8
        return bytes(frame)

    @staticmethod
    def with_checksums(frame):
        """Return a frame whose checksums are right for the bytes that its lengths name."""
        if frame[12:14] != b"\x08\x00" or len(frame) < 42:
            return frame
        head = frame[14:24] + b"\0\0" + frame[26:34]
        head = head[:10] + (0xFFFF - ones_sum(head)).to_bytes(2, "big") + head[12:]
        rest = frame[34 : 14 + int.from_bytes(frame[16:18], "big")]
        place, pseudo = (6, head[12:] + b"\0\x11" + rest[4:6]) if frame[23] == 17 else (2, b"")
        check = 0xFFFF - ones_sum(pseudo + rest[:place] + b"\0\0" + rest[place + 2 :])
        rest = rest[:place] + check.to_bytes(2, "big") + rest[place + 2 :]
        return frame[:14] + head + rest + frame[34 + len(rest) :]
