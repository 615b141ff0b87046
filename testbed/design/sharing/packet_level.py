"""Packet-level simulation of jobs that send over the hosts' transport, on one link with a virtual clock.

The link is first in, first out. Its queue holds `queue_packets` packets besides the one in transmission; further
packets are dropped.
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
_JOB, _SENT, _DATA, _ACK, _TIMER = range(5)


@dataclass(frozen=True, slots=True)
class PacketLink:
    """Rate, queue and one-way delay of a link; acknowledgements return without a queue."""

    rate_mbps: float = 100.0
    queue_packets: int = 16
    delay_s: float = 100e-6

    def time_s(self, packet: bytes) -> float:
        """Return how long a packet occupies the link, in seconds."""
        return (len(packet) + WIRE_BYTES) * 8 / (self.rate_mbps * 1e6)


@dataclass(frozen=True, slots=True)
class SendingJob:
    """A job that computes, then sends `packets`; the first iteration begins at `start_s`."""

    compute_s: float
    packets: int
    sender: Sender
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PacketRun:
    """Result of a run: iteration times (jobs, iterations), the senders with their counters, and dropped packets."""

    iteration_s: NDArray[np.float64]
    senders: tuple[Sender, ...]
    dropped: int

    @property
    def retransmits(self) -> tuple[int, ...]:
        """Retransmitted packets of each job."""
        return tuple(sender.retransmits for sender in self.senders)


def run_packets(jobs: Sequence[SendingJob], iterations: int, link: PacketLink | None = None) -> PacketRun:
    """Simulate until every job has ended `iterations` iterations, and return these; faster jobs keep running."""
    return _Run(list(jobs), link or PacketLink(), iterations).run()


@dataclass(slots=True)
class _Run:
    jobs: list[SendingJob]
    link: PacketLink
    iterations: int
    now: float = 0.0
    dropped: int = 0
    _events: list[tuple[float, int, int, int, bytes]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _queue: deque[tuple[int, bytes]] = field(default_factory=deque)
    _is_busy: bool = False
    _receivers: list[Receiver] = field(default_factory=list)
    _begins: list[list[float]] = field(default_factory=list)
    _is_sending: list[bool] = field(default_factory=list)

    def run(self) -> PacketRun:
        self._receivers = [Receiver() for _ in self.jobs]
        self._begins = [[job.start_s] for job in self.jobs]
        self._is_sending = [False] * len(self.jobs)
        for number, job in enumerate(self.jobs):
            self._schedule(job.start_s + job.compute_s, _JOB, number)
        handle = {
            _JOB: self._begin,
            _SENT: self._finish_sending,
            _DATA: self._receive_data,
            _ACK: self._receive_ack,
            _TIMER: self._expire_timer,
        }
        while min(len(begins) for begins in self._begins) <= self.iterations:
            self.now, _, kind, number, packet = heapq.heappop(self._events)
            handle[kind](number, packet)
        times = np.array([np.diff(begins[: self.iterations + 1]) for begins in self._begins])
        return PacketRun(times, tuple(job.sender for job in self.jobs), self.dropped)

    def _schedule(self, time_s: float, kind: int, number: int, packet: bytes = b"") -> None:
        heapq.heappush(self._events, (time_s, next(self._order), kind, number, packet))

    def _begin(self, number: int, _packet: bytes) -> None:
        self._is_sending[number] = True
        self.jobs[number].sender.begin(self.jobs[number].packets)
        self._send(number)

    def _send(self, number: int) -> None:
        sender = self.jobs[number].sender
        for packet in [*sender.on_time(self.now), *sender.poll(self.now)]:
            if self._is_busy and len(self._queue) >= self.link.queue_packets:
                self.dropped += 1
                continue
            self._queue.append((number, packet))
            if not self._is_busy:
                self._transmit()
        if sender.deadline is not None:
            self._schedule(sender.deadline, _TIMER, number)

    def _transmit(self) -> None:
        self._is_busy = bool(self._queue)
        if self._queue:
            number, packet = self._queue.popleft()
            self._schedule(self.now + self.link.time_s(packet), _SENT, number, packet)

    def _finish_sending(self, number: int, packet: bytes) -> None:
        self._schedule(self.now + self.link.delay_s, _DATA, number, packet)
        self._transmit()

    def _receive_data(self, number: int, packet: bytes) -> None:
        answer = self._receivers[number].on_packet(packet)
        if answer is not None:
            self._schedule(self.now + self.link.delay_s, _ACK, number, answer)

    def _receive_ack(self, number: int, packet: bytes) -> None:
        job = self.jobs[number]
        job.sender.on_packet(packet, self.now)
        if self._is_sending[number] and job.sender.is_done:
            self._is_sending[number] = False
            self._begins[number].append(self.now)
            self._schedule(self.now + job.compute_s, _JOB, number)
        else:
            self._send(number)

    def _expire_timer(self, number: int, _packet: bytes) -> None:
        sender = self.jobs[number].sender
        if sender.deadline is not None and self.now >= sender.deadline:
            self._send(number)
