"""Rings in the log of NCCL (`NCCL_DEBUG=INFO`, subsystems INIT and GRAPH), compared with the plan.

The format of these lines is undocumented. The parser supports NCCL 2.4 to 2.29.

    host:pid:tid [0] NCCL INFO ... rank 3 nranks 12 ... commId 0x5d - Init START      since 2023
    host:pid:tid [0] NCCL INFO Ring 00 : 11 -> 0 -> 1                                 every rank, GRAPH
    host:pid:tid [0] NCCL INFO Channel 00/04 :  0  1  2 ...                           rank 0, cut at 127 characters
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from testbed.design.model import RingOrder

_THREAD_PATTERN = re.compile(r"(?P<thread>\S+:\d+:\d+) \[-?\d+\] NCCL INFO (?P<said>.*\S)")
_START_PATTERN = re.compile(r".*\bnranks (?P<ranks>\d+)\b.*\bcommId (?P<id>0x[0-9a-f]+)\b.* - Init START")
_RING_PATTERN = re.compile(r"Ring (?P<channel>\d+) : (?P<before>\d+) -> (?P<rank>\d+) -> (?P<after>\d+)$")
_CHANNEL_PATTERN = re.compile(r"Channel (?P<channel>\d+)/\d+ :(?P<ranks>(?: +\d+)+)(?P<cut>\s*\S*\.\.\.)?$")


@dataclass(frozen=True, slots=True)
class LogRing:
    """A ring of NCCL: its ranks in the direction of the data, from the lowest. `communicator` is NCCL's id, or ""."""

    communicator: str
    channel: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RingLog:
    """The rings of a log in order of appearance, and sentences about rings that are unclear."""

    rings: tuple[LogRing, ...]
    problems: tuple[str, ...]

    @property
    def communicators(self) -> tuple[str, ...]:
        """Ids of the communicators, in the order of appearance."""
        return tuple(dict.fromkeys(ring.communicator for ring in self.rings))


@dataclass(frozen=True, slots=True)
class RingFinding:
    """A difference from the planned rings. `order` is the ring that differs, as nodes."""

    kind: Literal["missing", "reversed", "unplanned"]
    order: tuple[int, ...]
    detail: str


@dataclass(slots=True)
class _ChannelNeighbours:
    """Parser state for one ring: the neighbours of each rank, and the whole order if the log has it."""

    successor_by_rank: dict[int, int] = field(default_factory=dict)
    predecessor_by_rank: dict[int, int] = field(default_factory=dict)
    logged_order: tuple[int, ...] = ()
    is_truncated: bool = False
    is_contradictory: bool = False


def parse_rings(text: str) -> RingLog:
    """Parse the rings in a log of one rank or all ranks, and ignore other lines.

    The lines of single ranks take precedence over the whole ring that rank 0 prints, because its line may be truncated.
    """
    communicator_by_thread: dict[str, str] = {}
    rank_count_by_communicator: dict[str, int] = {}
    channels: dict[tuple[str, int], _ChannelNeighbours] = {}
    for line in text.splitlines():
        match = _THREAD_PATTERN.search(line)
        if not match:
            continue
        thread, message = match["thread"], match["said"]
        start_match = _START_PATTERN.match(message)
        if start_match:
            communicator_by_thread[thread] = start_match["id"]
            rank_count_by_communicator[start_match["id"]] = int(start_match["ranks"])
        else:
            _read_ring(channels, communicator_by_thread.get(thread, ""), message)
    rings, problems = [], []
    for (communicator, channel_number), channel in channels.items():
        order = _find_order(channel, rank_count_by_communicator.get(communicator))
        if isinstance(order, str):
            communicator_text = f" of communicator {communicator}" if communicator else ""
            problems.append(f"channel {channel_number}{communicator_text}: {order}")
        else:
            rings.append(LogRing(communicator, channel_number, order))
    return RingLog(tuple(rings), tuple(problems))


def find_ring_differences(
    planned_rings: Sequence[RingOrder], ring_log: RingLog, nodes_of_ranks: Sequence[Sequence[int]] = ()
) -> tuple[RingFinding, ...]:
    """Return the differences between planned and used rings, or () if exactly the planned rings were used.

    Rings are equal if one is a rotation of the other. `nodes_of_ranks[k][r]` is the node of rank r in the k-th
    communicator of the log. By default rank r is node r. Consecutive ranks of one node count once.
    """
    used_orders = {_rotate(_convert_to_nodes(ring, ring_log, nodes_of_ranks)) for ring in ring_log.rings}
    ring_by_order = {_rotate(ring.order): ring for ring in planned_rings}
    findings = [
        _make_missing_finding(ring, used_orders)
        for order, ring in ring_by_order.items()
        if order not in used_orders
    ]
    explained_orders = set(ring_by_order) | {
        _rotate(finding.order[::-1]) for finding in findings if finding.kind == "reversed"
    }
    unplanned_orders = sorted(used_orders - explained_orders)
    return (
        *findings,
        *(
            RingFinding("unplanned", order, f"NCCL used the ring {_format_ring(order)}")
            for order in unplanned_orders
        ),
    )


