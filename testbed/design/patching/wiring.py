"""Wiring: the assignment of a topology's links to NICs, and its patch list for people and patch panels.

With planes, interface i of every node is connected to switch i only. The links of each plane must then be a perfect
matching (duplex) or a permutation (simplex). Permutations always exist: a d-regular bipartite multigraph is the union
of d perfect matchings (Koenig 1916). Matchings of duplex links may not exist.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from testbed.design.model import Link, Nic, Topology, Wiring
from testbed.design.patching.colouring import colour_edges
from testbed.design.topology.strides import list_direct_strides
from testbed.errors import TopologyError

Edge = tuple[int, int]
_ALPHABET_SIZE = 26


def make_wiring(topology: Topology, *, plane_count: int = 1) -> Wiring:
    """Return a wiring with a transmitter and a receiver for every edge of a topology.

    - `plane_count` is 1: all NICs are connected to one switch, or to several that act as one. NICs are assigned in
      order, node by node and stride by stride, as on the original testbed.
    - `plane_count` is the degree: interface i is connected to switch i only. The edges are split into that many perfect
      matchings (duplex) or permutations (simplex).

    Raises `TopologyError` for any other number of planes, and if there is no split; the message names the reason.
    """
    if plane_count == 1:
        links = list(_assign_free_nics(topology))
    elif plane_count == topology.degree:
        links = list(_split_by_plane(topology))
    else:
        raise TopologyError(
            f"{plane_count} planes with degree {topology.degree}: interface i connects to switch i, so there "
            f"must be one plane per interface; use one plane (one shared switch) or {topology.degree} planes"
        )
    return Wiring(topology.nodes, topology.degree, topology.simplex, tuple(sorted(links)))


def list_patches(wiring: Wiring) -> list[str]:
    """Return one line per fibre pair (`A1-B1`, duplex) or one-way path (`A1>B1`, simplex).

    Letters name nodes, digits number NICs from 1. The node after Z is AA, then AB, as in a spreadsheet.
    """
    separator = ">" if wiring.simplex else "-"
    shown_links = (
        link for link in sorted(wiring.links) if wiring.simplex or link.source.node < link.target.node
    )
    return [
        f"{_make_nic_label(link.source)}{separator}{_make_nic_label(link.target)}" for link in shown_links
    ]


def label_node(node: int) -> str:
    """Return the letters of a node: 0 is A, 25 is Z, 26 is AA.

    >>> [label_node(node) for node in (0, 25, 26, 701, 702)]
    ['A', 'Z', 'AA', 'ZZ', 'AAA']
    """
    letters = ""
    number = node + 1
    while number:
        number, letter_index = divmod(number - 1, _ALPHABET_SIZE)
        letters = chr(ord("A") + letter_index) + letters
    return letters


def _make_nic_label(nic: Nic) -> str:
    return f"{label_node(nic.node)}{nic.index + 1}"


def _sort_edges(topology: Topology) -> Iterator[Edge]:
    """Return all directed edges, sorted by source node, then by the order of the topology's strides."""
    direct_strides = list_direct_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    rank_by_stride = {step: index for index, step in reversed(list(enumerate(direct_strides)))}

    def make_sort_key(edge: Edge) -> tuple[int, int, int]:
        source, target = edge
        return source, rank_by_stride.get((target - source) % topology.nodes, len(rank_by_stride)), target

    return iter(sorted(topology.edges, key=make_sort_key))


def _assign_free_nics(topology: Topology) -> Iterator[Link]:
    """Yield the links, each between the next free NICs of its nodes. Both links of a duplex pair use the same NICs."""
    transmitter_counts, receiver_counts = Counter[int](), Counter[int]()
    wired_reverse_edges = Counter[Edge]()
    for source, target in _sort_edges(topology):
        if topology.simplex:
            yield Link(Nic(source, transmitter_counts[source]), Nic(target, receiver_counts[target]))
            transmitter_counts[source] += 1
            receiver_counts[target] += 1
        elif wired_reverse_edges[source, target]:
            wired_reverse_edges[source, target] -= 1
        else:
            source_nic, target_nic = (
                Nic(source, transmitter_counts[source]),
                Nic(target, transmitter_counts[target]),
            )
            yield Link(source_nic, target_nic)
            yield Link(target_nic, source_nic)
            transmitter_counts[source] += 1
            transmitter_counts[target] += 1
            wired_reverse_edges[target, source] += 1


