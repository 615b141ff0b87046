"""Trains of packets on their way: queues of links, first come first served, and the events that move them."""

from __future__ import annotations

from lightbed.compiled import compiled
from sim.models.network.engine.connections import EVENTS, FREE, SET, UNUSED, Paths, Queues, Table, Transport


@compiled
def set_event(queues: Queues, when_s: float, item: int) -> None:
    """Set an event; of equal times the older one comes first."""
    number, events = queues.number, queues.events
    place, order = number[EVENTS], number[SET]
    number[EVENTS] += 1
    number[SET] += 1
    while place:
        parent = (place - 1) // 2
        if events[parent]["at_s"] <= when_s:
            break
        events[place] = events[parent]
        place = parent
    events[place]["at_s"], events[place]["order"], events[place]["item"] = when_s, order, item


@compiled
def take_event(queues: Queues) -> int:
    """Remove the first event: its item."""
    number, events = queues.number, queues.events
    item = events[0]["item"]
    number[EVENTS] -= 1
    size, place = number[EVENTS], 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _comes_before(events, child + 1, child):
            child += 1
        if _comes_before(events, size, child):
            break
        events[place] = events[child]
        place = child
    events[place] = events[size]
    return item


@compiled
def _comes_before(events: Table, one: int, other: int) -> bool:
    at_s, other_s = events[one]["at_s"], events[other]["at_s"]
    return at_s < other_s or (at_s == other_s and events[one]["order"] < events[other]["order"])


@compiled
def send_train(
    queues: Queues, paths: Paths, transport: Transport, message: int, begin: int, count: int, now_s: float
) -> None:
    """Put packets of a connection into the queue of its first link; none of them is the request to connect."""
    train = queues.number[UNUSED]
    queues.number[UNUSED] = queues.trains[train]["following"]
    queues.number[FREE] -= 1
    queues.trains[train]["message"], queues.trains[train]["opened"] = message, queues.connections[message]["times_opened"]
    queues.trains[train]["hop"] = paths.first[queues.connections[message]["path"]]
    queues.trains[train]["end"] = paths.first[queues.connections[message]["path"] + 1]
    queues.trains[train]["count"] = count
    queues.trains[train]["begin"] = begin
    queues.trains[train]["marked"] = 0.0
    queues.trains[train]["tail_s"] = queues.trains[train]["sent_s"] = now_s
    wait(queues, paths, transport, train, now_s)


@compiled
def drop_train(queues: Queues, train: int) -> None:
    """Note that a train is not in use any more."""
    queues.trains[train]["following"] = queues.number[UNUSED]
    queues.number[UNUSED] = train
    queues.number[FREE] += 1


@compiled
def wait(queues: Queues, paths: Paths, transport: Transport, train: int, now_s: float) -> None:
    """Let a train wait for its link, or send it at once."""
    link = paths.links[queues.trains[train]["hop"]]
    queues.links[link]["waiting"] += queues.trains[train]["count"]
    queues.trains[train]["following"] = -1
    if queues.links[link]["serving"] < 0:
        _serve(queues, transport, link, train, now_s)
    elif queues.links[link]["head"] < 0:
        queues.links[link]["head"] = queues.links[link]["tail"] = train
    else:
        queues.trains[queues.links[link]["tail"]]["following"] = train
        queues.links[link]["tail"] = train


@compiled
def free_link(queues: Queues, transport: Transport, link: int, now_s: float) -> None:
    """Note that a link has sent a train, and let it send the next."""
    queues.links[link]["waiting"] -= queues.links[link]["serving"]
    queues.links[link]["serving"] = -1
    train = queues.links[link]["head"]
    if train >= 0:
        queues.links[link]["head"] = queues.trains[train]["following"]
        _serve(queues, transport, link, train, now_s)


@compiled
def _serve(queues: Queues, transport: Transport, link: int, train: int, now_s: float) -> None:
    """Send a train: its first packet goes on as soon as it has been sent, at the last link the whole train."""
    count, packet_s = queues.trains[train]["count"], queues.links[link]["packet_s"]
    end_s = now_s + count * packet_s
    if count > 1:
        end_s = max(end_s, queues.trains[train]["tail_s"] + packet_s)
    if queues.links[link]["marks"]:
        above = queues.links[link]["waiting"] - transport.marks_above
        queues.trains[train]["marked"] = max(queues.trains[train]["marked"], min(max(above, 0.0), count * 1.0))
    queues.links[link]["serving"] = count
    queues.trains[train]["hop"] += 1
    is_last = queues.trains[train]["hop"] == queues.trains[train]["end"]
    flight_s = transport.link_s if is_last else transport.link_s + transport.relay_s
    queues.trains[train]["tail_s"] = end_s + flight_s
    first_s = end_s if is_last else now_s + min(count, 1) * packet_s
    set_event(queues, first_s + flight_s, train)
    set_event(queues, end_s, -1 - link)
