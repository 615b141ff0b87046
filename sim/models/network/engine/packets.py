"""The event loop with packets that wait in queues, in place of flows that share links; tasks are as in `loop`."""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compiled
from sim.models.network.engine.connections import ACTIVE, EVENTS, FREE, SCANS, Paths, Queues, Transport
from sim.models.network.engine.loop import (
    BEGIN,
    COMPUTED,
    FINISHED,
    FULL,
    STALLED,
    TICK_S,
    arrived,
    begin,
    finish,
    free_device,
    occupy_devices,
    start,
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
from sim.models.network.engine.senders import close, connect, receive, time_out
from sim.models.network.engine.timers import take_timer
from sim.models.network.engine.trains import drop_train, free_link, take_event, wait

__all__ = ["FINISHED", "FULL", "STALLED", "run_packets"]


@compiled
def run_packets(program: Program, state: State, paths: Paths, queues: Queues, transport: Transport) -> int:
    """Go on until all is done, or there is no room for more trains; says why it stopped."""
    number, clock, timer_s, ready = state.number, state.clock, state.timer_s, state.ready
    while True:
        while number[READY_OUT] < number[READY_IN]:
            number[READY_OUT] += 1
            start(program, state, ready[number[READY_OUT] - 1])
        if number[TIMERS] and timer_s[0] <= clock[0] + TICK_S:
            _fire(program, state, paths, queues, transport)
            continue
        if number[DONE] == program.task_s.size:
            return FINISHED
        until_s = timer_s[0] if number[TIMERS] else np.inf
        if number[IDLE]:
            until_s = clock[0]
        message = _move_trains(paths, queues, transport, state.link_bytes, clock, until_s)
        if message >= 0:
            _close(program, state, queues, message)
        elif queues.number[FREE] < queues.number[ACTIVE] + transport.spare:
            return FULL
        elif number[IDLE]:
            occupy_devices(program, state)
        elif until_s == np.inf:
            return STALLED
        else:
            clock[0] = until_s


@compiled
def _fire(program: Program, state: State, paths: Paths, queues: Queues, transport: Transport) -> None:
    """Do what the first timer stands for."""
    kind, item = take_timer(state)
    if kind == COMPUTED:
        free_device(program, state, item)
        finish(program, state, item)
    elif kind == BEGIN:
        begin(program, state, item)
    else:
        _open(program, state, paths, queues, transport, item)


@compiled
def _move_trains(
    paths: Paths, queues: Queues, transport: Transport, link_bytes: Integers, clock: Floats, until_s: float
) -> int:
    """Move trains until a message has arrived, which is returned; -1 for none before `until_s`, or without room."""
    number, events, trains, connections = queues.number, queues.events, queues.trains, queues.connections
    while number[FREE] >= number[ACTIVE] + transport.spare:
        event_s = events[0]["at_s"] if number[EVENTS] else np.inf
        when_s = min(event_s, until_s)
        if number[ACTIVE] and number[SCANS] * transport.scan_s < when_s:
            _scan(paths, queues, transport, clock)
            continue
        if event_s > until_s or event_s == np.inf:
            return -1
        clock[0] = max(event_s, clock[0])
        item = take_event(queues)
        if item < 0:
            free_link(queues, transport, -1 - item, clock[0])
            continue
        link = paths.links[trains[item]["hop"] - 1]
        link_bytes[link] += trains[item]["count"] * transport.packet_bytes
        if trains[item]["hop"] < trains[item]["end"]:
            wait(queues, paths, transport, item, clock[0])
            continue
        message = trains[item]["message"]
        is_late = trains[item]["opened"] != connections[message]["times_opened"]
        drop_train(queues, item)
        if not is_late and receive(queues, paths, transport, item, clock[0]):
            return int(message)
    return -1


@compiled
def _scan(paths: Paths, queues: Queues, transport: Transport, clock: Floats) -> None:
    """Look for timeouts at the next multiple of the scanner's period; those that passed unseen are left out."""
    due_s = queues.number[SCANS] * transport.scan_s
    if due_s > clock[0]:
        clock[0] = due_s
        time_out(queues, paths, transport, due_s)
        queues.number[SCANS] += 1
    else:
        queues.number[SCANS] = int(clock[0] / transport.scan_s) + 1


@compiled
def _open(
    program: Program, state: State, paths: Paths, queues: Queues, transport: Transport, group: int
) -> None:
    """Open the connections of a round; each takes one of the paths of its pair by a hash."""
    opened, chain_round = 0, state.chain_round[program.group_chain[group]]
    for message in range(program.message_first[group], program.message_first[group + 1]):
        pair = paths.pair[message]
        first, count = paths.pair_first[pair], paths.pair_first[pair + 1] - paths.pair_first[pair]
        packets = program.message_bytes[message] // transport.packet_bytes
        if packets == 0 or count == 0:
            continue
        path = first + _mixed(message, chain_round, transport.seed) % count
        connect(queues, paths, transport, message, packets, path, state.clock[0])
        opened += 1
    state.flows_left[group] = opened
    if opened == 0:
        arrived(program, state, group)


@compiled
def _close(program: Program, state: State, queues: Queues, message: int) -> None:
    close(queues, message)
    group = program.message_group[message]
    state.flows_left[group] -= 1
    if state.flows_left[group] == 0:
        arrived(program, state, group)


@compiled
def _mixed(one: int, two: int, three: int) -> int:
    """Return a number that looks like chance, 0 to 2^31 (SplitMix64's finaliser)."""
    mixed = np.uint64(0)
    for value in (one, two, three):
        mixed = (mixed ^ np.uint64(value)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return int(mixed >> np.uint64(33))
