"""Plans of repairs for lost fibres: detours over other links at once, then a re-patch that restores the rings.

These functions only plan. First step, which needs only new routes: data of a lost link takes the shortest path over
the remaining links, over links bought for pairs before those of rings. Second step: a bought link is given up, and
its NICs restore the ring link.

A dead NIC is not used any more. Its ring links move to other NICs, which are idle or have a link that may be
given up; ends that are loose afterwards are joined, because a NIC whose receiver is dark does not send either.
The search is depth first over the cheapest choices, so it is deterministic; it tries a limited number, since an
operator waits for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby, product

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Link, Nic, Routes, Topology, Wiring
from testbed.design.topology.circulants import circulant_edges
from testbed.design.topology.strides import direct_strides
from testbed.errors import TopologyError

__all__ = ["Detour", "Repair", "plan_repair"]

#: Links tried in all; the remaining lost links are then not restored. Few fibres are lost at a time.
_TRIALS = 2000

Pair = tuple[Nic, Nic]
Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Detour:
    """A lost link and the path of its data until it is restored; empty if only the re-patch joins its nodes."""

    lost: Link
    path: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """Plan of a repair: `running` is the wiring that carries data now, `repatched` the one after the re-patch.

    `remove` and `make` are the links that differ. `restores` is False if no ring link can be restored before the fibre
    is replaced, or if the lost links were not of rings; `why` is the reason.
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
    """Links that are patched (`held`), and those that carry data; after an earlier repair not all those of a wiring."""

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
    """Return a repair for the NICs `dead`, whose fibre is lost; they are not used until it is replaced.

    `spare_pairs` are pairs of nodes whose links may be given up (bought for pairs: `Finding.links_of`
    and fillers), the least missed first. With `planes` above 1, interface i is connected to switch i only:
    the link is restored in another plane by swapping the ends of links that may be given up. `lost` are the
    links that do not work, by default all links of the dead NICs. For example a cut transmit fibre darkens the
    receiver at its other end, whose NIC then does not send, while the dead NIC still receives. Detours use the
    `current` links, by default the wiring without the lost links.
    Raises `TopologyError` if a NIC has no link, or a node is cut off and no other NIC can join it again.
    """
    gone = frozenset(_links_of(wiring, dead) if lost is None else lost)
    current = current or CurrentLinks(frozenset(wiring.links), frozenset(wiring.links) - gone)
    rank = {
        edge: place
        for place, pair in enumerate(spare_pairs)
        for edge in ((pair,) if wiring.simplex else (pair, pair[::-1]))
    }
    losses = Losses(frozenset(dead), gone, rank, planes)
    running = _with_links(wiring, current.carrying)
    links = swap_edges(wiring, losses)
    if links is not None and _loses_ring_links(wiring, losses, current, links):
        links = None
    repatched = running if links is None else _with_links(wiring, links)
    detours = tuple(
        _detour(link, running, repatched, rank) for link in wiring.links if link not in current.carrying
    )
    if links is None:
        return Repair(detours, running, running, (), (), False, _why_not(losses))
    remove = tuple(link for link in running.links if link not in links)
    make = tuple(link for link in links if link not in current.held)
    why = _why(losses.ring_links.total(), count_restored(wiring, losses, links).total())
    return Repair(detours, running, repatched, remove, make, True, why)


def find_bought_pairs(topology: Topology, sent: NDArray[np.float64] | None = None) -> tuple[Edge, ...]:
    """Return the pairs with links outside the rings, which may be given up for a repair, the least missed first.

    A link is missed for the bytes `sent[source, target]`, in both directions if duplex; fillers come first.
    Pairs with equal bytes are in the order of their nodes, and so are all without `sent`.
    """
    steps = direct_strides(topology.nodes, topology.strides, simplex=topology.simplex)
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
            raise TopologyError(
                f"NIC {nic.index} of node {nic.node} has no link, so there is nothing to repair"
            )
        yield from links


def _loses_ring_links(wiring: Wiring, losses: Losses, current: CurrentLinks, links: Iterable[Link]) -> bool:
    """Return whether the new links lack ring links that carry data now, for example after an earlier repair."""
    rings = Counter(end_nodes(link) for link in wiring.links if not losses.may_go(link))
    worked = rings & Counter(map(end_nodes, current.carrying))
    return not worked <= Counter(map(end_nodes, links))


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
    return f"node {nodes} has no other NIC to give: the detour stays until the fibre or GPU is replaced"


def _detour(lost: Link, running: Wiring, repatched: Wiring, spare: Collection[Edge]) -> Detour:
    """Return the detour over the running links, with an empty path if only the re-patch joins the nodes again.

    Raises `TopologyError` if the re-patch does not join them either.
    """
    path = _find_shortest(running, lost, spare)
    if path is None and _find_shortest(repatched, lost, spare) is None:
        raise TopologyError(
            f"without the lost link, node {lost.source.node} has no path to node {lost.target.node}: "
            "replace the fibre or GPU, or give every node a second link"
        )
    return Detour(lost, path or ())