def _split_by_plane(topology: Topology) -> Iterator[Link]:
    """Yield the links plane by plane: a plane is one matching or permutation. Links of plane i use interface i only."""
    edges = list(_sort_edges(topology))
    if topology.simplex:
        planes = split_into_permutations(topology.nodes, topology.degree, edges)
    else:
        pairs = [edge for edge in edges if edge[0] < edge[1]]
        planes = split_into_matchings(topology.nodes, topology.degree, pairs)
    for plane, plane_edges in enumerate(planes):
        for source, target in plane_edges:
            yield Link(Nic(source, plane), Nic(target, plane))
            if not topology.simplex:
                yield Link(Nic(target, plane), Nic(source, plane))


def split_into_permutations(node_count: int, degree: int, edges: Sequence[Edge]) -> list[list[Edge]]:
    """Return a split of directed edges into `degree` permutations, in which each node sends and receives once.

    A node's first edges are in the first planes if possible. Raises `TopologyError` unless every node has exactly
    `degree` outgoing and `degree` incoming edges.
    """
    _check_regular(node_count, degree, (source for source, _ in edges), "send")
    _check_regular(node_count, degree, (target for _, target in edges), "receive")
    remaining_edges = Counter(edges)
    targets_by_source: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        targets_by_source[source].append(target)
    planes = []
    for _ in range(degree):
        plane = _match_permutation(node_count, targets_by_source, remaining_edges)
        remaining_edges.subtract(plane)
        planes.append(plane)
    return planes


def _match_permutation(
    node_count: int, targets_by_source: Mapping[int, Sequence[int]], remaining_edges: Mapping[Edge, int]
) -> list[Edge]:
    """Return a perfect matching of senders to receivers by augmenting paths (Kuhn)."""
    sender_by_receiver: dict[int, int] = {}

    def assign_receiver(sender: int, visited: set[int]) -> bool:
        candidates = [
            receiver
            for receiver in targets_by_source[sender]
            if remaining_edges[sender, receiver] and receiver not in visited
        ]
        for receiver in candidates:
            if receiver not in sender_by_receiver:
                sender_by_receiver[receiver] = sender
                return True
        for receiver in candidates:
            if receiver in visited:
                continue
            visited.add(receiver)
            if assign_receiver(sender_by_receiver[receiver], visited):
                sender_by_receiver[receiver] = sender
                return True
        return False

    for sender in range(node_count):
        assign_receiver(sender, set())
    return sorted((sender, receiver) for receiver, sender in sender_by_receiver.items())


def split_into_matchings(node_count: int, degree: int, pairs: Sequence[Edge]) -> list[list[Edge]]:
    """Return a split of undirected edges into `degree` perfect matchings (a 1-factorisation).

    The edges of a stride form rings. If these rings have an even number of nodes, their alternate edges fill two
    planes. The stride n/2 of n nodes fills one plane. An exact search splits the other edges. A search that fails is
    repeated with the edges of one more stride, until the search includes all edges. Raises `TopologyError` for an odd
    number of nodes, a node of another degree, a connected component of odd size, and if there is no split or the search
    reaches its limit.
    """
    if node_count % 2:
        raise TopologyError(
            f"duplex planes with {node_count} nodes: each switch would have to pair all nodes, and an odd number"
            " cannot "
            f"be paired (no perfect matching); use an even number of nodes, one plane, or simplex links"
        )
    component = _find_odd_component(node_count, pairs)
    if component:
        raise TopologyError(
            f"duplex planes: nodes {', '.join(map(str, sorted(component)))} are joined only to each other and "
            f"are an odd number, so they have no perfect matching; use one plane or join the parts"
        )
    _check_regular(node_count, degree, (end for pair in pairs for end in pair), "be")
    planes_by_stride, remaining_edges = _split_even_rings(node_count, pairs)
    while True:
        colour_count = degree - sum(len(planes) for planes in planes_by_stride)
        matchings = _colour_remaining(node_count, colour_count, remaining_edges)
        if matchings is not None:
            return [plane for planes in planes_by_stride for plane in planes] + matchings
        if not planes_by_stride:
            raise TopologyError(
                f"these {len(pairs)} links cannot be split into {degree} perfect matchings (all ways were tried): "
                f"the graph has no 1-factorisation; use one plane, simplex links, or another topology"
            )
        remaining_edges = remaining_edges + [edge for plane in planes_by_stride.pop() for edge in plane]


