"""The loop between datagrams and their outcomes: taken many at a time, answered one after the other."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from time import time_ns as wall_clock

import numpy as np

from lightning.serving.model_instance import ModelInstance
from lightning.serving.packets.codec import (
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
from lightning.serving.packets.counts import ANSWERED, FAILED, LATE, LEFT, REPLAYED, PacketCounts
from lightning.serving.packets.deferred import FOREVER, Deferred, Job, measure_elapsed_us, try_work
from lightning.serving.packets.mmsg import ADDRESS, SLOT, Inbox, address_of
from lightning.serving.packets.reassembly import Reassembly, ReplayCache, Whole
from lightning.serving.packets.services import Bytes, Service
from lightning.serving.repository import Lease, Repository

OUTCOMES = {
    Code.MALFORMED: "malformed",
    Code.UNKNOWN_MODEL: "unknown_model",
    Code.LATE: "late",
    Code.INPUT: "refused",
    Code.FAILED: "failed",
    Code.BUSY: "busy",
}
"""What refusals are counted as."""


class PacketLoop:
    """Belongs to one thread, but for `copy_counts`."""

    def __init__(
        self,
        server: socket.socket,
        repository: Repository,
        reassembly: Reassembly,
        replay_cache: ReplayCache,
        *,
        fast_path: bool = True,
    ) -> None:
        self.repository = repository
        self.reassembly = reassembly
        self.replay_cache = replay_cache
        self.fast_path = fast_path
        self.counts = PacketCounts()
        self.inbox = Inbox(server)
        self.deferred = Deferred(self.inbox, repository)
        self._outcomes = np.zeros(self.inbox.slots, np.int8)
        self._models = np.ndarray(
            (self.inbox.slots,), ">u4", self.inbox.bytes, offset=8, strides=(SLOT,)
        )  # where headers have the model
        self._services: dict[int, Service] = {}
        self._prepared: dict[int, ModelInstance] = {}
        self._leases: dict[int, Lease] = {}
        self._senders = address_of(self.inbox.senders)

    def prepare(self) -> None:
        """Make ready for all models that are loaded, so that the first request does not wait. Once for each."""
        for each in self.repository.serving():
            if self._prepared.get(each.number) is not each:
                self._prepared[each.number] = each
                with contextlib.suppress(Exception):  # the first request is answered with what is wrong
                    self._service(each.number)
        self._release()

    def copy_counts(self) -> PacketCounts:
        """Return a copy."""
        waiting = self.reassembly.waiting + len(self.deferred)
        return replace(self.counts, waiting=waiting, dropped=self.reassembly.dropped)

    def serve(self) -> int:
        """Answer all that is there; how many datagrams that were."""
        # First those that were left for later.
        for job, code in self.deferred.collect():
            self._note_request(job, code)
        found = self.inbox.receive()
        if not found:
            return 0
        try:
            outcomes = self._fast_path(found)
            counts = self.counts
            counts.received += found
            counts.answered += outcomes.count(ANSWERED)
            counts.replayed += outcomes.count(REPLAYED)
            counts.failed += outcomes.count(FAILED)
            counts.late += outcomes.count(LATE)
            counts.overrun = max(counts.overrun, self.inbox.overruns(found))
            for slot, outcome in enumerate(outcomes):
                if outcome == LEFT:
                    self._datagram(slot)
        finally:
            self._release()
        return found

    def housekeeping(self) -> None:
        """Now and then: forget old fragments and models that are gone, make ready for new ones."""
        self.reassembly.expire(wall_clock())
        self.prepare()
        served = {each.number for each in self.repository.serving()}
        self._services = {number: each for number, each in self._services.items() if number in served}
        self._prepared = {number: each for number, each in self._prepared.items() if number in served}

    def _fast_path(self, found: int) -> list[int]:
        """Answer what machine code can answer, and return the outcome of every slot."""
        self._outcomes[:found] = LEFT
        if self.fast_path:
            for number in set(self._models[:found].tolist()):
                with contextlib.suppress(Exception):  # Python's way comes next, and tells what is wrong
                    service = self._service(number)
                    if service is not None and service.fast_path is not None:
                        service.fast_path.answer(self.inbox, found, self.replay_cache, self._outcomes)
        outcomes: list[int] = self._outcomes[:found].tolist()
        return outcomes

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
            whole = self._join(slot, request, fragment, fragments, numbers, arrived)
            if whole is None:
                return
            numbers, arrived = np.frombuffer(whole.message, np.uint8), whole.began
        self._request(slot, model, request, numbers, datatype, deadline, arrived)

    def _join(
        self, slot: int, request: int, fragment: int, fragments: int, numbers: Bytes, arrived: int
    ) -> Whole | None:
        key = peer_of(self.inbox.sender(slot)), request
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
        job = Job(self.inbox.sender(slot), model, request, numbers.tobytes(), datatype, arrived, latest)
        found = try_work(lambda: self._answer_now(job, slot), model, request)
        if found is False:
            if self.deferred.take(job):
                return
            found = Code.BUSY
        code = None if found is True else found
        self._note_request(job, code)
        if code is not None:
            self._refuse(slot, model, request, code, arrived)

    def _answer_now(self, job: Job, slot: int) -> bool | Code:
        """Answer now: return True, the code of a failure, or False if the model is not free. Its errors propagate."""
        service = self._service(job.model)
        if service is None or not service.instance.lock.acquire(timeout=0):
            return False
        try:
            if wall_clock() > job.latest:
                return Code.LATE
            service.compute(job.numbers, job.datatype, job.request)
        finally:
            service.instance.lock.release()
        if wall_clock() > job.latest:
            return Code.LATE
        return self._send_answer(service, slot, job.request, job.arrived) or Code.FAILED

    def _note_request(self, job: Job, code: Code | None) -> None:
        if code is not None:
            outcome = OUTCOMES[code]
        else:
            again = self.replay_cache.check_replay(int.from_bytes(peer_of(job.sender)), job.request)
            outcome = "replayed" if again else "answered"
        setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)

    def _service(self, number: int) -> Service | None:
        """Return the service of a model that answers here; None where it takes long. Raises `UnknownModel`."""
        lease = self._leases.get(number)
        if lease is None:
            lease = self._leases[number] = self.repository.acquire(number)
        found = self._services.get(number)
        if found is not None and found.instance is lease.instance:
            return found
        instance = lease.instance
        if not instance.quick or not instance.lock.acquire(timeout=0):
            return None
        try:
            service = self._services[instance.number] = Service(instance)
        finally:
            instance.lock.release()
        if self.fast_path and service.fast_path is not None:
            # On no datagrams: to be translated now, if that is still to be done, and not at a request.
            service.fast_path.answer(self.inbox, 0, self.replay_cache, self._outcomes)
        return service

    def _send_answer(self, service: Service, slot: int, request: int, arrived: int) -> bool:
        """Send what the model has computed; whether the network took it."""
        elapsed = measure_elapsed_us(arrived)
        length = service.packet(request, elapsed)
        if service.fits:
            return self._send(slot, service.where, length)
        model, kind = service.instance.number, Datatype.FLOAT32
        packets = split(Kind.ANSWER, model, request, service.message, time_us=elapsed, datatype=kind)
        sent = [self.inbox.send(serialise(each), self.inbox.sender(slot)) for each in packets]
        return all(sent)

    def _refuse(self, slot: int, model: int, request: int, code: Code, arrived: int) -> None:
        refusal = Packet(Kind.REFUSAL, model, request, time_us=measure_elapsed_us(arrived), code=code)
        self.inbox.send(serialise(refusal), self.inbox.sender(slot))

    def _send(self, slot: int, where: int, length: int) -> bool:
        to = self._senders + slot * ADDRESS
        sent: int = self.inbox.library.sendto(
            self.inbox.descriptor, where, length, socket.MSG_DONTWAIT, to, ADDRESS
        )
        return sent == length


def peer_of(sender: bytes) -> bytes:
    """Port and number of the host in an address."""
    return sender[2:8]
