"""Lay a topology onto NICs, and write the result as a patch list for people and patch panels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.design.model import Link, Nic, Topology, Wiring
from testbed.design.patching.planes import split_into_matchings, split_into_permutations
from testbed.design.topology.strides import directed_strides
from testbed.errors import TopologyError

Edge = tuple[int, int]
_ALPHABET = 26


def wire(topology: Topology, *, planes: int = 1) -> Wiring:
    """Give every edge of a topology a transmitter and a receiver.

    `planes=1`: all NICs meet one switch (or a set of switches that acts as one). NICs are taken in
    order, node by node and stride by stride, as on the original testbed.
    `planes=degree`: interface i meets only switch i, so the edges are split exactly into `degree`
    perfect matchings (duplex) or permutations (simplex). Raises `TopologyError` when no such split
    exists, naming the condition that fails, and for any other number of planes.
    """
    if planes == 1:
        links = list(_greedy(topology))
    elif planes == topology.degree:
        links = list(_by_plane(topology))
    else:
        raise TopologyError(
            f"{planes} planes with degree {topology.degree}: interface i meets switch i, so there is one plane "
            f"an interface; use planes=1 (one shared switch) or planes={topology.degree}"
        )
    return Wiring(topology.nodes, topology.degree, topology.simplex, tuple(sorted(links)))


def patch_list(wiring: Wiring) -> list[str]:
    """Return one line a fibre pair (`A1-B1`, duplex) or a one-way path (`A1>B1`, simplex).

    Letters are nodes, digits are NICs from 1. After Z comes AA, AB, ... as in a spreadsheet.
    """
    mark = ">" if wiring.simplex else "-"
    shown = (link for link in sorted(wiring.links) if wiring.simplex or link.source.node < link.target.node)
    return [f"{_nic_label(link.source)}{mark}{_nic_label(link.target)}" for link in shown]


def node_label(node: int) -> str:
    """Return letters of a node: 0 is A, 25 is Z, 26 is AA.

    >>> [node_label(node) for node in (0, 25, 26, 701, 702)]
    ['A', 'Z', 'AA', 'ZZ', 'AAA']
    """
    letters = ""
    number = node + 1
    while number:
        number, letter = divmod(number - 1, _ALPHABET)
        letters = chr(ord("A") + letter) + letters
    return letters


def _nic_label(nic: Nic) -> str:
    return f"{node_label(nic.node)}{nic.index + 1}"


def _edges_in_order(topology: Topology) -> Iterator[Edge]:
    """Return all directed edges, node by node, each node's in the order of the topology's strides."""
    steps = directed_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    rank = {step: index for index, step in reversed(list(enumerate(steps)))}

    def key(edge: Edge) -> tuple[int, int, int]:
        source, target = edge
        return source, rank.get((target - source) % topology.nodes, len(rank)), target

    return iter(sorted(topology.edges, key=key))


def _greedy(topology: Topology) -> Iterator[Link]:
    """Yield next free NIC here to next free NIC there; a duplex pair takes the same two NICs both ways."""
    sent, received = Counter[int](), Counter[int]()
    done = Counter[Edge]()
    for source, target in _edges_in_order(topology):
        if topology.simplex:
            yield Link(Nic(source, sent[source]), Nic(target, received[target]))
            sent[source] += 1
            received[target] += 1
        elif done[source, target]:
            done[source, target] -= 1
        else:
            here, there = Nic(source, sent[source]), Nic(target, sent[target])
            yield Link(here, there)
            yield Link(there, here)
            sent[source] += 1
            sent[target] += 1
            done[target, source] += 1


def _by_plane(topology: Topology) -> Iterator[Link]:
    """Yield interface i to interface i, one matching or permutation a plane."""
    edges = list(_edges_in_order(topology))
    if topology.simplex:
        planes = split_into_permutations(topology.nodes, topology.degree, edges)
    else:
        pairs = [edge for edge in edges if edge[0] < edge[1]]
        planes = split_into_matchings(topology.nodes, topology.degree, pairs)
    for plane, members in enumerate(planes):
        for source, target in members:
            yield Link(Nic(source, plane), Nic(target, plane))
            if not topology.simplex:
                yield Link(Nic(target, plane), Nic(source, plane))
