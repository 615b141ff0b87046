"""Edge swaps of a repair: links given up and links made, so that the neighbours of dead NICs are joined again.

A dead NIC is not used any more. Its ring links move to other NICs, which are idle or hold a link that may be
given up; whatever lies loose afterwards is joined, because a NIC whose receiver is dark does not send either.
Depth first over the cheapest choices, so the answer is the same each time; somebody waits, so that only so many
are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from testbed.design.model import Link, Nic, Wiring
from testbed.design.repair.pairing import match, pair_up

Edge = tuple[int, int]

#: Links tried in all before the rest of what is lost is left out: few fibres are lost at a time.
_TRIALS = 2000


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
        if not joined.newly_silent(lit) and restored(wiring, losses, joined.links):
            return joined.links
    return None


def restored(wiring: Wiring, losses: Losses, links: Iterable[Link]) -> Counter[Edge]:
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

    def displaced(self, here: Nic, there: Nic) -> list[Link]:
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
            gone = self.displaced(here, there)
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
