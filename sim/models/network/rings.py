"""Flow-level performance of ring AllReduce: the limits of links, relays and host software.

Rings are fluid: a ring moves as fast as its slowest hop, and rings that meet on a link share it fairly. The latency of
messages is added. The model has no packets, loss or slow start, so the estimate is a lower bound, which real transfers
approach as messages grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: IPv4 (20) and TCP with timestamps (32) in every packet.
HEADER_BYTES = 52
#: Ethernet header, which the kernel's token bucket counts; a real wire adds 24 bytes (checksum, preamble, gap).
FRAMING_BYTES = 14


def compute_wire_efficiency(
    mtu_bytes: int, *, header_bytes: int = HEADER_BYTES, framing_bytes: int = FRAMING_BYTES
) -> float:
    """Return the payload bytes per byte on the wire, for full packets.

    >>> round(compute_wire_efficiency(9000), 4)
    0.9927
    """
    return (mtu_bytes - header_bytes) / (mtu_bytes + framing_bytes)


@dataclass(frozen=True, slots=True)
class Network:
    """A network of equal links and equal hosts.

    `rate_mbps` is the wire rate of a link, `efficiency` the payload per wire byte (default: MTU 9000). The default
    times are medians measured on Linux hosts in namespaces of one two-core machine: `link_latency_s` and
    `relay_latency_s` from a TCP ping-pong over one link (round trip 13.2 us) and through one forwarding host
    (19.2 us); `message_overhead_s` is the processor time of torch's Gloo ring per step and rank (0.24 to 0.29 ms from
    1 KiB to 1 MiB, 12 ranks).
    """

    rate_mbps: float
    efficiency: float = compute_wire_efficiency(9000)
    link_latency_s: float = 6.6e-6
    relay_latency_s: float = 3.0e-6
    message_overhead_s: float = 280e-6

    def __post_init__(self) -> None:
        if self.rate_mbps <= 0:
            raise ValueError(f"rate_mbps is {self.rate_mbps}: a link's rate must be above 0")
        if not 0 < self.efficiency <= 1:
            raise ValueError(f"efficiency is {self.efficiency}: payload per wire byte must lie in (0, 1]")
        if min(self.link_latency_s, self.relay_latency_s, self.message_overhead_s) < 0:
            raise ValueError(
                f"link_latency_s is {self.link_latency_s}, relay_latency_s {self.relay_latency_s} and "
                f"message_overhead_s {self.message_overhead_s}: all must be 0 s or more"
            )

    def compute_path_latency_s(self, hops: int) -> float:
        """Return the time of flight of a small message over `hops` links, forwarded by the hosts between them."""
        return hops * self.link_latency_s + (hops - 1) * self.relay_latency_s


@dataclass(frozen=True, slots=True)
class RingTraffic:
    """A ring of an AllReduce: `paths[k]` are the numbers of the links from `members[k]` to the next member.

    `size_bytes` is the size of the part of the tensor that this ring reduces.
    """

    members: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    size_bytes: float

    @property
    def step_count(self) -> int:
        """Number of consecutive messages: n-1 to reduce and scatter, n-1 to gather."""
        return 2 * (len(self.members) - 1)

    @property
    def bytes_per_hop(self) -> float:
        """Bytes that every member sends to the next member: 2(n-1)/n of the ring's part."""
        return self.step_count / len(self.members) * self.size_bytes


def compute_allreduce_time_s(rings: Sequence[RingTraffic], network: Network) -> float:
    """Return the time until the last of concurrent rings ends; 0 without rings.

    The data takes `compute_transfer_times_s`. Each step of a ring adds the flight over its longest path, and the
    software overhead of all rings that its busiest member serves.

    By hand: two hosts, 1 MB, a link each way at 1000 Mbit/s: each host sends 1 MB, which takes 8 ms.

    >>> ideal = Network(1000, efficiency=1, link_latency_s=0, message_overhead_s=0)
    >>> compute_allreduce_time_s([RingTraffic((0, 1), ((0,), (1,)), 1e6)], ideal)
    0.008
    """
    if not rings:
        return 0.0
    rings_by_member = Counter(member for ring in rings for member in ring.members)
    data_s = compute_transfer_times_s(rings, network)
    return max(
        float(data_s[index]) + _sum_step_times_s(ring, rings_by_member, network)
        for index, ring in enumerate(rings)
    )


