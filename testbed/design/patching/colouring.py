"""Exact edge colouring: one of d colours (planes) for each edge of a d-regular graph, all different at each node.

Deciding whether a colouring exists is hard in general (Holyer 1981), but the graphs here are small. Kempe chains
colour most of them. If they fail, a colouring may still exist, and an exact search follows. It makes the most
constrained choice first, follows forced moves, and abandons a branch as soon as a colour can no longer pair its nodes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from testbed.errors import TopologyError

Edge = tuple[int, int]
EdgeColour = tuple[int, int]

#: Number of painted edges after which the exact search gives up. This many take some seconds.
MAX_STEPS = 200_000

#: Moves per edge after which Kempe chains give up. Circulants of up to 40 nodes need fewer than 4.
MAX_MOVES_PER_EDGE = 100


def colour_edges(node_count: int, colour_count: int, pairs: Sequence[Edge]) -> list[list[Edge]] | None:
    """Return a split of a regular graph into `colour_count` perfect matchings, or None if there is none.

    `pairs` are undirected edges, with an entry for each parallel edge. Every node must be on exactly `colour_count`
    edges. Raises `TopologyError` if `MAX_STEPS` is reached before the answer is known.
    """
    kempe_colours = colour_by_kempe_chains(node_count, colour_count, pairs)
    return (
        _group_by_colour(colour_count, pairs, kempe_colours)
        if kempe_colours is not None
        else _search_exactly(node_count, colour_count, pairs)
    )


def _search_exactly(node_count: int, colour_count: int, pairs: Sequence[Edge]) -> list[list[Edge]] | None:
    """Return a split by exact search, or None if there is none. Raises `TopologyError` after `MAX_STEPS` steps."""
    search = _ExactSearch(node_count, colour_count, pairs)
    for colour, edge in enumerate(search.edges_by_node[0] if colour_count else ()):
        search.paint(edge, colour)  # colours are interchangeable: fix them at node 0
    if not search.solve():
        return None
    return _group_by_colour(colour_count, pairs, search.colour_by_edge)


def _group_by_colour(
    colour_count: int, pairs: Sequence[Edge], edge_colours: Sequence[int]
) -> list[list[Edge]]:
    return [
        [pair for pair, edge_colour in zip(pairs, edge_colours, strict=True) if edge_colour == colour]
        for colour in range(colour_count)
    ]


class _ExactSearch:
    """Exact search with a partial colouring. `free_colours[v]` is a bit mask of the colours that node v lacks."""

    def __init__(self, node_count: int, colour_count: int, pairs: Sequence[Edge]) -> None:
        self.pairs = pairs
        self.colour_count = colour_count
        self.colour_by_edge = [-1] * len(pairs)
        self.free_colours = [(1 << colour_count) - 1] * node_count
        self.edges_by_node: list[list[int]] = [[] for _ in range(node_count)]
        for edge, end_pair in enumerate(pairs):
            for end in end_pair:
                self.edges_by_node[end].append(edge)
        self.step_count = 0

    def solve(self) -> bool:
        """Complete the colouring and return True. If there is none, erase the edges painted here and return False."""
        forced_edges: list[int] = []
        options = self._find_tightest_options()
        while options is not None and len(options) == 1:
            self.paint(*options[0])
            forced_edges.append(options[0][0])
            options = self._find_tightest_options()
        if options is None:
            return True
        if not any(self._has_odd_component(colour) for colour in range(self.colour_count)):
            for edge, colour in options:
                self.paint(edge, colour)
                if self.solve():
                    return True
                self._erase(edge)
        for edge in forced_edges:
            self._erase(edge)
        return False

    def paint(self, edge: int, colour: int) -> None:
        """Paint an edge with a colour that is free at both ends. Raises `TopologyError` after `MAX_STEPS` steps."""
        self.step_count += 1
        if self.step_count > MAX_STEPS:
            raise TopologyError(
                f"no split of {len(self.pairs)} links into {self.colour_count} perfect matchings found within "
                f"{MAX_STEPS} steps, although one may exist: use one plane or simplex links"
            )
        self.colour_by_edge[edge] = colour
        for end in self.pairs[edge]:
            self.free_colours[end] &= ~(1 << colour)

    def _erase(self, edge: int) -> None:
        for end in self.pairs[edge]:
            self.free_colours[end] |= 1 << self.colour_by_edge[edge]
        self.colour_by_edge[edge] = -1

    def _find_tightest_options(self) -> list[EdgeColour] | None:
        """Return the edges for the node and missing colour with the fewest options, or None if no colour is missing."""
        fewest_options: list[EdgeColour] | None = None
        for node, free_mask in enumerate(self.free_colours):
            for colour in _iterate_bits(free_mask):
                options = self._list_options(node, colour)
                if fewest_options is None or len(options) < len(fewest_options):
                    fewest_options = options
                if len(fewest_options) <= 1:
                    return fewest_options
        return fewest_options

    def _list_options(self, node: int, colour: int) -> list[EdgeColour]:
        """Return the unpainted edges at a node whose other end also lacks the colour, each with the colour."""
        return [
            (edge, colour)
            for edge in self.edges_by_node[node]
            if self.colour_by_edge[edge] < 0
            and self.free_colours[self._get_other_end(edge, node)] >> colour & 1
        ]

    def _get_other_end(self, edge: int, node: int) -> int:
        first_node, second_node = self.pairs[edge]
        return second_node if node == first_node else first_node

    def _has_odd_component(self, colour: int) -> bool:
        """Return whether the nodes that lack a colour have a component of odd size, which cannot be paired."""
        lacking_nodes = {node for node, free_mask in enumerate(self.free_colours) if free_mask >> colour & 1}
        while lacking_nodes:
            pending = [lacking_nodes.pop()]
            node_count = 0
            while pending:
                node = pending.pop()
                node_count += 1
                unvisited = {
                    self._get_other_end(edge, node) for edge, _ in self._list_options(node, colour)
                } & lacking_nodes
                lacking_nodes -= unvisited
                pending += unvisited
            if node_count % 2:
                return True
        return False


def _iterate_bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits in a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def colour_by_kempe_chains(node_count: int, colour_count: int, pairs: Sequence[Edge]) -> list[int] | None:
    """Return a colour for each edge, all different at each node, or None if the attempt failed.

    Random moves have a fixed seed, so the same graph always gets the same colours.
    """
    colouring = _KempeColouring(node_count, colour_count, pairs)
    rng = random.Random(len(pairs))
    uncoloured = list(range(len(pairs)))
    for _ in range(MAX_MOVES_PER_EDGE * len(pairs)):
        if not uncoloured:
            return colouring.colour_by_edge
        uncoloured += colouring.paint_edge(uncoloured.pop(), rng)
    return None if uncoloured else colouring.colour_by_edge


class _KempeColouring:
    """A partial colouring. `edge_at[v][c]` is the edge of colour c at node v, or -1."""

    def __init__(self, node_count: int, colour_count: int, pairs: Sequence[Edge]) -> None:
        self.pairs = pairs
        self.colour_by_edge = [-1] * len(pairs)
        self.edge_at = [[-1] * colour_count for _ in range(node_count)]

    def paint_edge(self, edge: int, rng: random.Random) -> list[int]:
        """Paint an uncoloured edge, and return the edges that lost their colour for it."""
        first_node, second_node = self.pairs[edge]
        first_free_colours, second_free_colours = (
            self._list_free_colours(first_node),
            self._list_free_colours(second_node),
        )
        common_colours = [colour for colour in first_free_colours if colour in second_free_colours]
        if common_colours:
            self._paint(edge, common_colours[0])
            return []
        first_colour, second_colour = rng.choice(first_free_colours), rng.choice(second_free_colours)
        self._swap_chain(second_node, first_colour, second_colour)
        blocking_edge = self.edge_at[second_node][first_colour]
        if blocking_edge < 0 and self.edge_at[first_node][first_colour] < 0:
            self._paint(edge, first_colour)
            return []
        # The chain did not free a colour: take a random colour from the edges at both ends that have it.
        colour = rng.choice(range(len(self.edge_at[first_node])))
        displaced_edges = sorted({self.edge_at[end][colour] for end in self.pairs[edge]} - {-1})
        for displaced_edge in displaced_edges:
            self._erase(displaced_edge)
        self._paint(edge, colour)
        return displaced_edges

    def _list_free_colours(self, node: int) -> list[int]:
        return [colour for colour, edge in enumerate(self.edge_at[node]) if edge < 0]

    def _paint(self, edge: int, colour: int) -> None:
        self.colour_by_edge[edge] = colour
        for end in self.pairs[edge]:
            self.edge_at[end][colour] = edge

    def _erase(self, edge: int) -> None:
        for end in self.pairs[edge]:
            self.edge_at[end][self.colour_by_edge[edge]] = -1
        self.colour_by_edge[edge] = -1

    def _swap_chain(self, start: int, first_colour: int, second_colour: int) -> None:
        """Exchange two colours along the chain that leaves `start` by colour `first_colour`."""
        chain_edges, node, colour = [], start, first_colour
        while (edge := self.edge_at[node][colour]) >= 0:
            chain_edges.append(edge)
            node = sum(self.pairs[edge]) - node
            colour = first_colour + second_colour - colour
        swapped_colours = [first_colour + second_colour - self.colour_by_edge[edge] for edge in chain_edges]
        for edge in chain_edges:
            self._erase(edge)
        for edge, colour in zip(chain_edges, swapped_colours, strict=True):
            self._paint(edge, colour)
