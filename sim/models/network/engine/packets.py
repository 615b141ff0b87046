"""The event loop in which packets wait in queues. In `loop` flows share links instead; tasks behave the same in both.

A link serves its queue of packet trains in the order of arrival. A sender has a timeout, and a window that grows with
acknowledgements and shrinks with marks, as in the packet simulator that produced the reference figures (see
`sim.models.network.execution.packets`). Acknowledgements take no time. The window starts at 100 packets. Until the
first mark, and again after a timeout (slow start), it grows by at most one for each packet that arrives; later it grows
by at most one per window. Once per window the window is multiplied by 1 - s/2, where s is the smoothed share of marked
packets (DCTCP: Alizadeh et al., 2010).
"""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compile_function
from sim.models.network.engine.connections import (
    ACTIVE,
    EVENTS,
    FREE,
    SCANS,
    SET,
    UNUSED,
    Paths,
    Queues,
    Table,
    Transport,
)
from sim.models.network.engine.loop import (
    BEGIN,
    COMPUTED,
    FINISHED,
    FULL,
    STALLED,
    TICK_S,
    begin_communication,
    finish_task,
    free_device,
    occupy_devices,
    record_arrival,
    start_task,
)
from sim.models.network.engine.program import (
    DONE,
    IDLE,
    READY_IN,
    READY_OUT,
    TIMERS,
    Floats,
    Integers,
    Program,
    State,
)
from sim.models.network.engine.timers import pop_timer

__all__ = ["FINISHED", "FULL", "STALLED", "run_packets"]


@compile_function
def push_event(queues: Queues, when_s: float, item: int) -> None:
    """Push an event onto the heap; of events at equal times the older one comes first."""
    counters, events = queues.counters, queues.events
    position, order = counters[EVENTS], counters[SET]
    counters[EVENTS] += 1
    counters[SET] += 1
    while position:
        parent = (position - 1) // 2
        if events[parent]["at_s"] <= when_s:
            break
        events[position] = events[parent]
        position = parent
    events[position]["at_s"], events[position]["order"], events[position]["item"] = when_s, order, item


@compile_function
def pop_event(queues: Queues) -> int:
    """Remove the first event and return its item."""
    counters, events = queues.counters, queues.events
    item = events[0]["item"]
    counters[EVENTS] -= 1
    size, position = counters[EVENTS], 0
    while 2 * position + 1 < size:
        child = 2 * position + 1
        if child + 1 < size and _comes_before(events, child + 1, child):
            child += 1
        if _comes_before(events, size, child):
            break
        events[position] = events[child]
        position = child
    events[position] = events[size]
    return int(item)


@compile_function
def _comes_before(events: Table, first: int, second: int) -> bool:
    at_s, other_s = events[first]["at_s"], events[second]["at_s"]
    return bool(at_s < other_s or (at_s == other_s and events[first]["order"] < events[second]["order"]))


@compile_function
def send_train(
    queues: Queues, paths: Paths, transport: Transport, message: int, begin: int, count: int, now_s: float
) -> None:
    """Put a train into the queue of the first link; a `count` of 0 is the request to connect."""
    counters, train_number = queues.counters, queues.counters[UNUSED]
    train, connection = queues.trains[train_number], queues.connections[message]
    counters[UNUSED] = train["following"]
    counters[FREE] -= 1
    train["message"], train["opened"] = message, connection["times_opened"]
    train["hop"] = paths.first_link[connection["path"]]
    train["end"] = paths.first_link[connection["path"] + 1]
    train["begin"], train["count"] = begin, count
    train["marked"] = 0.0
    train["tail_s"] = train["sent_s"] = now_s
    enqueue_train(queues, paths, transport, train_number, now_s)


@compile_function
def recycle_train(queues: Queues, train_number: int) -> None:
    """Return a train to the list of unused trains."""
    queues.trains[train_number]["following"] = queues.counters[UNUSED]
    queues.counters[UNUSED] = train_number
    queues.counters[FREE] += 1


