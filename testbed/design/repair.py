"""What to do when a fibre is lost: close the ring over other links at once, then patch anew.

A plan, nothing moves here. First step, in force as soon as routes are changed: data of a lost link takes
the shortest way over the links that are left, over links bought for pairs before those of rings. Second
step: such a bought link is given up, and its NICs restore the ring link for good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from testbed.design.exchange import Losses, ends, exchange, restored
from testbed.design.model import Link, Nic, Routes, Topology, Wiring
from testbed.design.strides import directed_strides
from testbed.design.topology import circulant_edges
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


def plan_repair(
    wiring: Wiring,
    dead: Collection[Nic],
    spare_pairs: Sequence[Edge] = (),
    *,
    planes: int = 1,
    lost: Collection[Link] | None = None,
) -> Repair:
    """A repair for NICs whose fibre is lost; they are not used until it is replaced.

    `spare_pairs` are pairs of nodes whose links may be given up (bought for pairs: `Finding.links_of`
    and fillers), the least missed first. With `planes` above 1, interface i meets switch i only: the
    link is restored in another plane by exchanging the ends of links that may be given up. `lost` are the
    links that carry nothing now, all of the dead NICs unless given: a cut transmit fibre, say, darkens a far
    receiver and with it the NIC's own sending, while the dead NIC hears on.
    Raises `TopologyError` when a NIC has no link, or a node is cut off.
    """
    at_dead = [_links_at(wiring, nic) for nic in dead]
    gone = tuple(sorted({link for links in at_dead for link in links} if lost is None else lost))
    rank = {edge: place for place, pair in enumerate(spare_pairs) for edge in _ways(wiring, pair)}
    running = _without(wiring, gone)
    detours = tuple(Detour(link, _shortest(running, link, rank)) for link in gone)
    losses = Losses(frozenset(dead), frozenset(gone), rank, planes)
    links = exchange(wiring, losses)
    if links is None:
        return Repair(detours, running, running, (), (), _why_not(losses))
    repatched = Wiring(wiring.nodes, wiring.degree, wiring.simplex, links)
    remove = tuple(link for link in running.links if link not in links)
    make = tuple(link for link in links if link not in wiring.links)
    why = _why(losses.ring_links.total(), restored(wiring, losses, links).total())
    return Repair(detours, running, repatched, remove, make, why)


def bought_pairs(topology: Topology) -> tuple[Edge, ...]:
    """Pairs of nodes joined beside the rings: those whose links may be given up to mend a ring."""
    steps = directed_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    rings = set(circulant_edges(topology.nodes, steps))
    return tuple(dict.fromkeys(pair for pair in topology.links if pair not in rings))


def routes_over(routes: Routes, detours: Iterable[Detour]) -> Routes:
    """Shortest routes in which the data of each lost link takes its detour.

    A detour is a shortest path, so that first links towards its end still lead there.
    """
    first = dict(routes.first_link)
    for detour in detours:
        target = detour.lost.target.node
        first |= {(link.source.node, target): link for link in detour.path}
    return Routes(first)


def _links_at(wiring: Wiring, nic: Nic) -> list[Link]:
    links = [link for link in wiring.links if nic in link]
    if not links:
        raise TopologyError(f"NIC {nic.index} of node {nic.node} is on no link: nothing is lost with it")
    return links


def _ways(wiring: Wiring, pair: Edge) -> tuple[Edge, ...]:
    return (pair,) if wiring.simplex else (pair, pair[::-1])


def _without(wiring: Wiring, gone: Collection[Link]) -> Wiring:
    links = tuple(link for link in wiring.links if link not in gone)
    return Wiring(wiring.nodes, wiring.degree, wiring.simplex, links)


def _why(wanted: int, restored: int) -> str:
    if restored == wanted:
        return "the ring is closed by a link of its own again"
    return f"{restored} of {wanted} ring links are restored, the others stay on their detours"


def _why_not(losses: Losses) -> str:
    if all(map(losses.may_go, losses.lost)):
        return "the lost link served one pair; its data takes the detour"
    nodes = ", ".join(str(nic.node) for nic in sorted(losses.dead))
    return f"node {nodes} has no other NIC to give: the detour stays until the fibre is replaced"


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
            heappush(waiting, (hops + 1, of_rings + (ends(link) not in spare), (*path, link)))
    raise TopologyError(
        f"without the lost fibre node {lost.source.node} has no path to node {lost.target.node}: replace the fibre, "
        f"or give every node a second link"
    )
