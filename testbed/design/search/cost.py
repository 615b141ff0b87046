"""Cost of an iteration in closed form: operators in topological order on queues of servers and links, without events.

A server computes one operator at a time. All bytes between two operators, or of one AllReduce, form one load. Each link
carries its part of a load for bytes / rate seconds, one load at a time. The load ends when its slowest link has
finished, plus the latencies of its path or of its rounds. So computing and sending overlap where the task graph allows
it, and loads on the same link queue. No operator waits for sums of gradients: they have a second queue on each link,
and get half of the link while both queues carry loads.

A ring AllReduce of S bytes among g members on r rings puts 2(g-1)/g * S/r bytes on each link of each ring.

The simulator differs: there, each message starts when its own sender is ready, receivers get parts of a load earlier,
and loads share links. As in the simulator, consecutive messages and sums use different sets of paths, and all parts of
one sum use the same set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.circulants import ROUTE_SET_COUNT, make_circulant
from testbed.design.fabrics.direct import list_ring_strides
from testbed.design.model import Topology
from testbed.design.routing.next_hops import compute_next_hops
from testbed.design.search.problem import Problem
from testbed.design.search.program import Computing, Part, Program, Sending, Work
from testbed.design.topology.circulants import list_circulant_edges
from testbed.design.topology.strides import list_direct_strides
from testbed.design.workloads.sharding import Group

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_CACHED_CIRCULANTS = 8
"""Maximum number of cached circulants. Few suffice, because topologies with links for pairs are not circulants."""
_CACHED_BLOCKS_PER_PART = 8
"""Maximum number of cached blocks per part of a program. Rows stay cached, so a dropped block is cheap to rebuild."""


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Paths over a topology. Messages alternate between several sets of paths, as on the simulator's fabric.

    In set c, the path from s to t is `links[first_index[p]:first_index[p + 1]]` with p = (c * n + s) * n + t. `byte_s`
    holds the seconds per byte on each link; parallel links count as one link. `find_strides` returns the strides of the
    rings of a group's AllReduce, counted in positions of the group.
    """

    node_count: int
    set_count: int
    first_index: Integers
    links: Integers
    byte_s: Floats
    find_strides: Callable[[Sequence[int]], tuple[int, ...]]

    def compute_link_seconds(
        self, source: Integers, target: Integers, path_sets: Integers, size_bytes: Floats
    ) -> tuple[Floats, int]:
        """Return the seconds that each link needs for these messages, and the number of links of the longest path."""
        from testbed.design.search.recurrence import add_loads

        load = np.zeros(self.byte_s.size)
        longest = add_loads(
            self.node_count,
            source,
            target,
            path_sets % self.set_count,
            size_bytes,
            self.first_index,
            self.links,
            load,
        )
        return load * self.byte_s, int(longest)


def build_paths(topology: Topology, rate_gbps: float) -> Paths:
    """Return the paths of a topology: the simulator's routes on a circulant, next-hop routes on any other graph."""

    def find_ring_strides(members: Sequence[int]) -> tuple[int, ...]:
        return list_ring_strides(topology, members)

    nodes = topology.nodes
    if nodes == 1:
        nothing = np.zeros(0, dtype=np.int64)
        return Paths(1, 1, np.zeros(2, dtype=np.int64), nothing, np.zeros(0), find_ring_strides)
    direct_strides = list_direct_strides(nodes, topology.strides, simplex=topology.simplex)
    if topology.edges == list_circulant_edges(nodes, direct_strides):
        path_starts, links, byte_s = _route_on_circulant(nodes, direct_strides, rate_gbps)
        return Paths(nodes, ROUTE_SET_COUNT, path_starts, links, byte_s, find_ring_strides)
    from testbed.design.search.recurrence import list_path_links

    nodes, next_hops = topology.nodes, compute_next_hops(topology.nodes, topology.edges)
    link_ids = np.arange(nodes)[:, None] * nodes + next_hops.neighbours
    _, link_numbers, link_copies = np.unique(link_ids, return_inverse=True, return_counts=True)
    path_starts = np.concatenate([[0], np.cumsum(next_hops.hops.ravel(), dtype=np.int64)])
    links = np.zeros(path_starts[-1], dtype=np.int64)
    list_path_links(
        next_hops.neighbours, next_hops.next_slots, link_numbers.reshape(link_ids.shape), path_starts, links
    )
    return Paths(nodes, 1, path_starts, links, 8 / (link_copies * rate_gbps * 1e9), find_ring_strides)