def _find_shortest(wiring: Wiring, lost: Link, spare: Collection[Edge]) -> tuple[Link, ...] | None:
    """Return the path with fewest hops, then fewest links of rings, then the smallest links; None if there is none."""
    outgoing: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        outgoing[link.source.node].append(link)
    queue: list[tuple[int, int, tuple[Link, ...]]] = [(0, 0, ())]
    visited: set[int] = set()
    while queue:
        hops, of_rings, path = heappop(queue)
        node = path[-1].target.node if path else lost.source.node
        if node == lost.target.node:
            return path
        if node in visited:
            continue
        visited.add(node)
        for link in outgoing[node]:
            heappush(queue, (hops + 1, of_rings + (end_nodes(link) not in spare), (*path, link)))
    return None


@dataclass(frozen=True, slots=True)
class Losses:
    """Dead NICs, which must not be used, lost links, which carry no data, and edges whose links may be given up.

    `rank` holds both directions of duplex pairs; the least missed has the lowest rank. With `planes` above
    1, interface i is connected to switch i only.
    """

    dead: frozenset[Nic]
    lost: frozenset[Link]
    rank: Mapping[Edge, int]
    planes: int

    def may_go(self, link: Link) -> bool:
        """Return whether a link may be given up."""
        return end_nodes(link) in self.rank

    @property
    def ring_links(self) -> Counter[Edge]:
        """Edges of the lost links that may not be given up: those of rings."""
        return Counter(end_nodes(link) for link in self.lost if not self.may_go(link))


def end_nodes(link: Link) -> Edge:
    """Return the nodes of a link, sender first."""
    return link.source.node, link.target.node


def swap_edges(wiring: Wiring, losses: Losses) -> tuple[Link, ...] | None:
    """Return the links of a wiring without the dead NICs that restores as many of their ring links as possible.

    Only links that may be given up are removed, and no sending NIC loses its light. None if nothing can be restored.
    """
    cut = [link for link in wiring.links if link.source in losses.dead or link.target in losses.dead]
    missed = [
        link for link in cut if not losses.may_go(link) and (wiring.simplex or link.source < link.target)
    ]
    lit = frozenset(wiring.link_into)
    for board in _restore(_Board.from_wiring(wiring, losses, cut), missed, losses, iter(range(_TRIALS))):
        joined = board.join_loose(losses.planes)
        if not joined.silences_any(lit) and count_restored(wiring, losses, joined.links):
            return joined.links
    return None


def count_restored(wiring: Wiring, losses: Losses, links: Iterable[Link]) -> Counter[Edge]:
    """Return the lost ring links that these links restore, beyond those that the remaining wiring serves."""
    remaining = Counter(end_nodes(link) for link in wiring.links if link not in losses.lost)
    return losses.ring_links & (Counter(map(end_nodes, links)) - remaining)


def _restore(
    board: _Board, wanted: Sequence[Link], losses: Losses, trials: Iterator[int]
) -> Iterator[_Board]:
    """Yield boards with the wanted links restored, cheapest choice first; last those that omit lost links."""
    if not wanted:
        yield board
        return
    link, *rest = wanted
    for (here, there), _ in zip(board.candidates(link, losses), trials, strict=False):
        yield from _restore(board.plug(here, there), rest, losses, trials)
    if link in losses.lost:
        yield from _restore(board, rest, losses, trials)


