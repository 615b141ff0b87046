"""Simulation of one iteration of a task graph on a fabric: begin and end of each task, bytes on each link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.allreduce.algorithms import Algorithm, plan_rings
from sim.models.network.engine.program import (
    DIRTY,
    DONE,
    FLOW_ROWS,
    FLOWS,
    ORDER,
    RATE_ROWS,
    SHARES,
    Routes,
    State,
    make_neighbours,
    make_state,
)
from sim.models.network.execution.lowering import LoweredGraph, lower_graph
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_TRACE_ROWS = 1 << 16


class StalledError(RuntimeError):
    """Nothing can move any more, because links on the paths of flows are dead."""


class Change(NamedTuple):
    """A change of a link's capacity to `capacity_bps` at `time_s`; 0 is a failure."""

    time_s: float
    link: int
    capacity_bps: float


@dataclass(frozen=True, slots=True)
class Trace:
    """Events of an iteration in the order of time; the module `traces` converts them to tables.

    `flows` (rows, 4) has the columns message, round, begin and end of the data; `rates` (rows, 3) has time,
    link, and bytes/s from this time on.
    """

    flows: Floats
    rates: Floats


@dataclass(frozen=True, slots=True)
class Execution:
    """A simulated iteration: times in seconds from its begin, tasks as in the graph, links as in the fabric."""

    graph: TaskGraph
    fabric: Fabric
    lowered: LoweredGraph
    begin_s: Floats
    end_s: Floats
    link_bytes: Integers
    """(links,) bytes that each link carried, in whole packets"""
    event_count: int
    """events of the packet loop, or how often the flow loop computed rates"""
    trace: Trace | None
    reconfiguration_count: int = 0
    """Number of times at which circuits moved."""
    outage_s: float = 0.0
    """Total time in which some circuits were dark."""
    allocation_s: float = 0.0
    """Processor time of choosing circuits."""

    @property
    def iteration_s(self) -> float:
        """Time at which the last task ended."""
        return float(self.end_s.max(initial=0.0))

    @property
    def payload_bytes(self) -> int:
        """Payload bytes between different nodes, over all rounds."""
        return self._sum_sent(self.lowered.messages.size_bytes) + self.lowered.exchanged_bytes.payload_bytes

    @property
    def wire_bytes(self) -> int:
        """Payload in whole packets; a packet counts once, whatever the number of links on its path."""
        return self._sum_sent(self.lowered.program.message_bytes) + self.lowered.exchanged_bytes.packet_bytes

    def _sum_sent(self, size_bytes: Integers, domain_size: int = 1) -> int:
        """Return the bytes that messages take out of a node or a domain, over all rounds, without loads of links."""
        messages = self.lowered.messages
        leaves_domain = messages.source // domain_size != messages.target // domain_size
        if self.lowered.exchanged_bytes.unshared_bytes is not None:
            leaves_domain &= self.graph.kind[messages.task] != Kind.EXCHANGE
        return int((size_bytes * messages.round_count)[leaves_domain].sum())

    @property
    def received_bytes(self) -> int:
        """Bytes that links brought to hosts."""
        return (
            _sum_exactly(self.link_bytes[self.fabric.targets < self.fabric.node_count])
            + self._forwarded_by_shared_hosts
        )

    @property
    def forwarded_bytes(self) -> int:
        """Bytes that left a host where they did not begin."""
        left_nodes = _sum_exactly(self.link_bytes[self.fabric.sources < self.fabric.node_count])
        return left_nodes - self.wire_bytes + self._forwarded_by_shared_hosts

    @property
    def _forwarded_by_shared_hosts(self) -> int:
        """Bytes on links between hosts that several nodes share, beyond the first link of each message."""
        if self.fabric.domain_size == 1:
            return 0
        sent_bytes = self._sum_sent(self.lowered.program.message_bytes, self.fabric.domain_size)
        sent_bytes += self.lowered.exchanged_bytes.between_hosts_bytes
        return _sum_exactly(self.link_bytes[self.fabric.leaves_shared_host]) - sent_bytes

    @property
    def bandwidth_tax(self) -> float:
        """Bytes that reached hosts divided by bytes sent (1 for none sent); on direct connect, mean hops of a byte."""
        return self.received_bytes / self.wire_bytes if self.wire_bytes else 1.0