@lru_cache(_CACHED_CIRCULANTS)
def _route_on_circulant(
    nodes: int, direct_strides: tuple[int, ...], rate_gbps: float
) -> tuple[Integers, Integers, Floats]:
    """Return the simulator's routes (first, links) in all sets, and the seconds per byte on each link."""
    fabric = make_circulant(nodes, direct_strides, rate_gbps)
    path_sets, pair = np.divmod(np.arange(ROUTE_SET_COUNT * nodes**2), nodes**2)
    source, target = np.divmod(pair, nodes)
    path_starts, links = fabric.find_routes(source, target, path_sets)
    return path_starts.astype(np.int64), links, 8 / fabric.capacity_bps


class _Rows(NamedTuple):
    """Work in the form for `recurrence.compute_finish_s`.

    Row i is the server or link `queue_numbers[i]`, busy for `service_s[i]` seconds. The rows form four runs of given
    `lengths`. `extra_s` is the time after the last link. `message_count` counts the messages or AllReduces.
    """

    queue_numbers: Integers
    service_s: Floats
    lengths: tuple[int, int, int, int]
    extra_s: float
    message_count: int


class _Block(NamedTuple):
    """Concatenated rows of all works of a part. `lengths` has the shape (works, 4), `extra_s` (works,)."""

    queue_numbers: Integers
    service_s: Floats
    lengths: Integers
    extra_s: Floats
    message_count: int


