"""A reliable bulk transfer over UDP with a congestion control of its own: Reno or CUBIC, each plain or as MLTCP.

The machines `Sender` and `Receiver` take packets and times and give packets: they know no sockets and no clock, so that
they run against a simulated link as well. Every transmission has a number of its own, and an acknowledgement names the
largest number received and the 64 before it; a number is lost when one sent three later has arrived. Standard library
only: this file is copied to the hosts.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

DATA = struct.Struct("!BxxxQQd")
ACK = struct.Struct("!BxxxQQd")
_DATA, _ACK = 1, 2
PAYLOAD = 1400
LATER = 3
MIN_RTO_S = 0.02
MAX_RTO_S = 1.0
INITIAL_WINDOW = 10.0
CUBIC_C, CUBIC_BETA = 0.4, 0.7


@dataclass(slots=True)
class Reno:
    """Additive increase by `gain` segments a round trip, window halved on a loss."""

    window: float = INITIAL_WINDOW
    threshold: float = math.inf

    def on_ack(self, gain: float, _now: float, _rtt_s: float) -> None:
        """Grow by a segment in slow start, else by a window's part of `gain`."""
        self.window += 1.0 if self.window < self.threshold else gain / self.window

    def on_loss(self, _now: float) -> None:
        """Halve the window: once for all losses of a round trip."""
        self.threshold = self.window = max(2.0, self.window / 2)

    def on_timeout(self, now: float) -> None:
        """Begin again with one segment."""
        self.on_loss(now)
        self.window = 1.0


@dataclass(slots=True)
class Cubic:
    """CUBIC as RFC 9438 has it, without fast convergence; `gain` scales each step towards its curve."""

    window: float = INITIAL_WINDOW
    threshold: float = math.inf
    largest: float = 0.0
    began: float | None = None
    origin_s: float = 0.0
    friendly: float = 0.0

    def on_ack(self, gain: float, now: float, rtt_s: float) -> None:
        """Grow by a segment in slow start, else towards the cubic curve, and no slower than Reno."""
        if self.window < self.threshold:
            self.window += 1.0
            return
        if self.began is None:
            self.began, self.friendly = now, self.window
            self.origin_s = math.cbrt(max(self.largest - self.window, 0.0) / CUBIC_C)
            self.largest = max(self.largest, self.window)
        curve = CUBIC_C * (now - self.began + rtt_s - self.origin_s) ** 3 + self.largest
        target = min(max(curve, self.window), 1.5 * self.window)
        self.friendly += gain * 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA) / self.window
        self.window = max(self.window + gain * (target - self.window) / self.window, self.friendly)

    def on_loss(self, _now: float) -> None:
        """Take 0.7 of the window and begin a new curve."""
        self.largest, self.began = self.window, None
        self.threshold = self.window = max(2.0, self.window * CUBIC_BETA)

    def on_timeout(self, now: float) -> None:
        """Begin again with one segment."""
        self.on_loss(now)
        self.window = 1.0


CONTROLS: dict[str, Callable[[], Reno | Cubic]] = {"reno": Reno, "cubic": Cubic}


@dataclass(frozen=True, slots=True)
class Gain:
    """MLTCP's F of the part of an iteration's bytes that has been acknowledged; the default is 1 throughout.

    >>> Gain(1.75, 0.25).at(0.5)
    1.125
    """

    slope: float = 0.0
    intercept: float = 1.0

    def at(self, ratio: float) -> float:
        """Return F of a ratio, of 1 at most."""
        return self.slope * min(ratio, 1.0) + self.intercept


@dataclass(slots=True)
class RoundTrip:
    """Smoothed round trip and the retransmission timeout from it (RFC 6298)."""

    smoothed_s: float = 0.0
    variation_s: float = 0.0
    backoff: int = 0

    def measure(self, sample_s: float) -> None:
        """Take a sample into the means."""
        if not self.smoothed_s:
            self.smoothed_s, self.variation_s = sample_s, sample_s / 2
        self.variation_s += 0.25 * (abs(self.smoothed_s - sample_s) - self.variation_s)
        self.smoothed_s += 0.125 * (sample_s - self.smoothed_s)
        self.backoff = 0

    @property
    def timeout_s(self) -> float:
        """Time after which what was sent last is taken for lost."""
        measured = self.smoothed_s + 4 * self.variation_s if self.smoothed_s else 10 * MIN_RTO_S
        return float(min(max(measured, MIN_RTO_S) * 2**self.backoff, MAX_RTO_S))


