"""Lowering of a task graph, a fabric and latencies to the arrays of the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.allreduce.algorithms import Algorithm, Chain, Phase, plan_exchange
from sim.models.network.engine.program import Program, Routes, make_routes
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Exchange, Kind, TaskGraph

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_GOLDEN_RATIO = 0.6180339887498949
"""Fractional parts of its multiples are spread evenly over 0 to 1, so single packets take turns over the paths."""


MAX_LINKS_PER_EXCHANGE = 32
"""Number of links of an exchange that the program shares among flows: the links that all exchanges keep busy longest.
For a mixture of experts on 256 servers, 32 links give the time of all links to within 0.2 %."""
_TRANSFER_BATCH_SIZE = 1 << 17
"""Transfers of an exchange whose paths are in memory together."""


_NO_MESSAGES = Phase(*np.zeros((3, 0), np.int64))


class Messages(NamedTuple):
    """The messages of a program, each listed once even if its round repeats; all columns are (messages,).

    A fluid message replaces `merged_round_count` rounds of its collective (1 if it is not fluid), and `size_bytes` is
    the sum over these rounds. The program sends the message `round_count` times.
    """

    task: Integers
    phase: Integers
    source: Integers
    target: Integers
    size_bytes: Integers
    round_count: Integers
    merged_round_count: Integers
    choice: Integers
    """Number of the path among equally good ones, or of the set of routes."""


@dataclass(frozen=True, slots=True)
class ExchangedBytes:
    """Bytes of all exchanges that move as loads of links.

    `payload_bytes`, the same in whole `packet_bytes`, and the part of `packet_bytes` that leaves a host
    (`between_hosts_bytes`). `unshared_bytes` (links,) are bytes on links that cannot delay an exchange. The program
    has no messages for them.
    """

    payload_bytes: int = 0
    packet_bytes: int = 0
    between_hosts_bytes: int = 0
    unshared_bytes: Integers | None = None


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A program, its initial routes, and the description of its messages.

    An exchange is one message for each link that it loads, from end to end of the link; `exchanged_bytes` counts its
    bytes.
    """

    program: Program
    routes: Routes
    messages: Messages
    exchanged_bytes: ExchangedBytes = ExchangedBytes()