def _sum_exactly(link_bytes: Integers) -> int:
    """Return the sum over links, which may exceed 64 bits: a transfer counts once on each of its links."""
    high_parts, low_parts = np.divmod(link_bytes, 1 << 31)
    return (int(high_parts.sum()) << 31) + int(low_parts.sum())


def simulate(
    graph: TaskGraph,
    fabric: Fabric,
    *,
    latency: Latency | None = None,
    allreduce: Algorithm = plan_rings,
    changes: Sequence[Change] = (),
    trace: bool = False,
    rounding: float = 0.0,
    lag: float = 0.0,
    part_count: int = 1,
    in_proportion: bool = False,
) -> Execution:
    """Simulate one iteration on a fabric whose links may change at given times.

    If a link dies, its flows wait until the link has capacity again. With a `rounding` of 0.01 a flow may keep its
    rate up to 1 % longer than its bytes need, so that flows of similar durations end together and rates are computed
    less often. With a `lag` the rates may follow the begin and the end of a flow late by this share of its duration.
    They are then computed only once for flows that begin or end shortly after each other. A `rounding` or `lag` of 0
    is exact. Messages are split into `part_count` parts, which take different paths if the router of the fabric offers
    several. Rates are max-min fair. With `in_proportion` they are the rates of equal windows over FIFO queues (see
    `engine.proportional`).

    Raise `StalledError` if a flow waits for a dead link for ever, `ValueError` for a graph with more nodes than the
    fabric, a change of an unknown link, or a rounding outside [0, 1).
    """
    if changes:  # a link that loses capacity may be full
        fabric = replace(fabric, never_full=np.zeros(fabric.link_count, dtype=bool))
    lowered = lower_graph(graph, fabric, latency or Latency(), allreduce, part_count=part_count)
    run = Run(
        lowered,
        fabric.capacity_bps / 8,
        fabric.never_full,
        trace=trace,
        rounding=rounding,
        lag=lag,
        in_proportion=in_proportion,
    )
    for change in sorted(changes):
        if not 0 <= change.link < fabric.link_count:
            raise ValueError(f"{fabric.name} has links 0..{fabric.link_count - 1}, not {change.link}")
        if run.run_until(change.time_s):
            break
        run.capacity[change.link] = change.capacity_bps / 8
    if not run.run_until(np.inf):
        raise StalledError(run.describe_stalled(fabric))
    return run.make_execution(graph, fabric)


