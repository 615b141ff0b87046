"""Lay a topology onto NICs, and write the result as a patch list for people and patch panels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from testbed.design.model import Link, Nic, Topology, Wiring
from testbed.design.patching.planes import split_into_matchings, split_into_permutations
from testbed.design.topology.strides import directed_strides
from testbed.errors import TopologyError

Edge = tuple[int, int]

_PATCH = re.compile(r"([A-Z]+)([1-9][0-9]*)([->])([A-Z]+)([1-9][0-9]*)")
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


def parse_patch_list(lines: Iterable[str], nodes: int, degree: int) -> Wiring:
    """Return the wiring that a patch list describes; the reverse of `patch_list`.

    Raises `TopologyError` for a line of another form, a node or NIC that does not exist, a NIC used
    twice, or duplex and simplex lines in one list.
    """
    links: list[Link] = []
    marks = set()
    for line in lines:
        source, mark, target = _parse_line(line, nodes, degree)
        marks.add(mark)
        links.append(Link(source, target))
        if mark == "-":
            links.append(Link(target, source))
    if len(marks) > 1:
        raise TopologyError(
            "a patch list holds both '-' and '>' lines: write all links duplex or all simplex"
        )
    _check_used_once(links)
    return Wiring(nodes, degree, marks == {">"}, tuple(sorted(links)))


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


def _node_number(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * _ALPHABET + ord(letter) - ord("A") + 1
    return number - 1


def _parse_line(line: str, nodes: int, degree: int) -> tuple[Nic, str, Nic]:
    match = _PATCH.fullmatch(line.strip())
    if match is None:
        raise TopologyError(f"patch list line {line!r} is not of the form A1-B1 (duplex) or A1>B1 (simplex)")
    source = Nic(_node_number(match[1]), int(match[2]) - 1)
    target = Nic(_node_number(match[4]), int(match[5]) - 1)
    for nic in (source, target):
        if nic.node >= nodes or nic.index >= degree:
            raise TopologyError(
                f"patch list line {line!r} names {_nic_label(nic)}, but there are {nodes} nodes "
                f"(to {node_label(nodes - 1)}) with {degree} NICs each; correct the line"
            )
    if source.node == target.node:
        raise TopologyError(f"patch list line {line!r} joins a node to itself: name two different nodes")
    return source, match[3], target


def _check_used_once(links: Iterable[Link]) -> None:
    transmitters, receivers = Counter[Nic](), Counter[Nic]()
    for link in links:
        transmitters[link.source] += 1
        receivers[link.target] += 1
    for side, used in (("transmitter", transmitters), ("receiver", receivers)):
        for nic, times in used.items():
            if times > 1:
                raise TopologyError(
                    f"the {side} of {_nic_label(nic)} is used {times} times in the patch list; use each NIC once"
                )


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
