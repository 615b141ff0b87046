"""Plan of a repair for lost fibres: close the ring over other links at once, then patch again.

A plan, nothing moves here. First step, in force as soon as routes are changed: data of a lost link takes
the shortest way over the links that are left, over links bought for pairs before those of rings. Second
step: such a bought link is given up, and its NICs restore the ring link for good.

A dead NIC is not used any more. Its ring links move to other NICs, which are idle or hold a link that may be
given up; whatever lies loose afterwards is joined, because a NIC whose receiver is dark does not send either.
Depth first over the cheapest choices, so the answer is the same each time; somebody waits, so that only so many
are tried.
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

#: Links tried in all before the rest of what is lost is left out: few fibres are lost at a time.
_TRIALS = 2000

Pair = tuple[Nic, Nic]
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
    rank = {
        edge: place
        for place, pair in enumerate(spare_pairs)
        for edge in ((pair,) if wiring.simplex else (pair, pair[::-1]))
    }
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
    why = _why(losses.ring_links.total(), count_restored(wiring, losses, links).total())
    return Repair(detours, running, repatched, remove, make, True, why)


def find_bought_pairs(topology: Topology, sent: NDArray[np.float64] | None = None) -> tuple[Edge, ...]:
    """Return pairs joined outside the rings, whose links may be given up to repair one, the least missed first.

    `sent[source, target]` are the bytes that a link is missed for, both ways of a duplex one; fillers come first.
    Pairs that send the same are in the order of their nodes, and so are all when nothing is known.
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
            raise TopologyError(f"NIC {nic.index} of node {nic.node} has no link, so nothing is lost with it")
        yield from links


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
            f"without the lost fibre, node {lost.source.node} has no path to node {lost.target.node}: "
            "replace the fibre, or give every node a second link"
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


@dataclass(frozen=True, slots=True)
class Losses:
    """NICs not to be used, the links that carry nothing now, and the edges whose links may be given up.

    `rank` holds both directions of duplex pairs; the least missed has the lowest rank. With `planes` above
    1, interface i meets switch i only.
    """

    dead: frozenset[Nic]
    lost: frozenset[Link]
    rank: Mapping[Edge, int]
    planes: int

    def may_go(self, link: Link) -> bool:
        """Return whether a link may be given up."""
        return ends(link) in self.rank

    @property
    def ring_links(self) -> Counter[Edge]:
        """Edges of the lost links that are missed."""
        return Counter(ends(link) for link in self.lost if not self.may_go(link))


def ends(link: Link) -> Edge:
    """Return the nodes that a link joins, sender first."""
    return link.source.node, link.target.node


def swap_edges(wiring: Wiring, losses: Losses) -> tuple[Link, ...] | None:
    """Return the links of a wiring without the dead NICs that restores as many of their ring links as it can.

    What still works is never traded away. None when nothing can be restored.
    """
    cut = [link for link in wiring.links if link.source in losses.dead or link.target in losses.dead]
    wanted = [
        link for link in cut if not losses.may_go(link) and (wiring.simplex or link.source < link.target)
    ]
    lit = frozenset(wiring.link_into)
    for board in _choices(_Board.of(wiring, losses, cut), wanted, losses, iter(range(_TRIALS))):
        joined = board.join_loose(losses.planes)
        if not joined.newly_silent(lit) and count_restored(wiring, losses, joined.links):
            return joined.links
    return None


def count_restored(wiring: Wiring, losses: Losses, links: Iterable[Link]) -> Counter[Edge]:
    """Return lost ring links that these links serve, and what was left of the wiring did not."""
    left = Counter(ends(link) for link in wiring.links if link not in losses.lost)
    return losses.ring_links & (Counter(map(ends, links)) - left)


def _choices(
    board: _Board, wanted: Sequence[Link], losses: Losses, trials: Iterator[int]
) -> Iterator[_Board]:
    """Yield boards with the wanted links restored, cheapest choice first.

    Last those that leave out what is lost anyhow.
    """
    if not wanted:
        yield board
        return
    link, *rest = wanted
    for (here, there), _ in zip(board.candidates(link, losses), trials, strict=False):
        yield from _choices(board.plug(here, there), rest, losses, trials)
    if link in losses.lost:
        yield from _choices(board, rest, losses, trials)


