"""Load of inference packets on a server: sent when they are due, whatever comes back.

Sending and receiving take as many datagrams at a time as are due or there, so that the generator gets cheaper for each
the higher the rate is.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter_ns as clock

import numpy as np

from lightning.load.inputs import Rows, load_rows, random_rows
from lightning.load.outcome import WAITING, Outcome, Traces, traces_of
from lightning.load.schedule import Times, poisson_schedule
from lightning.load.targets import LoadError, Target
from lightning.serving.packets.codec import DTYPES, HEADER, MAGIC, ROOM, VERSION, Code, Datatype, Kind
from lightning.serving.packets.mmsg import MEMORY, MESSAGE, SLOT, VECTOR, Inbox, address_of, system_library

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

GRACE_NS = 500_000_000
"""How long answers are waited for after the last request was due."""
SPIN_NS = 200_000
"""Waits shorter than this are spent asking."""


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


def drive_datagrams(
    target: Target,
    model: int,
    rate: float,
    seconds: float,
    *,
    data: str = "random",
    size: int = 784,
    seed: int = 0,
    deadline_us: int = 0,
) -> Outcome:
    """Send a model `rate` requests a second on average; `size` values each where data are random.

    Raises `LoadError` for data that cannot be had.
    """
    due = poisson_schedule(rate, seconds, seed)
    rows = random_rows((size,), seed) if data == "random" else load_rows(data)
    traces = exchange(target, model, rows, due, first=first_number(seed), deadline_us=deadline_us)
    return Outcome(
        target.url, rate, seed, traces, deadline_us, {code.value: code.name.lower() for code in Code}
    )


def first_number(seed: int) -> int:
    """Return the number at which requests begin: the same seed asks the same again, another asks for others."""
    return seed % (1 << 31) << 32


def exchange(
    target: Target, model: int, rows: Rows, due: Times, *, first: int = 0, deadline_us: int = 0
) -> Traces:
    """Send a row when it is due, and take what comes back. Raises `LoadError` where the network refuses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MEMORY)
        try:
            made.connect(target.address())
            return _Exchange(made, Outbox(made, model, rows, first, deadline_us), due, first).run()
        except OSError as error:
            raise LoadError(
                f"{target.url} cannot be reached ({error})", hint="Give the address of a running server"
            ) from error


class _Exchange:
    """One load in progress."""

    def __init__(self, through: socket.socket, out: Outbox, due: Times, first: int) -> None:
        self.socket = through
        self.out = out
        self.due = due
        self.first = first
        self.inbox = Inbox(through, BLOCK)
        self.headers = np.ndarray((BLOCK,), HEADER_FIELDS, self.inbox.bytes, strides=(SLOT,))
        self.latency = np.full(len(due), WAITING, dtype=np.int64)
        self.lag = self.latency.copy()
        self.refusal = np.zeros(len(due), dtype=np.int32)
        self.pieces = np.zeros(len(due), dtype=np.int64)
        self.came = 0

    def run(self) -> Traces:
        """Until everything is answered, or has been waited for."""
        each = self.out.fragments
        count, sent = len(self.due) * each, 0
        due = np.repeat(self.due, each).tolist()
        end = (due[-1] if due else 0) + GRACE_NS
        start = clock()
        while True:
            now = clock() - start
            ready = sent
            while ready < count and ready - sent < BLOCK and due[ready] <= now:
                ready += 1
            if ready > sent:
                sent += self._send(sent, ready - sent, now)
            came = self._receive(start)
            if now > end or self.came == len(self.due):
                return traces_of(self.due, self.latency, self.lag, self.refusal)
            if self.inbox.unreachable and not self.came:
                raise LoadError(
                    "no server receives packets there", hint="Give the address of a running server"
                )
            if not came:
                self._wait((due[sent] if sent < count else end) - now)

    def _send(self, sent: int, count: int, now: int) -> int:
        left = self.out.send(sent, count)
        requests = np.arange(sent, sent + left) // self.out.fragments
        self.lag[requests] = now - self.due[requests]
        return left

    def _receive(self, start: int) -> int:
        found = self.inbox.receive()
        if found:
            now = clock() - start
            headers = self.headers[:found]
            numbers = headers["request"].astype(np.int64) - self.first
            ours = (headers["magic"] == MAGIC) & (numbers >= 0) & (numbers < len(self.due))
            self._note(headers[ours], numbers[ours], now)
        return found

    def _note(self, headers: Rows, numbers: Times, now: int) -> None:
        np.add.at(self.pieces, numbers, 1)
        refused = headers["kind"] == Kind.REFUSAL
        whole = (refused | (self.pieces[numbers] >= headers["fragments"])) & (
            self.latency[numbers] == WAITING
        )
        done = numbers[whole]
        self.latency[done] = now - self.due[done]
        self.refusal[done] = headers["code"][whole]
        self.came = int(self.came + len(np.unique(done)))

    def _wait(self, left: int) -> None:
        if left > SPIN_NS:
            select.select([self.socket], [], [], (left - SPIN_NS) / 1e9)
