"""Transfers that share links: rates, end times, and bytes on each link.

Sizes are integers, so the bytes of a link are exact: every byte of a flow counts once on each link of its path. Times
are 64-bit floats.
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
    State,
    make_neighbours,
    make_routes,
    make_state,
)
from sim.models.network.execution.simulation import Change, Execution, simulate
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import Kind, TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Flow(NamedTuple):
    """A transfer of `size_bytes` from one node to another, ready at `begin_s`."""

    source: int
    target: int
    size_bytes: int
    begin_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Transfers:
    """Result of a transfer: `end_s` (flows,), when each flow arrived, and `link_bytes` (links,), bytes on each link."""

    end_s: Floats
    link_bytes: Integers
    execution: Execution


def simulate_transfers(
    fabric: Fabric,
    flows: Sequence[Flow],
    *,
    latency: Latency = NO_LATENCY,
    changes: Sequence[Change] = (),
    trace: bool = False,
) -> Transfers:
    """Simulate independent flows on a fabric; by default without latencies.

    Two flows share 8 Gbit/s until the first has moved its 1 MB; then the second has all of it:

    >>> from sim.models.network.fabrics import make_ideal_switch
    >>> done = simulate_transfers(make_ideal_switch(3, 8), [Flow(0, 1, 1_000_000), Flow(0, 2, 3_000_000)])
    >>> done.end_s.tolist(), done.link_bytes.tolist()
    ([0.002, 0.004], [4000000, 0, 0, 0, 1000000, 3000000])
    """
    columns = list(zip(*flows, strict=True)) if flows else [()] * 4
    source, target, size_bytes = (np.array(column, dtype=np.int64) for column in columns[:3])
    absent = np.full(source.shape, -1)
    graph = TaskGraph(
        node_count=fabric.node_count,
        kind=np.full(source.shape, int(Kind.TRANSFER)),
        device=absent,
        time_s=np.array(columns[3], dtype=np.float64),
        size_bytes=size_bytes,
        source=source,
        target=target,
        group=absent,
        groups=(),
        before=np.zeros(0, np.int64),
        after=np.zeros(0, np.int64),
    )
    execution = simulate(graph, fabric, latency=latency, changes=changes, trace=trace)
    return Transfers(execution.end_s, execution.link_bytes, execution)


def compute_max_min_rates(paths: Sequence[Sequence[int]], capacity: Floats) -> Floats:
    """Return the max-min fair rates of flows over links, (flows,), in the unit of `capacity` (links,).

    No flow can get more without taking from a flow with the same rate or less. A flow without links has an infinite
    rate. Raise `ValueError` if a path names a link twice or a link outside `capacity`.

    >>> compute_max_min_rates([(0,), (0, 1), (1,)], np.array([3.0, 10.0])).tolist()
    [1.5, 1.5, 8.5]
    """
    from sim.models.network.engine import loop

    return _compute_rates(paths, capacity, loop.set_fair_rates, in_proportion=False)


def compute_proportional_rates(paths: Sequence[Sequence[int]], capacity: Floats) -> Floats:
    """Return the proportionally fair rates of flows over links, which maximise the sum of their logarithms.

    Arguments, shape and errors are as in `compute_max_min_rates`.

    >>> compute_proportional_rates([(0,), (0, 1), (1,)], np.array([3.0, 3.0])).round(5).tolist()
    [2.0, 1.0, 2.0]
    """
    from sim.models.network.engine.proportional import share_in_proportion

    return _compute_rates(paths, capacity, share_in_proportion, in_proportion=True)


def _compute_rates(
    paths: Sequence[Sequence[int]],
    capacity: Floats,
    set_rates: Callable[[State, Neighbours, Floats], None],
    *,
    in_proportion: bool,
) -> Floats:
    """Return the rates that `set_rates` gives to flows that all begin at the same time."""
    from sim.models.network.engine import loop

    for path in paths:
        if len(set(path)) != len(path) or not set(path) <= set(range(capacity.size)):
            raise ValueError(f"the path {tuple(path)} must name different links of 0..{capacity.size - 1}")
    first_link = np.concatenate([[0], np.cumsum([len(path) for path in paths])]).astype(np.int64)
    routes = make_routes(first_link, np.array([link for path in paths for link in path], dtype=np.int64))
    state = make_state(_make_program_without_tasks(len(paths)), capacity.size)
    sharing = make_neighbours(routes, np.zeros(capacity.size, dtype=bool), in_proportion=in_proportion)
    nonempty_paths = np.flatnonzero(np.diff(first_link))
    state.counters[FLOWS] = nonempty_paths.size
    state.flow_messages[: nonempty_paths.size] = nonempty_paths
    loop.add_flows(state, sharing, 0)
    set_rates(state, sharing, np.asarray(capacity, dtype=np.float64))
    rates = np.full(len(paths), np.inf)
    rates[nonempty_paths] = state.flow_rate[nonempty_paths]
    return rates


def _make_program_without_tasks(message_count: int) -> Program:
    """Return a program with messages of one byte, but no tasks."""
    no_integers, no_floats = np.zeros(0, np.int64), np.zeros(0)
    offsets = np.zeros(1, np.int64)
    return Program(
        no_integers,
        no_floats,
        no_integers,
        offsets,
        no_integers,
        offsets,
        no_integers,
        offsets,
        no_integers,
        offsets,
        no_integers,
        no_floats,
        no_floats,
        offsets,
        no_integers,
        np.ones(message_count, np.int64),
    )
