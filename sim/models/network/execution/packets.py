"""Simulation of one iteration by packets: each message is a connection on a path that a hash chooses.

The flows of `simulate` get their fair share at once. Connections over hashed paths do not get it at once, so a graph
whose transfers collide takes up to a seventh longer. The parameters are read from the source of the packet simulator
whose results are the reference (FlexNetPacket, commit 461b21f):

| parameter | value | place in the source |
|---|---|---|
| path | drawn for each message of each round | `rand() % paths` whenever a connection is made (`ffapp.cpp`) |
| request to connect | waits in queues, 1 us per link | a packet of 1 byte is sent first (`TcpSrc::send_packets`) |
| acknowledgement | takes no time | the sink calls the source (`TcpSink::send_ack`) |
| window | 100 packets, plus one for each that arrives | `startflow`, `inflate_window`, `-ssthresh 10000` |
| marks | switch queues longer than 50 packets mark the packets that leave | `alloc_queue`, `ECNQueue` |
| hosts | their own queues do not mark | `alloc_src_queue` |
| effect of marks | the window grows by one per window, and shrinks by half of the marked part | `DCTCPSrc` |
| marked part | smoothed by 1/16 per window | `DCTCPSrc` |
| timeout | 1 ms for the request of a ring's message, 10 ms otherwise | `_rto` |
| | checked every 1 ms | `TcpRtxTimerScanner` |
| after a timeout | a window of one packet | `TcpSrc::doNextEvent` |

So a message that was marked once in a switch has a small window from then on, and waits in the queue of its host behind
messages that were never marked. This is the main effect that fair flows leave out. Queues here never lose packets; the
reference has queues of 10,000 packets, which lost none with the graphs that were compared.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.models.network.allreduce.algorithms import Algorithm, plan_rings
from sim.models.network.engine.connections import (
    Paths,
    Queues,
    Transport,
    enlarge_trains,
    make_queues,
)
from sim.models.network.engine.program import make_state
from sim.models.network.execution.lowering import LoweredGraph, lower_graph
from sim.models.network.execution.simulation import Execution, StalledError
from sim.models.network.fabrics.model import Fabric, Integers
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph

RING_TIMEOUT_S, TIMEOUT_S, SCAN_S = 1e-3, 10e-3, 1e-3
WINDOW, SLOW_START_UNTIL, MARKS_ABOVE = 100.0, 10_000.0, 50.0
MAX_TRAIN_PACKETS = 16
MAX_SINGLE_PACKETS = 1 << 20
"""Up to this many packets move one by one; a larger graph uses trains of up to `MAX_TRAIN_PACKETS` packets.

