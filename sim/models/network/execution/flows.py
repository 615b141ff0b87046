"""Transfers that share links: who gets which rate, when each ends, what each link carried, exact to the byte.

Sizes are integers, and what a link carried is a sum of integers: every byte that was asked for is counted once on
each link of its path. Times are 64-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.engine.program import (
    FLOWS,
    Neighbours,
    Program,
    Routes,
    State,
    fresh_neighbours,
    fresh_state,
)
from sim.models.network.execution.simulation import Change, Execution, simulate
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import Kind, TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Flow(NamedTuple):
    """`size_bytes` from one node to another, ready at `begin_s`."""

    source: int
    target: int
    size_bytes: int
    begin_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Transfers:
    """Flows that have run: `end_s` (flows,) when each had arrived, `link_bytes` (links,) what each link carried."""

    end_s: Floats
    link_bytes: Integers
    execution: Execution


def transfer(
    fabric: Fabric,
    flows: Sequence[Flow],
    *,
    latency: Latency = NO_LATENCY,
    changes: Sequence[Change] = (),
    trace: bool = False,
) -> Transfers:
    """Run independent flows on a fabric; by default nothing but bytes takes time.

    Two flows of 1 MB share 8 Gbit/s; then one goes on alone:

    >>> from sim.models.network.fabrics import ideal_switch
    >>> done = transfer(ideal_switch(3, 8), [Flow(0, 1, 1_000_000), Flow(0, 2, 3_000_000)])
    >>> done.end_s.tolist(), done.link_bytes.tolist()
    ([0.002, 0.004], [4000000, 0, 0, 0, 1000000, 3000000])
    """
    columns = list(zip(*flows, strict=True)) if flows else [()] * 4
    source, target, size_bytes = (np.array(column, dtype=np.int64) for column in columns[:3])
    none = np.full(source.shape, -1)
    graph = TaskGraph(
        nodes=fabric.nodes,
        kind=np.full(source.shape, int(Kind.TRANSFER)),
        device=none,
        time_s=np.array(columns[3], dtype=np.float64),
        size_bytes=size_bytes,
        source=source,
        target=target,
        group=none,
        groups=(),
        before=np.zeros(0, np.int64),
        after=np.zeros(0, np.int64),
    )
    execution = simulate(graph, fabric, latency=latency, changes=changes, trace=trace)
    return Transfers(execution.end_s, execution.link_bytes, execution)


def max_min_rates(paths: Sequence[Sequence[int]], capacity: Floats) -> Floats:
    """Max-min fair rates of flows over links, (flows,), in the unit of `capacity` (links,).

    No flow can have more without taking from one that has no more than it. A flow without links has an infinite
    rate. `ValueError` when a path names a link twice or one that is not there.

    >>> max_min_rates([(0,), (0, 1), (1,)], np.array([3.0, 10.0])).tolist()
    [1.5, 1.5, 8.5]
    """
    from sim.models.network.engine import loop

    return _rates(paths, capacity, loop.share, in_proportion=False)


def proportional_rates(paths: Sequence[Sequence[int]], capacity: Floats) -> Floats:
    """Proportionally fair rates of flows over links, the same way: those that maximise the sum of their logarithms.

    >>> proportional_rates([(0,), (0, 1), (1,)], np.array([3.0, 3.0])).round(5).tolist()
    [2.0, 1.0, 2.0]
    """
    from sim.models.network.engine.proportional import share_in_proportion

    return _rates(paths, capacity, share_in_proportion, in_proportion=True)


def _rates(
    paths: Sequence[Sequence[int]],
    capacity: Floats,
    share: Callable[[State, Neighbours, Floats], None],
    *,
    in_proportion: bool,
) -> Floats:
    """Return the rates of flows that all begin at once."""
    from sim.models.network.engine import loop

    for path in paths:
        if len(set(path)) != len(path) or not set(path) <= set(range(capacity.size)):
            raise ValueError(f"the path {tuple(path)} must name different links of 0..{capacity.size - 1}")
    first = np.concatenate([[0], np.cumsum([len(path) for path in paths])]).astype(np.int64)
    routes = Routes(first, np.array([link for path in paths for link in path], dtype=np.int64))
    state = fresh_state(_nothing(len(paths)), capacity.size)
    near = fresh_neighbours(routes, np.zeros(capacity.size, dtype=bool), in_proportion=in_proportion)
    on_links = np.flatnonzero(np.diff(first))
    state.number[FLOWS] = on_links.size
    state.flows[: on_links.size] = on_links
    loop.join(state, near, 0)
    share(state, near, np.asarray(capacity, dtype=np.float64))
    rates = np.full(len(paths), np.inf)
    rates[on_links] = state.flow_rate[on_links]
    return rates


def _nothing(messages: int) -> Program:
    """Return a program without tasks that has messages."""
    no, none = np.zeros(0, np.int64), np.zeros(0)
    start = np.zeros(1, np.int64)
    return Program(
        no,
        none,
        no,
        start,
        no,
        start,
        no,
        start,
        no,
        start,
        no,
        none,
        none,
        start,
        no,
        np.ones(messages, np.int64),
    )
