"""Requests as packets, many sent with one system call: headers are made in blocks, payloads lie still."""

from __future__ import annotations

import socket

import numpy as np

from lightning.load.inputs import Rows
from lightning.serving.packets.codec import DTYPES, HEADER, MAGIC, ROOM, VERSION, Datatype, Kind
from lightning.serving.packets.mmsg import MESSAGE, VECTOR, address_of, system_library

BLOCK = 64
"""Datagrams a call at most."""

HEADER_FIELDS = np.dtype(
    [
        ("magic", "S4"),
        ("version", "u1"),
        ("kind", "u1"),
        ("datatype", "u1"),
        ("code", "u1"),
        ("model", ">u4"),
        ("time_us", ">u4"),
        ("request", ">u8"),
        ("fragment", ">u2"),
        ("fragments", ">u2"),
        ("length", ">u2"),
        ("spare", ">u2"),
    ]
)
"""The header of `lightning.serving.packets.codec`, for many at a time."""


class Outbox:
    """Sends requests first, first + 1, ... with rows of data in turns; a row takes `fragments` datagrams."""

    def __init__(
        self, sender: socket.socket, model: int, rows: Rows, first: int, deadline_us: int = 0
    ) -> None:
        datatype = Datatype.UINT8 if rows.dtype == np.uint8 else Datatype.FLOAT32
        self._library = system_library()
        self._descriptor = sender.fileno()
        self._rows = np.ascontiguousarray(rows.reshape(len(rows), -1), dtype=DTYPES[datatype]).view(np.uint8)
        self._first = first
        self.fragments = max(-(-self._rows.shape[1] // ROOM), 1)
        self._headers = np.zeros(BLOCK, HEADER_FIELDS)
        fixed = {
            "magic": MAGIC,
            "version": VERSION,
            "kind": Kind.REQUEST,
            "datatype": datatype,
            "model": model,
            "time_us": deadline_us,
            "fragments": self.fragments,
        }
        for name, value in fixed.items():
            self._headers[name] = value
        self._vectors = np.zeros((BLOCK, 2), VECTOR)
        self._vectors["base"][:, 0] = address_of(self._headers) + np.arange(BLOCK) * HEADER.size
        self._vectors["length"][:, 0] = HEADER.size
        self._messages = np.zeros(BLOCK, MESSAGE)
        self._messages["vectors"] = address_of(self._vectors) + np.arange(BLOCK) * 2 * VECTOR.itemsize
        self._messages["vector_count"] = 2
        self._where = address_of(self._messages)

    def send(self, datagram: int, count: int) -> int:
        """Send datagrams `datagram` .. `datagram + count - 1`, counted from 0 over all requests; how many left."""
        numbers = np.arange(datagram, datagram + min(count, BLOCK))
        requests, fragments = np.divmod(numbers, self.fragments)
        starts = fragments * ROOM
        lengths = np.minimum(self._rows.shape[1] - starts, ROOM)
        used = len(numbers)
        self._headers["request"][:used] = self._first + requests
        self._headers["fragment"][:used] = fragments
        self._headers["length"][:used] = lengths
        rows = requests % len(self._rows)
        self._vectors["base"][:used, 1] = address_of(self._rows) + rows * self._rows.shape[1] + starts
        self._vectors["length"][:used, 1] = lengths
        left: int = self._library.sendmmsg(self._descriptor, self._where, used, socket.MSG_DONTWAIT)
        return max(left, 0)