def _read_ring(channels: dict[tuple[str, int], _ChannelNeighbours], communicator: str, line: str) -> None:
    neighbours_match, ring_match = _RING_PATTERN.match(line), _CHANNEL_PATTERN.match(line)
    if neighbours_match:
        channel = channels.setdefault((communicator, int(neighbours_match["channel"])), _ChannelNeighbours())
        rank, predecessor, successor = (
            int(neighbours_match["rank"]),
            int(neighbours_match["before"]),
            int(neighbours_match["after"]),
        )
        is_same_successor = channel.successor_by_rank.setdefault(rank, successor) == successor
        channel.is_contradictory |= not (
            channel.predecessor_by_rank.setdefault(rank, predecessor) == predecessor and is_same_successor
        )
    elif ring_match:
        channel = channels.setdefault((communicator, int(ring_match["channel"])), _ChannelNeighbours())
        channel.is_truncated = ring_match["cut"] is not None
        channel.logged_order = () if channel.is_truncated else tuple(map(int, ring_match["ranks"].split()))


def _find_order(channel: _ChannelNeighbours, rank_count: int | None) -> tuple[int, ...] | str:
    """Return the ring, from its lowest rank, or a sentence that says why it is unknown."""
    if channel.is_contradictory:
        return "ranks contradict each other: the log mixes two communicators without their ids"
    order = _find_cycle(channel.successor_by_rank)
    if order and len(order) == (rank_count or len(order)) and _has_matching_predecessors(channel, order):
        return order
    if channel.logged_order and len(set(channel.logged_order)) == (rank_count or len(channel.logged_order)):
        return _rotate(channel.logged_order)
    if channel.successor_by_rank and len(channel.successor_by_rank) == (
        rank_count or len(channel.successor_by_rank)
    ):
        return "the neighbours of the ranks do not form a ring"
    if channel.successor_by_rank:
        ranks_text = ", ".join(map(str, sorted(channel.successor_by_rank)))
        return f"the log has only ranks {ranks_text}; collect the logs of all ranks"
    return "the line is truncated; set NCCL_DEBUG_SUBSYS=INIT,GRAPH so that each rank logs its neighbours"


def _find_cycle(successor_by_rank: dict[int, int]) -> tuple[int, ...]:
    """Return the cycle through all ranks, from the lowest, or () if there is none."""
    if not successor_by_rank:
        return ()
    order = [min(successor_by_rank)]
    while len(order) < len(successor_by_rank) and successor_by_rank[order[-1]] in successor_by_rank:
        order.append(successor_by_rank[order[-1]])
    is_closed = len(set(order)) == len(successor_by_rank) and successor_by_rank[order[-1]] == order[0]
    return tuple(order) if is_closed else ()


def _has_matching_predecessors(channel: _ChannelNeighbours, order: tuple[int, ...]) -> bool:
    """Return whether each rank reports its predecessor in this order."""
    return all(
        channel.predecessor_by_rank[rank] == predecessor
        for predecessor, rank in zip(order, order[1:] + order[:1], strict=True)
    )


def _convert_to_nodes(
    ring: LogRing, log: RingLog, nodes_of_ranks: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    communicator_index = log.communicators.index(ring.communicator)
    if communicator_index >= len(nodes_of_ranks):
        return ring.order
    nodes = [node for node, _ in groupby(nodes_of_ranks[communicator_index][rank] for rank in ring.order)]
    if len(nodes) > 1 and nodes[0] == nodes[-1]:
        nodes.pop()
    return tuple(nodes)


def _rotate(ranks: Iterable[int]) -> tuple[int, ...]:
    """Return the rotation that starts with the lowest number."""
    ring = tuple(ranks)
    start_index = ring.index(min(ring)) if ring else 0
    return ring[start_index:] + ring[:start_index]


def _make_missing_finding(ring: RingOrder, used_orders: set[tuple[int, ...]]) -> RingFinding:
    if _rotate(ring.order[::-1]) in used_orders:
        detail = f"the ring of stride {ring.stride} was used in the reverse direction"
        return RingFinding("reversed", ring.order, detail)
    detail = f"the ring of stride {ring.stride} ({_format_ring(ring.order)}) was not used"
    return RingFinding("missing", ring.order, detail)


def _format_ring(order: Sequence[int]) -> str:
    shown_nodes = [str(node) for node in order[:8]]
    return " -> ".join([*shown_nodes, "..."] if len(order) > len(shown_nodes) else shown_nodes)
