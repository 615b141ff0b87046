"""Direct connect: an arbitrary graph of links between hosts; intermediate hosts forward.

Flows use shortest or given paths (`make_direct_fabric`), or planned routes (`make_routed_fabric`). Planned routes are
sets of next hops, with the share of each pair's traffic for each set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import compute_patch_panel_cost
from sim.models.network.fabrics.model import (
    CyclicRouter,
    Fabric,
    Floats,
    Integers,
    Router,
    check_sizes,
    hash_integers,
)

Path = tuple[int, ...]


def make_direct_fabric(
    node_count: int,
    edges: Sequence[tuple[int, int]],
    rate_gbps: float,
    *,
    paths: Mapping[tuple[int, int], Sequence[Path]] | None = None,
    name: str = "direct",
    seed: int = 0,
) -> Fabric:
    """Return the fabric of hosts joined by directed `edges` of `rate_gbps` each; parallel edges add up.

    `paths` lists the paths of some pairs as sequences of nodes; the choice of a flow selects one of them. All other
    pairs use a shortest path; a hash breaks ties. Raise `ValueError` for an edge outside the nodes or from a node to
    itself, and for a path with the wrong ends or a missing edge. The router raises `ValueError` for a pair without
    any path.
    """
    check_sizes(node_count, rate_gbps)
    distinct_edges = np.array(sorted(set(edges)), dtype=np.int64).reshape(-1, 2)
    is_invalid = ((distinct_edges < 0) | (distinct_edges >= node_count)).any(axis=1) | (
        distinct_edges[:, 0] == distinct_edges[:, 1]
    )
    if is_invalid.any():
        edge = tuple(distinct_edges[np.argmax(is_invalid)].tolist())
        raise ValueError(f"edge {edge} must join different nodes of 0..{node_count - 1}")
    link_by_edge = {
        (int(source), int(target)): index for index, (source, target) in enumerate(distinct_edges)
    }
    copy_counts = np.zeros(len(link_by_edge))
    for edge in edges:
        copy_counts[link_by_edge[edge]] += 1
    fixed_paths = {
        pair: [_find_links(path, pair, link_by_edge) for path in paths_of_pair]
        for pair, paths_of_pair in (paths or {}).items()
    }
    degree = (
        int(np.bincount([source for source, _ in edges], minlength=node_count).max(initial=0)) if edges else 0
    )
    router = make_path_router(
        find_next_links(node_count, distinct_edges, seed), distinct_edges[:, 1], fixed_paths
    )
    return Fabric(
        name=name,
        node_count=node_count,
        sources=distinct_edges[:, 0].copy(),
        targets=distinct_edges[:, 1].copy(),
        capacity_bps=copy_counts * rate_gbps * 1e9,
        lane_bps=np.full(len(distinct_edges), rate_gbps * 1e9),
        never_full=np.zeros(len(distinct_edges), dtype=bool),
        router=router if fixed_paths else CyclicRouter(router, 1),
        hosts_forward=True,
        cost=compute_patch_panel_cost(node_count, degree, rate_gbps),
    )


def _find_links(path: Path, pair: tuple[int, int], link_by_edge: Mapping[tuple[int, int], int]) -> list[int]:
    if (path[0], path[-1]) != pair:
        raise ValueError(f"the path {path} does not lead from {pair[0]} to {pair[1]}")
    missing_edges = [edge for edge in pairwise(path) if edge not in link_by_edge]
    if missing_edges:
        raise ValueError(f"the path {path} uses {missing_edges[0]}, which is not an edge")
    return [link_by_edge[edge] for edge in pairwise(path)]


def find_next_links(node_count: int, edges: Integers, seed: int) -> Integers:
    """Return the link on which each node sends towards each target, (nodes, nodes), -1 without a path."""
    distance = _count_hops(node_count, edges)
    next_link = np.full((node_count, node_count), -1, np.int64)
    best_rank = np.full((node_count, node_count), np.iinfo(np.int64).max)
    targets = np.arange(node_count)
    for link, (source, target) in enumerate(edges):
        is_nearer = distance[target] + 1 == distance[source]
        rank = hash_integers(np.full(node_count, link), targets, np.array(seed))
        is_better = is_nearer & (rank < best_rank[source])
        next_link[source, is_better] = link
        best_rank[source, is_better] = rank[is_better]
    return next_link


def _count_hops(node_count: int, edges: Integers) -> NDArray[np.float64]:
    """Return the hops between all pairs, (nodes, nodes), infinity without a path."""
    order = np.argsort(edges[:, 0], kind="stable")
    sources, targets = edges[order].T
    parallel_index = np.arange(sources.size) - np.searchsorted(sources, sources)
    # One set of links per number of the link at its source, so that no source appears twice in a set.
    link_groups = [
        (sources[parallel_index == number], targets[parallel_index == number])
        for number in range(parallel_index.max(initial=-1) + 1)
    ]
    is_reached = np.eye(node_count, dtype=bool)
    distance = np.where(is_reached, 0.0, np.inf)
    for hops in range(1, node_count):
        is_reachable = is_reached.copy()
        for starts, targets_of_group in link_groups:
            is_reachable[starts] |= is_reached[targets_of_group]
        is_new = is_reachable & ~is_reached
        if not is_new.any():
            break
        distance[is_new] = hops
        is_reached = is_reachable
    return distance


def make_path_router(
    next_link: Integers, link_targets: Integers, fixed_paths: Mapping[tuple[int, int], list[list[int]]]
) -> Router:
    """Return a router along the next links in `next_link` (see `find_next_links`), except for pairs with `fixed_paths`.

    `link_targets` (links,) is the node to which each link leads.
    """

    def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
        link_columns, current_nodes = [], sources.copy()
        while (current_nodes != targets).any():
            link = np.where(current_nodes == targets, -1, next_link[current_nodes, targets])
            is_stuck = (link < 0) & (current_nodes != targets)
            if is_stuck.any():
                pair = int(np.argmax(is_stuck))
                raise ValueError(f"nothing connects node {sources[pair]} to node {targets[pair]}")
            current_nodes = np.where(link >= 0, link_targets[link], current_nodes)
            link_columns.append(link)
        max_hops = max([len(link_columns), *(len(path) for paths in fixed_paths.values() for path in paths)])
        padded_paths = np.full((sources.size, max_hops), -1, np.int64)
        if link_columns:
            padded_paths[:, : len(link_columns)] = np.stack(link_columns, axis=1)
        for row, endpoints in enumerate(
            zip(sources.tolist(), targets.tolist(), strict=True) if fixed_paths else ()
        ):
            if endpoints in fixed_paths:
                links = fixed_paths[endpoints][choices[row] % len(fixed_paths[endpoints])]
                padded_paths[row] = [*links, *[-1] * (max_hops - len(links))]
        return padded_paths

    return route


SHORTEST_PATHS = 16
"""Number of alternative choices of a pair."""


def find_shortest_paths(
    node_count: int, sources: Integers, targets: Integers, seed: int = 0
) -> tuple[int, Router]:
    """Return `Fabric.alternatives` of direct connect: the number of choices, and the router for them.

    At each host the choice selects one of the links that lead nearer to the target. The selections are the digits of
    the choice, in a mixed radix of the numbers of such links. Links are numbered in the order of `sources`.
    """
    distance = _count_hops(node_count, np.stack([sources, targets], axis=1))
    order = np.argsort(sources, kind="stable")
    first = np.searchsorted(sources[order], np.arange(node_count + 1))
    links_out = [order[first[node] : first[node + 1]] for node in range(node_count)]

    def walk(source: int, target: int, choice: int) -> list[int]:
        path, current_node = [], source
        while current_node != target:
            nearer_links = links_out[current_node][
                distance[targets[links_out[current_node]], target] + 1 == distance[current_node, target]
            ]
            if not nearer_links.size:
                raise ValueError(f"nothing connects node {source} to node {target}")
            begin = int(hash_integers(np.array([current_node]), np.array([target]), np.array([seed]))[0])
            path.append(int(nearer_links[(begin + choice) % nearer_links.size]))
            choice //= nearer_links.size
            current_node = int(targets[path[-1]])
        return path

    def route(from_nodes: Integers, to_nodes: Integers, choices: Integers) -> Integers:
        paths = [
            walk(*endpoints)
            for endpoints in zip(from_nodes.tolist(), to_nodes.tolist(), choices.tolist(), strict=True)
        ]
        max_hops = max((len(path) for path in paths), default=0)
        padded_paths = [path + [-1] * (max_hops - len(path)) for path in paths]
        return np.array(padded_paths, np.int64).reshape(len(paths), max_hops)

    return SHORTEST_PATHS, route


def make_routed_fabric(
    node_count: int,
    edges: Sequence[tuple[int, int]],
    rate_gbps: float,
    next_links_by_set: NDArray[np.int64],
    weights: Floats,
) -> Fabric:
    """Return the fabric of hosts joined by directed `edges`, the links in this order; parallel edges are separate.

    In set c node v sends towards t on link `next_links_by_set[c, t, v]`, -1 for none. The share `weights[c, s, t]` of
    the bytes from s to t uses set c, and every message is split accordingly. A choice with weight 0 falls back to the
    first set, which must be complete. The router raises `ValueError` if routes do not lead to the target.
    """
    check_sizes(node_count, rate_gbps)
    edge_array = np.array(edges, dtype=np.int64).reshape(-1, 2)
    sources, targets = edge_array[:, 0].copy(), edge_array[:, 1].copy()
    degree = int(np.bincount(sources, minlength=node_count).max(initial=0))
    return Fabric(
        name="direct",
        node_count=node_count,
        sources=sources,
        targets=targets,
        capacity_bps=np.full(len(edge_array), rate_gbps * 1e9),
        lane_bps=np.full(len(edge_array), rate_gbps * 1e9),
        never_full=np.zeros(len(edge_array), dtype=bool),
        router=CyclicRouter(_make_router(node_count, targets, next_links_by_set, weights), len(weights)),
        hosts_forward=True,
        cost=compute_patch_panel_cost(node_count, degree, rate_gbps),
        weights=weights,
    )


def _make_router(
    node_count: int, link_targets: Integers, next_links_by_set: Integers, weights: Floats
) -> Router:
    def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
        route_set = choices % len(weights)
        route_set = np.where(weights[route_set, sources, targets] > 0, route_set, 0)
        link_columns: list[Integers] = []
        current_nodes = sources.copy()
        while (current_nodes != targets).any():
            link = np.where(
                current_nodes == targets, -1, next_links_by_set[route_set, targets, current_nodes]
            )
            is_stuck = (link < 0) & (current_nodes != targets)
            if is_stuck.any() or len(link_columns) >= node_count:
                pair = int(np.argmax(is_stuck if is_stuck.any() else current_nodes != targets))
                raise ValueError(f"the routes do not lead from node {sources[pair]} to node {targets[pair]}")
            current_nodes = np.where(link >= 0, link_targets[link], current_nodes)
            link_columns.append(link)
        return np.stack(link_columns, axis=1) if link_columns else np.full((sources.size, 0), -1, np.int64)

    return route
