"""Direct connect: hosts joined by links as any graph says; hosts between forward.

Flows take shortest paths or those given (`direct_connect`), or planned routes: sets of next hops, and how much of
what a pair sends takes each set (`make_routed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import patch_panel_cost
from sim.models.network.fabrics.model import Fabric, Floats, Integers, Router, check_sizes, mix

Path = tuple[int, ...]


def direct_connect(
    nodes: int,
    edges: Sequence[tuple[int, int]],
    rate_gbps: float,
    *,
    paths: Mapping[tuple[int, int], Sequence[Path]] | None = None,
    name: str = "direct",
    seed: int = 0,
) -> Fabric:
    """Return the fabric of hosts joined by directed `edges` of `rate_gbps` each; parallel edges add their rates.

    `paths` gives some pairs their paths, each as the nodes it visits; a flow takes the one its choice points to.
    All others take a shortest path, ties broken by a hash. `ValueError` when a path uses a missing edge; a pair
    that nothing connects is reported when it is asked for.
    """
    check_sizes(nodes, rate_gbps)
    pairs = np.array(sorted(set(edges)), dtype=np.int64).reshape(-1, 2)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= nodes or (pairs[:, 0] == pairs[:, 1]).any()):
        raise ValueError(f"edges must join different nodes of 0..{nodes - 1}")
    number = {(int(source), int(target)): place for place, (source, target) in enumerate(pairs)}
    copies = np.zeros(len(number))
    for edge in edges:
        copies[number[edge]] += 1
    given = {
        pair: [_links_of(path, pair, number) for path in listed] for pair, listed in (paths or {}).items()
    }
    degree = int(np.bincount([source for source, _ in edges], minlength=nodes).max(initial=0)) if edges else 0
    return Fabric(
        name=name,
        nodes=nodes,
        sources=pairs[:, 0].copy(),
        targets=pairs[:, 1].copy(),
        capacity_bps=copies * rate_gbps * 1e9,
        lane_bps=np.full(len(pairs), rate_gbps * 1e9),
        never_full=np.zeros(len(pairs), dtype=bool),
        router=path_router(next_links(nodes, pairs, seed), pairs[:, 1], given),
        hosts_forward=True,
        cost=patch_panel_cost(nodes, degree, rate_gbps),
    )


def _links_of(path: Path, pair: tuple[int, int], number: Mapping[tuple[int, int], int]) -> list[int]:
    if (path[0], path[-1]) != pair:
        raise ValueError(f"the path {path} does not lead from {pair[0]} to {pair[1]}")
    missing = [edge for edge in pairwise(path) if edge not in number]
    if missing:
        raise ValueError(f"the path {path} uses {missing[0]}, which is not an edge")
    return [number[edge] for edge in pairwise(path)]


def next_links(nodes: int, pairs: Integers, seed: int) -> Integers:
    """Return the link on which each node sends towards each target, (nodes, nodes), -1 where nothing leads there."""
    distance = _distances(nodes, pairs)
    following = np.full((nodes, nodes), -1, np.int64)
    best = np.full((nodes, nodes), np.iinfo(np.int64).max)
    targets = np.arange(nodes)
    for link, (source, target) in enumerate(pairs):
        nearer = distance[target] + 1 == distance[source]
        rank = mix(np.full(nodes, link), targets, np.array(seed))
        chosen = nearer & (rank < best[source])
        following[source, chosen] = link
        best[source, chosen] = rank[chosen]
    return following


def _distances(nodes: int, pairs: Integers) -> NDArray[np.float64]:
    """Return hops between all pairs, infinity where there is no way."""
    joined = np.zeros((nodes, nodes), dtype=np.float32)
    joined[pairs[:, 0], pairs[:, 1]] = 1
    distance = np.where(np.eye(nodes, dtype=bool), 0.0, np.inf)
    reached = np.eye(nodes, dtype=np.float32)
    for hops in range(1, nodes):
        new = (reached @ joined > 0) & np.isinf(distance)
        if not new.any():
            break
        distance[new] = hops
        reached = new.astype(np.float32)
    return distance


def path_router(
    following: Integers, head: Integers, given: Mapping[tuple[int, int], list[list[int]]]
) -> Router:
    """Walk from link to link: `following` from `next_links`, `head` the node each leads to; `given` paths go first."""

    def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
        columns, at = [], sources.copy()
        while (at != targets).any():
            link = np.where(at == targets, -1, following[at, targets])
            lost = (link < 0) & (at != targets)
            if lost.any():
                pair = int(np.argmax(lost))
                raise ValueError(f"nothing connects node {sources[pair]} to node {targets[pair]}")
            at = np.where(link >= 0, head[link], at)
            columns.append(link)
        longest = max([len(columns), *(len(path) for paths in given.values() for path in paths)])
        padded = np.full((sources.size, longest), -1, np.int64)
        if columns:
            padded[:, : len(columns)] = np.stack(columns, axis=1)
        for row, ends in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
            if ends in given:
                links = given[ends][choices[row] % len(given[ends])]
                padded[row] = [*links, *[-1] * (longest - len(links))]
        return padded

    return route


SHORTEST_PATHS = 16
"""So many of a pair's shortest paths are taken, counted through the links that lead nearer, host by host."""


