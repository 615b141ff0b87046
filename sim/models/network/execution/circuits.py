"""A circuit switch that is reconfigured while an iteration runs, to match the demand.

Every `period_s` the controller looks at the bytes that started tasks still have to move, chooses circuits again, and
switches those that differ; they are dark for `delay_s`, the others stay lit. Circuits go to the pairs of greatest
marginal use, one by one: demand times 1, 1/2, 1/4... for the first, second, third circuit of a pair, so c circuits
are worth 2 - 2^(1-c) of its demand. Nodes have `degree` transmitters and receivers; circuits are one-way.

With host forwarding one circuit of each node is kept in a ring, so that every pair has a way; pairs without a circuit
take the shortest, and flows on their way are routed again with the circuits. Without it they wait for a circuit.
A message keeps the latency of a single hop.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from time import process_time

import numpy as np
from numpy.typing import NDArray

from sim.models.network.allreduce.algorithms import Algorithm, ring
from sim.models.network.engine.program import Routes
from sim.models.network.execution.lowering import Lowered, lower
from sim.models.network.execution.simulation import Execution, Run, Stalled
from sim.models.network.fabrics.cost import circuit_switch_cost
from sim.models.network.fabrics.direct import next_links, path_router
from sim.models.network.fabrics.model import Fabric, check_sizes
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_PATIENCE = 10_000
"""Periods without a byte moved or a task ended before an iteration counts as stalled."""


@dataclass(frozen=True, slots=True)
class CircuitSwitch:
    """`degree` circuits from and to each node, each of `rate_gbps`, chosen again every `period_s`."""

    nodes: int
    degree: int
    rate_gbps: float
    period_s: float = 50e-3
    delay_s: float = 10e-3
    forwarding: bool = False

    def __post_init__(self) -> None:
        check_sizes(self.nodes, self.rate_gbps)
        if self.nodes < 2 or self.degree < 1 + self.forwarding:
            raise ValueError(
                "circuits need at least 2 nodes and a degree of at least 1, or 2 with forwarding"
            )
        if not 0 <= self.delay_s < self.period_s:
            raise ValueError(
                f"delay_s {self.delay_s} must be 0 or more and less than period_s {self.period_s}"
            )

    def fabric(self) -> Fabric:
        """Return a link for each ordered pair of nodes, dark as yet; link s * n + t leads from s to t."""
        pairs = self.nodes**2
        sources, targets = np.divmod(np.arange(pairs), self.nodes)
        return Fabric(
            name="circuits+forwarding" if self.forwarding else "circuits",
            nodes=self.nodes,
            sources=sources,
            targets=targets,
            capacity_bps=np.zeros(pairs),
            lane_bps=np.full(pairs, self.rate_gbps * 1e9),
            never_full=np.zeros(pairs, dtype=bool),
            router=lambda source, target, _choices: (source * self.nodes + target)[:, None],
            hosts_forward=True,
            cost=circuit_switch_cost(self.nodes, self.degree, self.rate_gbps),
        )


def simulate_circuits(
    graph: TaskGraph,
    switch: CircuitSwitch,
    *,
    latency: Latency | None = None,
    allreduce: Algorithm = ring,
    trace: bool = False,
    rounding: float = 0.0,
) -> Execution:
    """Simulate one iteration over circuits that follow the demand. `rounding` as in `execution.simulate`.

    Raises `Stalled` when circuits never come to those that wait, `ValueError` for a graph that does not fit.
    """
    fabric = switch.fabric()
    lowered = lower(graph, fabric, latency or Latency(), allreduce)
    run = Run(lowered, fabric.capacity_bps, fabric.never_full, trace=trace, rounding=rounding)
    circuits = np.zeros((switch.nodes, switch.nodes), np.int64)
    now_s, idle, progress, allocation_s = 0.0, 0, -1, 0.0
    moved_s: list[float] = []

    def result() -> Execution:
        execution = run.result(graph, fabric)
        dark_s = (min(switch.delay_s, execution.iteration_s - begin_s) for begin_s in moved_s)
        return replace(
            execution, reconfigurations=len(moved_s), outage_s=sum(dark_s), allocation_s=allocation_s
        )

    run.until(0.0)
    while idle < _PATIENCE:
        began_s = process_time()
        wanted = choose_circuits(demand(run, lowered, switch.nodes), switch, circuits)
        allocation_s += process_time() - began_s
        has_moved = bool((wanted != circuits).any())
        moved_s += [now_s] * has_moved
        _light(run, switch, np.minimum(circuits, wanted))
        if run.until(now_s + switch.delay_s * has_moved):
            return result()
        circuits = wanted
        _light(run, switch, circuits)
        if switch.forwarding:
            run.reroute(_route(lowered, circuits))
        now_s += switch.period_s
        if run.until(now_s):
            return result()
        idle = idle + 1 if progress == (progress := run.progress()) else 0
    raise Stalled(
        f"nothing moved in {_PATIENCE} periods, up to {now_s:.3f} s: increase the degree or the period"
    )


def demand(run: Run, lowered: Lowered, nodes: int) -> Floats:
    """Return bytes that begun tasks still have to move, (nodes, nodes), source by target."""
    program, state, messages = lowered.program, run.state, lowered.messages
    begun = ~np.isnan(state.begin_s) & np.isnan(state.end_s)
    chain_of = program.group_chain[program.message_group]
    rounds = messages.rounds.astype(np.float64)
    done = messages.phase < state.chain_phase[chain_of]
    current = messages.phase == state.chain_phase[chain_of]
    rounds[done] = 0.0
    rounds[current] -= state.chain_round[chain_of][current]
    weight = rounds * program.message_bytes * begun[messages.task]
    moving, left = run.moving()
    weight[moving] -= program.message_bytes[moving] - left
    pair = messages.source * nodes + messages.target
    bytes_left = np.bincount(pair, weights=weight, minlength=nodes**2).astype(np.float64)
    return bytes_left.reshape(nodes, nodes)


def choose_circuits(wanted_bytes: Floats, switch: CircuitSwitch, lit: Integers) -> Integers:
    """Return circuits (nodes, nodes) by greatest marginal use; lit ones stay where nothing else wants their ports."""
    circuits = np.zeros_like(lit)
    if switch.forwarding:
        circuits[np.arange(switch.nodes), np.roll(np.arange(switch.nodes), -1)] = 1
    out, into = switch.degree - circuits.sum(axis=1), switch.degree - circuits.sum(axis=0)
    heap = [(-wanted_bytes[s, t], int(s), int(t)) for s, t in np.argwhere(wanted_bytes > 0) if s != t]
    heapq.heapify(heap)
    while heap:
        use, source, target = heapq.heappop(heap)
        if out[source] and into[target]:
            circuits[source, target] += 1
            out[source] -= 1
            into[target] -= 1
            heapq.heappush(heap, (use / 2, source, target))
    for source, target in np.argwhere(lit > circuits):
        kept = min(lit[source, target] - circuits[source, target], out[source], into[target])
        circuits[source, target] += kept
        out[source] -= kept
        into[target] -= kept
    return circuits


def _light(run: Run, switch: CircuitSwitch, circuits: Integers) -> None:
    run.capacity[:] = circuits.reshape(-1) * (switch.rate_gbps * 1e9 / 8)


def _route(lowered: Lowered, circuits: Integers) -> Routes:
    """Return routes over the circuits there are now, links numbered as in the fabric."""
    pairs = np.argwhere(circuits > 0)
    link_of = pairs[:, 0] * len(circuits) + pairs[:, 1]
    router = path_router(next_links(len(circuits), pairs, 0), pairs[:, 1], {})
    messages = lowered.messages
    padded = router(messages.source, messages.target, messages.task)
    there = padded >= 0
    first = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return Routes(first, link_of[padded[there]])
