"""What lies between datagrams and their outcomes: taken many at a time, answered one after the other."""

from __future__ import annotations

import contextlib
import logging
import socket
from time import time_ns as wall_clock

import numpy as np

from lightning.errors import InputError, UnknownModel
from lightning.serving.loaded import Loaded
from lightning.serving.many import ADDRESS, SLOT, Inbox, address_of
from lightning.serving.packet_counts import ANSWERED, FAILED, LATE, LEFT, REPLAYED, PacketCounts
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

FOREVER = 1 << 63
MOST_US = 0xFFFFFFFF


class Rounds:
    """Belongs to one thread, but for `counted`."""

    def __init__(
        self,
        server: socket.socket,
        repository: Repository,
        reassembly: Reassembly,
        replays: Replays,
        *,
        express: bool = True,
    ) -> None:
        self.repository = repository
        self.reassembly = reassembly
        self.replays = replays
        self.express = express
        self.counts = PacketCounts()
        self.inbox = Inbox(server)
        self._outcomes = np.zeros(self.inbox.slots, np.int8)
        self._models = np.ndarray(
            (self.inbox.slots,), ">u4", self.inbox.bytes, offset=8, strides=(SLOT,)
        )  # where headers have the model
        self._services: dict[int, Service] = {}
        self._prepared: dict[int, Loaded] = {}
        self._leases: dict[int, Lease] = {}
        self._senders = address_of(self.inbox.senders)
        self._names = self.inbox.senders.data.cast("B")

    def prepare(self) -> None:
        """Make ready for all models that are loaded, so that the first request does not wait. Once for each."""
        for each in self.repository.serving():
            if self._prepared.get(each.number) is not each:
                self._prepared[each.number] = each
                with contextlib.suppress(Exception):  # the first request is told what is wrong
                    self._service(each.number)
        self._release()

    def counted(self) -> PacketCounts:
        """A copy."""
        counts, reassembly = self.counts, self.reassembly
        return PacketCounts(
            counts.received, counts.answered, counts.replayed, counts.late, counts.malformed, counts.unknown_model,
            counts.refused, counts.failed, counts.joined, reassembly.waiting, reassembly.dropped, counts.overrun,
        )  # fmt: skip

    def serve(self) -> int:
        """Answer all that is there; how many datagrams that were."""
        found = self.inbox.receive()
        if not found:
            return 0
        try:
            outcomes = self._express(found)
            self._note(found, outcomes)
            for slot, outcome in enumerate(outcomes):
                if outcome == LEFT:
                    self._datagram(slot)
        finally:
            self._release()
        return found

    def tidy(self) -> None:
        """Now and then: forget old fragments and models that are gone, make ready for new ones."""
        self.reassembly.expire(wall_clock())
        self.prepare()
        loaded = {each.number for each in self.repository.serving()}
        self._services = {number: each for number, each in self._services.items() if number in loaded}
        self._prepared = {number: each for number, each in self._prepared.items() if number in loaded}

    def _express(self, found: int) -> list[int]:
        """Have machine code answer what it can; the outcome of every slot."""
        self._outcomes[:found] = LEFT
        if self.express:
            for number in set(self._models[:found].tolist()):
                with contextlib.suppress(Exception):  # Python's way comes next, and tells what is wrong
                    service = self._service(number)
                    if service.express is not None:
                        service.express.answer(self.inbox, found, self.replays, self._outcomes)
        outcomes: list[int] = self._outcomes[:found].tolist()
        return outcomes

    def _note(self, found: int, outcomes: list[int]) -> None:
        counts = self.counts
        counts.received += found
        counts.answered += outcomes.count(ANSWERED)
        counts.replayed += outcomes.count(REPLAYED)
        counts.failed += outcomes.count(FAILED)
        counts.late += outcomes.count(LATE)
        counts.overrun = max(counts.overrun, self.inbox.overruns(found))

    def _release(self) -> None:
        for lease in self._leases.values():
            lease.release()
        self._leases.clear()

    def _datagram(self, slot: int) -> None:
        size, arrived = self.inbox.length(slot), self.inbox.arrival(slot)
        if size < HEADER.size:
            self.counts.malformed += 1
            return
        magic, version, kind, datatype, code, model, deadline, request, fragment, fragments, length, spare = (
            HEADER.unpack_from(self.inbox.buffer, slot * SLOT)
        )
        flaw = flaw_of(magic, version, kind, datatype, code, fragment, fragments, length, spare, size)
        if flaw or kind != Kind.REQUEST:
            self.counts.malformed += 1
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
        key = self._peer(slot), request
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
        latest = arrived + deadline * 1000 if deadline else FOREVER
        code = self._computed(model, request, numbers, datatype, latest)
        if code is Code.UNKNOWN_MODEL:
            self.counts.unknown_model += 1
        elif code is Code.LATE:
            self.counts.late += 1
        elif code is Code.INPUT:
            self.counts.refused += 1
        elif code is Code.FAILED or not self._answered(slot, model, request, arrived):
            self.counts.failed += 1
        elif self.replays.seen(int.from_bytes(self._peer(slot)), request):
            self.counts.replayed += 1
        else:
            self.counts.answered += 1
        if code is not None:
            self._refuse(slot, model, request, code, arrived)

    def _computed(self, model: int, request: int, numbers: Bytes, datatype: int, latest: int) -> Code | None:
        """Have the model answer; why it did not."""
        try:
            service = self._service(model)
            if wall_clock() > latest:
                return Code.LATE
            service.compute(numbers, datatype, request)
        except UnknownModel:
            return Code.UNKNOWN_MODEL
        except InputError:
            return Code.INPUT
        except Exception:
            LOG.exception("model %d failed at request %d", model, request)
            return Code.FAILED
        return Code.LATE if wall_clock() > latest else None

    def _service(self, number: int) -> Service:
        lease = self._leases.get(number)
        if lease is None:
            lease = self._leases[number] = self.repository.acquire(number)
        service = self._services.get(number)
        if service is None or service.loaded is not lease.loaded:
            service = self._services[number] = Service(lease.loaded)
            if self.express and service.express is not None:
                # On no datagrams: to be translated now, if that is still to be done, and not at a request.
                service.express.answer(self.inbox, 0, self.replays, self._outcomes)
        return service

    def _answered(self, slot: int, model: int, request: int, arrived: int) -> bool:
        """Send what the model has computed; whether the network took it."""
        service, elapsed = self._service(model), _elapsed_us(arrived)
        length = service.packet(request, elapsed)
        if service.fits:
            return self._send(slot, service.where, length)
        packets = split(
            Kind.ANSWER, model, request, service.message, time_us=elapsed, datatype=Datatype.FLOAT32
        )
        sent = [self._send_bytes(slot, serialise(each)) for each in packets]
        return all(sent)

    def _refuse(self, slot: int, model: int, request: int, code: Code, arrived: int) -> None:
        refusal = Packet(Kind.REFUSAL, model, request, time_us=_elapsed_us(arrived), code=code)
        self._send_bytes(slot, serialise(refusal))

    def _send_bytes(self, slot: int, datagram: bytes) -> bool:
        return self._send(slot, address_of(np.frombuffer(datagram, np.uint8)), len(datagram))

    def _send(self, slot: int, where: int, length: int) -> bool:
        to = self._senders + slot * ADDRESS
        sent: int = self.inbox.library.sendto(
            self.inbox.descriptor, where, length, socket.MSG_DONTWAIT, to, ADDRESS
        )
        return sent == length

    def _peer(self, slot: int) -> bytes:
        """Port and number of the host that sent this."""
        return bytes(self._names[slot * ADDRESS + 2 : slot * ADDRESS + 8])


def _elapsed_us(arrived: int) -> int:
    """Since then; 0 where the wall clock has been set back."""
    return min(max(wall_clock() - arrived, 0) // 1000, MOST_US)
