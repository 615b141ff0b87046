"""The smartNIC's form of serving: one datagram asks, one answers, nothing waits for a batch.

A thread takes all datagrams that have come, answers each before it looks at the next, and looks again. Deadlines count
from when the kernel received a request, so that time in the queue counts. A request that is repeated is answered
again: answers depend on the number of the request only, so that a repetition says the same, and a client whose answer
was lost gets it. Refusals are sent to requests that carry the magic; anything else is counted, and gets no answer, so
that nobody can make the server shout at a third party.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections.abc import Mapping
from time import time_ns as wall_clock
from types import TracebackType

import numpy as np

from lightning.errors import InputError, ServingError, UnknownModel
from lightning.serving.many import ADDRESS, SLOT, Inbox, address_of
from lightning.serving.packet_counts import PacketCounts
from lightning.serving.packets import (
    HEADER,
    MAGIC,
    Code,
    Datatype,
    Kind,
    Packet,
    flaw_of,
    serialise,
    split,
)
from lightning.serving.reassembly import Reassembly, Whole
from lightning.serving.replays import Replays
from lightning.serving.repository import Lease, Repository
from lightning.serving.services import Bytes, Service

LOG = logging.getLogger(__name__)

MEMORY = 4 << 20
"""Of the socket, for requests that wait; the kernel grants what its limit allows."""
LISTEN_MS = 50
"""How long the thread sleeps at most when nothing comes: then it sees that it shall stop, or that fragments are old."""


class DatagramServer:
    """Answers inference packets with the models of a repository, in a thread of its own.

        with DatagramServer(repository, port=9000) as server:
            server.address, server.counts()

    `repository` may be that of an HTTP server: models are swapped for both. Raises `ServingError` when the port is
    taken.
    """

    def __init__(
        self,
        repository: Repository,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        reassembly: Reassembly | None = None,
        replays: Replays | None = None,
    ) -> None:
        self._repository = repository
        self._socket = _bound(host, port)
        self._round = _Round(self._socket, repository, reassembly or Reassembly(), replays or Replays())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.serve, name="inference-packets", daemon=True)
        bound = self._socket.getsockname()
        self.address: tuple[str, int] = (str(bound[0]), int(bound[1]))

    def __enter__(self) -> DatagramServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Answer in a thread from now on."""
        self._round.prepare()
        self._thread.start()

    def close(self) -> None:
        """Answer what has come, and stop."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    def counts(self) -> PacketCounts:
        """What became of packets; a copy."""
        return self._round.counted()

    def outcomes(self) -> Mapping[str, int]:
        """What became of packets, for the page of metrics."""
        return self._round.counted().outcomes()

    def serve(self) -> None:
        """Answer until `close`: what the thread does. A process that does nothing else may call it itself."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        idle = True
        while not (idle and self._stop.is_set()):
            idle = not self._round.serve()
            if idle and not self._stop.is_set():
                self._round.tidy()
                poll.poll(LISTEN_MS)


def _bound(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MEMORY)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ServingError(
            f"packets cannot be received on {host}:{port} ({error.strerror})",
            cure="Take another port, or an IPv4 address of this machine",
        ) from error
    return made


