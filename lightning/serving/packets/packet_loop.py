"""The packet loop. It receives many datagrams at a time, answers them one after the other, and counts outcomes."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from time import time_ns as wall_clock_ns

import numpy as np

from lightning.serving.model_instance import ModelInstance
from lightning.serving.packets.codec import (
    HEADER,
    MAGIC,
    Datatype,
    Kind,
    Packet,
    RefusalCode,
    find_invalid_field,
    serialise,
    split,
)
from lightning.serving.packets.counts import ANSWERED, FAILED, LATE, REPLAYED, UNHANDLED, PacketCounts
from lightning.serving.packets.deferred import (
    NO_DEADLINE,
    DeferredRequests,
    Job,
    measure_elapsed_us,
    run_or_refuse,
)
from lightning.serving.packets.mmsg import ADDRESS_BYTES, SLOT_BYTES, Inbox, find_memory_address
from lightning.serving.packets.reassembly import CompleteMessage, FragmentReassembler, ReplayCache
from lightning.serving.packets.services import Bytes, PacketService
from lightning.serving.repository import Lease, Repository

COUNTER_BY_CODE = {
    RefusalCode.MALFORMED: "malformed",
    RefusalCode.UNKNOWN_MODEL: "unknown_model",
    RefusalCode.LATE: "late",
    RefusalCode.INPUT: "refused",
    RefusalCode.FAILED: "failed",
    RefusalCode.BUSY: "busy",
}
"""Name of the counter for each refusal code."""


class PacketLoop:
    """A loop that answers datagrams. Only one thread may use it; any thread may call `copy_counts`."""

    def __init__(
        self,
        server: socket.socket,
        repository: Repository,
        reassembler: FragmentReassembler,
        replay_cache: ReplayCache,
        *,
        is_fast_path_enabled: bool = True,
    ) -> None:
        self.repository = repository
        self.reassembly = reassembler
        self.replay_cache = replay_cache
        self.fast_path = is_fast_path_enabled
        self.counts = PacketCounts()
        self.inbox = Inbox(server)
        self.deferred_requests = DeferredRequests(self.inbox, repository)
        self._outcomes = np.zeros(self.inbox.slot_count, np.int8)
        # A view of the field of each header that holds the number of the model.
        self._model_numbers = np.ndarray(
            (self.inbox.slot_count,), ">u4", self.inbox.slot_bytes, offset=8, strides=(SLOT_BYTES,)
        )
        self._service_by_model: dict[int, PacketService] = {}
        self._prepared_instances: dict[int, ModelInstance] = {}
        self._lease_by_model: dict[int, Lease] = {}
        self._senders_address = find_memory_address(self.inbox.sender_addresses)

    def prepare(self) -> None:
        """Prepare the services of newly loaded models, so that the first request does not wait."""
        for instance in self.repository.list_serving():
            if self._prepared_instances.get(instance.number) is not instance:
                self._prepared_instances[instance.number] = instance
                with contextlib.suppress(Exception):  # the first request will report the error
                    self._find_service(instance.number)
        self._release()

    def copy_counts(self) -> PacketCounts:
        """Return a copy of the counters."""
        waiting = self.reassembly.waiting_count + len(self.deferred_requests)
        return replace(self.counts, waiting=waiting, dropped=self.reassembly.dropped_count)

    def answer_pending(self) -> int:
        """Answer all pending datagrams and return their number."""
        for job, code in self.deferred_requests.collect():
            self._record_request(job, code)
        received_count = self.inbox.receive()
        if not received_count:
            return 0
        try:
            outcomes = self._answer_fast(received_count)
            counts = self.counts
            counts.received += received_count
            counts.answered += outcomes.count(ANSWERED)
            counts.replayed += outcomes.count(REPLAYED)
            counts.failed += outcomes.count(FAILED)
            counts.late += outcomes.count(LATE)
            counts.overrun = max(counts.overrun, self.inbox.count_overruns(received_count))
            for slot, outcome in enumerate(outcomes):
                if outcome == UNHANDLED:
                    self._answer_datagram(slot)
        finally:
            self._release()
        return received_count

    def clean_up(self) -> None:
        """Discard old fragments and unloaded models, and prepare new models. Call this from time to time."""
        self.reassembly.expire(wall_clock_ns())
        self.prepare()
        model_numbers = {instance.number for instance in self.repository.list_serving()}
        self._service_by_model = {
            number: service for number, service in self._service_by_model.items() if number in model_numbers
        }
        self._prepared_instances = {
            number: instance
            for number, instance in self._prepared_instances.items()
            if number in model_numbers
        }

    def _answer_fast(self, count: int) -> list[int]:
        """Answer datagrams in compiled code where possible, and return the outcome of every slot."""
        self._outcomes[:count] = UNHANDLED
        if self.fast_path:
            for number in set(self._model_numbers[:count].tolist()):
                with contextlib.suppress(Exception):  # the Python path follows and reports the error
                    service = self._find_service(number)
                    if service is not None and service.fast_path is not None:
                        service.fast_path.answer_requests(
                            self.inbox, count, self.replay_cache, self._outcomes
                        )
        outcomes: list[int] = self._outcomes[:count].tolist()
        return outcomes

    def _release(self) -> None:
        for lease in self._lease_by_model.values():
            lease.release()
        self._lease_by_model.clear()

    def _answer_datagram(self, slot: int) -> None:
        size, arrival_ns = self.inbox.get_length(slot), self.inbox.get_arrival_ns(slot)
        if size < HEADER.size:
            self.counts.malformed += 1
            return
        (
            magic,
            version,
            kind,
            datatype,
            code,
            model,
            deadline_us,
            request,
            fragment,
            fragments,
            length,
            spare,
        ) = HEADER.unpack_from(self.inbox.buffer, slot * SLOT_BYTES)
        invalid_field = find_invalid_field(
            magic, version, kind, datatype, code, fragment, fragments, length, spare, size
        )
        if invalid_field or kind != Kind.REQUEST:
            self.counts.malformed += 1
            if magic == MAGIC and kind == Kind.REQUEST:
                self._refuse(slot, model, request, RefusalCode.MALFORMED, arrival_ns)
            return
        payload = self.inbox.slot_bytes[slot, HEADER.size : size]
        if fragments > 1:
            complete_message = self._add_fragment(slot, request, fragment, fragments, payload, arrival_ns)
            if complete_message is None:
                return
            payload, arrival_ns = (
                np.frombuffer(complete_message.message, np.uint8),
                complete_message.arrival_ns,
            )
        self._handle_request(slot, model, request, payload, datatype, deadline_us, arrival_ns)

    def _add_fragment(
        self,
        slot: int,
        request_number: int,
        fragment_index: int,
        fragment_count: int,
        payload: Bytes,
        arrival_ns: int,
    ) -> CompleteMessage | None:
        key = read_peer(self.inbox.get_sender(slot)), request_number
        result = self.reassembly.add_fragment(
            key, fragment_index, fragment_count, payload.tobytes(), arrival_ns
        )
        if isinstance(result, CompleteMessage):
            self.counts.joined += result.fragments_before_last
            return result
        if not result:
            self.counts.replayed += 1
        return None

    def _handle_request(
        self,
        slot: int,
        model_number: int,
        request_number: int,
        payload: Bytes,
        datatype: int,
        deadline_us: int,
        arrival_ns: int,
    ) -> None:
        deadline_ns = arrival_ns + deadline_us * 1000 if deadline_us else NO_DEADLINE
        job = Job(
            self.inbox.get_sender(slot),
            model_number,
            request_number,
            payload.tobytes(),
            datatype,
            arrival_ns,
            deadline_ns,
        )
        result = run_or_refuse(lambda: self._answer_now(job, slot), model_number, request_number)
        if result is False:
            if self.deferred_requests.submit(job):
                return
            result = RefusalCode.BUSY
        code = None if result is True else result
        self._record_request(job, code)
        if code is not None:
            self._refuse(slot, model_number, request_number, code, arrival_ns)

    def _answer_now(self, job: Job, slot: int) -> bool | RefusalCode:
        """Answer at once: return True, a refusal code, or False if the model is slow or busy.

        Errors of the model propagate.
        """
        service = self._find_service(job.model_number)
        if service is None or not service.instance.lock.acquire(timeout_s=0):
            return False
        try:
            if wall_clock_ns() > job.deadline_ns:
                return RefusalCode.LATE
            service.compute(job.input_bytes, job.datatype, job.request_number)
        finally:
            service.instance.lock.release()
        if wall_clock_ns() > job.deadline_ns:
            return RefusalCode.LATE
        return self._send_answer(service, slot, job.request_number, job.arrival_ns) or RefusalCode.FAILED

    def _record_request(self, job: Job, code: RefusalCode | None) -> None:
        if code is not None:
            outcome = COUNTER_BY_CODE[code]
        else:
            is_replay = self.replay_cache.record_request(
                int.from_bytes(read_peer(job.sender)), job.request_number
            )
            outcome = "replayed" if is_replay else "answered"
        setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)

    def _find_service(self, model_number: int) -> PacketService | None:
        """Return the service of a model, or None if the model is slow, or new and busy. Raise `UnknownModel`."""
        lease = self._lease_by_model.get(model_number)
        if lease is None:
            lease = self._lease_by_model[model_number] = self.repository.acquire(model_number)
        current_service = self._service_by_model.get(model_number)
        if current_service is not None and current_service.instance is lease.instance:
            return current_service
        instance = lease.instance
        if not instance.is_quick or not instance.lock.acquire(timeout_s=0):
            return None
        try:
            service = self._service_by_model[instance.number] = PacketService(instance)
        finally:
            instance.lock.release()
        if self.fast_path and service.fast_path is not None:
            # A call without datagrams loads the kernel now instead of at the first request.
            service.fast_path.answer_requests(self.inbox, 0, self.replay_cache, self._outcomes)
        return service

    def _send_answer(self, service: PacketService, slot: int, request_number: int, arrival_ns: int) -> bool:
        """Send the computed answer and return whether the kernel accepted it."""
        elapsed_us = measure_elapsed_us(arrival_ns)
        length = service.fill_datagram(request_number, elapsed_us)
        if service.fits_datagram:
            return self._send(slot, service.datagram_address, length)
        model, datatype = service.instance.number, Datatype.FLOAT32
        packets = split(
            Kind.ANSWER, model, request_number, service.message, time_us=elapsed_us, datatype=datatype
        )
        accepted_flags = [
            self.inbox.send(serialise(packet), self.inbox.get_sender(slot)) for packet in packets
        ]
        return all(accepted_flags)

    def _refuse(
        self, slot: int, model_number: int, request_number: int, code: RefusalCode, arrival_ns: int
    ) -> None:
        refusal = Packet(
            Kind.REFUSAL,
            model_number,
            request_number,
            time_us=measure_elapsed_us(arrival_ns),
            code=code,
        )
        self.inbox.send(serialise(refusal), self.inbox.get_sender(slot))

    def _send(self, slot: int, datagram_pointer: int, length: int) -> bool:
        sender_pointer = self._senders_address + slot * ADDRESS_BYTES
        sent_bytes: int = self.inbox.library.sendto(
            self.inbox.file_descriptor,
            datagram_pointer,
            length,
            socket.MSG_DONTWAIT,
            sender_pointer,
            ADDRESS_BYTES,
        )
        return sent_bytes == length


def read_peer(sender: bytes) -> bytes:
    """Return port and IP address (6 bytes) of a sender's address."""
    return sender[2:8]
