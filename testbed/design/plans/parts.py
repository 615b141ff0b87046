"""Topology and strategy of a plan file, with what must hold beyond each single value.

A plan may be edited, and is then patched and simulated: its nodes must reach each other, its strides be rings of its
links, and its grids be grids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast, get_args

from testbed.design.model import Topology
from testbed.design.plans.reading import PlanReader
from testbed.design.topology.circulants import circulant_edges
from testbed.design.topology.strides import directed_strides
from testbed.design.workloads.model import Way
from testbed.design.workloads.sharding.sharding import Sharding, Strategy
from testbed.design.workloads.strategies.strategies import sharding_fault

Edge = tuple[int, int]

MOST_NICS = 1024
"""Of one server, by far: a slip is told before it is paid for."""


def read_topology(part: PlanReader) -> Topology:
    """Return the topology, connected, no NIC used twice, every stride a ring. Raises `PlanFileError`."""
    nodes, degree = part.count("nodes"), part.count("degree", MOST_NICS)
    simplex = part.flag("simplex")
    links = [_link(part, place, link, nodes) for place, link in enumerate(part.items("links"))]
    edges = links if simplex else [edge for one, other in links for edge in ((one, other), (other, one))]
    strides = tuple(part.whole(stride, "strides") for stride in part.items("strides"))
    topology = Topology(nodes, degree, simplex, strides, tuple(sorted(edges)))
    _check_nics(part, topology)
    _check_connected(part, topology)
    _check_strides(part, topology)
    return topology


def read_strategy(part: PlanReader, nodes: int) -> tuple[tuple[str, ...], Strategy]:
    """Return the operators' names, and how they are laid out on so many nodes. Raises `PlanFileError`."""
    names, shardings = [], []
    for place, entry in enumerate(part.items("operators")):
        operator = PlanReader(part.source, f"{part.where}.operators[{place}]", entry)
        names.append(operator.text("name"))
        shardings.append(_sharding(operator, nodes))
    if not names:
        raise part.error("operators", "there are none: a workload has at least 1")
    return tuple(names), Strategy(tuple(shardings), part.count("microbatches"))


def _link(part: PlanReader, place: int, link: Any, nodes: int) -> Edge:
    where = f"links[{place}]"
    if not isinstance(link, list) or len(link) != 2:
        raise part.error(where, f"{link!r} is no pair of nodes")
    one, other = (part.node(end, where, nodes) for end in link)
    if one == other:
        raise part.error(where, f"joins node {one} to itself")
    return one, other


def _check_nics(part: PlanReader, topology: Topology) -> None:
    for end, name in ((0, "sends"), (1, "receives")):
        used = Counter(edge[end] for edge in topology.edges)
        full = [node for node, count in used.items() if count > topology.degree]
        if full:
            what = f"node {full[0]} {name} on {used[full[0]]} links and has {topology.degree} NICs"
            raise part.error("links", what)


def _check_connected(part: PlanReader, topology: Topology) -> None:
    nodes, edges = topology.nodes, topology.edges
    if nodes > 1 and len(edges) < nodes:  # told without a look at every node, whose number may be a slip
        raise part.error("links", f"{len(topology.links)} links cannot join {nodes} nodes: add links")
    away = _unreached(nodes, edges)
    if away is not None:
        raise part.error("links", f"node 0 has no path to node {away}: add links between their parts")
    away = _unreached(nodes, ((target, source) for source, target in edges))
    if away is not None:
        raise part.error("links", f"node {away} has no path to node 0: add links between their parts")


def _unreached(nodes: int, edges: Iterable[Edge]) -> int | None:
    """Return the first node that no path from node 0 leads to."""
    targets: dict[int, list[int]] = {}
    for source, target in edges:
        targets.setdefault(source, []).append(target)
    seen, waiting = {0}, [0]
    while waiting:
        fresh = set(targets.get(waiting.pop(), ())) - seen
        seen |= fresh
        waiting.extend(fresh)
    return next((node for node in range(nodes) if node not in seen), None)


def _check_strides(part: PlanReader, topology: Topology) -> None:
    nodes = topology.nodes
    wrong = [stride for stride in topology.strides if not 0 < stride < nodes]
    if wrong:
        raise part.error(
            "strides", f"{wrong[0]} leads nowhere on {nodes} nodes: strides are 1 to {nodes - 1}"
        )
    steps = directed_strides(nodes, topology.strides, simplex=topology.simplex)
    if len(steps) > topology.degree:
        raise part.error("strides", f"their rings need {len(steps)} NICs, nodes have {topology.degree}")
    missing = Counter(circulant_edges(nodes, steps)) - Counter(topology.edges)
    if missing:
        one, other = min(missing)
        what = f"{(other - one) % nodes} is no ring: there is no link from node {one} to node {other} for it"
        raise part.error("strides", what)


def _sharding(operator: PlanReader, nodes: int) -> Sharding:
    way = operator.text("way")
    if way not in get_args(Way):
        raise operator.error("way", f"{way!r} is none of {', '.join(get_args(Way))}")
    rows = operator.items("grid")
    if not rows or not all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
        raise operator.error("grid", "must be rows of equally many servers: replicas by shards")
    grid = tuple(tuple(operator.node(server, "grid", nodes) for server in row) for row in rows)
    sharding = Sharding(cast("Way", way), grid)
    fault = sharding_fault(sharding, nodes)
    if fault:
        raise operator.error("grid", fault)
    return sharding