@dataclass(slots=True)
class Sender:
    """Sending end: `begin` a transfer, `poll` packets, feed acknowledgements and the time."""

    control: Reno | Cubic
    gain: Gain = field(default_factory=Gain)
    retransmits: int = 0
    timeouts: int = 0
    _round_trip: RoundTrip = field(default_factory=RoundTrip)
    _waiting: deque[int] = field(default_factory=deque)
    _flying: dict[int, tuple[int, float]] = field(default_factory=dict)
    _number: int = 0
    _first: int = 0
    _chunks: int = 0
    _done: set[int] = field(default_factory=set)
    _recovery: int = 0
    _deadline: float | None = None

    def begin(self, chunks: int) -> None:
        """Begin an iteration's transfer of so many packets; window and round trip stay as they are."""
        self._first += self._chunks
        self._chunks = chunks
        self._waiting = deque(range(self._first, self._first + chunks))
        self._flying.clear()
        self._done.clear()
        self._deadline = None

    @property
    def is_done(self) -> bool:
        """True when all packets of the transfer have been acknowledged."""
        return len(self._done) == self._chunks

    @property
    def unacknowledged(self) -> str:
        """Packets of the transfer that are not acknowledged, and of how many, in words."""
        return f"{self._chunks - len(self._done)} of {self._chunks}"

    @property
    def deadline(self) -> float | None:
        """Time at which `on_time` is due."""
        return self._deadline

    def poll(self, now: float) -> list[bytes]:
        """Return the packets that the window has room for."""
        packets = []
        while self._waiting and len(self._flying) < int(max(self.control.window, 1.0)):
            chunk = self._waiting.popleft()
            if chunk in self._done:
                continue
            self._flying[self._number] = (chunk, now)
            packets.append(DATA.pack(_DATA, self._number, chunk, now) + bytes(PAYLOAD))
            self._number += 1
        if packets:
            self._deadline = now + self._round_trip.timeout_s
        return packets

    def on_packet(self, packet: bytes, now: float) -> None:
        """Take an acknowledgement; anything else is ignored."""
        if len(packet) < ACK.size or packet[0] != _ACK:
            return
        _, largest, earlier, sent = ACK.unpack_from(packet)
        if largest in self._flying:
            self._round_trip.measure(now - sent)
        numbers = [largest, *(largest - 1 - bit for bit in range(64) if earlier >> bit & 1)]
        for number in numbers:
            if number in self._flying:
                self._done.add(self._flying.pop(number)[0])
                ratio = len(self._done) / self._chunks
                if number >= self._recovery:
                    self.control.on_ack(self.gain.at(ratio), now, self._round_trip.smoothed_s)
        self._lose([number for number in self._flying if number <= largest - LATER], now)
        self._deadline = now + self._round_trip.timeout_s if self._flying else None

    def on_time(self, now: float) -> None:
        """Take all that is under way for lost, if its time is over."""
        if self._deadline is None or now < self._deadline:
            return
        self.timeouts += 1
        self._round_trip.backoff += 1
        self._again(list(self._flying))
        self._recovery = self._number
        self.control.on_timeout(now)
        self._deadline = now + self._round_trip.timeout_s

    def _lose(self, numbers: list[int], now: float) -> None:
        if not numbers:
            return
        newest = max(numbers)
        self._again(numbers)
        if newest >= self._recovery:
            self._recovery = self._number
            self.control.on_loss(now)

    def _again(self, numbers: list[int]) -> None:
        self.retransmits += len(numbers)
        for number in sorted(numbers, reverse=True):
            self._waiting.appendleft(self._flying.pop(number)[0])


@dataclass(slots=True)
class Receiver:
    """Receiving end: acknowledges every packet of data, and counts the different ones."""

    received: int = 0
    duplicates: int = 0
    _largest: int = -1
    _earlier: int = 0
    _next: int = 0
    _ahead: set[int] = field(default_factory=set)

    def on_packet(self, packet: bytes) -> bytes | None:
        """Return the acknowledgement of a packet of data; None for anything else."""
        if len(packet) < DATA.size or packet[0] != _DATA:
            return None
        _, number, chunk, sent = DATA.unpack_from(packet)
        self._note(number)
        if chunk < self._next or chunk in self._ahead:
            self.duplicates += 1
        else:
            self.received += 1
            self._ahead.add(chunk)
            while self._next in self._ahead:
                self._ahead.remove(self._next)
                self._next += 1
        return ACK.pack(_ACK, self._largest, self._earlier, sent)

    def _note(self, number: int) -> None:
        if number > self._largest:
            gap = number - self._largest
            seen = self._earlier << gap | (1 << gap - 1 if self._largest >= 0 else 0)
            self._earlier, self._largest = seen & (1 << 64) - 1, number
        elif self._largest - number <= 64 and number < self._largest:
            self._earlier |= 1 << self._largest - number - 1


def sender(control: str, slope: float = 0.0, intercept: float = 1.0) -> Sender:
    """Return a sender with a control by its name; a slope above 0 makes it MLTCP. Raises `KeyError` for others."""
    return Sender(CONTROLS[control](), Gain(slope, intercept))


def transfer(
    near: socket.socket, sending: Sender, give_up_s: float, clock: Callable[[], float] = time.monotonic
) -> None:
    """Carry out the transfer that was begun over a connected socket. Raises `TimeoutError` after `give_up_s`."""
    end = clock() + give_up_s
    while not sending.is_done:
        now = clock()
        if now > end:
            left = sending.unacknowledged
            raise TimeoutError(
                f"{left} packets are not acknowledged after {give_up_s:g} s: check the other host"
            )
        sending.on_time(now)
        for packet in sending.poll(now):
            with suppress(OSError):  # a full socket buffer loses a packet as a full link does
                near.send(packet)
        wait_s = min(max((sending.deadline or now) - now, 0.0), MIN_RTO_S)
        while select.select([near], [], [], wait_s)[0]:
            with suppress(OSError):
                sending.on_packet(near.recv(2048), clock())
            wait_s = 0.0


def answer(far: socket.socket, receiver: Receiver, is_over: Callable[[], bool]) -> None:
    """Acknowledge what arrives on a bound socket until `is_over`."""
    while not is_over():
        if select.select([far], [], [], 0.05)[0]:
            packet, sender_address = far.recvfrom(2048)
            if (acknowledgement := receiver.on_packet(packet)) is not None:
                far.sendto(acknowledgement, sender_address)
