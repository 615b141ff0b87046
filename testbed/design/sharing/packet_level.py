"""Packet-level simulation of jobs that send over the hosts' transport, on one link with a virtual clock.

The link has a first-in, first-out queue of `queue_packets` packets, besides the packet in transmission. It drops
further packets.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from testbed.node.transport import Receiver, Sender

WIRE_BYTES = 38 + 28  # Ethernet with preamble, check sequence and gap; IPv4 and UDP
_JOB_READY, _PACKET_SENT, _DATA_ARRIVED, _ACK_ARRIVED, _TIMER_EXPIRED = range(5)


@dataclass(frozen=True, slots=True)
class PacketLink:
    """Rate, queue and one-way delay of a link. Acknowledgements return without a queue."""

    rate_mbps: float = 100.0
    queue_packets: int = 16
    delay_s: float = 100e-6

    def compute_time_s(self, packet: bytes) -> float:
        """Return how long a packet occupies the link, in seconds."""
        return (len(packet) + WIRE_BYTES) * 8 / (self.rate_mbps * 1e6)


@dataclass(frozen=True, slots=True)
class SendingJob:
    """A job that computes, then sends `packet_count` packets. Its first iteration begins at `start_s`."""

    compute_s: float
    packet_count: int
    sender: Sender
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PacketRun:
    """Result of a run: iteration times (jobs, iterations), senders with their counters, and the dropped packets."""

    iteration_s: NDArray[np.float64]
    senders: tuple[Sender, ...]
    dropped_count: int

    @property
    def retransmit_counts(self) -> tuple[int, ...]:
        """Number of retransmitted packets of each job."""
        return tuple(sender.retransmit_count for sender in self.senders)


def run_packets(
    jobs: Sequence[SendingJob], iteration_count: int, link: PacketLink | None = None
) -> PacketRun:
    """Simulate until every job has finished `iteration_count` iterations, and return those.

    Faster jobs keep running.
    """
    return _PacketSimulation(list(jobs), link or PacketLink(), iteration_count).run()


@dataclass(slots=True)
class _PacketSimulation:
    jobs: list[SendingJob]
    link: PacketLink
    iteration_count: int
    now_s: float = 0.0
    dropped_count: int = 0
    _events: list[tuple[float, int, int, int, bytes]] = field(default_factory=list)
    _event_numbers: itertools.count[int] = field(default_factory=itertools.count)
    _queue: deque[tuple[int, bytes]] = field(default_factory=deque)
    _is_busy: bool = False
    _receivers: list[Receiver] = field(default_factory=list)
    _iteration_begins: list[list[float]] = field(default_factory=list)
    _is_sending: list[bool] = field(default_factory=list)

    def run(self) -> PacketRun:
        self._receivers = [Receiver() for _ in self.jobs]
        self._iteration_begins = [[job.start_s] for job in self.jobs]
        self._is_sending = [False] * len(self.jobs)
        for job_index, job in enumerate(self.jobs):
            self._schedule(job.start_s + job.compute_s, _JOB_READY, job_index)
        handler_by_kind = {
            _JOB_READY: self._begin_sending,
            _PACKET_SENT: self._finish_sending,
            _DATA_ARRIVED: self._receive_data,
            _ACK_ARRIVED: self._receive_ack,
            _TIMER_EXPIRED: self._expire_timer,
        }
        while (
            min(len(iteration_begins_s) for iteration_begins_s in self._iteration_begins)
            <= self.iteration_count
        ):
            self.now_s, _, kind, job_index, packet = heapq.heappop(self._events)
            handler_by_kind[kind](job_index, packet)
        iteration_s = np.array(
            [
                np.diff(iteration_begins_s[: self.iteration_count + 1])
                for iteration_begins_s in self._iteration_begins
            ]
        )
        return PacketRun(iteration_s, tuple(job.sender for job in self.jobs), self.dropped_count)

    def _schedule(self, time_s: float, kind: int, job_index: int, packet: bytes = b"") -> None:
        heapq.heappush(self._events, (time_s, next(self._event_numbers), kind, job_index, packet))

    def _begin_sending(self, job_index: int, _packet: bytes) -> None:
        self._is_sending[job_index] = True
        self.jobs[job_index].sender.begin(self.jobs[job_index].packet_count)
        self._send(job_index)

    def _send(self, job_index: int) -> None:
        sender = self.jobs[job_index].sender
        for packet in [*sender.on_time(self.now_s), *sender.poll(self.now_s)]:
            if self._is_busy and len(self._queue) >= self.link.queue_packets:
                self.dropped_count += 1
                continue
            self._queue.append((job_index, packet))
            if not self._is_busy:
                self._transmit()
        if sender.deadline_s is not None:
            self._schedule(sender.deadline_s, _TIMER_EXPIRED, job_index)

    def _transmit(self) -> None:
        self._is_busy = bool(self._queue)
        if self._queue:
            job_index, packet = self._queue.popleft()
            self._schedule(self.now_s + self.link.compute_time_s(packet), _PACKET_SENT, job_index, packet)

    def _finish_sending(self, job_index: int, packet: bytes) -> None:
        self._schedule(self.now_s + self.link.delay_s, _DATA_ARRIVED, job_index, packet)
        self._transmit()

    def _receive_data(self, job_index: int, packet: bytes) -> None:
        answer = self._receivers[job_index].on_packet(packet)
        if answer is not None:
            self._schedule(self.now_s + self.link.delay_s, _ACK_ARRIVED, job_index, answer)

    def _receive_ack(self, job_index: int, packet: bytes) -> None:
        job = self.jobs[job_index]
        job.sender.on_packet(packet, self.now_s)
        if self._is_sending[job_index] and job.sender.is_done:
            self._is_sending[job_index] = False
            self._iteration_begins[job_index].append(self.now_s)
            self._schedule(self.now_s + job.compute_s, _JOB_READY, job_index)
        else:
            self._send(job_index)

    def _expire_timer(self, job_index: int, _packet: bytes) -> None:
        sender = self.jobs[job_index].sender
        if sender.deadline_s is not None and self.now_s >= sender.deadline_s:
            self._send(job_index)
