"""What to do when a fibre is lost: close the ring over other links at once, then patch anew.

A plan, nothing moves here. First step, in force as soon as routes are changed: data of a lost link takes
the shortest way over the links that are left, over links bought for pairs before those of rings. Second
step: such a bought link is given up, and its NICs restore the ring link for good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from testbed.design.model import Link, Nic, Wiring
from testbed.errors import TopologyError

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Detour:
    """A lost link and the links that carry its data meanwhile."""

    lost: Link
    path: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """`running` is the wiring without the lost links; `repatched` the one that restores what is worth it.

    `remove` and `make` are the links between the two, none when nothing can be restored before the
    fibre is replaced, or when the lost link was itself one to give up; `why` says which.
    """

    detours: tuple[Detour, ...]
    running: Wiring
    repatched: Wiring
    remove: tuple[Link, ...]
    make: tuple[Link, ...]
    why: str


def plan_repair(wiring: Wiring, dead: Nic, spare_pairs: Collection[Edge] = (), *, planes: int = 1) -> Repair:
    """A repair for the loss of the fibre of one NIC, both its directions.

    `spare_pairs` are pairs of nodes whose links may be given up (bought for pairs: `Finding.links_of`
    and fillers), the least missed first. With `planes` above 1, interface i meets switch i only: the
    link is restored in another plane by exchanging the ends of two links that may be given up.
    Raises `TopologyError` when the NIC has no link, or a node is cut off without it.
    """
    lost = tuple(link for link in wiring.links if dead in (link.source, link.target))
    if not lost:
        raise TopologyError(f"NIC {dead.index} of node {dead.node} is on no link: nothing is lost with it")
    running = _without(wiring, lost)
    detours = tuple(Detour(link, _shortest(running, link, _both_ways(spare_pairs))) for link in lost)
    if {(link.source.node, link.target.node) for link in lost} <= _both_ways(spare_pairs):
        return Repair(
            detours, running, running, (), (), "the lost link served one pair; its data takes the detour"
        )
    remove, make = _exchange(running, lost, dead, spare_pairs, planes=planes)
    why = (
        "the ring is closed by a link of its own again"
        if make
        else f"node {dead.node} has no other NIC to give: the detour stays until the fibre is replaced"
    )
    kept = _without(running, remove)
    repatched = Wiring(wiring.nodes, wiring.degree, wiring.simplex, tuple(sorted((*kept.links, *make))))
    return Repair(detours, running, repatched, remove, make, why)


def _without(wiring: Wiring, gone: Collection[Link]) -> Wiring:
    links = tuple(link for link in wiring.links if link not in gone)
    return Wiring(wiring.nodes, wiring.degree, wiring.simplex, links)


def _both_ways(pairs: Iterable[Edge]) -> frozenset[Edge]:
    return frozenset(edge for one, other in pairs for edge in ((one, other), (other, one)))


def _shortest(wiring: Wiring, lost: Link, spare: Collection[Edge]) -> tuple[Link, ...]:
    """Fewest hops, then fewest links of rings, then the smaller links."""
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
            ring = (link.source.node, link.target.node) not in spare
            heappush(waiting, (hops + 1, of_rings + ring, (*path, link)))
    raise TopologyError(
        f"without the lost fibre node {lost.source.node} has no path to node {lost.target.node}: replace the fibre, "
        f"or give every node a second link"
    )


def _exchange(
    running: Wiring, lost: tuple[Link, ...], dead: Nic, spare_pairs: Collection[Edge], *, planes: int
) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
    """Links to give up and to make, so that the two nodes of the lost link are joined again."""
    if running.simplex:
        return _exchange_one_way(running, lost, dead, spare_pairs, planes=planes)
    left_over = next(link.target for link in lost if link.source == dead)
    table, spare = running.link_from, _both_ways(spare_pairs)
    for here in _givers(running, dead, spare_pairs, table):
        old = _pair_at(table, here)
        if planes == 1:
            return old, _duplex(here, left_over)
        there = Nic(left_over.node, here.index)
        other = _pair_at(table, there)
        if other and _ends(other[0]) not in spare:
            continue
        freed = [pair[0].target for pair in (old, other) if pair]
        apart = len(freed) == 2 and freed[0].node != freed[1].node
        return (*old, *other), (*_duplex(here, there), *(_duplex(*freed) if apart else ()))
    return (), ()


def _duplex(one: Nic, other: Nic) -> tuple[Link, Link]:
    return Link(one, other), Link(other, one)


def _exchange_one_way(
    running: Wiring, lost: tuple[Link, ...], dead: Nic, spare_pairs: Collection[Edge], *, planes: int
) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
    """The same for one-way links: another NIC of the node sends, or receives, in place of the dead one."""
    if planes > 1:
        return (), ()  # the far ends lie on the plane of the dead NIC and on no other
    remove: list[Link] = []
    make: list[Link] = []
    for link in lost:
        sends = link.source == dead
        table = running.link_from if sends else running.link_into
        here = next(_givers(running, dead, spare_pairs, table), None)
        if here is not None:
            remove += [table[here]] if here in table else []
            make.append(Link(here, link.target) if sends else Link(link.source, here))
    return tuple(remove), tuple(make)


def _givers(
    running: Wiring, dead: Nic, spare_pairs: Collection[Edge], table: Mapping[Nic, Link]
) -> Iterator[Nic]:
    """Other NICs of the node that have no link, or one that may be given up, the least missed first."""
    rank = {edge: place for place, pair in enumerate(spare_pairs) for edge in (pair, pair[::-1])}
    others = [Nic(dead.node, index) for index in range(running.degree) if index != dead.index]
    yield from (nic for nic in others if nic not in table)
    bought = [nic for nic in others if nic in table and _ends(table[nic]) in rank]
    yield from sorted(bought, key=lambda nic: (rank[_ends(table[nic])], nic))


def _ends(link: Link) -> Edge:
    return link.source.node, link.target.node


def _pair_at(table: Mapping[Nic, Link], nic: Nic) -> tuple[Link, ...]:
    """Both directions of a duplex link at a NIC, the one that leaves it first; none when it is free."""
    link = table.get(nic)
    return () if link is None else (link, Link(link.target, link.source))
