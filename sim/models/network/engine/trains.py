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
    return int(item)


@compiled
def _comes_before(events: Table, one: int, other: int) -> bool:
    at_s, other_s = events[one]["at_s"], events[other]["at_s"]
    return bool(at_s < other_s or (at_s == other_s and events[one]["order"] < events[other]["order"]))


@compiled
def send_train(
    queues: Queues, paths: Paths, transport: Transport, message: int, begin: int, count: int, now_s: float
) -> None:
    """Put packets of a connection into the queue of its first link; none of them is the request to connect."""
    number, place = queues.number, queues.number[UNUSED]
    train, connection = queues.trains[place], queues.connections[message]
    number[UNUSED] = train["following"]
    number[FREE] -= 1
    train["message"], train["opened"] = message, connection["times_opened"]
    train["hop"] = paths.first[connection["path"]]
    train["end"] = paths.first[connection["path"] + 1]
    train["begin"], train["count"] = begin, count
    train["marked"] = 0.0
    train["tail_s"] = train["sent_s"] = now_s
    wait(queues, paths, transport, place, now_s)


@compiled
def drop_train(queues: Queues, train: int) -> None:
    """Note that a train is not in use any more."""
    queues.trains[train]["following"] = queues.number[UNUSED]
    queues.number[UNUSED] = train
    queues.number[FREE] += 1


@compiled
def wait(queues: Queues, paths: Paths, transport: Transport, train: int, now_s: float) -> None:
    """Queue a train at its link, or send it at once."""
    number = paths.links[queues.trains[train]["hop"]]
    link = queues.links[number]
    link["waiting"] += queues.trains[train]["count"]
    queues.trains[train]["following"] = -1
    if link["serving"] < 0:
        _serve(queues, transport, number, train, now_s)
    elif link["head"] < 0:
        link["head"] = link["tail"] = train
    else:
        queues.trains[link["tail"]]["following"] = train
        link["tail"] = train


@compiled
def free_link(queues: Queues, transport: Transport, number: int, now_s: float) -> None:
    """Note that a link has sent a train, and let it send the next."""
    link = queues.links[number]
    count = link["serving"]
    if link["marks"] and count > 0:
        train = queues.trains[link["sending"]]
        marked = _above(link["found"], link["waiting"] - count + 1, count, transport.marks_above)
        train["marked"] = max(train["marked"], marked)
    link["waiting"] -= count
    link["serving"] = -1
    following = link["head"]
    if following >= 0:
        link["head"] = queues.trains[following]["following"]
        _serve(queues, transport, number, following, now_s)


@compiled
def _serve(queues: Queues, transport: Transport, number: int, place: int, now_s: float) -> None:
    """Send a train: its first packet goes on as soon as it has been sent, at the last link the whole train."""
    link, train = queues.links[number], queues.trains[place]
    count, packet_s = train["count"], link["packet_s"]
    end_s = now_s + count * packet_s
    if count > 1:
        end_s = max(end_s, train["tail_s"] + packet_s)
    link["serving"], link["sending"], link["found"] = count, place, link["waiting"]
    train["hop"] += 1
    is_last = train["hop"] == train["end"]
    flight_s = transport.link_s if is_last else transport.link_s + transport.relay_s
    train["tail_s"] = end_s + flight_s
    first_s = end_s if is_last else now_s + min(count, 1) * packet_s
    # the link is free before its train arrives, so that marks are noted
    set_event(queues, end_s, -1 - number)
    set_event(queues, first_s + flight_s, place)


@compiled
def _above(first: float, last: float, count: int, limit: float) -> float:
    """Return how many packets of a train leave a queue longer than a limit: its length at the first and the last."""
    more, less = max(first, last), min(first, last)
    if less > limit:
        return count * 1.0
    return count * (more - limit) / (more - less + 1.0) if more > limit else 0.0
