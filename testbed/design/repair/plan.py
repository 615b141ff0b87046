"""Plan of a repair for lost fibres: close the ring over other links at once, then patch again.

A plan, nothing moves here. First step, in force as soon as routes are changed: data of a lost link takes
the shortest way over the links that are left, over links bought for pairs before those of rings. Second
step: such a bought link is given up, and its NICs restore the ring link for good.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Link, Nic, Routes, Topology, Wiring
from testbed.design.repair.edge_swap import Losses, ends, restored, swap_edges
from testbed.design.topology.circulants import circulant_edges
from testbed.design.topology.strides import directed_strides
from testbed.errors import TopologyError

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Detour:
    """A lost link and the links that carry its data meanwhile; none when nothing does before the re-patch."""

    lost: Link
    path: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """`running` is the wiring without the lost links; `repatched` the one that restores what is worth it.

    `remove` and `make` are the links between the two. It `restores` nothing when nothing can be restored before
    the fibre is replaced, or when the lost link was itself one to give up; `why` says which.
    """

    detours: tuple[Detour, ...]
    running: Wiring
    repatched: Wiring
    remove: tuple[Link, ...]
    make: tuple[Link, ...]
    restores: bool
    why: str


@dataclass(frozen=True, slots=True)
class CurrentLinks:
    """Links that are patched, and those of them that carry data: not all of a wiring's, say after an earlier repair."""

    held: frozenset[Link]
    carrying: frozenset[Link]


def plan_repair(
    wiring: Wiring,
    dead: Collection[Nic],
    spare_pairs: Sequence[Edge] = (),
    *,
    planes: int = 1,
    lost: Collection[Link] | None = None,
    current: CurrentLinks | None = None,
) -> Repair:
    """Return a repair for NICs whose fibre is lost; they are not used until it is replaced.

    `spare_pairs` are pairs of nodes whose links may be given up (bought for pairs: `Finding.links_of`
    and fillers), the least missed first. With `planes` above 1, interface i meets switch i only: the
    link is restored in another plane by swapping the ends of links that may be given up. `lost` are the
    links of the wiring that its dead NICs take with them, all of theirs unless given: a cut transmit fibre, say,
    darkens a far receiver and with it the NIC's own sending, while the dead NIC hears on. Detours lead over what
    is `current`; unless given, that is the wiring without the lost links.
    Raises `TopologyError` when a NIC has no link, or a node is cut off and no other NIC can join it again.
    """
    gone = frozenset(_links_of(wiring, dead) if lost is None else lost)
    current = current or CurrentLinks(frozenset(wiring.links), frozenset(wiring.links) - gone)
    rank = {edge: place for place, pair in enumerate(spare_pairs) for edge in _ways(wiring, pair)}
    losses = Losses(frozenset(dead), gone, rank, planes)
    running = _with_links(wiring, current.carrying)
    links = swap_edges(wiring, losses)
    if links is not None and _trades(wiring, losses, current, links):
        links = None
    repatched = running if links is None else _with_links(wiring, links)
    detours = tuple(
        _detour(link, running, repatched, rank) for link in wiring.links if link not in current.carrying
    )
    if links is None:
        return Repair(detours, running, running, (), (), False, _why_not(losses))
    remove = tuple(link for link in running.links if link not in links)
    make = tuple(link for link in links if link not in current.held)
    why = _why(losses.ring_links.total(), restored(wiring, losses, links).total())
    return Repair(detours, running, repatched, remove, make, True, why)


def bought_pairs(topology: Topology, sent: NDArray[np.float64] | None = None) -> tuple[Edge, ...]:
    """Return pairs joined outside the rings, whose links may be given up to repair one, the least missed first.

    `sent[source, target]` are the bytes that a link is missed for, both ways of a duplex one; fillers come first.
    Pairs that send the same are in the order of their nodes, and so are all when nothing is known.
    """
    steps = directed_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    rings = set(circulant_edges(topology.nodes, steps))
    pairs = dict.fromkeys(pair for pair in topology.links if pair not in rings)
    if sent is None:
        return tuple(pairs)
    missed = sent if topology.simplex else sent + sent.T
    return tuple(sorted(pairs, key=lambda pair: (float(missed[pair]), pair)))


def routes_over(routes: Routes, detours: Iterable[Detour]) -> Routes:
    """Return shortest routes in which the data of each lost link takes its detour.

    A detour is a shortest path, so that first links towards its end still lead there.
    """
    first = dict(routes.first_link)
    for detour in detours:
        target = detour.lost.target.node
        first |= {(link.source.node, target): link for link in detour.path}
    return Routes(first)


def _links_of(wiring: Wiring, nics: Collection[Nic]) -> Iterator[Link]:
    for nic in nics:
        links = [link for link in wiring.links if nic in link]
        if not links:
            raise TopologyError(f"NIC {nic.index} of node {nic.node} is on no link: nothing is lost with it")
        yield from links


def _ways(wiring: Wiring, pair: Edge) -> tuple[Edge, ...]:
    return (pair,) if wiring.simplex else (pair, pair[::-1])


def _trades(wiring: Wiring, losses: Losses, current: CurrentLinks, links: Iterable[Link]) -> bool:
    """Return whether ring links that stand, say from an earlier repair, would be lost by an edge swap."""
    rings = Counter(ends(link) for link in wiring.links if not losses.may_go(link))
    worked = rings & Counter(map(ends, current.carrying))
    return not worked <= Counter(map(ends, links))


def _with_links(wiring: Wiring, links: Iterable[Link]) -> Wiring:
    return Wiring(wiring.nodes, wiring.degree, wiring.simplex, tuple(sorted(links)))


def _why(wanted: int, restored: int) -> str:
    if restored == wanted:
        return "the ring is closed by a link of its own again"
    return f"{restored} of {wanted} ring links are restored, the others stay on their detours"


def _why_not(losses: Losses) -> str:
    if all(map(losses.may_go, losses.lost)):
        return "the lost link served one pair; its data takes the detour"
    nodes = ", ".join(str(nic.node) for nic in sorted(losses.dead))
    return f"node {nodes} has no other NIC to give: the detour stays until the fibre is replaced"


def _detour(lost: Link, running: Wiring, repatched: Wiring, spare: Collection[Edge]) -> Detour:
    """Return the detour over what runs, or none where only the re-patch joins the nodes again."""
    path = _shortest(running, lost, spare)
    if path is None and _shortest(repatched, lost, spare) is None:
        raise TopologyError(
            f"without the lost fibre node {lost.source.node} has no path to node {lost.target.node}: replace the "
            f"fibre, or give every node a second link"
        )
    return Detour(lost, path or ())


def _shortest(wiring: Wiring, lost: Link, spare: Collection[Edge]) -> tuple[Link, ...] | None:
    """Return fewest hops, then fewest links of rings, then the smaller links; None when there is no way."""
    outgoing: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        outgoing[link.source.node].append(link)
    waiting: list[tuple[int, int, tuple[Link, ...]]] = [(0, 0, ())]
    done: set[int] = set()
    while waiting:
        hops, of_rings, path = heappop(waiting)
        node = path[-1].target.node if path else lost.source.node
        if node == lost.target.node:
            return path
        if node in done:
            continue
        done.add(node)
        for link in outgoing[node]:
            heappush(waiting, (hops + 1, of_rings + (ends(link) not in spare), (*path, link)))
    return None