class _Round:
    """What lies between a datagram and its outcome. Belongs to one thread."""

    def __init__(
        self, server: socket.socket, repository: Repository, reassembly: Reassembly, replays: Replays
    ) -> None:
        self.repository = repository
        self.reassembly = reassembly
        self.replays = replays
        self.counts = PacketCounts()
        self.inbox = Inbox(server)
        self.services: dict[int, Service] = {}
        self.leases: dict[int, Lease] = {}
        self._senders = address_of(self.inbox.senders)
        self._names = memoryview(self.inbox.senders).cast("B")
        self._sendto = self.inbox.library.sendto
        self._descriptor = server.fileno()

    def prepare(self) -> None:
        """Make ready for all models that are loaded, so that the first request does not wait."""
        for each in self.repository.serving():
            with contextlib.suppress(UnknownModel):
                self._service(each.number)
        self._release()

    def counted(self) -> PacketCounts:
        """A copy."""
        counts = self.counts
        return PacketCounts(
            **{name: getattr(counts, name) for name in PacketCounts.__slots__ if name not in ("waiting", "dropped")},
            waiting=self.reassembly.waiting,
            dropped=self.reassembly.dropped,
        )

    def serve(self) -> int:
        """Answer all that is there; how many datagrams that were."""
        found = self.inbox.receive()
        arrivals = self.inbox.arrivals(found)
        try:
            for slot, size in enumerate(self.inbox.lengths(found)):
                seconds, nanoseconds, overruns = arrivals[slot]
                self.counts.overrun = max(self.counts.overrun, overruns)
                self._datagram(slot, size, seconds * 1_000_000_000 + nanoseconds)
        finally:
            self._release()
        return found

    def _release(self) -> None:
        for lease in self.leases.values():
            lease.release()
        self.leases.clear()

    def tidy(self) -> None:
        """What need not be done while requests wait: forget old fragments and models that are gone."""
        self.reassembly.expire(wall_clock())
        if len(self.services) > len(self.repository.serving()):
            loaded = {each.number for each in self.repository.serving()}
            self.services = {number: each for number, each in self.services.items() if number in loaded}

    def _datagram(self, slot: int, size: int, arrived: int) -> None:
        counts = self.counts
        counts.received += 1
        if size < HEADER.size:
            counts.malformed += 1
            return
        start = slot * SLOT
        magic, version, kind, datatype, code, model, deadline, request, fragment, fragments, length, spare = (
            HEADER.unpack_from(self.inbox.buffer, start)
        )
        flaw = flaw_of(magic, version, kind, datatype, code, fragment, fragments, length, spare, size)
        if flaw or kind != Kind.REQUEST:
            counts.malformed += 1
            if magic == MAGIC and kind == Kind.REQUEST:
                self._refuse(slot, model, request, Code.MALFORMED, arrived)
            return
        numbers = self.inbox.bytes[slot, HEADER.size : size]
        if fragments > 1:
            whole = self._joined(slot, request, fragment, fragments, numbers, arrived)
            if whole is None:
                return
            numbers, arrived = np.frombuffer(whole.message, np.uint8), whole.began
        self._request(slot, model, request, numbers, datatype, deadline, arrived)

    def _joined(
        self, slot: int, request: int, fragment: int, fragments: int, numbers: Bytes, arrived: int
    ) -> Whole | None:
        key = self._peer(slot) + request.to_bytes(8)
        found = self.reassembly.add(key, fragment, fragments, numbers.tobytes(), arrived)
        if isinstance(found, Whole):
            self.counts.joined += found.joined
            return found
        if not found:
            self.counts.replayed += 1
        return None

    def _request(
        self, slot: int, model: int, request: int, numbers: Bytes, datatype: int, deadline: int, arrived: int
    ) -> None:
        counts = self.counts
        latest = arrived + deadline * 1000 if deadline else 1 << 63
        try:
            service = self._service(model)
            in_time = wall_clock() <= latest
            if in_time:
                service.compute(numbers, datatype, request)
        except UnknownModel:
            counts.unknown_model += 1
            self._refuse(slot, model, request, Code.UNKNOWN_MODEL, arrived)
            return
        except InputError:
            counts.refused += 1
            self._refuse(slot, model, request, Code.INPUT, arrived)
            return
        except Exception:
            LOG.exception("model %d failed at request %d", model, request)
            counts.failed += 1
            self._refuse(slot, model, request, Code.FAILED, arrived)
            return
        now = wall_clock()
        if not in_time or now > latest:
            counts.late += 1
            self._refuse(slot, model, request, Code.LATE, arrived)
        elif not self._answered(slot, service, request, now - arrived):
            counts.failed += 1
        elif self.replays.seen(self._peer(slot) + request.to_bytes(8)):
            counts.replayed += 1
        else:
            counts.answered += 1

    def _service(self, number: int) -> Service:
        lease = self.leases.get(number)
        if lease is None:
            lease = self.leases[number] = self.repository.acquire(number)
        service = self.services.get(number)
        if service is None or service.loaded is not lease.loaded:
            service = self.services[number] = Service(lease.loaded)
        return service

    def _answered(self, slot: int, service: Service, request: int, elapsed_ns: int) -> bool:
        elapsed_us = max(elapsed_ns, 0) // 1000
        length = service.packet(request, elapsed_us)
        if service.fits:
            return self._send(slot, service.where, length)
        packets = split(
            Kind.ANSWER, service.loaded.number, request, service.message,
            time_us=min(elapsed_us, 0xFFFFFFFF), datatype=Datatype.FLOAT32,
        )  # fmt: skip
        return all([self._send_bytes(slot, serialise(each)) for each in packets])

    def _refuse(self, slot: int, model: int, request: int, code: Code, arrived: int) -> None:
        elapsed_us = min(max(wall_clock() - arrived, 0) // 1000, 0xFFFFFFFF)
        self._send_bytes(
            slot, serialise(Packet(Kind.REFUSAL, model, request, time_us=elapsed_us, code=code))
        )

    def _send_bytes(self, slot: int, datagram: bytes) -> bool:
        return self._send(slot, address_of(np.frombuffer(datagram, np.uint8)), len(datagram))

    def _send(self, slot: int, where: int, length: int) -> bool:
        to = self._senders + slot * ADDRESS
        sent: int = self._sendto(self._descriptor, where, length, socket.MSG_DONTWAIT, to, ADDRESS)
        return sent == length

    def _peer(self, slot: int) -> bytes:
        """Port and number of the host that sent this."""
        return bytes(self._names[slot * ADDRESS + 2 : slot * ADDRESS + 8])
