"""Senders of connections: windows that grow with acknowledgements and shrink with marks, and timeouts.

As in the packet simulator that gave the reference figures (see `sim.models.network.transport`): acknowledgements take no
time; the window begins at 100 packets, grows by each packet that arrives until the first mark, then by one a window; once
a window it shrinks by half of the smoothed part of marked packets (DCTCP: Alizadeh et al., 2010).
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
    queues.connections[message]["path"] = path
    queues.connections[message]["times_opened"] += 1
    queues.connections[message]["packets"] = packets
    queues.connections[message]["sent"] = queues.connections[message]["known"] = 0
    queues.connections[message]["is_open"] = False
    queues.connections[message]["window"] = transport.window
    queues.connections[message]["slow_start_until"] = transport.slow_start_until
    queues.connections[message]["seen"] = queues.connections[message]["seen_marked"] = queues.connections[message]["marked_part"] = 0.0
    queues.connections[message]["seen_until"] = 2.0
    queues.connections[message]["round_trip_s"] = queues.connections[message]["deviation_s"] = 0.0
    queues.connections[message]["timeout_s"] = queues.connections[message]["first_timeout_s"]
    queues.connections[message]["deadline_s"] = now_s + queues.connections[message]["timeout_s"]
    place = queues.number[ACTIVE]
    queues.active[place], queues.connections[message]["place"] = message, place
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
    message, count = queues.trains[train]["message"], queues.trains[train]["count"]
    is_request = queues.trains[train]["begin"] < 0
    _note_marks(queues, message, max(count, 1), queues.trains[train]["marked"])
    _note_round_trip(queues, transport, message, now_s - queues.trains[train]["sent_s"])
    if is_request:
        if queues.connections[message]["is_open"]:
            return False
        queues.connections[message]["is_open"] = True
        queues.connections[message]["deadline_s"] = np.inf
        _inflate(queues, message, 1)
    else:
        arrived = queues.trains[train]["begin"] + count
        if queues.trains[train]["begin"] > queues.connections[message]["known"] or arrived <= queues.connections[message]["known"]:
            return False
        queues.connections[message]["known"] = arrived
        if arrived == queues.connections[message]["packets"]:
            return True
        queues.connections[message]["deadline_s"] = now_s + queues.connections[message]["timeout_s"]
        if arrived >= queues.connections[message]["sent"]:
            queues.connections[message]["sent"] = arrived
            queues.connections[message]["deadline_s"] = np.inf
        _inflate(queues, message, count)
    _send(queues, paths, transport, message, now_s)
    return False


@compiled
def _note_marks(queues: Queues, message: int, count: int, marked: float) -> None:
    """Shrink the window, once a window, by half of the smoothed part of marked packets."""
    queues.connections[message]["seen"] += count
    queues.connections[message]["seen_marked"] += marked
    window = queues.connections[message]["window"]
    if marked > 0:
        queues.connections[message]["slow_start_until"] = min(queues.connections[message]["slow_start_until"], window)
    if queues.connections[message]["seen"] >= queues.connections[message]["seen_until"]:
        part = queues.connections[message]["seen_marked"] / queues.connections[message]["seen"]
        queues.connections[message]["marked_part"] += (part - queues.connections[message]["marked_part"]) / 16
        queues.connections[message]["seen"] = queues.connections[message]["seen_marked"] = 0.0
        if queues.connections[message]["marked_part"] > 0:
            window = max(window * (1 - queues.connections[message]["marked_part"] / 2), 1.0)
            queues.connections[message]["window"] = queues.connections[message]["slow_start_until"] = window
        queues.connections[message]["seen_until"] = window


@compiled
def _note_round_trip(queues: Queues, transport: Transport, message: int, passed_s: float) -> None:
    """Work out the timeout (RFC 2988)."""
    if queues.connections[message]["round_trip_s"] > 0:
        off_s = abs(passed_s - queues.connections[message]["round_trip_s"])
        queues.connections[message]["deviation_s"] += (off_s - queues.connections[message]["deviation_s"]) / 4
        queues.connections[message]["round_trip_s"] += (passed_s - queues.connections[message]["round_trip_s"]) / 8
    else:
        queues.connections[message]["round_trip_s"] = passed_s
        queues.connections[message]["deviation_s"] = passed_s / 2
    timeout_s = queues.connections[message]["round_trip_s"] + 4 * queues.connections[message]["deviation_s"]
    queues.connections[message]["timeout_s"] = max(timeout_s, transport.timeout_s)


@compiled
def _inflate(queues: Queues, message: int, count: int) -> None:
    """Let the window grow with packets that have arrived."""
    window = queues.connections[message]["window"]
    room = queues.connections[message]["known"] + window - queues.connections[message]["sent"]
    grow = min(count * 1.0, room)
    if grow < 0:
        return
    if window < queues.connections[message]["slow_start_until"]:
        queues.connections[message]["window"] = min(window + grow, queues.connections[message]["slow_start_until"])
    else:
        queues.connections[message]["window"] = window + grow / window


@compiled
def _send(queues: Queues, paths: Paths, transport: Transport, message: int, now_s: float) -> None:
    """Send as many packets as the window lets, in trains."""
    sent, packets = queues.connections[message]["sent"], queues.connections[message]["packets"]
    end = min(packets, int(queues.connections[message]["known"] + queues.connections[message]["window"] + 1e-9))
    if sent < end and queues.connections[message]["deadline_s"] == np.inf:
        queues.connections[message]["deadline_s"] = now_s + queues.connections[message]["timeout_s"]
    while sent < end:
        count = end - sent if end - sent < 2 * transport.train else transport.train
        send_train(queues, paths, transport, message, sent, count, now_s)
        sent += count
    queues.connections[message]["sent"] = max(queues.connections[message]["sent"], sent)


@compiled
def time_out(queues: Queues, paths: Paths, transport: Transport, now_s: float) -> None:
    """Let the connections whose deadline has passed begin again with a window of one packet."""
    for place in range(queues.number[ACTIVE]):
        message = queues.active[place]
        if queues.connections[message]["deadline_s"] >= now_s:
            continue
        queues.connections[message]["timeout_s"] *= 2
        queues.connections[message]["deadline_s"] = now_s + queues.connections[message]["timeout_s"]
        queues.connections[message]["seen"] = queues.connections[message]["seen_marked"] = 0.0
        queues.connections[message]["slow_start_until"] = max(queues.connections[message]["window"] / 2, 2.0)
        queues.connections[message]["seen_until"] = queues.connections[message]["window"]
        queues.connections[message]["window"] = 1.0
        if queues.connections[message]["is_open"]:
            queues.connections[message]["sent"] = queues.connections[message]["known"] + 1
            send_train(queues, paths, transport, message, queues.connections[message]["known"], 1, now_s)
        else:
            send_train(queues, paths, transport, message, -1, 0, now_s)