def shortest_paths(nodes: int, sources: Integers, targets: Integers, seed: int = 0) -> tuple[int, Router]:
    """Return the alternatives of direct connect: at each host a choice takes one of the links that lead nearer.

    Links are numbered as `sources` and `targets` list them.
    """
    distance = _distances(nodes, np.stack([sources, targets], axis=1))
    order = np.argsort(sources, kind="stable")
    first = np.searchsorted(sources[order], np.arange(nodes + 1))
    links_out = [order[first[node] : first[node + 1]] for node in range(nodes)]

    def walk(source: int, target: int, choice: int) -> list[int]:
        path, at = [], source
        while at != target:
            nearer = links_out[at][distance[targets[links_out[at]], target] + 1 == distance[at, target]]
            if not nearer.size:
                raise ValueError(f"nothing connects node {source} to node {target}")
            begin = int(mix(np.array([at]), np.array([target]), np.array([seed]))[0])
            path.append(int(nearer[(begin + choice) % nearer.size]))
            choice //= nearer.size
            at = int(targets[path[-1]])
        return path

    def route(from_nodes: Integers, to_nodes: Integers, choices: Integers) -> Integers:
        paths = [
            walk(*ends) for ends in zip(from_nodes.tolist(), to_nodes.tolist(), choices.tolist(), strict=True)
        ]
        longest = max((len(path) for path in paths), default=0)
        padded = [path + [-1] * (longest - len(path)) for path in paths]
        return np.array(padded, np.int64).reshape(len(paths), longest)

    return SHORTEST_PATHS, route


def make_routed(
    nodes: int,
    edges: Sequence[tuple[int, int]],
    rate_gbps: float,
    onward: NDArray[np.int64],
    weights: Floats,
) -> Fabric:
    """Return the fabric of hosts joined by directed `edges`, which are its links in this order, parallel ones apart.

    On link `onward[c, t, v]` node v sends towards t in set c, -1 for none; `weights[c, s, t]` of what s sends to t
    takes set c, and every message is split so. A choice that a pair does not use is the first set, which must be
    complete. `ValueError` when it is not.
    """
    check_sizes(nodes, rate_gbps)
    table = np.array(edges, dtype=np.int64).reshape(-1, 2)
    sources, targets = table[:, 0].copy(), table[:, 1].copy()
    degree = int(np.bincount(sources, minlength=nodes).max(initial=0))
    return Fabric(
        name="direct",
        nodes=nodes,
        sources=sources,
        targets=targets,
        capacity_bps=np.full(len(table), rate_gbps * 1e9),
        lane_bps=np.full(len(table), rate_gbps * 1e9),
        never_full=np.zeros(len(table), dtype=bool),
        router=_router(nodes, targets, onward, weights),
        hosts_forward=True,
        cost=patch_panel_cost(nodes, degree, rate_gbps),
        weights=weights,
    )


def _router(nodes: int, head: Integers, onward: Integers, weights: Floats) -> Router:
    def route(froms: Integers, tos: Integers, choices: Integers) -> Integers:
        taken = choices % len(weights)
        taken = np.where(weights[taken, froms, tos] > 0, taken, 0)
        columns: list[Integers] = []
        at = froms.copy()
        while (at != tos).any():
            link = np.where(at == tos, -1, onward[taken, tos, at])
            lost = (link < 0) & (at != tos)
            if lost.any() or len(columns) >= nodes:
                pair = int(np.argmax(lost if lost.any() else at != tos))
                raise ValueError(f"the routes do not lead from node {froms[pair]} to node {tos[pair]}")
            at = np.where(link >= 0, head[link], at)
            columns.append(link)
        return np.stack(columns, axis=1) if columns else np.full((froms.size, 0), -1, np.int64)

    return route
