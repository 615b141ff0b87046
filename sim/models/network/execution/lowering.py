"""Lowering of a task graph, a fabric and latencies to the arrays of the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.allreduce.algorithms import Algorithm, Chain, Phase, exchange
from sim.models.network.engine.program import Program, Routes
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SINGLES = 1 << 15
"""Size of the cache of single messages: a search simulates the same messages again and again."""
_GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are spread evenly over 0 to 1, so single packets take turns over the paths."""


class Messages(NamedTuple):
    """The messages of a program, each listed once even if its round repeats; all columns are (messages,).

    A fluid message replaces `merged` rounds of its collective (1 if it is not fluid), and `size_bytes` is the sum over
    these rounds. The program sends the message `rounds` times.
    """

    task: Integers
    phase: Integers
    source: Integers
    target: Integers
    size_bytes: Integers
    rounds: Integers
    merged: Integers
    choice: Integers
    """Number of the path among equally good ones, or of the set of routes."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program, its initial routes, and the description of its messages."""

    program: Program
    routes: Routes
    messages: Messages


def lower(
    graph: TaskGraph, fabric: Fabric, latency: Latency, allreduce: Algorithm, *, parts: int = 1
) -> Lowered:
    """Return the program of one iteration.

    Messages are split into equal `parts` over as many paths, or by the weights of the fabric. Raise `ValueError` if
    the fabric has fewer nodes than the graph.
    """
    if fabric.nodes < graph.nodes:
        raise ValueError(
            f"the graph has {graph.nodes} nodes, {fabric.name} only {fabric.nodes}: take a larger fabric"
        )
    chains = _chains(graph, latency, allreduce)
    messages = _split(_messages(chains), fabric, latency, parts)
    head_s, tail_s = _latencies(route_messages(messages, fabric), fabric, latency)
    tail_s = _with_merged_rounds(messages, head_s, tail_s)
    order, group_of, group_phase, head, tail = _groups(messages, head_s, tail_s)
    messages = Messages(*(column[order] for column in messages))
    phases = [phase for _, chain in chains for phase in chain]
    chain_task = np.array([task for task, _ in chains], dtype=np.int64)
    chain_of_phase = np.repeat(np.arange(len(chains)), [len(chain) for _, chain in chains])
    following = np.argsort(graph.before, kind="stable")
    program = Program(
        task_device=graph.device,
        task_s=graph.time_s,
        task_after=np.bincount(graph.after, minlength=graph.tasks),
        next_first=_offsets(graph.before, graph.tasks),
        next_task=graph.after[following],
        chain_first=_offsets(chain_task, graph.tasks),
        chain_task=chain_task,
        phase_first=_offsets(chain_of_phase, len(chains)),
        phase_rounds=np.array([1 if phase.merged else phase.rounds for phase in phases], dtype=np.int64),
        group_first=_offsets(group_phase, len(phases)),
        group_chain=chain_of_phase[group_phase] if phases else group_phase,
        head_s=head,
        tail_s=tail,
        message_first=_offsets(group_of, group_phase.size),
        message_group=group_of,
        message_bytes=latency.wire_bytes(messages.size_bytes // messages.merged) * messages.merged,
    )
    return Lowered(program, route_messages(messages, fabric), messages)


def _offsets(sorted_owner: Integers, owners: int) -> Integers:
    """Return the index of the first item of each owner when items are sorted by owner, (owners + 1,)."""
    counts = np.bincount(sorted_owner, minlength=owners) if sorted_owner.size else np.zeros(owners, np.int64)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _chains(graph: TaskGraph, latency: Latency, allreduce: Algorithm) -> list[tuple[int, Chain]]:
    """Return pairs of task and chain, sorted by task.

    A transfer without bytes or within a node, and an AllReduce of one member, have no chain.
    """
    plan_allreduce = _remember(latency, allreduce)
    chains: list[tuple[int, Chain]] = []
    columns = (graph.kind, graph.source, graph.target, graph.size_bytes, graph.group)
    for task, (kind, source, target, size, group) in enumerate(
        zip(*(c.tolist() for c in columns), strict=True)
    ):
        if kind == Kind.TRANSFER and source != target and size:
            chains.append((task, (_single(source, target, size),)))
        elif kind == Kind.ALLREDUCE:
            chains.extend((task, chain) for chain in plan_allreduce(graph.groups[group], size))
    return chains


def _remember(latency: Latency, allreduce: Algorithm) -> Callable[[tuple[int, ...], int], Sequence[Chain]]:
    """Return a cached planner of AllReduces; small ones are a single exchange."""

    @cache
    def plan(members: tuple[int, ...], size_bytes: int) -> Sequence[Chain]:
        small = size_bytes < latency.single_round_bytes * len(members)
        return exchange(members, size_bytes) if small else allreduce(members, size_bytes)

    return plan


@lru_cache(_SINGLES)
def _single(source: int, target: int, size_bytes: int) -> Phase:
    return Phase(np.array([source]), np.array([target]), np.array([size_bytes]))


def _messages(chains: list[tuple[int, Chain]]) -> Messages:
    task_phases = [(task, phase) for task, chain in chains for phase in chain]
    counts = [phase.sources.size for _, phase in task_phases]

    def spread(values: list[int]) -> Integers:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    def join(columns: list[Integers]) -> Integers:
        return np.concatenate(columns).astype(np.int64) if columns else np.zeros(0, np.int64)

    task = spread([task for task, _ in task_phases])
    merged = spread([phase.rounds if phase.merged else 1 for _, phase in task_phases])
    return Messages(
        task=task,
        phase=spread(list(range(len(task_phases)))),
        source=join([phase.sources for _, phase in task_phases]),
        target=join([phase.targets for _, phase in task_phases]),
        size_bytes=join([phase.sizes for _, phase in task_phases]) * merged,
        rounds=spread([1 if phase.merged else phase.rounds for _, phase in task_phases]),
        merged=merged,
        choice=task,
    )


def bytes_by_pair(graph: TaskGraph, latency: Latency, allreduce: Algorithm) -> Floats:
    """Return the bytes that one iteration sends from node to node, (nodes, nodes); AllReduces by their algorithm."""
    messages, sent = _messages(_chains(graph, latency, allreduce)), np.zeros((graph.nodes, graph.nodes))
    np.add.at(sent, (messages.source, messages.target), (messages.size_bytes * messages.rounds).astype(float))
    np.fill_diagonal(sent, 0.0)
    return sent


def _split(messages: Messages, fabric: Fabric, latency: Latency, parts: int) -> Messages:
    """Split messages into equal parts or, if the fabric has weights, into one part per set of routes.

    All parts but the last end at a whole packet. A message with fewer packets than parts uses some of the paths;
    the task number decides which, so that tasks take turns.
    """
    if parts > 1:
        share = np.arange(1, parts + 1)[:, None] / parts
    elif fabric.weights is not None:
        share = np.round(fabric.weights[:, messages.source, messages.target].cumsum(axis=0), 9)
    else:
        return messages
    unit, size = latency.packet_bytes, messages.size_bytes // messages.merged
    packets = -(-size // unit)
    turn = messages.task * _GOLDEN % 1.0
    ends = np.minimum(np.floor(share * packets + turn).astype(np.int64), packets)
    ends[-1] = packets
    bounds = np.minimum(np.vstack([np.zeros_like(ends[:1]), ends]) * unit, size)
    sizes = np.diff(bounds, axis=0).T
    sizes[size == 0, 0] = -1  # keeps a message of 0 bytes; the maximum below makes its size 0 again
    which, choice = np.nonzero(sizes)
    split = Messages(*(column[which] for column in messages))
    return split._replace(size_bytes=np.maximum(sizes[which, choice], 0) * split.merged, choice=choice)


def route_messages(messages: Messages, fabric: Fabric) -> Routes:
    """Return the links of each message."""
    return Routes(*fabric.routes(messages.source, messages.target, messages.choice))


def _latencies(routes: Routes, fabric: Fabric, latency: Latency) -> tuple[Floats, Floats]:
    """Return the latencies before and after the data of each route, (messages,) each.

    The time of a packet on the slowest link of its path is part of the data time, so it does not count here.
    """
    hops = np.diff(routes.first)
    fluid = latency.packet_bytes == 1
    packet_s = np.zeros(fabric.links) if fluid else latency.packet_bytes * 8 / fabric.lane_bps
    route_of = np.repeat(np.arange(hops.size), hops)
    from_host = np.bincount(route_of[fabric.sources[routes.links] < fabric.nodes], minlength=hops.size)
    relays = np.maximum(from_host - 1, 0)
    total = np.bincount(route_of, weights=packet_s[routes.links], minlength=hops.size)
    slowest = np.zeros(hops.size)
    np.maximum.at(slowest, route_of, packet_s[routes.links])
    crossing = np.maximum(total - slowest, 0.0)
    return latency.head_s(hops, relays), latency.tail_s(hops, relays, crossing)


def _with_merged_rounds(messages: Messages, head_s: Floats, tail_s: Floats) -> Floats:
    """Return the tails of fluid messages with the latencies of all merged rounds, each that of its slowest message."""
    if not messages.merged.size or messages.merged.max() == 1:
        return tail_s
    slowest_s = np.zeros(int(messages.phase.max()) + 1)
    np.maximum.at(slowest_s, messages.phase, head_s + tail_s)
    rounds_s = messages.merged * slowest_s[messages.phase] - head_s
    return np.where(messages.merged > 1, rounds_s, tail_s)


def _groups(
    messages: Messages, head_s: Floats, tail_s: Floats
) -> tuple[Integers, Integers, Integers, Floats, Floats]:
    """Group the messages of a phase with equal latencies.

    Return the new order of the messages, the group of each message in this order, and the phase, head and tail of
    each group.
    """
    order = np.lexsort((tail_s, head_s, messages.phase))
    phase, head, tail = messages.phase[order], head_s[order], tail_s[order]
    begins_group = np.ones(order.size, dtype=bool)
    begins_group[1:] = (np.diff(phase) != 0) | (np.diff(head) != 0) | (np.diff(tail) != 0)
    return order, np.cumsum(begins_group) - 1, phase[begins_group], head[begins_group], tail[begins_group]
