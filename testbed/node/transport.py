"""A reliable bulk transfer over UDP with its own congestion control: Reno or CUBIC, each plain or as MLTCP.

`Sender` and `Receiver` are pure state machines: they take packets and times, and return packets. They use no sockets
and no clock, so they also run against a simulated link. Every transmission has its own number. An acknowledgement
names the largest number received, and which of the 64 numbers before it arrived. A transmission is lost if another one
has arrived whose number is higher by three, or which was sent a quarter of a round trip later. After two silent round
trips, the sender repeats its last packet as a probe (RFC 8985), so that a loss at the end of a burst does not wait for
the retransmission timeout. Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

try:
    from testbed.node.congestion import CONGESTION_CONTROLS, Cubic, MltcpGain, Reno
except ModuleNotFoundError:  # a copy on a host, beside a copy of that file
    sys.path.insert(0, str(Path(__file__).parent))
    from congestion import CONGESTION_CONTROLS, Cubic, MltcpGain, Reno  # type: ignore[import-not-found,no-redef]

DATA_FORMAT = struct.Struct("!BxxxQQd")
ACK_FORMAT = struct.Struct("!BxxxQQd")
_DATA_TYPE, _ACK_TYPE = 1, 2
PAYLOAD_BYTES = 1400
_ZEROS = bytes(PAYLOAD_BYTES)
REORDERING_LIMIT = 3
MIN_RTO_S = 0.02
MAX_RTO_S = 1.0
MIN_PROBE_DELAY_S = 0.001
"""Time that is added to two round trips before a silent connection is probed."""


@dataclass(slots=True)
class RoundTripEstimate:
    """Smoothed round trip and the retransmission timeout from it (RFC 6298)."""

    smoothed_s: float = 0.0
    variation_s: float = 0.0
    backoff: int = 0

    def add_sample(self, sample_s: float) -> None:
        """Add a sample to the means."""
        if not self.smoothed_s:
            self.smoothed_s, self.variation_s = sample_s, sample_s / 2
        self.variation_s += 0.25 * (abs(self.smoothed_s - sample_s) - self.variation_s)
        self.smoothed_s += 0.125 * (sample_s - self.smoothed_s)
        self.backoff = 0

    @property
    def timeout_s(self) -> float:
        """Time after which the last packets count as lost."""
        measured_s = self.smoothed_s + 4 * self.variation_s if self.smoothed_s else 10 * MIN_RTO_S
        return float(min(max(measured_s, MIN_RTO_S) * 2**self.backoff, MAX_RTO_S))

    @property
    def probe_delay_s(self) -> float:
        """Time after which a silent connection is probed."""
        return (
            min(2 * self.smoothed_s + MIN_PROBE_DELAY_S, self.timeout_s)
            if self.smoothed_s
            else self.timeout_s
        )


@dataclass(slots=True)
class Sender:
    """Sending end: `begin` a transfer, `poll` packets, feed acknowledgements and the time."""

    congestion_control: Reno | Cubic
    gain: MltcpGain = field(default_factory=MltcpGain)
    retransmit_count: int = 0
    timeout_count: int = 0
    probe_count: int = 0
    _round_trip: RoundTripEstimate = field(default_factory=RoundTripEstimate)
    _waiting_chunks: deque[int] = field(default_factory=deque)
    _in_flight_by_number: dict[int, tuple[int, float]] = field(default_factory=dict)
    _next_number: int = 0
    _first_chunk: int = 0
    _chunk_count: int = 0
    _acknowledged_chunks: set[int] = field(default_factory=set)
    _recovery_number: int = 0
    _deadline_s: float | None = None
    _is_probing: bool = False

    def begin(self, chunk_count: int) -> None:
        """Begin a transfer of `chunk_count` packets. Window and round trip keep their values."""
        self._first_chunk += self._chunk_count
        self._chunk_count = chunk_count
        self._waiting_chunks = deque(range(self._first_chunk, self._first_chunk + chunk_count))
        self._in_flight_by_number.clear()
        self._acknowledged_chunks.clear()
        self._deadline_s, self._is_probing = None, False

    @property
    def is_done(self) -> bool:
        """True when all packets of the transfer have been acknowledged."""
        return len(self._acknowledged_chunks) == self._chunk_count

    @property
    def unacknowledged_text(self) -> str:
        """Number of packets that are not acknowledged, as text such as `3 of 20`."""
        return f"{self._chunk_count - len(self._acknowledged_chunks)} of {self._chunk_count}"

    @property
    def deadline_s(self) -> float | None:
        """Time at which `on_time` is due."""
        return self._deadline_s

    @property
    def has_waiting_chunks(self) -> bool:
        """True while packets wait to be sent."""
        return bool(self._waiting_chunks)

    def poll(self, now_s: float, max_packets: int | None = None) -> list[bytes]:
        """Return the packets that the window allows, but at most `max_packets`."""
        packets: list[bytes] = []
        while self._waiting_chunks and len(self._in_flight_by_number) < int(
            max(self.congestion_control.window, 1.0)
        ):
            if max_packets is not None and len(packets) >= max_packets:
                break
            chunk = self._waiting_chunks.popleft()
            if chunk in self._acknowledged_chunks:
                continue
            packets.append(self._make_packet(chunk, now_s))
        if packets:
            self._schedule_probe(now_s)
        return packets

    def _make_packet(self, chunk: int, now_s: float) -> bytes:
        self._in_flight_by_number[self._next_number] = (chunk, now_s)
        packet = DATA_FORMAT.pack(_DATA_TYPE, self._next_number, chunk, now_s) + _ZEROS
        self._next_number += 1
        return packet

    def _schedule_probe(self, now_s: float) -> None:
        """Set the time at which the connection is probed if no acknowledgement comes before."""
        self._deadline_s, self._is_probing = now_s + self._round_trip.probe_delay_s, False

    def on_packet(self, packet: bytes, now_s: float) -> None:
        """Process an acknowledgement; ignore other packets."""
        if len(packet) < ACK_FORMAT.size or packet[0] != _ACK_TYPE:
            return
        _, largest_number, earlier_bits, sent_s = ACK_FORMAT.unpack_from(packet)
        if largest_number in self._in_flight_by_number:
            self._round_trip.add_sample(now_s - sent_s)
        # Bit i stands for the transmission `largest_number - i`.
        received_bits = earlier_bits << 1 | 1
        lost_before_s = sent_s - self._round_trip.smoothed_s / 4
        lost_numbers = []
        for number in list(self._in_flight_by_number):
            number_distance = largest_number - number
            if number_distance < 0:
                continue
            if received_bits >> number_distance & 1:
                self._acknowledge(number, now_s)
            elif number_distance >= REORDERING_LIMIT or self._in_flight_by_number[number][1] < lost_before_s:
                lost_numbers.append(number)
        self._handle_losses(lost_numbers, now_s)
        if self._in_flight_by_number:
            self._schedule_probe(now_s)
        else:
            self._deadline_s = None

    def _acknowledge(self, number: int, now_s: float) -> None:
        """Record that a packet has arrived."""
        self._acknowledged_chunks.add(self._in_flight_by_number.pop(number)[0])
        if number >= self._recovery_number:
            acked_share = len(self._acknowledged_chunks) / self._chunk_count
            self.congestion_control.on_ack(
                self.gain.evaluate(acked_share), now_s, self._round_trip.smoothed_s
            )

    def on_time(self, now_s: float) -> list[bytes]:
        """Return a probe for a silent connection. If the last probe got no answer, count packets in flight as lost."""
        if self._deadline_s is None or now_s < self._deadline_s:
            return []
        if not self._is_probing and self._in_flight_by_number and self._round_trip.smoothed_s:
            self._is_probing = True
            self._deadline_s = now_s + self._round_trip.timeout_s
            self.probe_count += 1
            return [self._make_packet(self._in_flight_by_number[max(self._in_flight_by_number)][0], now_s)]
        self.timeout_count += 1
        self._round_trip.backoff += 1
        self._resend(list(self._in_flight_by_number))
        self._recovery_number = self._next_number
        self.congestion_control.on_timeout(now_s)
        self._deadline_s = now_s + self._round_trip.timeout_s
        return []

    def _handle_losses(self, numbers: list[int], now_s: float) -> None:
        if not numbers:
            return
        newest_number = max(numbers)
        self._resend(numbers)
        if newest_number >= self._recovery_number:
            self._recovery_number = self._next_number
            self.congestion_control.on_loss(now_s)

    def _resend(self, numbers: list[int]) -> None:
        for number in sorted(numbers, reverse=True):
            chunk, _ = self._in_flight_by_number.pop(number)
            if chunk not in self._acknowledged_chunks:
                self._waiting_chunks.appendleft(chunk)
                self.retransmit_count += 1


@dataclass(slots=True)
class Receiver:
    """Receiving end, which acknowledges every data packet and counts the distinct ones."""

    received_count: int = 0
    duplicate_count: int = 0
    _largest_number: int = -1
    _received_mask: int = 0
    _next_chunk: int = 0
    _out_of_order_chunks: set[int] = field(default_factory=set)

    def on_packet(self, packet: bytes) -> bytes | None:
        """Return the acknowledgement of a data packet, or None for other packets."""
        if len(packet) < DATA_FORMAT.size or packet[0] != _DATA_TYPE:
            return None
        _, number, chunk, sent_s = DATA_FORMAT.unpack_from(packet)
        self._record_number(number)
        if chunk < self._next_chunk or chunk in self._out_of_order_chunks:
            self.duplicate_count += 1
        else:
            self.received_count += 1
            self._out_of_order_chunks.add(chunk)
            while self._next_chunk in self._out_of_order_chunks:
                self._out_of_order_chunks.remove(self._next_chunk)
                self._next_chunk += 1
        return ACK_FORMAT.pack(_ACK_TYPE, self._largest_number, self._received_mask, sent_s)

    def _record_number(self, number: int) -> None:
        if number > self._largest_number:
            gap = number - self._largest_number
            received_bits = self._received_mask << gap | (1 << gap - 1 if self._largest_number >= 0 else 0)
            self._received_mask, self._largest_number = received_bits & (1 << 64) - 1, number
        elif self._largest_number - number <= 64 and number < self._largest_number:
            self._received_mask |= 1 << self._largest_number - number - 1


def make_sender(control: str, slope: float = 0.0, intercept: float = 1.0) -> Sender:
    """Return a sender with the named congestion control. A slope above 0 makes it MLTCP. Raises `KeyError`."""
    return Sender(CONGESTION_CONTROLS[control](), MltcpGain(slope, intercept))


def transfer(
    udp_socket: socket.socket, sender: Sender, timeout_s: float, clock: Callable[[], float] = time.monotonic
) -> None:
    """Run the transfer of `sender` over a connected socket. Raise `TimeoutError` after `timeout_s`."""
    end_s = clock() + timeout_s
    while not sender.is_done:
        now_s = clock()
        if now_s > end_s:
            unacknowledged_text = sender.unacknowledged_text
            raise TimeoutError(
                f"{unacknowledged_text} packets were not acknowledged within {timeout_s:g} s: check the other host"
            )
        for packet in [*sender.on_time(now_s), *sender.poll(now_s)]:
            with suppress(OSError):  # a full socket buffer loses a packet as a full link does
                udp_socket.send(packet)
        wait_s = min(max((sender.deadline_s or now_s) - now_s, 0.0), MIN_RTO_S)
        while select.select([udp_socket], [], [], wait_s)[0]:
            with suppress(OSError):
                sender.on_packet(udp_socket.recv(2048), clock())
            wait_s = 0.0


def acknowledge_packets(bound_socket: socket.socket, receiver: Receiver, is_over: Callable[[], bool]) -> None:
    """Acknowledge what arrives on a bound socket until `is_over`."""
    while not is_over():
        if select.select([bound_socket], [], [], 0.05)[0]:
            packet, sender_address = bound_socket.recvfrom(2048)
            if (acknowledgement := receiver.on_packet(packet)) is not None:
                bound_socket.sendto(acknowledgement, sender_address)