def lower_graph(
    graph: TaskGraph,
    fabric: Fabric,
    latency: Latency,
    allreduce: Algorithm,
    *,
    part_count: int = 1,
    splits_by_pair: bool = False,
) -> LoweredGraph:
    """Return the program of one iteration.

    Messages are split into `part_count` equal parts over as many paths, or by the weights of the fabric. An exchange
    becomes the bytes that it puts on each link, which move at once; with `splits_by_pair` it becomes a message for
    each of its transfers. Raise `ValueError` if the fabric has fewer nodes than the graph.
    """
    if fabric.node_count < graph.node_count:
        raise ValueError(
            f"the graph has {graph.node_count} nodes, {fabric.name} only {fabric.node_count}: take a larger fabric"
        )
    chains = _make_chains(graph, latency, allreduce, splits_by_pair=splits_by_pair)
    messages = _split_messages(_make_messages(graph, chains), fabric, latency, part_count)
    routes = route_messages(messages, fabric)
    head_s, tail_s = _compute_latencies(routes, fabric, latency)
    tail_s = _add_merged_rounds(messages, head_s, tail_s)
    exchanged_bytes = ExchangedBytes()
    if graph.exchanges and not splits_by_pair:
        run_counts = np.bincount(graph.group[graph.kind == Kind.EXCHANGE], minlength=len(graph.exchanges))
        loads = [load_links(exchange, fabric, latency, part_count) for exchange in graph.exchanges]
        shared_masks = _find_shared_links(loads, run_counts.tolist(), fabric)
        exchanged_bytes = _sum_loads(loads, run_counts.tolist(), shared_masks, fabric.link_count)
        loads = [_select_shared(load, can_delay) for load, can_delay in zip(loads, shared_masks, strict=True)]
        messages, routes, head_s, tail_s = _add_loads(
            graph, chains, fabric, loads, (messages, routes, head_s, tail_s)
        )
    order, group_of, group_phase, head, tail = _group_messages(messages, head_s, tail_s)
    messages = Messages(*(column[order] for column in messages))
    phases = chains.phase_chain.size
    program = Program(
        task_device=graph.device,
        task_s=graph.time_s,
        predecessor_count=np.bincount(graph.after, minlength=graph.task_count),
        successor_first=_compute_offsets(graph.before, graph.task_count),
        successor_task=graph.after[np.argsort(graph.before, kind="stable")],
        chain_first=_compute_offsets(chains.task, graph.task_count),
        chain_task=chains.task,
        phase_first=_compute_offsets(chains.phase_chain, chains.task.size),
        phase_rounds=chains.round_count,
        group_first=_compute_offsets(group_phase, phases),
        group_chain=chains.phase_chain[group_phase],
        head_s=head,
        tail_s=tail,
        message_first=_compute_offsets(group_of, group_phase.size),
        message_group=group_of,
        message_bytes=latency.compute_wire_bytes(messages.size_bytes // messages.merged_round_count)
        * messages.merged_round_count,
    )
    return LoweredGraph(
        program, routes._replace(path_of_message=routes.path_of_message[order]), messages, exchanged_bytes
    )


class Load(NamedTuple):
    """An exchange as bytes in whole packets on `links`, (links,) each, with the longest latencies of its transfers."""

    links: Integers
    link_bytes: Integers
    head_s: float
    tail_s: float
    payload_bytes: int
    packet_bytes: int
    between_hosts_bytes: int


def load_links(exchange: Exchange, fabric: Fabric, latency: Latency, part_count: int) -> Load:
    """Return the bytes that an exchange puts on each link, on the paths that its transfers would take."""
    loads, head_s, tail_s = np.zeros(fabric.link_count), 0.0, 0.0
    payload_bytes = packet_bytes = between_hosts_bytes = 0
    moving_rows = _find_transfer_rows(exchange)
    for begin in range(0, moving_rows.size, _TRANSFER_BATCH_SIZE):
        rows = moving_rows[begin : begin + _TRANSFER_BATCH_SIZE]
        zeros, ones = np.zeros(rows.size, np.int64), np.ones(rows.size, np.int64)
        source, target, size_bytes = _select_rows(exchange, rows)
        whole_messages = Messages(zeros, zeros, source, target, size_bytes, ones, ones, choice=rows)
        messages = _split_messages(whole_messages, fabric, latency, part_count)
        routes = route_messages(messages, fabric)
        sent_bytes = latency.compute_wire_bytes(messages.size_bytes)
        bytes_by_path = np.bincount(routes.path_of_message, sent_bytes, minlength=routes.first_link.size - 1)
        # Sums of whole numbers below 2**53 are exact.
        loads += np.bincount(
            routes.links, np.repeat(bytes_by_path, np.diff(routes.first_link)), minlength=fabric.link_count
        )
        heads, tails = _compute_latencies(routes, fabric, latency)
        head_s, tail_s = max(head_s, float(heads.max())), max(tail_s, float(tails.max()))
        payload_bytes, packet_bytes = (
            payload_bytes + int(size_bytes.sum()),
            packet_bytes + int(sent_bytes.sum()),
        )
        leaves_domain = messages.source // fabric.domain_size != messages.target // fabric.domain_size
        between_hosts_bytes += int(sent_bytes[leaves_domain].sum())
    links = np.flatnonzero(loads)
    return Load(
        links, loads[links].astype(np.int64), head_s, tail_s, payload_bytes, packet_bytes, between_hosts_bytes
    )


def _find_shared_links(
    loads: Sequence[Load], run_counts: Sequence[int], fabric: Fabric
) -> list[NDArray[np.bool_]]:
    """Return, for each exchange, which of its links can delay it: the links that all exchanges keep busy longest."""
    total_bytes = np.zeros(fabric.link_count)
    for load, count in zip(loads, run_counts, strict=True):
        total_bytes[load.links] += load.link_bytes * float(count)
    busy_s = np.divide(total_bytes, fabric.capacity_bps, out=total_bytes, where=fabric.capacity_bps > 0)
    busy_s[fabric.never_full] = -1
    shared_masks = []
    for load in loads:
        order = np.argsort(-busy_s[load.links], kind="stable")
        can_delay = np.zeros(load.links.size, dtype=bool)
        can_delay[order[:MAX_LINKS_PER_EXCHANGE]] = True
        shared_masks.append(can_delay & ~fabric.never_full[load.links])
    return shared_masks


def _sum_loads(
    loads: Sequence[Load],
    run_counts: Sequence[int],
    shared_masks: Sequence[NDArray[np.bool_]],
    link_count: int,
) -> ExchangedBytes:
    """Return the total bytes of exchanges; each runs as many times as its entry in `run_counts`."""
    unshared_bytes = np.zeros(link_count, np.int64)
    for load, count, can_delay in zip(loads, run_counts, shared_masks, strict=True):
        unshared_bytes[load.links[~can_delay]] += load.link_bytes[~can_delay] * count
    counted_loads = list(zip(loads, run_counts, strict=True))
    return ExchangedBytes(
        sum(load.payload_bytes * count for load, count in counted_loads),
        sum(load.packet_bytes * count for load, count in counted_loads),
        sum(load.between_hosts_bytes * count for load, count in counted_loads),
        unshared_bytes,
    )


def _select_shared(load: Load, can_delay: NDArray[np.bool_]) -> Load:
    """Return the load of the links that can delay an exchange; if no link can, return a load of 0 bytes on one link."""
    if not can_delay.any():
        return load._replace(links=load.links[:1], link_bytes=np.zeros_like(load.links[:1]))
    return load._replace(links=load.links[can_delay], link_bytes=load.link_bytes[can_delay])


def _add_loads(
    graph: TaskGraph,
    chains: Chains,
    fabric: Fabric,
    loads: Sequence[Load],
    lowered: tuple[Messages, Routes, Floats, Floats],
) -> tuple[Messages, Routes, Floats, Floats]:
    """Return messages, routes and latencies with a message for each link of each load."""
    messages, routes, head_s, tail_s = lowered
    task = chains.task[chains.phase_chain]
    phases = np.flatnonzero(graph.kind[task] == Kind.EXCHANGE)
    load_of = [loads[position] for position in graph.group[task[phases]].tolist()]
    link_counts = [load.links.size for load in load_of]
    phase, links = np.repeat(phases, link_counts), _concatenate([load.links for load in load_of])
    size_bytes = _concatenate([load.link_bytes for load in load_of])
    ones, endpoints = np.ones(links.size, np.int64), (fabric.sources[links], fabric.targets[links])
    added_messages = Messages(task[phase], phase, *endpoints, size_bytes, ones, ones, choice=task[phase])
    # Each link is a path of its own, behind the paths of the other messages.
    path_count = routes.first_link.size - 1
    first = np.concatenate([routes.first_link, routes.first_link[-1] + np.arange(1, fabric.link_count + 1)])
    on_links = np.concatenate([routes.links, np.arange(fabric.link_count)])
    return (
        Messages(*(np.concatenate(pair) for pair in zip(messages, added_messages, strict=True))),
        Routes(first, on_links, np.concatenate([routes.path_of_message, path_count + links])),
        np.concatenate([head_s, np.repeat([load.head_s for load in load_of], link_counts)]),
        np.concatenate([tail_s, np.repeat([load.tail_s for load in load_of], link_counts)]),
    )


def _concatenate(columns: list[Integers]) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *columns])