class Costs:
    """Costs of programs on one topology. The rows of each work are cached."""

    def __init__(self, problem: Problem, paths: Paths) -> None:
        self._paths = paths
        self._latency = problem.latency
        self._cluster = problem.cluster
        self._packet_s = problem.latency.packet_bytes * 8 / (problem.rate_gbps * 1e9)
        if problem.latency.packet_bytes == 1:  # fluid model: hosts forward without storing whole packets
            self._packet_s = 0.0
        self._rows: dict[tuple[Work, int], _Rows] = {}
        self._blocks: dict[tuple[Part, int], _Block] = {}

    def compute_seconds(self, program: Program) -> float:
        """Return the time of an iteration."""
        from testbed.design.search.recurrence import compute_finish_s

        # Consecutive messages and sums use consecutive sets of paths.
        blocks, path_set, cached_blocks, set_count = [], 0, self._blocks, self._paths.set_count
        if len(cached_blocks) > _CACHED_BLOCKS_PER_PART * len(program.parts):
            cached_blocks.clear()
        for part in program.parts:
            block = cached_blocks.get((part, path_set)) or self._build_block(part, path_set)
            blocks.append(block)
            path_set = (path_set + block.message_count) % set_count
        if not len(program.items):
            return 0.0
        lengths = np.concatenate([block.lengths for block in blocks])
        end_indices = np.cumsum(lengths.ravel()).reshape(lengths.shape)
        bounds = np.concatenate([(end_indices[:, -1] - lengths.sum(axis=1))[:, None], end_indices], axis=1)
        queues = np.zeros((program.nodes + self._paths.byte_s.size, 4))
        last_end_s = float(
            compute_finish_s(
                program.items,
                bounds,
                np.concatenate([block.queue_numbers for block in blocks]),
                np.concatenate([block.service_s for block in blocks]),
                np.concatenate([block.extra_s for block in blocks]),
                np.zeros((program.stages, program.nodes)),
                queues,
            )
        )
        return max(last_end_s, float(queues[program.nodes :, 3].max(initial=0.0)))

    def _build_block(self, part: Part, path_set: int) -> _Block:
        rows, message_count, set_count = list[_Rows](), 0, self._paths.set_count
        for work in part.works:
            key = work, (path_set + message_count) % set_count
            rows.append(self._rows.get(key) or self._compute_rows(*key))
            message_count += rows[-1].message_count
        block = _Block(
            np.concatenate([row.queue_numbers for row in rows]),
            np.concatenate([row.service_s for row in rows]),
            np.array([row.lengths for row in rows], dtype=np.int64),
            np.array([row.extra_s for row in rows]),
            message_count,
        )
        self._blocks[part, path_set] = block
        return block

    def _compute_rows(self, work: Work, path_set: int) -> _Rows:
        if isinstance(work, Computing):
            rows = _Rows(work.servers, work.seconds, (work.servers.size, 0, 0, 0), 0.0, 0)
        elif isinstance(work, Sending):
            wire_bytes = self._latency.compute_wire_bytes(work.size_bytes).astype(np.float64)
            seconds, max_hops = self._paths.compute_link_seconds(
                work.source, work.target, path_set + np.arange(wire_bytes.size), wire_bytes
            )
            senders, receivers, extra_s = (
                np.unique(work.source),
                np.unique(work.target),
                self._compute_latency_s(max_hops),
            )
            rows = self._make_load_rows(
                work.keeping_servers, senders, seconds, receivers, extra_s, wire_bytes.size
            )
        else:
            members = np.array(sorted(server for group in work.groups for server in group))
            seconds, extra_s = np.zeros(self._paths.byte_s.size), 0.0
            for group_index, (group, size_bytes) in enumerate(zip(work.groups, work.size_bytes, strict=True)):
                if len(group) > 1:
                    ring_seconds, after_s = self._compute_ring_times(
                        group, size_bytes, (path_set + group_index) % self._paths.set_count
                    )
                    seconds, extra_s = seconds + ring_seconds, max(extra_s, after_s)
            no_servers = np.zeros(0, dtype=np.int64)
            rows = self._make_load_rows(no_servers, members, seconds, members, extra_s, len(work.groups))
        self._rows[work, path_set] = rows
        return rows

    def _compute_ring_times(self, members: Group, size_bytes: int, path_set: int) -> tuple[Floats, float]:
        """Return the seconds of a group's AllReduce on each link, and the sum of its latencies in seconds.

        All rounds are equal and send whole packets. A round takes as long as its longest hop.
        """
        member_count, strides = len(members), self._paths.find_strides(members)
        round_count = 2 * (member_count - 1)
        message_bytes = -(-size_bytes // (len(strides) * member_count))
        if size_bytes < self._latency.max_single_round_bytes * member_count:
            strides, round_count = (1,), 1
            message_bytes = -(-2 * (member_count - 1) * size_bytes // member_count**2)
        wire_bytes = float(self._latency.compute_wire_bytes(np.array(message_bytes))) * round_count
        source = np.tile(members, len(strides))
        target = np.concatenate([np.roll(members, -stride) for stride in strides])
        seconds, max_hops = self._paths.compute_link_seconds(
            source, target, np.full(source.size, path_set), np.full(source.size, wire_bytes)
        )
        return seconds, round_count * self._compute_latency_s(
            max_hops
        ) + self._cluster.compute_local_reduce_seconds(size_bytes)

    def _make_load_rows(
        self,
        keeping_servers: Integers,
        senders: Integers,
        seconds: Floats,
        receivers: Integers,
        extra_s: float,
        message_count: int,
    ) -> _Rows:
        links = np.flatnonzero(seconds)
        queue_numbers = np.concatenate([keeping_servers, senders, links + self._paths.node_count, receivers])
        service_s = np.zeros(queue_numbers.size)
        first_link_row = keeping_servers.size + senders.size
        service_s[first_link_row : first_link_row + links.size] = seconds[links]
        lengths = (0, keeping_servers.size, senders.size + links.size, receivers.size)
        return _Rows(queue_numbers, service_s, lengths, extra_s, message_count)

    def _compute_latency_s(self, hops: int) -> float:
        """Return the latency of a message over `hops` links, without the time to send its bytes."""
        if hops == 0:
            return 0.0
        relays, crossing_s = hops - 1, (hops - 1) * self._packet_s
        return float(
            self._latency.compute_head_s(hops, relays)
            + self._latency.compute_tail_s(hops, relays, crossing_s)
        )
