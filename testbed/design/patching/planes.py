"""Split a regular graph over planes: interface i of every node meets switch i and no other.

Duplex links need perfect matchings, simplex links permutations. Permutations always exist (Koenig
1916: a d-regular bipartite multigraph is the union of d perfect matchings); matchings may not.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from testbed.design.patching.colouring import colour_edges
from testbed.errors import TopologyError

Edge = tuple[int, int]


def split_into_permutations(nodes: int, degree: int, edges: Sequence[Edge]) -> list[list[Edge]]:
    """Split directed edges into `degree` permutations: each node sends once and receives once in each.

    Of a node's edges those that come first are used in the first planes where possible. Raises
    `TopologyError` when some node has not exactly `degree` edges out and in.
    """
    _check_regular(nodes, degree, (source for source, _ in edges), "send")
    _check_regular(nodes, degree, (target for _, target in edges), "receive")
    left = Counter(edges)
    order: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        order[source].append(target)
    planes = []
    for _ in range(degree):
        plane = _permutation(nodes, order, left)
        left.subtract(plane)
        planes.append(plane)
    return planes


def _permutation(nodes: int, order: Mapping[int, Sequence[int]], left: Mapping[Edge, int]) -> list[Edge]:
    """Return a perfect matching of senders to receivers by augmenting paths (Kuhn)."""
    sender_of: dict[int, int] = {}

    def place(sender: int, tried: set[int]) -> bool:
        open_to = [to for to in order[sender] if left[sender, to] and to not in tried]
        for receiver in open_to:
            if receiver not in sender_of:
                sender_of[receiver] = sender
                return True
        for receiver in open_to:
            if receiver in tried:
                continue
            tried.add(receiver)
            if place(sender_of[receiver], tried):
                sender_of[receiver] = sender
                return True
        return False

    for sender in range(nodes):
        place(sender, set())
    return sorted((sender, receiver) for receiver, sender in sender_of.items())


def split_into_matchings(nodes: int, degree: int, pairs: Sequence[Edge]) -> list[list[Edge]]:
    """Split undirected edges into `degree` perfect matchings (a 1-factorisation).

    Strides whose rings are even are laid two planes a stride, every other edge in each; an exact
    search settles the rest and takes them back one by one where it must, so a split is found whenever
    there is one. Raises `TopologyError` naming the condition that fails: an odd number of nodes, a
    node with another degree, a part with an odd number of nodes, or no split at all.
    """
    _check_even_parts(nodes, pairs)
    _check_regular(nodes, degree, (end for pair in pairs for end in pair), "be")
    laid, rest = _even_rings(nodes, pairs)
    while True:
        colours = degree - sum(len(planes) for planes in laid)
        found = _colour(nodes, colours, rest)
        if found is not None:
            return [plane for planes in laid for plane in planes] + found
        if not laid:
            raise TopologyError(
                f"these {len(pairs)} links cannot be split into {degree} perfect matchings (all ways were tried): "
                f"the graph has no 1-factorisation; use planes=1, simplex links, or another topology"
            )
        rest = rest + [edge for plane in laid.pop() for edge in plane]


def _colour(nodes: int, colours: int, pairs: Sequence[Edge]) -> list[list[Edge]] | None:
    if not pairs:
        return []
    return None if _odd_part(nodes, pairs) else colour_edges(nodes, colours, pairs)


def _check_regular(nodes: int, degree: int, ends: Iterable[int], verb: str) -> None:
    counts = Counter(ends)
    for node in range(nodes):
        if counts[node] != degree:
            raise TopologyError(
                f"{degree} planes need every node to {verb} on {degree} links, and node {node} is on "
                f"{counts[node]}: use planes=1 or a regular topology"
            )


def _check_even_parts(nodes: int, pairs: Sequence[Edge]) -> None:
    if nodes % 2:
        raise TopologyError(
            f"duplex planes with {nodes} nodes: each switch would have to pair all nodes, and an odd number cannot "
            f"be paired (no perfect matching); use an even number of nodes, planes=1, or simplex links"
        )
    part = _odd_part(nodes, pairs)
    if part:
        raise TopologyError(
            f"duplex planes: nodes {', '.join(map(str, sorted(part)))} are joined only to each other and "
            f"are an odd number, so they have no perfect matching; use planes=1 or join the parts"
        )


def _odd_part(nodes: int, pairs: Sequence[Edge]) -> set[int]:
    """Return a connected part with an odd number of nodes, or an empty set."""
    return next((part for part in _parts(nodes, pairs) if len(part) % 2), set())


def _parts(nodes: int, pairs: Sequence[Edge]) -> list[set[int]]:
    """Return the connected parts of a graph."""
    neighbours: dict[int, set[int]] = defaultdict(set)
    for one, other in pairs:
        neighbours[one].add(other)
        neighbours[other].add(one)
    parts: list[set[int]] = []
    seen: set[int] = set()
    for start in range(nodes):
        if start in seen:
            continue
        part, waiting = {start}, [start]
        while waiting:
            fresh = neighbours[waiting.pop()] - part
            part |= fresh
            waiting += fresh
        seen |= part
        parts.append(part)
    return parts


def _even_rings(nodes: int, pairs: Sequence[Edge]) -> tuple[list[list[list[Edge]]], list[Edge]]:
    """Return planes for every stride whose rings are even, and the edges of all other strides.

    >>> _even_rings(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    ([[[(0, 1), (2, 3)], [(1, 2), (0, 3)]]], [])
    """
    laid: list[list[list[Edge]]] = []
    rest: list[Edge] = []
    for stride, edges in _strides_in_order(nodes, pairs).items():
        planes = _alternate(nodes, stride[0], edges)
        if planes:
            laid.append(planes)
        else:
            rest += edges
    return laid, rest


def _strides_in_order(nodes: int, pairs: Sequence[Edge]) -> dict[tuple[int, int], list[Edge]]:
    """Return edges by (stride in the half range, copy), in the order the strides first appear."""
    groups: dict[tuple[int, int], list[Edge]] = defaultdict(list)
    copies = Counter[Edge]()
    for one, other in pairs:
        stride = (other - one) % nodes
        groups[min(stride, nodes - stride), copies[one, other]].append((one, other))
        copies[one, other] += 1
    return groups


def _alternate(nodes: int, stride: int, edges: Sequence[Edge]) -> list[list[Edge]]:
    """Return the one or two perfect matchings of a complete stride, or none if its rings are odd."""
    if 2 * stride == nodes:
        return [list(edges)] if len(edges) == nodes // 2 else []
    if len(edges) != nodes or (nodes // math.gcd(nodes, stride)) % 2:
        return []
    position = {}
    for start in range(math.gcd(nodes, stride)):
        for place in range(nodes // math.gcd(nodes, stride)):
            position[(start + place * stride) % nodes] = place
    first = [edge for edge in edges if _tail_place(edge, nodes, stride, position) % 2 == 0]
    second = [edge for edge in edges if _tail_place(edge, nodes, stride, position) % 2]
    return [first, second]


def _tail_place(edge: Edge, nodes: int, stride: int, position: Mapping[int, int]) -> int:
    """Place on its ring of the end from which the edge goes one stride forward."""
    one, other = edge
    return position[one if (one + stride) % nodes == other else other]
