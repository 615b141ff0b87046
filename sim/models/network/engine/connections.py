"""State of connections whose packets wait in queues, and the parameters of their transport.

Each message has its own connection. Its packets move in *trains*: consecutive packets of one connection. A link serves
trains in the order of their arrival, and a train arrives at the next link as soon as its first packet does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.engine.program import Floats, Integers, make_integers

Flags = NDArray[np.bool_]
Table = NDArray[np.void]

EVENTS, SET, UNUSED, FREE, ACTIVE, SCANS = range(6)
"""Indices into `Queues.counters`: pending events, and events set so far; the first unused train, and the number of
unused trains; open connections; scans for timeouts so far."""


class Paths(NamedTuple):
    """Paths of each pair of nodes with traffic; pair p has the paths `pair_first[p]:pair_first[p + 1]`."""

    pair_of_message: Integers
    """(messages,) the pair of a message"""
    pair_first: Integers
    first_link: Integers
    """(paths + 1,) path q has the links `links[first_link[q]:first_link[q + 1]]`"""
    links: Integers


class Transport(NamedTuple):
    """Parameters of all connections; times in seconds, windows and queue lengths in packets."""

    packet_bytes: int
    link_delay_s: float
    relay_delay_s: float
    initial_window: float
    slow_start_threshold: float
    mark_threshold: float
    timeout_s: float
    scan_period_s: float
    packets_per_train: int
    """the number of packets that are simulated as one"""
    max_trains_per_event: int
    """the largest number of trains that a single event may need"""
    seed: int


def _list_columns(**kinds: str) -> list[tuple[str, str]]:
    return list(kinds.items())


LINK = np.dtype(
    _list_columns(
        packet_s="f8", marks="?", waiting="i8", initial="i8", serving="i8", sending="i8", head="i8", tail="i8"
    )
)
"""`packet_s`: time to send a packet; `marks`: whether the queue marks packets; `waiting`: packets that wait or are
being sent, and `initial` their number when the current train began; `serving`: packets of the current train (-1 while
the link is idle), and `sending` the train; `head` and `tail`: first and last train of the queue (`head` is -1 if the
queue is empty)."""

TRAIN = np.dtype(
    _list_columns(message="i8", opened="i8", hop="i8", end="i8", count="i8", begin="i8")
    + _list_columns(marked="f8", tail_s="f8", sent_s="f8", following="i8")
)
"""`message`, and `opened`: which of its connections; `hop` and `end`: next link and end of the path, in `Paths.links`;
`count` packets from number `begin` on (-1: the request to connect); `marked`: how many have a mark; `tail_s`: when the
last packet arrives at the next link; `sent_s`: when the sender sent the train; `following`: the next train of the same
queue, or of the list of unused trains."""

EVENT = np.dtype(_list_columns(at_s="f8", order="i8", item="i8"))
"""An event at `at_s`: `item` is a train that arrives at its next link, or -1 - link for a link that becomes free."""

CONNECTION = np.dtype(
    _list_columns(path="i8", times_opened="i8", packets="i8", sent="i8", acked="i8", is_open="?", place="i8")
    + _list_columns(
        window="f8",
        slow_start_until="f8",
        arrivals="f8",
        marked_arrivals="f8",
        update_at_arrivals="f8",
        marked_part="f8",
    )
    + _list_columns(
        round_trip_s="f8", deviation_s="f8", timeout_s="f8", first_timeout_s="f8", deadline_s="f8"
    )
)
"""`path`; `packets` of the message, how many are `sent` and `acked`; `place` in `Queues.open_messages`; `window`;
`arrivals` since the last update of the marked part, and `marked_arrivals` among them; the next update is due at
`update_at_arrivals`; `marked_part`: the smoothed share of marked packets; estimates of round trip and its deviation;
the retransmission timeout, the timeout of the request (`first_timeout_s`), and the running `deadline_s`."""


class Queues(NamedTuple):
    """State of links, trains, events and connections."""

    counters: Integers
    """(6,) counters; the module's constants name the indices"""
    links: Table
    trains: Table
    events: Table
    """binary heap, the earliest first"""
    connections: Table
    """one for each message"""
    open_messages: Integers
    """messages whose connections are open; the first `counters[ACTIVE]` entries are valid"""

    @property
    def event_count(self) -> int:
        """Number of events so far."""
        return int(self.counters[SET])


def make_queues(packet_s: Floats, marks: Flags, first_timeout_s: Floats, train_count: int) -> Queues:
    """Return empty queues with capacity for `train_count` trains at a time."""
    counters = make_integers(6)
    counters[FREE] = train_count
    links = np.zeros(packet_s.size, LINK)
    links["packet_s"], links["marks"] = packet_s, marks
    links["serving"] = links["head"] = links["tail"] = -1
    train_table = np.zeros(train_count, TRAIN)
    train_table["following"] = np.arange(1, train_count + 1)
    connections = np.zeros(first_timeout_s.size, CONNECTION)
    connections["first_timeout_s"] = first_timeout_s
    events = np.zeros(train_count + links.size + 1, EVENT)
    return Queues(counters, links, train_table, events, connections, make_integers(first_timeout_s.size))


def enlarge_trains(queues: Queues) -> Queues:
    """Return the queues with capacity for twice as many trains."""
    train_count = queues.trains.size
    trains = np.concatenate([queues.trains, np.zeros(train_count, TRAIN)])
    trains["following"][train_count:] = np.arange(train_count + 1, 2 * train_count + 1)
    counters = queues.counters.copy()
    trains["following"][-1] = counters[UNUSED]
    counters[UNUSED] = train_count
    counters[FREE] += train_count
    events = np.concatenate([queues.events, np.zeros(train_count, EVENT)])
    return queues._replace(counters=counters, trains=trains, events=events)