Trains are ten times faster, and iteration times differ by 1 %.
"""
_FIRST_TRAIN_COUNT = 1 << 14


def simulate_packets(
    graph: TaskGraph,
    fabric: Fabric,
    *,
    latency: Latency | None = None,
    allreduce: Algorithm = plan_rings,
    seed: int = 0,
    packets_per_train: int | None = None,
) -> Execution:
    """Simulate one iteration; `seed` selects the paths, `packets_per_train` is the number of packets per train.

    By default `packets_per_train` grows with the number of packets. Raise `StalledError` if a link on a path has no
    capacity, `ValueError` if the graph has more nodes than the fabric.
    """
    from sim.models.network.engine import packets as loop

    latency = latency or Latency()
    flightless_latency = replace(latency, handshake_count=0, has_acknowledgement=False, link_delay_s=0.0)
    lowered = lower_graph(graph, fabric, flightless_latency, allreduce, splits_by_pair=True)
    program, paths = lowered.program, _find_paths(lowered, fabric)
    messages = lowered.messages
    packet_count = int((lowered.program.message_bytes * messages.round_count).sum()) // latency.packet_bytes
    packets_per_train = packets_per_train or max(
        1, min(MAX_TRAIN_PACKETS, packet_count // MAX_SINGLE_PACKETS)
    )
    is_dead = fabric.capacity_bps[paths.links] == 0
    if is_dead.any():
        raise StalledError(f"link {paths.links[np.argmax(is_dead)]} is on a path and has no capacity")
    queues = _make_queues(graph, fabric, lowered, latency)
    transport = _make_transport(lowered, fabric, latency, packets_per_train, seed)
    state = make_state(program, fabric.link_count)
    with np.errstate(
        over="ignore"
    ):  # the hash of a path overflows on purpose; without numba, numpy would warn
        while (reason := loop.run_packets(program, state, paths, queues, transport)) == loop.FULL:
            queues = enlarge_trains(queues)
    if reason == loop.STALLED:
        raise StalledError(
            f"at {state.clock[0] * 1000.0:.3f} ms nothing moves, and no link is dead: this is a bug"
        )
    return Execution(
        graph, fabric, lowered, state.begin_s, state.end_s, state.link_bytes, queues.event_count, trace=None
    )


def _make_transport(
    lowered: LoweredGraph, fabric: Fabric, latency: Latency, packets_per_train: int, seed: int
) -> Transport:
    max_group_messages = int(np.diff(lowered.program.message_first).max(initial=0))
    return Transport(
        packet_bytes=latency.packet_bytes,
        link_delay_s=latency.link_delay_s,
        relay_delay_s=latency.relay_delay_s * fabric.hosts_forward,
        initial_window=WINDOW,
        slow_start_threshold=SLOW_START_UNTIL,
        mark_threshold=MARKS_ABOVE,
        timeout_s=TIMEOUT_S,
        scan_period_s=SCAN_S,
        packets_per_train=packets_per_train,
        max_trains_per_event=max_group_messages + int(SLOW_START_UNTIL) // packets_per_train + 2,
        seed=seed,
    )


def _find_paths(lowered: LoweredGraph, fabric: Fabric) -> Paths:
    """Return the distinct paths of each pair of nodes with traffic."""
    messages = lowered.messages
    pair_keys, pair_of_message = np.unique(
        messages.source * fabric.node_count + messages.target, return_inverse=True
    )
    sources, targets = np.divmod(pair_keys, fabric.node_count)
    alternative_count, router = fabric.alternatives or (1, fabric.router)
    choices = np.repeat(np.arange(alternative_count), pair_keys.size)
    padded_paths = router(np.tile(sources, alternative_count), np.tile(targets, alternative_count), choices)
    paths_by_pair = padded_paths.reshape(alternative_count, pair_keys.size, padded_paths.shape[1]).swapaxes(
        0, 1
    )
    distinct_paths = [np.unique(paths_of_pair, axis=0) for paths_of_pair in paths_by_pair]
    all_rows = np.concatenate(distinct_paths) if distinct_paths else np.zeros((0, 1), np.int64)
    return Paths(
        pair_of_message=pair_of_message.astype(np.int64).reshape(-1),
        pair_first=_compute_offsets([len(rows) for rows in distinct_paths]),
        first_link=_compute_offsets((all_rows >= 0).sum(axis=1).tolist()),
        links=all_rows[all_rows >= 0].astype(np.int64),
    )


def _compute_offsets(counts: list[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _make_queues(graph: TaskGraph, fabric: Fabric, lowered: LoweredGraph, latency: Latency) -> Queues:
    is_ring = graph.kind[lowered.messages.task] == Kind.ALLREDUCE
    with np.errstate(divide="ignore"):
        packet_s = latency.packet_bytes * 8 / fabric.capacity_bps
    marks = (fabric.sources >= fabric.node_count) | fabric.hosts_forward
    timeouts_s = np.where(is_ring, RING_TIMEOUT_S, TIMEOUT_S)
    return make_queues(packet_s, marks, timeouts_s, _FIRST_TRAIN_COUNT + 2 * int(SLOW_START_UNTIL))
