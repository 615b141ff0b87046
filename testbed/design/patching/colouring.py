"""Exact edge colouring: one of d colours (planes) for each edge of a d-regular graph, all different at each node.

Deciding whether a colouring exists is hard in general (Holyer 1981), but the graphs here are small. Kempe chains
colour most of them; their failure proves nothing. Then an exact search makes the most constrained choice first,
follows forced moves, and abandons a branch as soon as some colour can no longer pair its nodes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from testbed.errors import TopologyError

Edge = tuple[int, int]
Option = tuple[int, int]

#: Edges painted before the search gives up (some seconds). Kempe chains colour connected circulants long before.
STEP_LIMIT = 200_000

#: Moves per edge before the attempt with Kempe chains ends; circulants of up to 40 nodes need fewer than 4.
MOVES_PER_EDGE = 100


def colour_edges(nodes: int, colours: int, pairs: Sequence[Edge]) -> list[list[Edge]] | None:
    """Return a split of a regular graph into `colours` perfect matchings, or None if there is none.

    `pairs` are undirected edges, parallel ones repeated; every node must be on exactly `colours` of
    them. Raises `TopologyError` if `STEP_LIMIT` is reached before the answer is known.
    """
    quick = kempe_colours(nodes, colours, pairs)
    return _group_by_colour(colours, pairs, quick) if quick is not None else _search(nodes, colours, pairs)


def _search(nodes: int, colours: int, pairs: Sequence[Edge]) -> list[list[Edge]] | None:
    """Return a split by exact search, or None if there is none. Raises `TopologyError` after `STEP_LIMIT` steps."""
    search = _Search(nodes, colours, pairs)
    for colour, edge in enumerate(search.edges_at[0] if colours else ()):
        search.paint(edge, colour)  # colours are interchangeable: fix them at node 0
    if not search.solve():
        return None
    return _group_by_colour(colours, pairs, search.colour)


def _group_by_colour(colours: int, pairs: Sequence[Edge], own_colours: Sequence[int]) -> list[list[Edge]]:
    return [
        [pair for pair, own in zip(pairs, own_colours, strict=True) if own == colour]
        for colour in range(colours)
    ]


class _Search:
    """Exact search, with a partial colouring: `free[v]` are the colours (bits) missing at node v."""

    def __init__(self, nodes: int, colours: int, pairs: Sequence[Edge]) -> None:
        self.pairs = pairs
        self.colours = colours
        self.colour = [-1] * len(pairs)
        self.free = [(1 << colours) - 1] * nodes
        self.edges_at: list[list[int]] = [[] for _ in range(nodes)]
        for edge, ends in enumerate(pairs):
            for end in ends:
                self.edges_at[end].append(edge)
        self.steps = 0

    def solve(self) -> bool:
        """Complete the colouring and return True; or erase all edges that it painted and return False."""
        forced: list[int] = []
        options = self._find_scarcest()
        while options is not None and len(options) == 1:
            self.paint(*options[0])
            forced.append(options[0][0])
            options = self._find_scarcest()
        if options is None:
            return True
        if not any(self._has_odd_part(colour) for colour in range(self.colours)):
            for edge, colour in options:
                self.paint(edge, colour)
                if self.solve():
                    return True
                self._erase(edge)
        for edge in forced:
            self._erase(edge)
        return False

    def paint(self, edge: int, colour: int) -> None:
        """Paint an edge with a colour that is free at both ends. Raises `TopologyError` after `STEP_LIMIT` steps."""
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise TopologyError(
                f"no split of {len(self.pairs)} links into {self.colours} perfect matchings found within "
                f"{STEP_LIMIT} steps, although one may exist: use planes=1 or simplex links"
            )
        self.colour[edge] = colour
        for end in self.pairs[edge]:
            self.free[end] &= ~(1 << colour)

    def _erase(self, edge: int) -> None:
        for end in self.pairs[edge]:
            self.free[end] |= 1 << self.colour[edge]
        self.colour[edge] = -1

    def _find_scarcest(self) -> list[Option] | None:
        """Return the options of the missing colour with fewest options; None if no colour is missing at any node."""
        fewest: list[Option] | None = None
        for node, free in enumerate(self.free):
            for colour in _bits(free):
                options = self._list_options(node, colour)
                if fewest is None or len(options) < len(fewest):
                    fewest = options
                if len(fewest) <= 1:
                    return fewest
        return fewest

    def _list_options(self, node: int, colour: int) -> list[Option]:
        """Return the unpainted edges at a node whose other end also lacks the colour."""
        return [
            (edge, colour)
            for edge in self.edges_at[node]
            if self.colour[edge] < 0 and self.free[self._other(edge, node)] >> colour & 1
        ]

    def _other(self, edge: int, node: int) -> int:
        one, other = self.pairs[edge]
        return other if node == one else one

    def _has_odd_part(self, colour: int) -> bool:
        """Return whether the nodes that lack a colour have a connected part of odd size, which no matching pairs."""
        lacking = {node for node, free in enumerate(self.free) if free >> colour & 1}
        while lacking:
            waiting = [lacking.pop()]
            size = 0
            while waiting:
                node = waiting.pop()
                size += 1
                fresh = {self._other(edge, node) for edge, _ in self._list_options(node, colour)} & lacking
                lacking -= fresh
                waiting += fresh
            if size % 2:
                return True
        return False


def _bits(mask: int) -> Iterator[int]:
    """Yield the positions of the ones in a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def kempe_colours(nodes: int, colours: int, pairs: Sequence[Edge]) -> list[int] | None:
    """Return a colour for each edge, all different at each node, or None if the attempt failed.

    Random moves have a fixed seed, so the same graph always gets the same colours.
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
        """Paint a bare edge, and return the edges that lost their colour for it."""
        one, other = self.pairs[edge]
        here, there = self._free(one), self._free(other)
        common = [colour for colour in here if colour in there]
        if common:
            self._paint(edge, common[0])
            return []
        colour_here, colour_there = chance.choice(here), chance.choice(there)
        self._flip(other, colour_here, colour_there)
        evicted = self.edge_at[other][colour_here]
        if evicted < 0 and self.edge_at[one][colour_here] < 0:
            self._paint(edge, colour_here)
            return []
        # The chain did not free a colour: take a random one from the edges that have it.
        colour = chance.choice(range(len(self.edge_at[one])))
        displaced = sorted({self.edge_at[end][colour] for end in self.pairs[edge]} - {-1})
        for each in displaced:
            self._erase(each)
        self._paint(edge, colour)
        return displaced

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