class Run:
    """A simulation that can be stopped at any time, to change capacities or routes, and continued.

    `capacity` (links,) is in bytes/s; the caller may write to it between two calls of `run_until`.
    """

    def __init__(
        self,
        lowered: LoweredGraph,
        capacity: Floats,
        never_full: NDArray[np.bool_],
        *,
        trace: bool = False,
        rounding: float = 0.0,
        lag: float = 0.0,
        in_proportion: bool = False,
    ) -> None:
        for name, share in {"rounding": rounding, "lag": lag}.items():
            if not 0 <= share < 1:
                raise ValueError(
                    f"{name} is {share}: it must be a share of a flow's duration, at least 0 and below 1"
                )
        self.lowered = lowered
        self.capacity = np.array(capacity, dtype=np.float64)
        self._shared_capacity = self.capacity.copy()
        self.routes: Routes = lowered.routes
        row_count = _TRACE_ROWS + capacity.size + lowered.program.message_bytes.size if trace else 0
        self.state: State = make_state(
            lowered.program, capacity.size, trace_rows=row_count, rounding=rounding, lag=lag
        )
        self._neighbours = make_neighbours(lowered.routes, never_full, in_proportion=in_proportion)
        self._in_proportion = in_proportion
        self._never_full = never_full
        self._is_tracing = trace
        self.was_woken = False
        self._flows: list[Floats] = []
        self._rates: list[Floats] = []

    def run_until(self, time_s: float) -> bool:
        """Continue to `time_s`; return whether all tasks have ended. With infinity, False means a stall.

        Return early, with `was_woken` set, when a task of `state.watch_flags` begins or ends.
        """
        from sim.models.network.engine import loop

        program, state = self.lowered.program, self.state
        self._mark_changed_links()
        while (
            reason := loop.run(program, self.routes, state, self._neighbours, self.capacity, time_s)
        ) == loop.FULL:
            self._empty_trace()
        if reason == loop.STALLED and time_s < np.inf:
            state.clock[0] = time_s
        self.was_woken = reason == loop.WOKE
        return bool(reason == loop.FINISHED)

    def reroute(self, routes: Routes) -> None:
        """Send messages over other links from now on; bytes that have moved already count on the old links."""
        from sim.models.network.engine import loop

        state = self.state
        moving_messages, remaining_bytes = self.find_moving_messages()
        moved_bytes = self.lowered.program.message_bytes[moving_messages] - np.ceil(remaining_bytes).astype(
            np.int64
        )
        for message, size_bytes in zip(moving_messages, moved_bytes, strict=True):
            state.link_bytes[self.list_links(message)] += size_bytes
        self.routes = routes
        # A flow adds all its bytes to its links when it ends, so subtract the bytes that the old links carried.
        for message, size_bytes in zip(moving_messages, moved_bytes, strict=True):
            state.link_bytes[self.list_links(message)] -= size_bytes
        self._neighbours = make_neighbours(routes, self._never_full, in_proportion=self._in_proportion)
        loop.add_flows(state, self._neighbours, 0)
        state.rate_deadline_s[0] = state.clock[0]

    def find_moving_messages(self) -> tuple[Integers, Floats]:
        """Return the messages whose data moves, and the remaining bytes of each."""
        state, moving_messages = self.state, self.state.flow_messages[: self.state.counters[FLOWS]]
        elapsed_s = state.clock[0] - state.flow_updated_s[moving_messages]
        return moving_messages, np.maximum(
            state.flow_bytes_left[moving_messages] - state.flow_rate[moving_messages] * elapsed_s, 0.0
        )

    def list_links(self, message: int) -> Integers:
        """Return the links that a message uses now."""
        path = self.routes.path_of_message[message]
        return self.routes.links[self.routes.first_link[path] : self.routes.first_link[path + 1]]

    def count_progress(self) -> int:
        """Return a number that grows with every round that begins and every task that ends."""
        return int(self.state.counters[DONE] + self.state.counters[ORDER])

    def describe_stalled(self, fabric: Fabric) -> str:
        """Return a message that names a flow and the dead link for which it waits."""
        messages = self.lowered.messages
        for message in self.state.flow_messages[: self.state.counters[FLOWS]]:
            links = self.list_links(message)
            dead_links = links[self.capacity[links] == 0]
            if dead_links.size:
                pair = f"{messages.source[message]} -> {messages.target[message]}"
                link = f"{fabric.sources[dead_links[0]]} -> {fabric.targets[dead_links[0]]}"
                time_text = f"{self.state.clock[0] * 1e3:.3f} ms"
                waiting_text = f"the flow {pair} waits for link {dead_links[0]} ({link})"
                return f"at {time_text} {waiting_text}, which has no capacity any more"
        return f"at {self.state.clock[0] * 1e3:.3f} ms nothing moves, and no link is dead: this is a bug"

    def make_execution(self, graph: TaskGraph, fabric: Fabric) -> Execution:
        """Return the execution so far."""
        self._empty_trace()
        state, unshared_bytes = self.state, self.lowered.exchanged_bytes.unshared_bytes
        trace = Trace(np.concatenate(self._flows), np.concatenate(self._rates)) if self._is_tracing else None
        return Execution(
            graph,
            fabric,
            self.lowered,
            state.begin_s,
            state.end_s,
            state.link_bytes if unshared_bytes is None else state.link_bytes + unshared_bytes,
            int(state.counters[SHARES]),
            trace,
        )

    def _mark_changed_links(self) -> None:
        """Mark the links to whose `capacity` the caller has written."""
        state = self.state
        changed_links = np.flatnonzero((self.capacity != self._shared_capacity) & (state.dirty_mark == 0))
        begin = state.counters[DIRTY]
        state.dirty_links[begin : begin + changed_links.size] = changed_links
        state.dirty_mark[changed_links] = 1
        state.counters[DIRTY] += changed_links.size
        if changed_links.size:
            state.rate_deadline_s[0] = state.clock[0]
        self._shared_capacity[:] = self.capacity

    def _empty_trace(self) -> None:
        counters = self.state.counters
        self._flows.append(self.state.flow_rows[: counters[FLOW_ROWS]].copy())
        self._rates.append(self.state.rate_rows[: counters[RATE_ROWS]].copy())
        counters[FLOW_ROWS] = counters[RATE_ROWS] = 0
