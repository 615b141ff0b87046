"""Balanced routes that minimise the load of the fullest link: sets of cheapest-path trees, and their weights.

A link's price is a high power of its load over the largest load, so that the fullest links decide. The exponent,
2^`doublings` - 1, grows from round to round. Each round computes the tree of cheapest paths to every target. It
replaces an earlier tree to this target, unless the total cost grows. Each pair then moves bytes from its most expensive
path to its cheapest. This is coordinate descent on a smooth form of the largest load.

A lower bound shows how far the result may be from the best routing. For any link prices, the fullest link of every
routing carries at least (cost of all pairs on their cheapest paths) / (sum of prices), by the dual of the linear
programme. The method of multiplicative weights improves the prices.

`onward[c, t, v]` is the link on which node v sends towards t in set c. `weight[c, s, t]` is the fraction of the bytes
from s to t in set c. `size[s, t]` holds the bytes from s to t.

Import this module inside functions: it imports numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbed.compiled import compile_function
from testbed.design.model import Topology
from testbed.design.routing.priced_trees import Links, Workspace, add_demand, add_load, grow_tree
from testbed.design.routing.route_sets import MAX_SETS, RouteSets, find_used_routes, make_demand_matrix
from testbed.design.topology.demand import Demand
from testbed.design.topology.hops import make_hop_table
from testbed.errors import TopologyError

Floats = NDArray[np.float64]

_SMALL_TOPOLOGY_NODES = 64
_SCHEDULE = ((4, 12), (5, 12), (6, 16), (7, 16), (8, 20))
"""Pairs of `doublings` and a number of rounds, for up to `_SMALL_TOPOLOGY_NODES` nodes."""
_SHORT_SCHEDULE = tuple((doublings, rounds // 6) for doublings, rounds in _SCHEDULE)
"""Schedule for more nodes."""
_QUICK_SCHEDULE = ((4, 2), (6, 3), (8, 3))
"""Schedule of `route_quickly`."""
_SUFFICIENT_GAP = 0.01
"""Tries end when the gap to the bound is below this fraction."""
_SMALLEST_WEIGHT = 0.01
"""Smallest weight: less traffic does not justify a connection. Weights are multiples of 0.001."""
_BOUND_ROUNDS = 60

_HALVINGS = 8
_HOP_PRICE = 0.01
"""Price of a hop itself, relative to the mean price of links: between equally full paths, the shorter one wins."""


def route(
    topology: Topology, demand: Demand, *, max_paths: int = MAX_SETS, seed: int = 0, tries: int = 3
) -> RouteSets:
    """Return routes between all nodes, with weights that keep the load of the fullest link low.

    AllReduces of the demand are ignored: give the bytes of their rings as pairs. Pairs without demand use the first
    set. Up to 64 nodes, several `tries` also try fewer sets, so more paths are never worse. Tries end early within 1 %
    of the bound. Larger topologies get a single try. Results are deterministic.
    Raises `TopologyError` for a topology that is not connected, and for `max_paths` outside 1 to `MAX_SETS`.
    """
    if not 1 <= max_paths <= MAX_SETS:
        raise TopologyError(f"{max_paths} paths per pair: hosts have 1 to {MAX_SETS} addresses for them")
    _check_connected(topology)
    size, links = make_demand_matrix(demand), _make_links(topology)
    if not size.any():
        return _route_without_demand(topology, links)
    is_small = topology.nodes <= _SMALL_TOPOLOGY_NODES
    routes = [
        _route_best(topology, links, size, sets, seed, tries if is_small else 1)
        for sets in range(max_paths, 0 if is_small and tries > 1 else max_paths - 1, -1)
    ]
    best_routes, bound = (
        min(routes, key=_make_fullest_link_key(size)),
        max(candidate.bound_bytes for candidate in routes),
    )
    onward = np.full((max_paths, *size.shape), -1, dtype=np.int64)
    weight = np.zeros((max_paths, *size.shape))
    onward[: best_routes.sets], weight[: best_routes.sets] = _prune(best_routes, links), best_routes.weight
    return RouteSets(topology, onward, weight, bound)


def _make_fullest_link_key(size: Floats) -> Callable[[RouteSets], float]:
    return lambda candidate_routes: float(candidate_routes.link_bytes(size).max())


def _route_best(
    topology: Topology, links: Links, size: Floats, sets: int, seed: int, tries: int
) -> RouteSets:
    """Return the best of several tries with `sets` sets, without pruning."""
    is_small, scale = topology.nodes <= _SMALL_TOPOLOGY_NODES, size.max()
    bound, candidates = 0.0, []
    for number in range(tries):
        onward, weight, load, price_bound = _descend(
            links,
            size / scale,
            sets,
            np.random.default_rng((seed, number)),
            _SCHEDULE if is_small else _SHORT_SCHEDULE,
        )
        join_equal_paths(onward, weight, links.head)
        bound = max(
            bound, price_bound, _compute_bound(links, size / scale, load, _BOUND_ROUNDS if is_small else 2)
        )
        candidates.append(RouteSets(topology, onward, _round(weight, size), bound * scale))
        if candidates[-1].gap(size) < _SUFFICIENT_GAP:
            break
    best_routes = min(candidates, key=_make_fullest_link_key(size))
    return RouteSets(topology, best_routes.onward, best_routes.weight, bound * scale)


def route_quickly(topology: Topology, demand: Demand, *, max_paths: int = MAX_SETS) -> RouteSets:
    """Return routes as `route` does, with fewer rounds, one try and no bound: for searches.

    Raises `TopologyError` for a topology that is not connected.
    """
    _check_connected(topology)
    size, links = make_demand_matrix(demand), _make_links(topology)
    if not size.any():
        return _route_without_demand(topology, links)
    random = np.random.default_rng(0)
    onward, weight, *_ = _descend(links, size / size.max(), max_paths, random, _QUICK_SCHEDULE)
    join_equal_paths(onward, weight, links.head)
    routes = RouteSets(topology, onward, _round(weight, size))
    return RouteSets(topology, _prune(routes, links), routes.weight)


def _make_links(topology: Topology) -> Links:
    table = np.array(topology.edges, dtype=np.int64).reshape(-1, 2)
    tail, head = table[:, 0].copy(), table[:, 1].copy()
    order_by_head = np.argsort(head, kind="stable")
    return Links(
        tail, head, np.searchsorted(head[order_by_head], np.arange(topology.nodes + 1)), order_by_head
    )


def _make_workspace(nodes: int, links: Links) -> Workspace:
    entries = links.head.size + nodes + 1
    return Workspace(
        np.zeros(links.head.size),
        np.zeros(nodes),
        np.zeros(nodes, np.int64),
        np.zeros(entries),
        np.zeros(entries, np.int64),
    )


def _descend(
    links: Links,
    size: Floats,
    sets: int,
    random: np.random.Generator,
    schedule: Sequence[tuple[int, int]],
) -> tuple[NDArray[np.int64], Floats, Floats, float]:
    """Return the trees, weights and loads after all rounds, and the best bound that their prices gave."""
    nodes, bound = len(size), 0.0
    onward = np.full((sets, nodes, nodes), -1, dtype=np.int64)
    weight, load, workspace = (
        np.zeros((sets, nodes, nodes)),
        np.zeros(links.head.size),
        _make_workspace(nodes, links),
    )
    route_equally(links, size, onward, weight, load, workspace)
    round_number = 0
    for doublings, rounds in schedule:
        for _ in range(rounds):
            load[:] = 0.0
            add_demand(onward, weight, size, links.head, load)  # recomputed: rounding errors would add up
            replace_trees(
                round_number,
                random.permutation(nodes),
                links,
                size,
                onward,
                weight,
                load,
                workspace,
                doublings,
            )
            round_number += 1
        total = set_prices(load, doublings, workspace.price)
        bound = max(bound, price_demand(links, size, workspace, np.zeros(load.size)) / total)
    return onward, weight, load, bound


def _compute_bound(links: Links, size: Floats, load: Floats, rounds: int) -> float:
    """Return the best dual bound of some rounds of multiplicative weights, which start from the prices of `load`."""
    workspace, answer = _make_workspace(len(size), links), np.zeros(load.size)
    best_bound, starts = 0.0, []
    for doublings in (3, 4, 5, 6, 7):
        set_prices(load, doublings, workspace.price)
        starts.append(workspace.price / workspace.price.sum())
        best_bound = max(best_bound, price_demand(links, size, workspace, answer) / workspace.price.sum())
    price = np.mean(starts, axis=0)
    for round_number in range(rounds):
        workspace.price[:] = price
        best_bound = max(best_bound, price_demand(links, size, workspace, answer) / price.sum())
        price = price * np.exp((answer / answer.max() - 1) / (1 + round_number / 8))
        price = price / price.sum() + 1e-12
    return best_bound


def _round(weight: Floats, size: Floats) -> Floats:
    """Return the weights rounded to thousandths; weights below `_SMALLEST_WEIGHT` become 0.

    Pairs without demand use the first set.
    """
    sets = len(weight)
    rounded = np.where(weight < _SMALLEST_WEIGHT, 0.0, np.round(weight, 3))
    rounded[0][size == 0] = 1.0
    rounded[1:, size == 0] = 0.0
    top = np.argmax(rounded, axis=0)
    for number in range(sets):
        other_load = rounded.sum(axis=0) - rounded[number]
        rounded[number] = np.where(top == number, np.round(1 - other_load, 3), rounded[number])
    return rounded


def _prune(routes: RouteSets, links: Links) -> NDArray[np.int64]:
    """Return the trees without entries that no pair uses in either direction. The first set stays complete."""
    onward = np.full_like(routes.onward, -1)
    for number, is_used in enumerate(find_used_routes(routes.weight)):
        from_nodes, to_nodes = np.nonzero(is_used)
        while from_nodes.size:
            edge = routes.onward[number, to_nodes, from_nodes]
            onward[number, to_nodes, from_nodes] = edge
            from_nodes = links.head[edge]
            from_nodes, to_nodes = from_nodes[from_nodes != to_nodes], to_nodes[from_nodes != to_nodes]
    return onward


def _route_without_demand(topology: Topology, links: Links) -> RouteSets:
    """Return one set of shortest routes that loads the links evenly if all pairs send the same."""
    nodes = topology.nodes
    size = np.ones((nodes, nodes)) - np.eye(nodes)
    schedule = _SCHEDULE if nodes <= _SMALL_TOPOLOGY_NODES else _SHORT_SCHEDULE
    onward, weight, *_ = _descend(links, size, 1, np.random.default_rng(0), schedule)
    return RouteSets(topology, onward, weight)


def _check_connected(topology: Topology) -> None:
    hops = make_hop_table(topology.nodes, topology.edges)
    if hops.size and hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {source} has no path to node {target}: the topology is not connected; add links between its parts"
        )


@compile_function
def set_prices(load: Any, doublings: int, price: Any) -> float:
    """Fill `price` with the price of each link, and return their sum."""
    top, total = load.max(), 0.0
    for link in range(load.size):
        price[link] = _price_link(load[link] / top, doublings)
        total += price[link]
    return total


@compile_function
def _price_link(fullness: float, doublings: int) -> float:
    power = fullness
    for _ in range(doublings):
        power *= power
    return power / max(fullness, 1e-9)


@compile_function
def _compute_path_price(
    node: int, target: int, onward: Any, head: Any, load: Any, top: float, doublings: int
) -> float:
    total = 0.0
    while node != target:
        total += _price_link(load[onward[node]] / top, doublings)
        node = head[onward[node]]
    return total


@compile_function
def _overshoots(
    source: int,
    target: int,
    old: Any,
    new: Any,
    head: Any,
    load: Any,
    top: float,
    doublings: int,
    moved: float,
) -> bool:
    """Return whether the new path is more expensive than the old one once `moved` bytes have moved to it."""
    add_load(source, target, old, head, load, -moved)
    add_load(source, target, new, head, load, moved)
    old_price = _compute_path_price(source, target, old, head, load, top, doublings)
    new_price = _compute_path_price(source, target, new, head, load, top, doublings)
    add_load(source, target, new, head, load, -moved)
    add_load(source, target, old, head, load, moved)
    return new_price > old_price


@compile_function
def _balance_pair(
    source: int,
    target: int,
    size: float,
    onward: Any,
    weight: Any,
    head: Any,
    load: Any,
    top: float,
    doublings: int,
) -> None:
    """Move bytes of one pair from its most expensive used set to its cheapest until both cost the same."""
    cheapest, dearest, lowest_price, highest_price = 0, -1, np.inf, -1.0
    for number in range(len(weight)):
        price = _compute_path_price(source, target, onward[number, target], head, load, top, doublings)
        if price < lowest_price:
            lowest_price, cheapest = price, number
        if weight[number, source, target] > 0 and price > highest_price:
            highest_price, dearest = price, number
    if dearest in (cheapest, -1) or highest_price <= lowest_price * (1 + 1e-6):
        return
    old, new = onward[dearest, target], onward[cheapest, target]
    low, high = 0.0, weight[dearest, source, target]
    if _overshoots(source, target, old, new, head, load, top, doublings, high * size):
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if _overshoots(source, target, old, new, head, load, top, doublings, middle * size):
                high = middle
            else:
                low = middle
        # Take the lower end: moving more would make the new path more expensive.
        high = low
    add_load(source, target, old, head, load, -high * size)
    add_load(source, target, new, head, load, high * size)
    weight[dearest, source, target] -= high
    weight[cheapest, source, target] += high


@compile_function
def balance_pairs(
    target: int,
    size: Any,
    onward: Any,
    weight: Any,
    head: Any,
    load: Any,
    top: float,
    doublings: int,
    sweeps: int,
) -> None:
    """Balance all pairs that send to a target, `sweeps` times."""
    for _ in range(sweeps):
        for source in range(size.shape[0]):
            if size[source, target] > 0:
                _balance_pair(
                    source, target, size[source, target], onward, weight, head, load, top, doublings
                )


@compile_function
def _compute_total_cost(load: Any, top: float, doublings: int) -> float:
    total = 0.0
    for link in range(load.size):
        total += _price_link(load[link] / top, doublings) * load[link]
    return total


@compile_function
def _choose_replaced_set(round_number: int, target: int, size: Any, weight: Any) -> int:
    """Return the set whose tree is replaced, never the first.

    It is the least loaded set; in every third round, the sets take turns.
    """
    sets = weight.shape[0]
    if round_number % 3 == 2:
        return int(1 + (round_number // 3 + target) % (sets - 1))
    replaced_set, lowest_price = 1, np.inf
    for number in range(1, sets):
        carried_bytes = 0.0
        for source in range(size.shape[0]):
            carried_bytes += weight[number, source, target] * size[source, target]
        if carried_bytes < lowest_price:
            replaced_set, lowest_price = number, carried_bytes
    return replaced_set


@compile_function
def _replace_tree(
    target: int,
    replaced_set: int,
    size: Any,
    onward: Any,
    weight: Any,
    head: Any,
    load: Any,
    tree: Any,
    top: float,
    doublings: int,
) -> None:
    """Replace the tree of a set, move its load and balance all pairs; undo everything if the total cost grows."""
    previous_cost = _compute_total_cost(load, top, doublings)
    old_load, old_weight, old_tree = (
        load.copy(),
        weight[:, :, target].copy(),
        onward[replaced_set, target].copy(),
    )
    for source in range(size.shape[0]):
        carried_bytes = weight[replaced_set, source, target] * size[source, target]
        if carried_bytes > 0:
            add_load(source, target, onward[replaced_set, target], head, load, -carried_bytes)
            add_load(source, target, tree, head, load, carried_bytes)
    onward[replaced_set, target] = tree
    balance_pairs(target, size, onward, weight, head, load, top, doublings, 3)
    if _compute_total_cost(load, top, doublings) > previous_cost:
        load[:] = old_load
        weight[:, :, target] = old_weight
        onward[replaced_set, target] = old_tree


@compile_function
def _is_in_use(tree: Any, trees: Any, target: int) -> bool:
    is_in_use = False
    for number in range(len(trees)):
        is_in_use = is_in_use or bool((trees[number, target] == tree).all())
    return is_in_use


@compile_function
def replace_trees(
    round_number: int,
    order: Any,
    links: Any,
    size: Any,
    onward: Any,
    weight: Any,
    load: Any,
    workspace: Any,
    doublings: int,
) -> None:
    """Try the cheapest tree for each target. Every fourth tree has shortest paths only, for the first set."""
    for target in order:
        top = load.max()
        total = set_prices(load, doublings, workspace.price)
        shortest = len(weight) == 1 or (round_number + target) % 4 == 0
        workspace.price[:] += total if shortest else _HOP_PRICE * total / load.size
        grow_tree(
            target,
            links,
            workspace.price,
            workspace.distance,
            workspace.tree,
            workspace.keys,
            workspace.nodes,
        )
        if not _is_in_use(workspace.tree, onward, target):
            replaced_set = 0 if shortest else _choose_replaced_set(round_number, target, size, weight)
            _replace_tree(
                target, replaced_set, size, onward, weight, links.head, load, workspace.tree, top, doublings
            )
        balance_pairs(target, size, onward, weight, links.head, load, top, doublings, 1)


@compile_function
def route_equally(links: Any, size: Any, onward: Any, weight: Any, load: Any, workspace: Any) -> None:
    """Route equal parts of the demand: the first set on shortest paths, the others on paths that avoid loaded links."""
    sets, nodes = weight.shape[0], size.shape[0]
    for number in range(sets):
        for target in range(nodes):
            top = load.max() + 1e-300
            workspace.price[:] = 1 + load / top / (nodes if number == 0 else 1)
            grow_tree(
                target,
                links,
                workspace.price,
                workspace.distance,
                onward[number, target],
                workspace.keys,
                workspace.nodes,
            )
            for source in range(nodes):
                weight[number, source, target] = 1 / sets
                if source != target and size[source, target] > 0:
                    add_load(
                        source, target, onward[number, target], links.head, load, size[source, target] / sets
                    )


@compile_function
def price_demand(links: Any, size: Any, workspace: Any, load: Any) -> float:
    """Return the cost of all pairs on their cheapest paths at the workspace's prices. Fill `load` with their bytes."""
    cost = 0.0
    load[:] = 0.0
    for target in range(size.shape[0]):
        grow_tree(
            target,
            links,
            workspace.price,
            workspace.distance,
            workspace.tree,
            workspace.keys,
            workspace.nodes,
        )
        for source in range(size.shape[0]):
            if size[source, target] > 0:
                cost += size[source, target] * workspace.distance[source]
                add_load(source, target, workspace.tree, links.head, load, size[source, target])
    return cost


@compile_function
def join_equal_paths(onward: Any, weight: Any, head: Any) -> None:
    """If several sets have the same path for a pair, move their weights to the first of these sets."""
    sets, nodes = weight.shape[0], weight.shape[1]
    for number in range(1, sets):
        for target in range(nodes):
            for source in range(nodes):
                for earlier_set in range(number if weight[number, source, target] > 0 else 0):
                    node = source
                    while (
                        node != target and onward[earlier_set, target, node] == onward[number, target, node]
                    ):
                        node = head[onward[number, target, node]]
                    if node == target:
                        weight[earlier_set, source, target] += weight[number, source, target]
                        weight[number, source, target] = 0.0
                        break