@compile_function
def enqueue_train(
    queues: Queues, paths: Paths, transport: Transport, train_number: int, now_s: float
) -> None:
    """Queue a train at its link, or send it at once if the link is idle."""
    link_number = paths.links[queues.trains[train_number]["hop"]]
    link = queues.links[link_number]
    link["waiting"] += queues.trains[train_number]["count"]
    queues.trains[train_number]["following"] = -1
    if link["serving"] < 0:
        _send_over_link(queues, transport, link_number, train_number, now_s)
    elif link["head"] < 0:
        link["head"] = link["tail"] = train_number
    else:
        queues.trains[link["tail"]]["following"] = train_number
        link["tail"] = train_number


@compile_function
def free_link(queues: Queues, transport: Transport, link_number: int, now_s: float) -> None:
    """End the current train of a link, mark it if the queue is long, and send the next one."""
    link = queues.links[link_number]
    count = link["serving"]
    if link["marks"] and count > 0:
        train = queues.trains[link["sending"]]
        marked_count = _count_marked(
            link["initial"], link["waiting"] - count + 1, count, transport.mark_threshold
        )
        train["marked"] = max(train["marked"], marked_count)
    link["waiting"] -= count
    link["serving"] = -1
    following = link["head"]
    if following >= 0:
        link["head"] = queues.trains[following]["following"]
        _send_over_link(queues, transport, link_number, following, now_s)


@compile_function
def _send_over_link(
    queues: Queues, transport: Transport, link_number: int, train_number: int, now_s: float
) -> None:
    """Send a train over a link.

    A train arrives at the next link when its first packet arrives. It arrives at the target when its last packet
    arrives. A link needs one packet time for the last packet, so it cannot end a train earlier than one packet time
    after the arrival of that packet.
    """
    link, train = queues.links[link_number], queues.trains[train_number]
    count, packet_s = train["count"], link["packet_s"]
    end_s = now_s + count * packet_s
    if count > 1:
        end_s = max(end_s, train["tail_s"] + packet_s)
    link["serving"], link["sending"], link["initial"] = count, train_number, link["waiting"]
    train["hop"] += 1
    is_last = train["hop"] == train["end"]
    flight_s = transport.link_delay_s if is_last else transport.link_delay_s + transport.relay_delay_s
    train["tail_s"] = end_s + flight_s
    first_s = end_s if is_last else now_s + min(count, 1) * packet_s
    # Events at equal times occur in the order in which they were set: the link marks its train, then the train arrives.
    push_event(queues, end_s, -1 - link_number)
    push_event(queues, first_s + flight_s, train_number)


@compile_function
def _count_marked(first_length: float, last_length: float, count: int, mark_threshold: float) -> float:
    """Return how many of `count` packets find a queue longer than `mark_threshold` when they leave it.

    The length of the queue is interpolated between `first_length`, at the first packet, and `last_length`, at the last
    packet.
    """
    longest, shortest = max(first_length, last_length), min(first_length, last_length)
    if shortest > mark_threshold:
        return count * 1.0
    return (
        count * (longest - mark_threshold) / (longest - shortest + 1.0) if longest > mark_threshold else 0.0
    )


@compile_function
def connect(
    queues: Queues,
    paths: Paths,
    transport: Transport,
    message: int,
    packet_count: int,
    path: int,
    now_s: float,
) -> None:
    """Open a connection: send a request, which waits in queues as packets do."""
    connection = queues.connections[message]
    connection["path"] = path
    connection["times_opened"] += 1
    connection["packets"] = packet_count
    connection["sent"] = connection["acked"] = 0
    connection["is_open"] = False
    connection["window"] = transport.initial_window
    connection["slow_start_until"] = transport.slow_start_threshold
    connection["arrivals"] = connection["marked_arrivals"] = connection["marked_part"] = 0.0
    connection["update_at_arrivals"] = 2.0
    connection["round_trip_s"] = connection["deviation_s"] = 0.0
    connection["timeout_s"] = connection["first_timeout_s"]
    connection["deadline_s"] = now_s + connection["timeout_s"]
    position = queues.counters[ACTIVE]
    queues.open_messages[position], connection["place"] = message, position
    queues.counters[ACTIVE] += 1
    send_train(queues, paths, transport, message, -1, 0, now_s)


