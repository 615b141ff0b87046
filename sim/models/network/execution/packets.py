"""Runs one iteration with messages as connections whose packets wait in queues, each on one path drawn by a hash."""

from __future__ import annotations

import numpy as np

from sim.models.network.allreduce.algorithms import Algorithm, ring
from sim.models.network.engine.connections import Paths, Queues, Transport, fresh_queues
from sim.models.network.engine.program import fresh_state
from sim.models.network.execution.lowering import lower
from sim.models.network.execution.simulation import Execution, Stalled
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph.graph import Kind, TaskGraph


def simulate_packets(graph, fabric, *, latency=None, allreduce=ring, seed=0, train=1, ways=4):
    from dataclasses import replace
    from sim.models.network.engine import packets as loop

    latency = latency or Latency()
    lowered = lower(graph, fabric, replace(latency, handshakes=0, acknowledged=False, link_s=0.0), allreduce)
    m = lowered.messages
    pairs, pair = np.unique(m.source * fabric.nodes + m.target, return_inverse=True)
    s, t = np.divmod(pairs, fabric.nodes)
    first, links, pf = [0], [], [0]
    for a, b in zip(s, t):
        seen = sorted({fabric.path(int(a), int(b), c) for c in range(ways)})
        for path in seen:
            links.extend(path); first.append(len(links))
        pf.append(len(first) - 1)
    paths = Paths(pair.astype(np.int64), np.array(pf), np.array(first), np.array(links))
    kind = graph.kind[m.task]
    rto = np.where(kind == Kind.ALLREDUCE, 1e-3, 10e-3)
    packet_s = latency.packet_bytes * 8 / fabric.capacity_bps
    marks = (fabric.sources >= fabric.nodes) | fabric.hosts_forward
    q = fresh_queues(packet_s, marks, rto, 200000)
    tr = Transport(latency.packet_bytes, latency.link_s, latency.relay_s, 100.0, 10000.0, 50.0, 10e-3, 1e-3, train, 12000, seed)
    state = fresh_state(lowered.program, fabric.links)
    why = loop.run_packets(lowered.program, state, paths, q, tr)
    assert why == loop.FINISHED, why
    return Execution(graph, fabric, lowered, state.begin_s, state.end_s, state.link_bytes, int(q.number[1]), None)
