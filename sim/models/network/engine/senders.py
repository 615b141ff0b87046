"""Senders of connections: windows that grow with acknowledgements and shrink with marks, and timeouts.

As in the packet simulator that gave the reference figures (see `sim.models.network.execution.packets`):
acknowledgements take no time; the window begins at 100 packets, grows by each packet that arrives until the first
mark, then by one a window; once a window it shrinks by half of the smoothed part of marked packets (DCTCP: Alizadeh
et al., 2010).
"""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compiled
from sim.models.network.engine.connections import ACTIVE, Paths, Queues, Transport
from sim.models.network.engine.trains import send_train


@compiled
def connect(
    queues: Queues, paths: Paths, transport: Transport, message: int, packets: int, path: int, now_s: float
) -> None:
    """Open a connection: a request goes ahead, which waits in queues as packets do."""
    connection = queues.connections[message]
    connection["path"] = path
    connection["times_opened"] += 1
    connection["packets"] = packets
    connection["sent"] = connection["known"] = 0
    connection["is_open"] = False
    connection["window"] = transport.window
    connection["slow_start_until"] = transport.slow_start_until
    connection["seen"] = connection["seen_marked"] = connection["marked_part"] = 0.0
    connection["seen_until"] = 2.0
    connection["round_trip_s"] = connection["deviation_s"] = 0.0
    connection["timeout_s"] = connection["first_timeout_s"]
    connection["deadline_s"] = now_s + connection["timeout_s"]
    place = queues.number[ACTIVE]
    queues.active[place], connection["place"] = message, place
    queues.number[ACTIVE] += 1
    send_train(queues, paths, transport, message, -1, 0, now_s)


@compiled
def close(queues: Queues, message: int) -> None:
    """Note that a connection is over."""
    queues.number[ACTIVE] -= 1
    place, last = queues.connections[message]["place"], queues.active[queues.number[ACTIVE]]
    queues.active[place], queues.connections[last]["place"] = last, place
    queues.connections[message]["times_opened"] += 1


@compiled
def receive(queues: Queues, paths: Paths, transport: Transport, train: int, now_s: float) -> bool:
    """Return True if the packets of a train, which have arrived, are the last of their message."""
    came = queues.trains[train]
    message, count = came["message"], came["count"]
    connection = queues.connections[message]
    _note_marks(queues, message, max(count, 1), came["marked"])
    _note_round_trip(queues, transport, message, now_s - came["sent_s"])
    if came["begin"] < 0:
        if connection["is_open"]:
            return False
        connection["is_open"] = True
        connection["deadline_s"] = np.inf
        _inflate(queues, message, 1)
    else:
        known = came["begin"] + count
        if came["begin"] > connection["known"] or known <= connection["known"]:
            return False
        connection["known"] = known
        if known == connection["packets"]:
            return True
        connection["deadline_s"] = now_s + connection["timeout_s"]
        if known >= connection["sent"]:
            connection["sent"] = known
            connection["deadline_s"] = np.inf
        _inflate(queues, message, count)
    _send(queues, paths, transport, message, now_s)
    return False


@compiled
def _note_marks(queues: Queues, message: int, count: int, marked: float) -> None:
    """Shrink the window, once a window, by half of the smoothed part of marked packets."""
    connection = queues.connections[message]
    connection["seen"] += count
    connection["seen_marked"] += marked
    window = connection["window"]
    if marked > 0:
        connection["slow_start_until"] = min(connection["slow_start_until"], window)
    if connection["seen"] >= connection["seen_until"]:
        part = connection["seen_marked"] / connection["seen"]
        connection["marked_part"] += (part - connection["marked_part"]) / 16
        connection["seen"] = connection["seen_marked"] = 0.0
        if connection["marked_part"] > 0:
            window = max(window * (1 - connection["marked_part"] / 2), 1.0)
            connection["window"] = connection["slow_start_until"] = window
        connection["seen_until"] = window


@compiled
def _note_round_trip(queues: Queues, transport: Transport, message: int, passed_s: float) -> None:
    """Work out the timeout (RFC 2988)."""
    connection = queues.connections[message]
    if connection["round_trip_s"] > 0:
        off_s = abs(passed_s - connection["round_trip_s"])
        connection["deviation_s"] += (off_s - connection["deviation_s"]) / 4
        connection["round_trip_s"] += (passed_s - connection["round_trip_s"]) / 8
    else:
        connection["round_trip_s"] = passed_s
        connection["deviation_s"] = passed_s / 2
    timeout_s = connection["round_trip_s"] + 4 * connection["deviation_s"]
    connection["timeout_s"] = max(timeout_s, transport.timeout_s)


@compiled
def _inflate(queues: Queues, message: int, count: int) -> None:
    """Enlarge the window by packets that have arrived."""
    connection = queues.connections[message]
    window = connection["window"]
    room = connection["known"] + window - connection["sent"]
    grow = min(count * 1.0, room)
    if grow < 0:
        return
    if window < connection["slow_start_until"]:
        connection["window"] = min(window + grow, connection["slow_start_until"])
    else:
        connection["window"] = window + grow / window


@compiled
def _send(queues: Queues, paths: Paths, transport: Transport, message: int, now_s: float) -> None:
    """Send as many packets as the window lets, in trains."""
    connection = queues.connections[message]
    sent, packets = connection["sent"], connection["packets"]
    end = min(packets, int(connection["known"] + connection["window"] + 1e-9))
    if sent < end and connection["deadline_s"] == np.inf:
        connection["deadline_s"] = now_s + connection["timeout_s"]
    while sent < end:
        count = end - sent if end - sent < 2 * transport.train else transport.train
        send_train(queues, paths, transport, message, sent, count, now_s)
        sent += count
    connection["sent"] = max(connection["sent"], sent)


@compiled
def time_out(queues: Queues, paths: Paths, transport: Transport, now_s: float) -> None:
    """Begin connections whose deadline has passed again, with a window of one packet."""
    for place in range(queues.number[ACTIVE]):
        message = queues.active[place]
        connection = queues.connections[message]
        if connection["deadline_s"] >= now_s:
            continue
        connection["timeout_s"] *= 2
        connection["deadline_s"] = now_s + connection["timeout_s"]
        connection["seen"] = connection["seen_marked"] = 0.0
        connection["slow_start_until"] = max(connection["window"] / 2, 2.0)
        connection["seen_until"] = connection["window"]
        connection["window"] = 1.0
        if connection["is_open"]:
            connection["sent"] = connection["known"] + 1
            send_train(queues, paths, transport, message, connection["known"], 1, now_s)
        else:
            send_train(queues, paths, transport, message, -1, 0, now_s)