@compile_function
def close(queues: Queues, message: int) -> None:
    """Close a connection; its trains that still move are ignored when they arrive."""
    queues.counters[ACTIVE] -= 1
    position, last = queues.connections[message]["place"], queues.open_messages[queues.counters[ACTIVE]]
    queues.open_messages[position], queues.connections[last]["place"] = last, position
    queues.connections[message]["times_opened"] += 1


@compile_function
def receive(queues: Queues, paths: Paths, transport: Transport, train_number: int, now_s: float) -> bool:
    """Handle a train that has arrived at its target; return True if its message is complete.

    The acknowledgement takes no time, so this also updates the window of the sender and sends the next packets.
    """
    arrival = queues.trains[train_number]
    message, count = arrival["message"], arrival["count"]
    connection = queues.connections[message]
    _count_marks(queues, message, max(count, 1), arrival["marked"])
    _update_round_trip(queues, transport, message, now_s - arrival["sent_s"])
    if arrival["begin"] < 0:
        if connection["is_open"]:
            return False
        connection["is_open"] = True
        connection["deadline_s"] = np.inf
        _grow_window(queues, message, 1)
    else:
        acked_packets = arrival["begin"] + count
        if arrival["begin"] > connection["acked"] or acked_packets <= connection["acked"]:
            return False
        connection["acked"] = acked_packets
        if acked_packets == connection["packets"]:
            return True
        connection["deadline_s"] = now_s + connection["timeout_s"]
        if acked_packets >= connection["sent"]:
            connection["sent"] = acked_packets
            connection["deadline_s"] = np.inf
        _grow_window(queues, message, count)
    _send_window(queues, paths, transport, message, now_s)
    return False


@compile_function
def _count_marks(queues: Queues, message: int, count: int, marked_count: float) -> None:
    """Count packets and marks; once per window multiply the window by 1 - (smoothed share of marked packets) / 2."""
    connection = queues.connections[message]
    connection["arrivals"] += count
    connection["marked_arrivals"] += marked_count
    window = connection["window"]
    if marked_count > 0:
        connection["slow_start_until"] = min(connection["slow_start_until"], window)
    if connection["arrivals"] >= connection["update_at_arrivals"]:
        marked_fraction = connection["marked_arrivals"] / connection["arrivals"]
        connection["marked_part"] += (marked_fraction - connection["marked_part"]) / 16
        connection["arrivals"] = connection["marked_arrivals"] = 0.0
        if connection["marked_part"] > 0:
            window = max(window * (1 - connection["marked_part"] / 2), 1.0)
            connection["window"] = connection["slow_start_until"] = window
        connection["update_at_arrivals"] = window


@compile_function
def _update_round_trip(queues: Queues, transport: Transport, message: int, round_trip_s: float) -> None:
    """Update the estimates of the round trip and set the timeout (RFC 2988)."""
    connection = queues.connections[message]
    if connection["round_trip_s"] > 0:
        error_s = abs(round_trip_s - connection["round_trip_s"])
        connection["deviation_s"] += (error_s - connection["deviation_s"]) / 4
        connection["round_trip_s"] += (round_trip_s - connection["round_trip_s"]) / 8
    else:
        connection["round_trip_s"] = round_trip_s
        connection["deviation_s"] = round_trip_s / 2
    timeout_s = connection["round_trip_s"] + 4 * connection["deviation_s"]
    connection["timeout_s"] = max(timeout_s, transport.timeout_s)