def _compute_offsets(sorted_owner: Integers, owner_count: int) -> Integers:
    """Return the index of the first item of each owner when items are sorted by owner, (owners + 1,)."""
    counts = (
        np.bincount(sorted_owner, minlength=owner_count)
        if sorted_owner.size
        else np.zeros(owner_count, np.int64)
    )
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


class Chains(NamedTuple):
    """The chains of a graph in the order of their tasks: columns of the chains, of their phases, of their messages."""

    task: Integers
    """(chains,)"""
    phase_chain: Integers
    """(phases,)"""
    round_count: Integers
    """(phases,) number of times that the program sends the messages of a phase"""
    merged_round_count: Integers
    """(phases,) number of rounds that a message replaces"""
    phase: Integers
    """(messages,)"""
    source: Integers
    target: Integers
    size_bytes: Integers
    """(messages,) bytes in one round"""


def _make_chains(graph: TaskGraph, latency: Latency, allreduce: Algorithm, *, splits_by_pair: bool) -> Chains:
    """Return the chains of all tasks.

    A transfer without bytes or within a node, an exchange of such transfers, and an AllReduce of one member have no
    chain. Any other exchange has a chain for each transfer if `splits_by_pair`, else one chain of one phase without
    messages.
    """
    plan_allreduce = _make_planner(latency, allreduce)
    transfer_tasks = np.flatnonzero(
        (graph.kind == Kind.TRANSFER) & (graph.source != graph.target) & (graph.size_bytes > 0)
    )
    collectives = [
        (task, chain)
        for task in np.flatnonzero(graph.kind == Kind.ALLREDUCE).tolist()
        for chain in plan_allreduce(graph.groups[graph.group[task]], int(graph.size_bytes[task]))
    ]
    exchanges = [
        (task, graph.exchanges[graph.group[task]])
        for task in np.flatnonzero(graph.kind == Kind.EXCHANGE).tolist()
    ]
    exchanges = [(task, exchange) for task, exchange in exchanges if _find_transfer_rows(exchange).size]
    if not splits_by_pair:
        collectives += [(task, (_NO_MESSAGES,)) for task, _ in exchanges]
        exchanges = []
    transfers = Exchange(
        graph.source[transfer_tasks], graph.target[transfer_tasks], graph.size_bytes[transfer_tasks]
    )
    moving_exchanges = [
        transfers,
        *(_select_rows(exchange, _find_transfer_rows(exchange)) for _, exchange in exchanges),
    ]
    tasks = [
        transfer_tasks,
        *(np.full(_find_transfer_rows(exchange).size, task) for task, exchange in exchanges),
    ]
    # Transfers come first, each a chain of one phase with one message; then all is sorted by task.
    phases = [phase for _, chain in collectives for phase in chain]
    task = np.concatenate([*tasks, _to_array([task for task, _ in collectives])])
    ones = np.ones(task.size - len(collectives), np.int64)
    phase_counts = np.concatenate([ones, _to_array([len(chain) for _, chain in collectives])])
    message_counts = np.concatenate([ones, _to_array([phase.sources.size for phase in phases])])
    merged_rounds = [phase.round_count if phase.is_merged else 1 for phase in phases]
    rounds = [1 if phase.is_merged else phase.round_count for phase in phases]
    chain_order = np.argsort(task, kind="stable")
    phase_task = np.repeat(task, phase_counts)
    phase_order = np.argsort(phase_task, kind="stable")
    message_order = np.argsort(np.repeat(phase_task, message_counts), kind="stable")

    def join(exchange_columns: list[Integers], phase_columns: list[Integers]) -> Integers:
        return np.concatenate([*exchange_columns, *phase_columns]).astype(np.int64)[message_order]

    return Chains(
        task=task[chain_order],
        phase_chain=np.repeat(np.arange(task.size), phase_counts[chain_order]),
        round_count=np.concatenate([ones, _to_array(rounds)])[phase_order],
        merged_round_count=np.concatenate([ones, _to_array(merged_rounds)])[phase_order],
        phase=np.repeat(np.arange(message_counts.size), message_counts[phase_order]),
        source=join([part.source for part in moving_exchanges], [phase.sources for phase in phases]),
        target=join([part.target for part in moving_exchanges], [phase.targets for phase in phases]),
        size_bytes=join(
            [part.size_bytes for part in moving_exchanges], [phase.sizes_bytes for phase in phases]
        ),
    )


