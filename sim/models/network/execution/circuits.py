"""A circuit switch that is reconfigured during an iteration, to follow the demand.

Every `period_s` the controller reads how many bytes the running tasks still have to move, chooses circuits, and
switches those that differ; these are dark for `delay_s`, and the others stay lit. The controller assigns one circuit
at a time to the pair with the greatest marginal use: demand times 1, 1/2, 1/4... for the first, second and third
circuit of a pair, so that c circuits are worth 2 - 2^(1-c) times its demand. Nodes have `degree` transmitters and
receivers; circuits are one-way.

With host forwarding, one circuit of each node belongs to a fixed ring, so that a path joins every pair. Pairs without
a circuit use the shortest path, and moving flows are rerouted whenever circuits change. Without host forwarding such
pairs wait for a circuit. A message has the latency of a single hop in both cases.
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
from sim.models.network.fabrics.model import CyclicRouter, Fabric, check_sizes
from sim.models.network.fabrics.rails import share_hosts
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_PATIENCE = 10_000
"""Periods without progress after which an iteration counts as stalled."""


@dataclass(frozen=True, slots=True)
class CircuitSwitch:
    """A switch with `degree` circuits of `rate_gbps` from and to each node, reconfigured every `period_s`.

    With a `domain` above 1 each of the `nodes` is a host of so many GPUs, which are the nodes of the fabric; each has
    `domain_gbps` to and from its host.
    """

    nodes: int
    degree: int
    rate_gbps: float
    period_s: float = 50e-3
    delay_s: float = 10e-3
    forwarding: bool = False
    domain: int = 1
    domain_gbps: float = 0.0

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
        """Return a fabric with a dark link for each ordered pair of nodes; link s * n + t leads from s to t.

        The links of domains follow.
        """
        pairs = self.nodes**2
        sources, targets = np.divmod(np.arange(pairs), self.nodes)
        fabric = Fabric(
            name="circuits+forwarding" if self.forwarding else "circuits",
            nodes=self.nodes,
            sources=sources,
            targets=targets,
            capacity_bps=np.zeros(pairs),
            lane_bps=np.full(pairs, self.rate_gbps * 1e9),
            never_full=np.zeros(pairs, dtype=bool),
            router=CyclicRouter(lambda source, target, _choices: (source * self.nodes + target)[:, None], 1),
            hosts_forward=True,
            cost=circuit_switch_cost(self.nodes, self.degree, self.rate_gbps),
        )
        return fabric if self.domain == 1 else share_hosts(fabric, self.domain, self.domain_gbps)


def simulate_circuits(
    graph: TaskGraph,
    switch: CircuitSwitch,
    *,
    latency: Latency | None = None,
    allreduce: Algorithm = ring,
    trace: bool = False,
    rounding: float = 0.0,
) -> Execution:
    """Simulate one iteration over circuits that follow the demand; `rounding` as in `execution.simulate`.

    Raise `Stalled` if nothing moves for 10,000 periods, `ValueError` if the graph has more nodes than the switch.
    """
    fabric = switch.fabric()
    lowered = lower(graph, fabric, latency or Latency(), allreduce, by_pair=True)
    run = Run(lowered, fabric.capacity_bps / 8, fabric.never_full, trace=trace, rounding=rounding)
    circuits = np.zeros((switch.nodes, switch.nodes), np.int64)
    now_s, idle, progress, allocation_s = 0.0, 0, -1, 0.0
    moved_s: list[float] = []

    def result() -> Execution:
        execution = run.result(graph, fabric)
        dark_s = (min(switch.delay_s, execution.iteration_s - begin_s) for begin_s in moved_s)
        return replace(
            execution, reconfigurations=len(moved_s), outage_s=sum(dark_s), allocation_s=allocation_s
        )

    run.run_until(0.0)
    while idle < _PATIENCE:
        began_s = process_time()
        next_circuits = choose_circuits(
            remaining_demand(run, lowered, switch.nodes, switch.domain), switch, circuits
        )
        allocation_s += process_time() - began_s
        has_moved = bool((next_circuits != circuits).any())
        moved_s += [now_s] * has_moved
        # Circuits of both configurations stay lit while the others are switched.
        _light(run, switch, np.minimum(circuits, next_circuits))
        if run.run_until(now_s + switch.delay_s * has_moved):
            return result()
        circuits = next_circuits
        _light(run, switch, circuits)
        if switch.forwarding:
            run.reroute(_route(lowered, circuits, switch.domain))
        now_s += switch.period_s
        if run.run_until(now_s):
            return result()
        idle = idle + 1 if progress == (progress := run.progress()) else 0
    raise Stalled(
        f"nothing moved in {_PATIENCE} periods, up to {now_s:.3f} s: increase the degree or the period"
    )


def remaining_demand(run: Run, lowered: Lowered, nodes: int, domain: int = 1) -> Floats:
    """Return the bytes that running tasks still have to move, (nodes, nodes), source by target.

    Of messages between GPUs, `domain` in each node, the pairs are nodes.
    """
    program, state, messages = lowered.program, run.state, lowered.messages
    is_running = ~np.isnan(state.begin_s) & np.isnan(state.end_s)
    chain_of = program.group_chain[program.message_group]
    rounds = messages.rounds.astype(np.float64)
    is_past = messages.phase < state.chain_phase[chain_of]
    is_current = messages.phase == state.chain_phase[chain_of]
    rounds[is_past] = 0.0
    rounds[is_current] -= state.chain_round[chain_of][is_current]
    weight = rounds * program.message_bytes * is_running[messages.task]
    moving, bytes_to_move = run.moving()
    weight[moving] -= program.message_bytes[moving] - bytes_to_move
    pair = messages.source // domain * nodes + messages.target // domain
    bytes_left = np.bincount(pair, weights=weight, minlength=nodes**2).astype(np.float64)
    return bytes_left.reshape(nodes, nodes)


def choose_circuits(wanted_bytes: Floats, switch: CircuitSwitch, lit: Integers) -> Integers:
    """Return the number of circuits of each pair, (nodes, nodes), by greatest marginal use.

    Circuits that are lit now stay if no demand needs their ports.
    """
    circuits = np.zeros_like(lit)
    if switch.forwarding:
        circuits[np.arange(switch.nodes), np.roll(np.arange(switch.nodes), -1)] = 1
    out, into = switch.degree - circuits.sum(axis=1), switch.degree - circuits.sum(axis=0)
    sources, targets = np.nonzero(wanted_bytes > 0)
    bytes_to_move = wanted_bytes[sources, targets]
    # Most pairs get no circuit, so the first use of each is sorted, and only further uses are in the heap.
    order = np.argsort(-bytes_to_move, kind="stable")
    first_uses = zip(*(column[order].tolist() for column in (-bytes_to_move, sources, targets)), strict=True)
    transmitters, receivers = out.tolist(), into.tolist()
    free = min(sum(transmitters), sum(receivers))
    heap: list[tuple[float, int, int]] = []
    following = next(first_uses, None)
    while free and (heap or following):
        if following and (not heap or following < heap[0]):
            use, source, target = following
            following = next(first_uses, None)
        else:
            use, source, target = heapq.heappop(heap)
        if source != target and transmitters[source] and receivers[target]:
            circuits[source, target] += 1
            transmitters[source] -= 1
            receivers[target] -= 1
            free -= 1
            heapq.heappush(heap, (use / 2, source, target))
    out, into = np.array(transmitters), np.array(receivers)
    for source, target in np.argwhere(lit > circuits):
        staying = min(lit[source, target] - circuits[source, target], out[source], into[target])
        circuits[source, target] += staying
        out[source] -= staying
        into[target] -= staying
    return circuits


def _light(run: Run, switch: CircuitSwitch, circuits: Integers) -> None:
    run.capacity[: circuits.size] = circuits.reshape(-1) * (switch.rate_gbps * 1e9 / 8)


def _route(lowered: Lowered, circuits: Integers, domain: int) -> Routes:
    """Return shortest routes over the current circuits, with the link numbers of the fabric."""
    pairs = np.argwhere(circuits > 0)
    link_of = pairs[:, 0] * len(circuits) + pairs[:, 1]
    router = path_router(next_links(len(circuits), pairs, 0), pairs[:, 1], {})
    nodes, messages = domain * len(circuits), lowered.messages
    pair, path = np.unique(messages.source * nodes + messages.target, return_inverse=True)
    sources, targets = np.divmod(pair, nodes)
    padded = router(sources // domain, targets // domain, pair)
    padded = np.where(padded >= 0, link_of[padded], -1)
    if domain > 1:
        padded = np.column_stack([circuits.size + sources, padded, circuits.size + nodes + targets])
    is_link = padded >= 0
    first = np.concatenate([[0], np.cumsum(is_link.sum(axis=1))])
    return Routes(first, padded[is_link], path)
