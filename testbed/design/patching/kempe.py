"""A quick edge colouring by Kempe chains, for the many graphs where an exact search would wander.

It finds a split into perfect matchings almost always when there is one, and never proves that there is none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

Edge = tuple[int, int]

#: Resharding per edge before the attempt ends; circulants of up to 40 nodes need fewer than 4.
MOVES_PER_EDGE = 100


def kempe_colours(nodes: int, colours: int, pairs: Sequence[Edge]) -> list[int] | None:
    """Return a colour for each edge, no two alike at a node, or None when the attempt did not succeed.

    The random moves come from a fixed seed: the same graph is coloured the same way each time.
    """
    painting = _Painting(nodes, colours, pairs)
    chance = random.Random(len(pairs))
    bare = list(range(len(pairs)))
    for _ in range(MOVES_PER_EDGE * len(pairs)):
        if not bare:
            return painting.colour
        bare += painting.place(bare.pop(), chance)
    return None if bare else painting.colour


class _Painting:
    """A partial colouring: `edge_at[v][c]` is the edge of colour c at node v, or -1."""

    def __init__(self, nodes: int, colours: int, pairs: Sequence[Edge]) -> None:
        self.pairs = pairs
        self.colour = [-1] * len(pairs)
        self.edge_at = [[-1] * colours for _ in range(nodes)]

    def place(self, edge: int, chance: random.Random) -> list[int]:
        """Paint a bare edge; the edges that lost their colour for it are returned."""
        one, other = self.pairs[edge]
        here, there = self._free(one), self._free(other)
        common = [colour for colour in here if colour in there]
        if common:
            self._paint(edge, common[0])
            return []
        wanted, offered = chance.choice(here), chance.choice(there)
        self._flip(other, wanted, offered)
        evicted = self.edge_at[other][wanted]
        if evicted < 0 and self.edge_at[one][wanted] < 0:
            self._paint(edge, wanted)
            return []
        return self._take(edge, chance.choice(range(len(self.edge_at[one]))))

    def _take(self, edge: int, colour: int) -> list[int]:
        """Paint an edge whatever stands in its way, and say what did."""
        evicted = sorted({self.edge_at[end][colour] for end in self.pairs[edge]} - {-1})
        for other in evicted:
            self._erase(other)
        self._paint(edge, colour)
        return evicted

    def _free(self, node: int) -> list[int]:
        return [colour for colour, edge in enumerate(self.edge_at[node]) if edge < 0]

    def _paint(self, edge: int, colour: int) -> None:
        self.colour[edge] = colour
        for end in self.pairs[edge]:
            self.edge_at[end][colour] = edge

    def _erase(self, edge: int) -> None:
        for end in self.pairs[edge]:
            self.edge_at[end][self.colour[edge]] = -1
        self.colour[edge] = -1

    def _flip(self, start: int, first: int, second: int) -> None:
        """Exchange two colours along the chain that leaves `start` by colour `first`."""
        chain, node, colour = [], start, first
        while (edge := self.edge_at[node][colour]) >= 0:
            chain.append(edge)
            node = sum(self.pairs[edge]) - node
            colour = first + second - colour
        swapped = [first + second - self.colour[edge] for edge in chain]
        for edge in chain:
            self._erase(edge)
        for edge, colour in zip(chain, swapped, strict=True):
            self._paint(edge, colour)
