"""Routes of a plan file: `{source, target, set, weight, path}` for each way of each pair, with what must hold of them.

A path is the nodes that it visits. Of parallel links it takes the first, unless `copies` says for each hop which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from testbed.design.model import Topology
from testbed.design.plans.reading import PlanReader
from testbed.design.routing.route_sets import MOST_SETS, PairRoute, RouteSets

_SLACK = 1e-6
"""Weights of a pair may differ from 1 by so much in sum."""


def routes_json(routes: RouteSets) -> list[dict[str, Any]]:
    """Return the entries of all ways that carry something, and of the first set."""
    return [_entry(routes, one) for one in routes.routes()]


def _entry(routes: RouteSets, one: PairRoute) -> dict[str, Any]:
    edges = routes.topology.edges
    copies = [edge - bisect_left(edges, edges[edge]) for edge in one.path]
    entry = {"source": one.source, "target": one.target, "set": one.set, "weight": one.weight}
    return entry | {"path": list(routes.nodes_of(one.path))} | ({"copies": copies} if any(copies) else {})


def read_routes(file: PlanReader, topology: Topology) -> RouteSets:
    """Return the routes in `routes` of a document, which must be whole. Raises `PlanFileError`."""
    nodes, entries = topology.nodes, file.items("routes")
    onward = np.full((MOST_SETS, nodes, nodes), -1, dtype=np.int64)
    weight = np.zeros((MOST_SETS, nodes, nodes))
    first = {edge: number for number, edge in reversed(list(enumerate(topology.edges)))}
    for place, value in enumerate(entries):
        entry = PlanReader(file.source, f"routes[{place}]", value)
        source, target = (entry.node(entry.value.get(end), end, nodes) for end in ("source", "target"))
        number = entry.whole(entry.value.get("set"), "set")
        if not 0 <= number < MOST_SETS:
            raise entry.error("set", f"there is no set {number}: they are 0 to {MOST_SETS - 1}")
        if weight[number, source, target]:
            raise entry.error("set", f"{source} -> {target} has a route in set {number} already")
        weight[number, source, target] = entry.between("weight", 0.0, 1.0)
        for edge in _edges(entry, topology, first, source, target):
            held = onward[number, target, topology.edges[edge][0]]
            if held not in (-1, edge):
                what = f"node {topology.edges[edge][0]} sends to {target} in set {number} over another link elsewhere"
                raise entry.error("path", f"{what}: a set forwards by destination")
            onward[number, target, topology.edges[edge][0]] = edge
    np.einsum("ii->i", weight[0])[:] = 1.0
    _check_whole(file, onward, weight)
    sets = 1 + max((number for number in range(MOST_SETS) if (onward[number] >= 0).any()), default=0)
    return RouteSets(topology, onward[:sets], weight[:sets])


def _edges(
    entry: PlanReader, topology: Topology, first: Mapping[tuple[int, int], int], source: int, target: int
) -> list[int]:
    """Return the edges of a path, each there, from source to target, no node twice."""
    path = [entry.node(node, "path", topology.nodes) for node in entry.items("path")]
    if len(path) < 2 or (path[0], path[-1]) != (source, target) or len(set(path)) != len(path):
        raise entry.error("path", f"{path} does not lead from {source} to {target}, each node once")
    hops = list(pairwise(path))
    copies = entry.items("copies") if "copies" in entry.value else [0] * len(hops)
    if len(copies) != len(hops):
        raise entry.error("copies", f"{len(copies)} for {len(hops)} hops: give one each")
    edges = []
    for hop, copy in zip(hops, copies, strict=True):
        edge = first.get(hop, -1) + entry.whole(copy, "copies")
        if hop not in first or not first[hop] <= edge < len(topology.edges) or topology.edges[edge] != hop:
            raise entry.error("path", f"there is no link from node {hop[0]} to node {hop[1]} (copy {copy})")
        edges.append(edge)
    return edges


def _check_whole(file: PlanReader, onward: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> None:
    """Check that every pair has a way in the first set, and that the weights of each sum to 1."""
    nodes = weight.shape[1]
    away = ~np.eye(nodes, dtype=bool)
    missing = np.argwhere((onward[0].T < 0) & away)
    if missing.size:
        source, target = missing[0]
        raise file.error(
            "routes", f"set 0 has no route from node {source} to node {target}: it must have all"
        )
    wrong = np.argwhere(abs(weight.sum(axis=0) - 1) > _SLACK)
    if wrong.size:
        source, target = wrong[0]
        total = weight[:, source, target].sum()
        raise file.error("routes", f"the weights of {source} -> {target} sum to {total:g}, not to 1")
