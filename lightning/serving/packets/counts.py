"""Outcomes of packets: every one that came has one."""

from __future__ import annotations

from dataclasses import asdict, dataclass

LEFT, ANSWERED, REPLAYED, FAILED, LATE = range(5)
"""Outcomes that machine code gives: left to Python, and those below."""


@dataclass(slots=True)
class PacketCounts:
    """`received` is the sum of all others but `overrun`, at any time between two packets."""

    received: int = 0
    """Datagrams that the server took from its socket."""
    answered: int = 0
    replayed: int = 0
    """Requests with a number that this peer had used lately; answered again. Fragments that were there already, too."""
    late: int = 0
    """Requests whose deadline had passed, before or after the model ran."""
    malformed: int = 0
    unknown_model: int = 0
    refused: int = 0
    """Requests with numbers that the model does not take."""
    busy: int = 0
    """Requests that found too many others waiting."""
    failed: int = 0
    """Requests at which the model failed, or whose answer the network did not take."""
    joined: int = 0
    """Fragments that others followed; the last of a request has the outcome of the request."""
    waiting: int = 0
    """Fragments whose others have not come yet, and requests whose models have not had the time yet."""
    dropped: int = 0
    """Fragments that were given up: the others did not come in time, or memory ran out."""
    overrun: int = 0
    """Datagrams that the kernel threw away because the socket's memory was full; never received."""

    @property
    def balanced(self) -> bool:
        """Return whether nothing was lost in between."""
        return self.received == sum(self.outcomes().values()) - self.overrun + self.waiting

    def outcomes(self) -> dict[str, int]:
        """Return what only ever grows, by outcome."""
        return {name: count for name, count in asdict(self).items() if name not in {"received", "waiting"}}
