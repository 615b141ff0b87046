"""Time of a message besides its bytes: connection, flight, packets, acknowledgement.

One set of constants serves every graph and every fabric: the constants of the packet-level simulator whose results are
the reference (FlexNetPacket, commit 461b21f), read from its source before any comparison:

| constant | value | source and meaning |
|---|---|---|
| `link_delay_s` | 1 us | `-rttrack 1000 -rttnet 1000`, `-rtt 1000`: ns of every link's pipe, one way |
| `packet_bytes` | 8,936 | `DEFAULT_PACKET_SIZE - DEFAULT_HEADER_SIZE`; headers take no time, packets are full |
| `handshake_count` | 1 | every message is a new connection, which waits for the reply to its SYN |
| acknowledgement | one way back | a message ends when its sender has the acknowledgement of the last packet |
| `relay_delay_s` | 0 | a host that forwards is a queue and a pipe, like a switch |
| `max_single_round_bytes` | 9,000 | an AllReduce of fewer bytes per member is one exchange of 2(g-1)/g of them |

The window of that simulator starts at 100 packets, 893,600 bytes, and grows from there. At 100 Gbit/s and a round trip
of 12 us (six links each way), 150,000 bytes fill the path. No window limits a flow, so windows are not modelled here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Latency:
    """Constants of the time model; the module docstring has the sources of the defaults.

    `software_delay_s` is the software time of a host for each message; the packet simulator has none. Set
    `relay_delay_s` and `software_delay_s` to model measured hosts.

    >>> round(Latency().compute_head_s(6, relays=0) * 1e6, 3)  # six links there and back
    12.0
    >>> round(Latency().compute_tail_s(6, relays=0, crossing_s=5 * 8936 * 8 / 1e11) * 1e6, 3)
    15.574
    """

    link_delay_s: float = 1e-6
    packet_bytes: int = 8936
    handshake_count: int = 1
    has_acknowledgement: bool = True
    relay_delay_s: float = 0.0
    software_delay_s: float = 0.0
    max_single_round_bytes: int = 9000

    def __post_init__(self) -> None:
        times = {
            "link_delay_s": self.link_delay_s,
            "relay_delay_s": self.relay_delay_s,
            "software_delay_s": self.software_delay_s,
        }
        for name, value in times.items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} is {value}: a latency must be finite and 0 s or more")
        if self.packet_bytes < 1:
            raise ValueError(f"packet_bytes is {self.packet_bytes}: it must be at least 1")
        if min(self.handshake_count, self.max_single_round_bytes) < 0:
            raise ValueError(
                f"handshake_count is {self.handshake_count} and max_single_round_bytes {self.max_single_round_bytes}:"
                " both must be 0 or more"
            )

    def compute_wire_bytes(self, payload_bytes: Integers) -> Integers:
        """Return the bytes of the whole packets that carry each message; a message of 0 bytes needs no packet.

        >>> Latency().compute_wire_bytes(np.array([0, 1, 8936, 8937])).tolist()
        [0, 8936, 8936, 17872]
        """
        packets: Integers = -(-np.asarray(payload_bytes, dtype=np.int64) // self.packet_bytes)
        return packets * self.packet_bytes

    def compute_head_s(self, hops: Any, relays: Any) -> Any:
        """Return the time from the send call until the first byte leaves: software and handshake.

        Arguments are numbers or arrays.
        """
        return self.software_delay_s + self.handshake_count * 2 * self._compute_one_way_s(hops, relays)

    def compute_tail_s(self, hops: Any, relays: Any, crossing_s: Any) -> Any:
        """Return the time from the departure of the last byte until it has arrived and, by default, is acknowledged.

        `crossing_s` is the time to send one packet over the other links of the path (store and forward). Arguments are
        numbers or arrays.
        """
        flights = 2 if self.has_acknowledgement else 1
        return crossing_s + flights * self._compute_one_way_s(hops, relays)

    def _compute_one_way_s(self, hops: Any, relays: Any) -> Any:
        return hops * self.link_delay_s + relays * self.relay_delay_s


NO_LATENCY = Latency(
    link_delay_s=0.0,
    packet_bytes=1,
    handshake_count=0,
    has_acknowledgement=False,
    relay_delay_s=0.0,
    software_delay_s=0.0,
    max_single_round_bytes=0,
)
"""Zero latency, so that only bytes take time: for closed forms, lower bounds and tests."""