@compile_function
def _grow_window(queues: Queues, message: int, count: int) -> None:
    """Enlarge the window after `count` packets have arrived.

    In slow start the window grows by at most `count`, later by at most `count` divided by the window.
    """
    connection = queues.connections[message]
    window = connection["window"]
    room = connection["acked"] + window - connection["sent"]
    growth = min(count * 1.0, room)
    if growth < 0:
        return
    if window < connection["slow_start_until"]:
        connection["window"] = min(window + growth, connection["slow_start_until"])
    else:
        connection["window"] = window + growth / window


@compile_function
def _send_window(queues: Queues, paths: Paths, transport: Transport, message: int, now_s: float) -> None:
    """Send as many packets as the window allows, in trains."""
    connection = queues.connections[message]
    sent, packet_count = connection["sent"], connection["packets"]
    end = min(packet_count, int(connection["acked"] + connection["window"] + 1e-9))
    if sent < end and connection["deadline_s"] == np.inf:
        connection["deadline_s"] = now_s + connection["timeout_s"]
    while sent < end:
        count = end - sent if end - sent < 2 * transport.packets_per_train else transport.packets_per_train
        send_train(queues, paths, transport, message, sent, count, now_s)
        sent += count
    connection["sent"] = max(connection["sent"], sent)


@compile_function
def time_out(queues: Queues, paths: Paths, transport: Transport, now_s: float) -> None:
    """Retransmit on connections whose deadline has passed, with a window of one packet and twice the timeout."""
    for position in range(queues.counters[ACTIVE]):
        message = queues.open_messages[position]
        connection = queues.connections[message]
        if connection["deadline_s"] >= now_s:
            continue
        connection["timeout_s"] *= 2
        connection["deadline_s"] = now_s + connection["timeout_s"]
        connection["arrivals"] = connection["marked_arrivals"] = 0.0
        connection["slow_start_until"] = max(connection["window"] / 2, 2.0)
        connection["update_at_arrivals"] = connection["window"]
        connection["window"] = 1.0
        if connection["is_open"]:
            connection["sent"] = connection["acked"] + 1
            send_train(queues, paths, transport, message, connection["acked"], 1, now_s)
        else:
            send_train(queues, paths, transport, message, -1, 0, now_s)


@compile_function
def run_packets(program: Program, state: State, paths: Paths, queues: Queues, transport: Transport) -> int:
    """Run until all tasks have ended, nothing can move or too few trains are free; return the reason."""
    counters, clock, timer_s, ready = state.counters, state.clock, state.timer_s, state.ready_tasks
    while True:
        while counters[READY_OUT] < counters[READY_IN]:
            counters[READY_OUT] += 1
            start_task(program, state, ready[counters[READY_OUT] - 1])
        if counters[TIMERS] and timer_s[0] <= clock[0] + TICK_S:
            _handle_timer(program, state, paths, queues, transport)
            continue
        if counters[DONE] == program.task_s.size:
            return FINISHED
        until_s = timer_s[0] if counters[TIMERS] else np.inf
        if counters[IDLE]:
            until_s = clock[0]
        message = _move_trains(paths, queues, transport, state.link_bytes, clock, until_s)
        if message >= 0:
            _close_connection(program, state, queues, message)
        elif queues.counters[FREE] < queues.counters[ACTIVE] + transport.max_trains_per_event:
            return FULL
        elif counters[IDLE]:
            occupy_devices(program, state)
        elif until_s == np.inf:
            return STALLED
        else:
            clock[0] = until_s


@compile_function
def _handle_timer(program: Program, state: State, paths: Paths, queues: Queues, transport: Transport) -> None:
    """Handle the first timer."""
    kind, item = pop_timer(state)
    if kind == COMPUTED:
        free_device(program, state, item)
        finish_task(program, state, item)
    elif kind == BEGIN:
        begin_communication(program, state, item)
    else:
        _open_connections(program, state, paths, queues, transport, item)