def compute_bus_bandwidth_limit_mbps(rings: Sequence[RingTraffic], network: Network) -> float:
    """Return the bus bandwidth of a large AllReduce, which is limited by the wires alone.

    Bus bandwidth as in nccl-tests: 2(n-1)/n times the bits of the whole tensor of a member, divided by the time. Rings
    with the same set of members share a tensor. With several groups, return the lowest of their bandwidths. Raise
    `ValueError` without rings.
    """
    times = compute_transfer_times_s(rings, network)
    sent_bytes: dict[frozenset[int], float] = {}
    end_s: dict[frozenset[int], float] = {}
    for index, ring in enumerate(rings):
        members = frozenset(ring.members)
        sent_bytes[members] = sent_bytes.get(members, 0.0) + ring.bytes_per_hop
        end_s[members] = max(end_s.get(members, 0.0), float(times[index]))
    return min(sent_bytes[members] * 8 / end_s[members] / 1e6 for members in sent_bytes)


def compute_transfer_times_s(rings: Sequence[RingTraffic], network: Network) -> NDArray[np.float64]:
    """Return the time at which the data of each concurrent ring has moved, shape (rings,).

    When a ring ends, the other rings share its bandwidth.
    """
    usage = compute_link_usage(rings)
    bits_left = np.array([ring.bytes_per_hop * 8 for ring in rings])
    capacity_bps = network.rate_mbps * 1e6 * network.efficiency
    times = np.zeros(len(rings))
    now_s = 0.0
    is_active = bits_left > 0
    while is_active.any():
        rates = compute_fair_rates(usage[:, is_active], capacity_bps)
        finish_s = bits_left[is_active] / rates
        now_s += float(finish_s.min())
        # Rings that end within rounding errors of each other end together, without tiny remainders.
        remaining_bits = bits_left[is_active] - rates * finish_s.min()
        bits_left[is_active] = np.where(finish_s <= finish_s.min() * (1 + 1e-12), 0.0, remaining_bits)
        has_ended = is_active & (bits_left <= 0)
        times[has_ended] = now_s
        is_active &= ~has_ended
    return times


def compute_link_usage(rings: Sequence[RingTraffic]) -> NDArray[np.float64]:
    """Return how many hops of each ring use each link, shape (links, rings)."""
    links = 1 + max((link for ring in rings for path in ring.paths for link in path), default=-1)
    usage = np.zeros((links, len(rings)))
    for column, ring in enumerate(rings):
        for path in ring.paths:
            for link in path:
                usage[link, column] += 1
    return usage


def compute_fair_rates(usage: NDArray[np.float64], capacity: float) -> NDArray[np.float64]:
    """Return max-min fair rates (flows,) of flows that use link l `usage[l, f]` times.

    Water filling: all rates rise together, and the flows on a link stop rising when it is full (Bertsekas and
    Gallager, Data Networks, 6.5.2). A flow that uses no link has an infinite rate.

    Flow 1 crosses both links, and flow 2 crosses link 1 twice: link 1 is full when both have 1, which leaves 2 of
    link 0 for flow 0.

    >>> compute_fair_rates(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), 3.0).tolist()
    [2.0, 1.0, 1.0]
    """
    rates = np.full(usage.shape[1], np.inf)
    is_rising = usage.any(axis=0)
    room = np.full(usage.shape[0], float(capacity))
    while is_rising.any():
        demand = usage[:, is_rising].sum(axis=1)
        level = np.divide(room, demand, out=np.full(room.shape, np.inf), where=demand > 0)
        is_full = level <= level.min() * (1 + 1e-12)
        is_stopped = is_rising & usage[is_full].any(axis=0)
        rates[is_stopped] = level.min()
        room = np.maximum(room - usage[:, is_stopped].sum(axis=1) * level.min(), 0.0)
        is_rising &= ~is_stopped
    return rates


def _sum_step_times_s(ring: RingTraffic, rings_by_member: Counter[int], network: Network) -> float:
    """Return the time of messages besides their bytes, over all steps of a ring."""
    flight_s = max(network.compute_path_latency_s(len(path)) for path in ring.paths)
    ring_count = max(rings_by_member[member] for member in ring.members)
    return ring.step_count * (flight_s + ring_count * network.message_overhead_s)
