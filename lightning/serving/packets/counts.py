"""Counters of packets by outcome. Every received packet has exactly one outcome."""

from __future__ import annotations

from dataclasses import asdict, dataclass

UNHANDLED, ANSWERED, REPLAYED, FAILED, LATE = range(5)
"""Outcomes of the compiled fast path. It leaves `UNHANDLED` packets to Python."""


@dataclass(slots=True)
class PacketCounts:
    """Counters of packets. Between two packets, `received` is the sum of all others except `overrun`."""

    received: int = 0
    """Datagrams that the server received from its socket."""
    answered: int = 0
    replayed: int = 0
    """Duplicate fragments, and requests whose number the peer used recently, which are answered again."""
    late: int = 0
    """Requests whose deadline had passed, before or after the model ran."""
    malformed: int = 0
    unknown_model: int = 0
    refused: int = 0
    """Requests with numbers that the model does not accept."""
    busy: int = 0
    """Requests that arrived while too many others waited."""
    failed: int = 0
    """Requests for which the model failed, or whose answer could not be sent."""
    joined: int = 0
    """Fragments of complete requests. The last fragment does not count, because it has the request's outcome."""
    waiting: int = 0
    """Fragments of incomplete requests, and requests that wait for their models."""
    dropped: int = 0
    """Fragments discarded because their request was not complete in time, or memory ran out."""
    overrun: int = 0
    """Datagrams that the kernel discarded because the socket's buffer was full. They are not in `received`."""

    @property
    def is_balanced(self) -> bool:
        """True if every received packet has an outcome or waits."""
        return self.received == sum(self.count_by_outcome().values()) - self.overrun + self.waiting

    def count_by_outcome(self) -> dict[str, int]:
        """Return all counters that never decrease, except `received`, by outcome."""
        return {name: count for name, count in asdict(self).items() if name not in {"received", "waiting"}}