@compile_function
def _move_trains(
    paths: Paths, queues: Queues, transport: Transport, link_bytes: Integers, clock: Floats, until_s: float
) -> int:
    """Move trains until a message is complete, and return it.

    Return -1 if none is complete before `until_s`, or if too few trains are free.
    """
    counters, events, trains, connections = queues.counters, queues.events, queues.trains, queues.connections
    while counters[FREE] >= counters[ACTIVE] + transport.max_trains_per_event:
        event_s = events[0]["at_s"] if counters[EVENTS] else np.inf
        when_s = min(event_s, until_s)
        if counters[ACTIVE] and counters[SCANS] * transport.scan_period_s < when_s:
            _check_timeouts(paths, queues, transport, clock)
            continue
        if event_s > until_s or event_s == np.inf:
            return -1
        clock[0] = max(event_s, clock[0])
        item = pop_event(queues)
        if item < 0:
            free_link(queues, transport, -1 - item, clock[0])
            continue
        link = paths.links[trains[item]["hop"] - 1]
        link_bytes[link] += trains[item]["count"] * transport.packet_bytes
        if trains[item]["hop"] < trains[item]["end"]:
            enqueue_train(queues, paths, transport, item, clock[0])
            continue
        message = trains[item]["message"]
        is_stale = trains[item]["opened"] != connections[message]["times_opened"]
        recycle_train(queues, item)
        if not is_stale and receive(queues, paths, transport, item, clock[0]):
            return int(message)
    return -1


@compile_function
def _check_timeouts(paths: Paths, queues: Queues, transport: Transport, clock: Floats) -> None:
    """Check all connections for timeouts at the next multiple of the period `scan_period_s`.

    Scans that were due while no connection was open are skipped.
    """
    due_s = queues.counters[SCANS] * transport.scan_period_s
    if due_s > clock[0]:
        clock[0] = due_s
        time_out(queues, paths, transport, due_s)
        queues.counters[SCANS] += 1
    else:
        queues.counters[SCANS] = int(clock[0] / transport.scan_period_s) + 1


@compile_function
def _open_connections(
    program: Program, state: State, paths: Paths, queues: Queues, transport: Transport, group: int
) -> None:
    """Open the connections of a group's messages; a hash chooses one of the paths of each pair."""
    opened_count, chain_round = 0, state.chain_round[program.group_chain[group]]
    for message in range(program.message_first[group], program.message_first[group + 1]):
        pair = paths.pair_of_message[message]
        first_path, path_count = paths.pair_first[pair], paths.pair_first[pair + 1] - paths.pair_first[pair]
        packet_count = program.message_bytes[message] // transport.packet_bytes
        if packet_count == 0 or path_count == 0:
            continue
        path = first_path + _hash(message, chain_round, transport.seed) % path_count
        connect(queues, paths, transport, message, packet_count, path, state.clock[0])
        opened_count += 1
    state.remaining_flow_count[group] = opened_count
    if opened_count == 0:
        record_arrival(program, state, group)


@compile_function
def _close_connection(program: Program, state: State, queues: Queues, message: int) -> None:
    close(queues, message)
    group = program.message_group[message]
    state.remaining_flow_count[group] -= 1
    if state.remaining_flow_count[group] == 0:
        record_arrival(program, state, group)


@compile_function
def _hash(first: int, second: int, third: int) -> int:
    """Return a pseudorandom number below 2^31 from three integers (SplitMix64's finaliser)."""
    mixed_bits = np.uint64(0)
    for value in (first, second, third):
        mixed_bits = (mixed_bits ^ np.uint64(value)) + np.uint64(0x9E3779B97F4A7C15)
        mixed_bits = (mixed_bits ^ (mixed_bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed_bits = (mixed_bits ^ (mixed_bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed_bits ^= mixed_bits >> np.uint64(31)
    return int(mixed_bits >> np.uint64(33))