def _colour_remaining(node_count: int, colour_count: int, pairs: Sequence[Edge]) -> list[list[Edge]] | None:
    if not pairs:
        return []
    return None if _find_odd_component(node_count, pairs) else colour_edges(node_count, colour_count, pairs)


def _check_regular(node_count: int, degree: int, end_nodes: Iterable[int], verb: str) -> None:
    counts = Counter(end_nodes)
    for node in range(node_count):
        if counts[node] != degree:
            raise TopologyError(
                f"{degree} planes need every node to {verb} on {degree} links, and node {node} is on "
                f"{counts[node]}: use one plane or a regular topology"
            )


def _find_odd_component(node_count: int, pairs: Sequence[Edge]) -> set[int]:
    """Return the nodes of a connected component of odd size, or an empty set."""
    neighbours: dict[int, set[int]] = defaultdict(set)
    for first_node, second_node in pairs:
        neighbours[first_node].add(second_node)
        neighbours[second_node].add(first_node)
    visited: set[int] = set()
    for start in range(node_count):
        if start in visited:
            continue
        component, pending = {start}, [start]
        while pending:
            unvisited = neighbours[pending.pop()] - component
            component |= unvisited
            pending += unvisited
        if len(component) % 2:
            return component
        visited |= component
    return set()


def _split_even_rings(node_count: int, pairs: Sequence[Edge]) -> tuple[list[list[list[Edge]]], list[Edge]]:
    """Return the planes of each stride with even rings, and the edges of all other strides.

    >>> _split_even_rings(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    ([[[(0, 1), (2, 3)], [(1, 2), (0, 3)]]], [])
    """
    planes_by_stride: list[list[list[Edge]]] = []
    remaining_edges: list[Edge] = []
    edges_by_stride: dict[tuple[int, int], list[Edge]] = defaultdict(list)
    copy_counts = Counter[Edge]()
    for first_node, second_node in pairs:
        stride = (second_node - first_node) % node_count
        edges_by_stride[min(stride, node_count - stride), copy_counts[first_node, second_node]].append(
            (first_node, second_node)
        )
        copy_counts[first_node, second_node] += 1
    for (stride, _), edges in edges_by_stride.items():
        planes = _split_stride(node_count, stride, edges)
        if planes:
            planes_by_stride.append(planes)
        else:
            remaining_edges += edges
    return planes_by_stride, remaining_edges


def _split_stride(node_count: int, stride: int, edges: Sequence[Edge]) -> list[list[Edge]]:
    """Return the one or two perfect matchings of a stride, or none if edges are missing or its rings are odd."""
    if 2 * stride == node_count:
        return [list(edges)] if len(edges) == node_count // 2 else []
    if len(edges) != node_count or (node_count // math.gcd(node_count, stride)) % 2:
        return []
    position_by_node = {}
    for start in range(math.gcd(node_count, stride)):
        for position in range(node_count // math.gcd(node_count, stride)):
            position_by_node[(start + position * stride) % node_count] = position
    even_edges = [
        edge for edge in edges if _find_tail_position(edge, node_count, stride, position_by_node) % 2 == 0
    ]
    odd_edges = [
        edge for edge in edges if _find_tail_position(edge, node_count, stride, position_by_node) % 2
    ]
    return [even_edges, odd_edges]


def _find_tail_position(edge: Edge, node_count: int, stride: int, position_by_node: Mapping[int, int]) -> int:
    """Return the ring position of an edge's tail, the end that is one stride before the other."""
    first_node, second_node = edge
    return position_by_node[first_node if (first_node + stride) % node_count == second_node else second_node]