@dataclass(frozen=True, slots=True)
class _Board:
    """Pairs that send, and which transmitters and receivers lie loose; with duplex links a NIC is both at once."""

    duplex: bool
    degree: int
    out: Mapping[Nic, Nic]
    into: Mapping[Nic, Nic]
    loose_out: frozenset[Nic]
    loose_into: frozenset[Nic]

    @classmethod
    def of(cls, wiring: Wiring, losses: Losses, cut: Collection[Link]) -> _Board:
        """Return the wiring without the cut links, whose living ends lie loose."""
        kept = [link for link in wiring.links if link not in cut]
        return cls(
            duplex=not wiring.simplex,
            degree=wiring.degree,
            out={link.source: link.target for link in kept},
            into={link.target: link.source for link in kept},
            loose_out=frozenset(link.source for link in cut) - losses.dead,
            loose_into=frozenset(link.target for link in cut) - losses.dead,
        )

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(sorted(Link(*pair) for pair in self.out.items()))

    def find_displaced(self, here: Nic, there: Nic) -> list[Link]:
        """Return links that a new one from `here` to `there` would take away, one of each duplex pair."""
        gone = {Link(here, self.out[here])} if here in self.out else set()
        if there in self.into:
            gone.add(Link(self.into[there], there))
        return sorted(gone)

    def candidates(self, link: Link, losses: Losses) -> list[tuple[Nic, Nic]]:
        """Return pairs of NICs that could carry a lost link again.

        Those that displace least, the least missed first.
        """
        costs: list[tuple[int, int, tuple[Nic, Nic]]] = []
        for here, there in self._places(link, losses):
            gone = self.find_displaced(here, there)
            if not losses.dead & {here, there} and all(map(losses.may_go, gone)):
                costs.append((len(gone), sum(losses.rank[ends(one)] for one in gone), (here, there)))
        return [pair for _, _, pair in sorted(costs)]

    def _places(self, link: Link, losses: Losses) -> Iterator[tuple[Nic, Nic]]:
        """Return pairs of ends; on one switch a living end stays where it is.

        With a switch an interface both ends change their plane.
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
        """Return the board with that link; the far ends of what stood in the way lie loose."""
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
        """Return the board with as many loose ends joined as can be.

        NICs that send come first, they must have light.
        """
        if self.duplex:
            pairs = pair_up(self.loose_into, planes)
        else:
            sending = self.out.keys() | self.loose_out
            pairs = match(self.loose_out, self.loose_into, planes, first=sending)
        board = self
        for here, there in pairs:
            board = board.plug(here, there)
        return board

    def newly_silent(self, lit: Collection[Nic]) -> bool:
        """Return whether a NIC that sends, and was lit, has lost its light by the edge swap."""
        return any(nic in lit and nic not in self.into for nic in self.out)


def pair_up(nics: Collection[Nic], planes: int = 1) -> list[Pair]:
    """Return duplex links among these NICs, each at most once.

    Always one NIC each of the two nodes with the most left, so that what is left over is one NIC, or all of one node.
    """

    def plane(nic: Nic) -> int:
        return nic.index if planes > 1 else 0

    in_order = sorted(nics, key=lambda nic: (plane(nic), nic))
    return [pair for _, group in groupby(in_order, plane) for pair in _pairs_of_fullest(list(group))]


def _pairs_of_fullest(nics: list[Nic]) -> Iterator[Pair]:
    left: dict[int, list[Nic]] = {}
    for nic in nics:
        left.setdefault(nic.node, []).append(nic)
    while len(left) > 1:
        one, other = sorted(left, key=lambda node: -len(left[node]))[:2]
        yield left[one].pop(0), left[other].pop(0)
        left = {node: rest for node, rest in left.items() if rest}


def match(
    senders: Collection[Nic],
    receivers: Collection[Nic],
    planes: int = 1,
    first: Collection[Nic] = (),
) -> list[Pair]:
    """Return one-way links from senders to receivers, each at most once: a largest matching by augmenting paths.

    A receiver that has found a sender keeps one, so that those that come `first` are served before others.
    """
    receiver_of: dict[Nic, Nic] = {}

    def find_sender(receiver: Nic, tried: set[Nic]) -> bool:
        for sender in sorted(senders):
            fits = sender.node != receiver.node and (planes == 1 or sender.index == receiver.index)
            if fits and sender not in tried:
                tried.add(sender)
                if sender not in receiver_of or find_sender(receiver_of[sender], tried):
                    receiver_of[sender] = receiver
                    return True
        return False

    for receiver in sorted(receivers, key=lambda nic: (nic not in first, nic)):
        find_sender(receiver, set())
    return sorted(receiver_of.items())