@dataclass(frozen=True, slots=True)
class _Board:
    """Patch state: links in both directions of lookup, and loose transmitters and receivers.

    With duplex links a loose NIC is both.
    """

    duplex: bool
    degree: int
    out: Mapping[Nic, Nic]
    into: Mapping[Nic, Nic]
    loose_out: frozenset[Nic]
    loose_into: frozenset[Nic]

    @classmethod
    def from_wiring(cls, wiring: Wiring, losses: Losses, cut: Collection[Link]) -> _Board:
        """Return the board of a wiring without the cut links, whose ends at living NICs are loose."""
        remaining = [link for link in wiring.links if link not in cut]
        return cls(
            duplex=not wiring.simplex,
            degree=wiring.degree,
            out={link.source: link.target for link in remaining},
            into={link.target: link.source for link in remaining},
            loose_out=frozenset(link.source for link in cut) - losses.dead,
            loose_into=frozenset(link.target for link in cut) - losses.dead,
        )

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(sorted(Link(*pair) for pair in self.out.items()))

    def find_displaced(self, here: Nic, there: Nic) -> list[Link]:
        """Return the links that a new one from `here` to `there` would replace, one of each duplex pair."""
        gone = {Link(here, self.out[here])} if here in self.out else set()
        if there in self.into:
            gone.add(Link(self.into[there], there))
        return sorted(gone)

    def candidates(self, link: Link, losses: Losses) -> list[tuple[Nic, Nic]]:
        """Return the pairs of NICs that can carry a lost link, those that displace fewest links first."""
        costs: list[tuple[int, int, tuple[Nic, Nic]]] = []
        for here, there in self._list_places(link, losses):
            gone = self.find_displaced(here, there)
            if not losses.dead & {here, there} and all(map(losses.may_go, gone)):
                costs.append((len(gone), sum(losses.rank[end_nodes(one)] for one in gone), (here, there)))
        return [pair for _, _, pair in sorted(costs)]

    def _list_places(self, link: Link, losses: Losses) -> Iterator[tuple[Nic, Nic]]:
        """Return the pairs of ends to consider: on one switch a living end keeps its NIC.

        With one switch per interface both ends change to the same plane.
        """
        (source, _), (target, _) = link
        heres = [Nic(source, index) for index in range(self.degree)]
        theres = [Nic(target, index) for index in range(self.degree)]
        if losses.planes > 1:
            return zip(heres, theres, strict=True)
        return product(
            [link.source] if link.source in self.loose_out else heres,
            [link.target] if link.target in self.loose_into else theres,
        )

    def plug(self, here: Nic, there: Nic) -> _Board:
        """Return the board with a link from `here` to `there`; the other ends of replaced links become loose."""
        out, into = dict(self.out), dict(self.into)
        loose_out, loose_into = set(self.loose_out), set(self.loose_into)
        both = [(here, there), (there, here)] if self.duplex else [(here, there)]
        for one, other in both:
            if one in out:
                loose_into.add(out[one])
                del into[out.pop(one)]
            if other in into:
                loose_out.add(into[other])
                del out[into.pop(other)]
        for one, other in both:
            out[one], into[other] = other, one
        if here not in into:  # an idle NIC sends only when it is lit
            loose_into.add(here)
        free = frozenset(loose_out - out.keys()), frozenset(loose_into - into.keys())
        return _Board(self.duplex, self.degree, out, into, *free)

    def join_loose(self, planes: int) -> _Board:
        """Return the board with as many loose ends joined as possible; NICs that send get light first."""
        if self.duplex:
            pairs = pair_up(self.loose_into, planes)
        else:
            sending = self.out.keys() | self.loose_out
            pairs = match(self.loose_out, self.loose_into, planes, first=sending)
        board = self
        for here, there in pairs:
            board = board.plug(here, there)
        return board

    def silences_any(self, lit: Collection[Nic]) -> bool:
        """Return whether a NIC that sends, and had light before (`lit`), has no light on this board."""
        return any(nic in lit and nic not in self.into for nic in self.out)


def pair_up(nics: Collection[Nic], planes: int = 1) -> list[Pair]:
    """Return duplex links among these NICs, each used at most once; per plane with `planes` above 1.

    Each link joins the two nodes with most NICs left, so that the rest is one NIC, or NICs of one node.
    """

    def plane(nic: Nic) -> int:
        return nic.index if planes > 1 else 0

    in_order = sorted(nics, key=lambda nic: (plane(nic), nic))
    return [pair for _, group in groupby(in_order, plane) for pair in _pairs_of_fullest(list(group))]


def _pairs_of_fullest(nics: list[Nic]) -> Iterator[Pair]:
    free: dict[int, list[Nic]] = {}
    for nic in nics:
        free.setdefault(nic.node, []).append(nic)
    while len(free) > 1:
        one, other = sorted(free, key=lambda node: -len(free[node]))[:2]
        yield free[one].pop(0), free[other].pop(0)
        free = {node: rest for node, rest in free.items() if rest}


def match(
    senders: Collection[Nic],
    receivers: Collection[Nic],
    planes: int = 1,
    first: Collection[Nic] = (),
) -> list[Pair]:
    """Return one-way links from senders to receivers, each used at most once: a maximum matching by augmenting paths.

    A receiver that has a sender keeps one, so the receivers in `first` are served before others.
    """
    receiver_of: dict[Nic, Nic] = {}

    def find_sender(receiver: Nic, visited: set[Nic]) -> bool:
        for sender in sorted(senders):
            fits = sender.node != receiver.node and (planes == 1 or sender.index == receiver.index)
            if fits and sender not in visited:
                visited.add(sender)
                if sender not in receiver_of or find_sender(receiver_of[sender], visited):
                    receiver_of[sender] = receiver
                    return True
        return False

    for receiver in sorted(receivers, key=lambda nic: (nic not in first, nic)):
        find_sender(receiver, set())
    return sorted(receiver_of.items())
