"""State of connections whose packets wait in queues, and the numbers that say how they behave.

A message is a connection. Its packets go in *trains*: some packets of a connection one behind the other. A link serves
one train after another, first come first served, and a train goes on as soon as its first packet has been sent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.engine.program import Floats, Integers, integers

Flags = NDArray[np.bool_]
Table = NDArray[np.void]

EVENTS, SET, UNUSED, FREE, ACTIVE, SCANS = range(6)
"""Places in `Queues.number`: events that wait, and that were ever set; the first train that is not in use, and how
many are not; connections that are open; scans for timeouts so far."""


class Paths(NamedTuple):
    """Paths of each pair of nodes that sends; those of pair p are `pair_first[p]:pair_first[p + 1]`."""

    pair: Integers
    """(messages,) the pair of a message"""
    pair_first: Integers
    first: Integers
    """(paths + 1,) the links of path q are `links[first[q]:first[q + 1]]`"""
    links: Integers


class Transport(NamedTuple):
    """Numbers of the connections; times in seconds, windows in packets."""

    packet_bytes: int
    link_s: float
    relay_s: float
    window: float
    slow_start_until: float
    marks_above: float
    timeout_s: float
    scan_s: float
    train: int
    """packets of a train"""
    spare: int
    """trains that a single event may need"""
    seed: int


def _columns(**kinds: str) -> list[tuple[str, str]]:
    return list(kinds.items())


LINK = np.dtype(
    _columns(
        packet_s="f8", marks="?", waiting="i8", found="i8", serving="i8", sending="i8", head="i8", tail="i8"
    )
)
"""Time of a packet, whether the queue marks packets, packets that wait or are sent, and how many did when the
current train began; its packets (-1 while the link is idle) and itself; the trains that wait longest and shortest
(-1 for none)."""

TRAIN = np.dtype(
    _columns(message="i8", opened="i8", hop="i8", end="i8", count="i8", begin="i8")
    + _columns(marked="f8", tail_s="f8", sent_s="f8", following="i8")
)
"""Message, and which of its connections; next link and end of the path, in `Paths.links`; packets, and the first of
them (-1 for the request to connect); how many are marked; when the last one comes to the link; when it was sent; the
train that waits behind it, or is not in use either."""

EVENT = np.dtype(_columns(at_s="f8", order="i8", item="i8"))
"""A train that comes to its next link; -1 - link for a link that is free again."""

CONNECTION = np.dtype(
    _columns(path="i8", times_opened="i8", packets="i8", sent="i8", known="i8", is_open="?", place="i8")
    + _columns(
        window="f8", slow_start_until="f8", seen="f8", seen_marked="f8", seen_until="f8", marked_part="f8"
    )
    + _columns(round_trip_s="f8", deviation_s="f8", timeout_s="f8", first_timeout_s="f8", deadline_s="f8")
)
"""Path; packets of the message, sent, and known to have arrived; place in `Queues.active`; window; packets seen to have
arrived since the window was last looked at, how many were marked, when it is looked at again, the smoothed part of
marked ones; estimates of the round trip, timeout, and when it is due."""


class Queues(NamedTuple):
    """State of links, trains and connections."""

    number: Integers
    """(6,) counters, by the names above"""
    links: Table
    trains: Table
    events: Table
    """a heap, the earliest first"""
    connections: Table
    """one for each message"""
    active: Integers
    """the messages whose connections are open; the first `number[ACTIVE]`"""

    @property
    def events_seen(self) -> int:
        """Number of events so far."""
        return int(self.number[SET])


def fresh_queues(packet_s: Floats, marks: Flags, first_timeout_s: Floats, trains: int) -> Queues:
    """Return queues with nothing in them, and room for `trains` at once."""
    number = integers(6)
    number[FREE] = trains
    links = np.zeros(packet_s.size, LINK)
    links["packet_s"], links["marks"] = packet_s, marks
    links["serving"] = links["head"] = links["tail"] = -1
    room = np.zeros(trains, TRAIN)
    room["following"] = np.arange(1, trains + 1)
    connections = np.zeros(first_timeout_s.size, CONNECTION)
    connections["first_timeout_s"] = first_timeout_s
    events = np.zeros(trains + links.size + 1, EVENT)
    return Queues(number, links, room, events, connections, integers(first_timeout_s.size))


def with_more_trains(queues: Queues) -> Queues:
    """Return the same with room for twice as many trains."""
    before = queues.trains.size
    trains = np.concatenate([queues.trains, np.zeros(before, TRAIN)])
    trains["following"][before:] = np.arange(before + 1, 2 * before + 1)
    number = queues.number.copy()
    trains["following"][-1] = number[UNUSED]
    number[UNUSED] = before
    number[FREE] += before
    events = np.concatenate([queues.events, np.zeros(before, EVENT)])
    return queues._replace(number=number, trains=trains, events=events)