def _select_rows(exchange: Exchange, rows: Integers) -> Exchange:
    return Exchange(*(column[rows] for column in exchange))


def _find_transfer_rows(exchange: Exchange) -> Integers:
    """Return the places of the transfers that use links."""
    return np.flatnonzero((exchange.source != exchange.target) & (exchange.size_bytes > 0))


def _to_array(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _make_planner(
    latency: Latency, allreduce: Algorithm
) -> Callable[[tuple[int, ...], int], Sequence[Chain]]:
    """Return a cached planner of AllReduces; small ones are a single exchange."""

    @cache
    def plan(members: tuple[int, ...], size_bytes: int) -> Sequence[Chain]:
        is_small = size_bytes < latency.max_single_round_bytes * len(members)
        return plan_exchange(members, size_bytes) if is_small else allreduce(members, size_bytes)

    return plan


def _make_messages(graph: TaskGraph, chains: Chains) -> Messages:
    task, merged_rounds = (
        chains.task[chains.phase_chain[chains.phase]],
        chains.merged_round_count[chains.phase],
    )
    # The transfers of an exchange take turns over the paths; all messages of another task choose alike.
    position = np.arange(task.size) - np.searchsorted(task, task)
    choice = np.where(graph.kind[task] == Kind.EXCHANGE, position, task)
    return Messages(
        task=task,
        phase=chains.phase,
        source=chains.source,
        target=chains.target,
        size_bytes=chains.size_bytes * merged_rounds,
        round_count=chains.round_count[chains.phase],
        merged_round_count=merged_rounds,
        choice=choice,
    )


def count_bytes_by_pair(graph: TaskGraph, latency: Latency, allreduce: Algorithm) -> Floats:
    """Return the bytes that one iteration sends from node to node, (nodes, nodes); AllReduces as by `allreduce`."""
    messages = _make_messages(graph, _make_chains(graph, latency, allreduce, splits_by_pair=True))
    sent_bytes = np.zeros((graph.node_count, graph.node_count))
    np.add.at(
        sent_bytes,
        (messages.source, messages.target),
        (messages.size_bytes * messages.round_count).astype(float),
    )
    np.fill_diagonal(sent_bytes, 0.0)
    return sent_bytes


def _split_messages(messages: Messages, fabric: Fabric, latency: Latency, part_count: int) -> Messages:
    """Split messages into equal parts or, if the fabric has weights, into one part per set of routes.

    All parts but the last end at a whole packet. A message with fewer packets than parts uses only some of the paths.
    The task number decides which paths, so that tasks take turns.
    """
    if part_count > 1:
        cumulative_share = np.arange(1, part_count + 1)[:, None] / part_count
    elif fabric.weights is not None:
        cumulative_share = np.round(fabric.weights[:, messages.source, messages.target].cumsum(axis=0), 9)
    else:
        return messages
    unit, round_bytes = latency.packet_bytes, messages.size_bytes // messages.merged_round_count
    packet_counts = -(-round_bytes // unit)
    start_fraction = messages.task * _GOLDEN_RATIO % 1.0
    ends = np.minimum(
        np.floor(cumulative_share * packet_counts + start_fraction).astype(np.int64), packet_counts
    )
    ends[-1] = packet_counts
    bounds = np.minimum(np.vstack([np.zeros_like(ends[:1]), ends]) * unit, round_bytes)
    sizes = np.diff(bounds, axis=0).T
    sizes[round_bytes == 0, 0] = -1  # keeps a message of 0 bytes; the maximum below makes its size 0 again
    message_index, choice = np.nonzero(sizes)
    split_messages = Messages(*(column[message_index] for column in messages))
    size_bytes = np.maximum(sizes[message_index, choice], 0) * split_messages.merged_round_count
    return split_messages._replace(size_bytes=size_bytes, choice=choice)


def route_messages(messages: Messages, fabric: Fabric) -> Routes:
    """Return the paths of the messages; messages between the same nodes that make the same choice share one path."""
    sources, targets, choices = messages.source, messages.target, messages.choice
    if fabric.choice_count is None:
        return make_routes(*fabric.find_routes(sources, targets, choices))
    route_key = (sources * fabric.node_count + targets) * fabric.choice_count + choices % fabric.choice_count
    route_key, path = np.unique(route_key, return_inverse=True)
    pair, choices = np.divmod(route_key, fabric.choice_count)
    return Routes(*fabric.find_routes(pair // fabric.node_count, pair % fabric.node_count, choices), path)


def _compute_latencies(routes: Routes, fabric: Fabric, latency: Latency) -> tuple[Floats, Floats]:
    """Return the latencies before and after the data of each message, (messages,) each.

    The time of a packet on the slowest link of its path is part of the data time, so it does not count here.
    """
    hops = np.diff(routes.first_link)
    is_fluid = latency.packet_bytes == 1
    packet_s = np.zeros(fabric.link_count) if is_fluid else latency.packet_bytes * 8 / fabric.lane_bps
    relays = fabric.count_relays(routes.first_link, routes.links)
    linked_paths = np.flatnonzero(hops)
    begins, on_path_s = routes.first_link[linked_paths], packet_s[routes.links]
    crossing_s = np.zeros(hops.size)
    if linked_paths.size:
        path_time_s, slowest_s = np.add.reduceat(on_path_s, begins), np.maximum.reduceat(on_path_s, begins)
        crossing_s[linked_paths] = np.maximum(path_time_s - slowest_s, 0.0)
    return latency.compute_head_s(hops, relays)[routes.path_of_message], latency.compute_tail_s(
        hops, relays, crossing_s
    )[routes.path_of_message]


def _add_merged_rounds(messages: Messages, head_s: Floats, tail_s: Floats) -> Floats:
    """Return tails for fluid messages: a tail has the latencies of all merged rounds, each of its slowest message."""
    if not messages.merged_round_count.size or messages.merged_round_count.max() == 1:
        return tail_s
    slowest_s = np.zeros(int(messages.phase.max()) + 1)
    np.maximum.at(slowest_s, messages.phase, head_s + tail_s)
    rounds_s = messages.merged_round_count * slowest_s[messages.phase] - head_s
    return np.where(messages.merged_round_count > 1, rounds_s, tail_s)


def _group_messages(
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
