"""Balanced routes that minimise the load of the fullest link: sets of cheapest-path trees, and their weights.

A link's price is a high power of its load over the largest load, so that the fullest links decide. The exponent,
2^`doublings` - 1, grows from round to round. Each round computes the tree of cheapest paths to every target. It
replaces an earlier tree to this target, unless the total cost grows. Each pair then moves bytes from its most expensive
path to its cheapest path. This is coordinate descent on a smooth form of the largest load.

A lower bound shows how far the result may be from the best routing. For any link prices, the fullest link of every
routing carries at least (cost of all pairs on their cheapest paths) / (sum of prices), by the dual of the linear
programme. The method of multiplicative weights improves the prices.

`next_edge[c, t, v]` is the link on which node v sends towards t in set c. `weight[c, s, t]` is the fraction of the
bytes from s to t in set c. `bytes_by_pair[s, t]` holds the bytes from s to t.

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
_LONG_SCHEDULE = ((4, 12), (5, 12), (6, 16), (7, 16), (8, 20))
"""Pairs of `doublings` and a number of rounds, for up to `_SMALL_TOPOLOGY_NODES` nodes."""
_SHORT_SCHEDULE = tuple((doublings, rounds // 6) for doublings, rounds in _LONG_SCHEDULE)
"""Schedule for more nodes."""
_QUICK_SCHEDULE = ((4, 2), (6, 3), (8, 3))
"""Schedule of `find_quick_balanced_routes`."""
_MAX_SUFFICIENT_GAP = 0.01
"""Tries end when the gap to the bound is below this fraction."""
_MIN_WEIGHT = 0.01
"""Smallest weight. Less traffic does not justify a connection. Weights are multiples of 0.001."""
_MAX_BOUND_ROUNDS = 60

_BISECTION_STEPS = 8
_HOP_PRICE = 0.01
"""Price of a hop itself, relative to the mean price of links: between equally full paths, the shorter one wins."""


def find_balanced_routes(
    topology: Topology, demand: Demand, *, max_paths: int = MAX_SETS, seed: int = 0, try_count: int = 3
) -> RouteSets:
    """Return routes between all nodes, with weights that keep the load of the fullest link low.

    AllReduces of the demand are ignored: give the bytes of their rings as pairs. Pairs without demand use the first
    set. Up to 64 nodes, several tries also try fewer sets, so more paths are never worse. Tries end early within
    1 % of the bound. Larger topologies get a single try. Results are deterministic. Raises `TopologyError` for a
    topology that is not connected, and for `max_paths` outside 1 to `MAX_SETS`.
    """
    if not 1 <= max_paths <= MAX_SETS:
        raise TopologyError(
            f"{max_paths} paths per pair: give 1 to {MAX_SETS}, since hosts have an address for each"
        )
    _check_connected(topology)
    bytes_by_pair, links = make_demand_matrix(demand), _make_links(topology)
    if not bytes_by_pair.any():
        return _route_without_demand(topology, links)
    is_small = topology.nodes <= _SMALL_TOPOLOGY_NODES
    candidates = [
        _find_best_routes(topology, links, bytes_by_pair, set_count, seed, try_count if is_small else 1)
        for set_count in range(max_paths, 0 if is_small and try_count > 1 else max_paths - 1, -1)
    ]
    best_routes, bound = (
        min(candidates, key=_make_fullest_link_key(bytes_by_pair)),
        max(candidate.bound_bytes for candidate in candidates),
    )
    next_edge = np.full((max_paths, *bytes_by_pair.shape), -1, dtype=np.int64)
    weight = np.zeros((max_paths, *bytes_by_pair.shape))
    next_edge[: best_routes.set_count], weight[: best_routes.set_count] = (
        _prune_trees(best_routes, links),
        best_routes.weight,
    )
    return RouteSets(topology, next_edge, weight, bound)


def _make_fullest_link_key(bytes_by_pair: Floats) -> Callable[[RouteSets], float]:
    return lambda candidate_routes: float(candidate_routes.compute_link_bytes(bytes_by_pair).max())


def _find_best_routes(
    topology: Topology, links: Links, bytes_by_pair: Floats, set_count: int, seed: int, try_count: int
) -> RouteSets:
    """Return the best of several tries with `set_count` sets, without pruning."""
    is_small, max_bytes = topology.nodes <= _SMALL_TOPOLOGY_NODES, bytes_by_pair.max()
    bound, candidates = 0.0, []
    for try_number in range(try_count):
        next_edge, weight, load, price_bound = _optimise_trees(
            links,
            bytes_by_pair / max_bytes,
            set_count,
            np.random.default_rng((seed, try_number)),
            _LONG_SCHEDULE if is_small else _SHORT_SCHEDULE,
        )
        join_equal_paths(next_edge, weight, links.head)
        bound = max(
            bound,
            price_bound,
            _compute_bound(links, bytes_by_pair / max_bytes, load, _MAX_BOUND_ROUNDS if is_small else 2),
        )
        candidates.append(
            RouteSets(topology, next_edge, _round_weights(weight, bytes_by_pair), bound * max_bytes)
        )
        if candidates[-1].compute_gap(bytes_by_pair) < _MAX_SUFFICIENT_GAP:
            break
    best_routes = min(candidates, key=_make_fullest_link_key(bytes_by_pair))
    return RouteSets(topology, best_routes.next_edge, best_routes.weight, bound * max_bytes)


def find_quick_balanced_routes(topology: Topology, demand: Demand, *, max_paths: int = MAX_SETS) -> RouteSets:
    """Return routes as `find_balanced_routes` does, with fewer rounds, one try and no bound: for searches.

    Raises `TopologyError` for a topology that is not connected.
    """
    _check_connected(topology)
    bytes_by_pair, links = make_demand_matrix(demand), _make_links(topology)
    if not bytes_by_pair.any():
        return _route_without_demand(topology, links)
    rng = np.random.default_rng(0)
    next_edge, weight, *_ = _optimise_trees(
        links, bytes_by_pair / bytes_by_pair.max(), max_paths, rng, _QUICK_SCHEDULE
    )
    join_equal_paths(next_edge, weight, links.head)
    routes = RouteSets(topology, next_edge, _round_weights(weight, bytes_by_pair))
    return RouteSets(topology, _prune_trees(routes, links), routes.weight)


def _make_links(topology: Topology) -> Links:
    table = np.array(topology.edges, dtype=np.int64).reshape(-1, 2)
    tail, head = table[:, 0].copy(), table[:, 1].copy()
    order_by_head = np.argsort(head, kind="stable")
    return Links(
        tail, head, np.searchsorted(head[order_by_head], np.arange(topology.nodes + 1)), order_by_head
    )


def _make_workspace(nodes: int, links: Links) -> Workspace:
    heap_capacity = links.head.size + nodes + 1
    return Workspace(
        np.zeros(links.head.size),
        np.zeros(nodes),
        np.zeros(nodes, np.int64),
        np.zeros(heap_capacity),
        np.zeros(heap_capacity, np.int64),
    )


def _optimise_trees(
    links: Links,
    bytes_by_pair: Floats,
    set_count: int,
    rng: np.random.Generator,
    schedule: Sequence[tuple[int, int]],
) -> tuple[NDArray[np.int64], Floats, Floats, float]:
    """Return the trees, weights and loads after all rounds, and the best bound that their prices gave."""
    nodes, bound = len(bytes_by_pair), 0.0
    next_edge = np.full((set_count, nodes, nodes), -1, dtype=np.int64)
    weight, load, workspace = (
        np.zeros((set_count, nodes, nodes)),
        np.zeros(links.head.size),
        _make_workspace(nodes, links),
    )
    route_equally(links, bytes_by_pair, next_edge, weight, load, workspace)
    round_number = 0
    for doublings, rounds in schedule:
        for _ in range(rounds):
            load[:] = 0.0
            # The loads are computed again, because rounding errors would add up.
            add_demand(next_edge, weight, bytes_by_pair, links.head, load)
            replace_trees(
                round_number,
                rng.permutation(nodes),
                links,
                bytes_by_pair,
                next_edge,
                weight,
                load,
                workspace,
                doublings,
            )
            round_number += 1
        price_sum = set_prices(load, doublings, workspace.price)
        bound = max(bound, price_demand(links, bytes_by_pair, workspace, np.zeros(load.size)) / price_sum)
    return next_edge, weight, load, bound


def _compute_bound(links: Links, bytes_by_pair: Floats, load: Floats, round_count: int) -> float:
    """Return the best dual bound of some rounds of multiplicative weights, which start from the prices of `load`."""
    workspace, link_bytes = _make_workspace(len(bytes_by_pair), links), np.zeros(load.size)
    best_bound, initial_prices = 0.0, []
    for doublings in (3, 4, 5, 6, 7):
        set_prices(load, doublings, workspace.price)
        initial_prices.append(workspace.price / workspace.price.sum())
        best_bound = max(
            best_bound, price_demand(links, bytes_by_pair, workspace, link_bytes) / workspace.price.sum()
        )
    price = np.mean(initial_prices, axis=0)
    for round_number in range(round_count):
        workspace.price[:] = price
        best_bound = max(best_bound, price_demand(links, bytes_by_pair, workspace, link_bytes) / price.sum())
        price = price * np.exp((link_bytes / link_bytes.max() - 1) / (1 + round_number / 8))
        price = price / price.sum() + 1e-12
    return best_bound


def _round_weights(weight: Floats, bytes_by_pair: Floats) -> Floats:
    """Return the weights rounded to thousandths; weights below `_MIN_WEIGHT` become 0.

    Pairs without demand use the first set.
    """
    set_count = len(weight)
    rounded = np.where(weight < _MIN_WEIGHT, 0.0, np.round(weight, 3))
    rounded[0][bytes_by_pair == 0] = 1.0
    rounded[1:, bytes_by_pair == 0] = 0.0
    heaviest_set = np.argmax(rounded, axis=0)
    for set_number in range(set_count):
        other_weights = rounded.sum(axis=0) - rounded[set_number]
        rounded[set_number] = np.where(
            heaviest_set == set_number, np.round(1 - other_weights, 3), rounded[set_number]
        )
    return rounded


def _prune_trees(routes: RouteSets, links: Links) -> NDArray[np.int64]:
    """Return the trees without entries that no pair uses in either direction. The first set stays complete."""
    next_edge = np.full_like(routes.next_edge, -1)
    for set_number, is_used in enumerate(find_used_routes(routes.weight)):
        from_nodes, to_nodes = np.nonzero(is_used)
        while from_nodes.size:
            edges = routes.next_edge[set_number, to_nodes, from_nodes]
            next_edge[set_number, to_nodes, from_nodes] = edges
            from_nodes = links.head[edges]
            from_nodes, to_nodes = from_nodes[from_nodes != to_nodes], to_nodes[from_nodes != to_nodes]
    return next_edge


def _route_without_demand(topology: Topology, links: Links) -> RouteSets:
    """Return one set of shortest routes that loads the links evenly if all pairs send the same."""
    nodes = topology.nodes
    bytes_by_pair = np.ones((nodes, nodes)) - np.eye(nodes)
    schedule = _LONG_SCHEDULE if nodes <= _SMALL_TOPOLOGY_NODES else _SHORT_SCHEDULE
    next_edge, weight, *_ = _optimise_trees(links, bytes_by_pair, 1, np.random.default_rng(0), schedule)
    return RouteSets(topology, next_edge, weight)


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
    max_load, price_sum = load.max(), 0.0
    for link in range(load.size):
        price[link] = _price_link(load[link] / max_load, doublings)
        price_sum += price[link]
    return price_sum


@compile_function
def _price_link(fullness: float, doublings: int) -> float:
    power = fullness
    for _ in range(doublings):
        power *= power
    return power / max(fullness, 1e-9)


@compile_function
def _compute_path_price(
    node: int, target: int, next_edge: Any, head: Any, load: Any, max_load: float, doublings: int
) -> float:
    price_sum = 0.0
    while node != target:
        price_sum += _price_link(load[next_edge[node]] / max_load, doublings)
        node = head[next_edge[node]]
    return price_sum


@compile_function
def _is_costlier_after_move(
    source: int,
    target: int,
    old_tree: Any,
    new_tree: Any,
    head: Any,
    load: Any,
    max_load: float,
    doublings: int,
    moved_bytes: float,
) -> bool:
    """Return whether the new path is more expensive than the old one once `moved_bytes` bytes have moved to it."""
    add_load(source, target, old_tree, head, load, -moved_bytes)
    add_load(source, target, new_tree, head, load, moved_bytes)
    old_price = _compute_path_price(source, target, old_tree, head, load, max_load, doublings)
    new_price = _compute_path_price(source, target, new_tree, head, load, max_load, doublings)
    add_load(source, target, new_tree, head, load, -moved_bytes)
    add_load(source, target, old_tree, head, load, moved_bytes)
    return new_price > old_price


@compile_function
def _balance_pair(
    source: int,
    target: int,
    pair_bytes: float,
    next_edge: Any,
    weight: Any,
    head: Any,
    load: Any,
    max_load: float,
    doublings: int,
) -> None:
    """Move bytes of one pair from its most expensive used set to its cheapest until both cost the same."""
    cheapest_set, dearest_set, lowest_price, highest_price = 0, -1, np.inf, -1.0
    for set_number in range(len(weight)):
        price = _compute_path_price(
            source, target, next_edge[set_number, target], head, load, max_load, doublings
        )
        if price < lowest_price:
            lowest_price, cheapest_set = price, set_number
        if weight[set_number, source, target] > 0 and price > highest_price:
            highest_price, dearest_set = price, set_number
    if dearest_set in (cheapest_set, -1) or highest_price <= lowest_price * (1 + 1e-6):
        return
    old_tree, new_tree = next_edge[dearest_set, target], next_edge[cheapest_set, target]
    low_weight, high_weight = 0.0, weight[dearest_set, source, target]
    if _is_costlier_after_move(
        source, target, old_tree, new_tree, head, load, max_load, doublings, high_weight * pair_bytes
    ):
        for _ in range(_BISECTION_STEPS):
            middle_weight = (low_weight + high_weight) / 2
            if _is_costlier_after_move(
                source,
                target,
                old_tree,
                new_tree,
                head,
                load,
                max_load,
                doublings,
                middle_weight * pair_bytes,
            ):
                high_weight = middle_weight
            else:
                low_weight = middle_weight
        # Take the lower end: moving more would make the new path more expensive.
        high_weight = low_weight
    add_load(source, target, old_tree, head, load, -high_weight * pair_bytes)
    add_load(source, target, new_tree, head, load, high_weight * pair_bytes)
    weight[dearest_set, source, target] -= high_weight
    weight[cheapest_set, source, target] += high_weight


@compile_function
def balance_pairs(
    target: int,
    bytes_by_pair: Any,
    next_edge: Any,
    weight: Any,
    head: Any,
    load: Any,
    max_load: float,
    doublings: int,
    sweep_count: int,
) -> None:
    """Balance all pairs that send to a target, `sweep_count` times."""
    for _ in range(sweep_count):
        for source in range(bytes_by_pair.shape[0]):
            if bytes_by_pair[source, target] > 0:
                _balance_pair(
                    source,
                    target,
                    bytes_by_pair[source, target],
                    next_edge,
                    weight,
                    head,
                    load,
                    max_load,
                    doublings,
                )


@compile_function
def _compute_total_cost(load: Any, max_load: float, doublings: int) -> float:
    total_cost = 0.0
    for link in range(load.size):
        total_cost += _price_link(load[link] / max_load, doublings) * load[link]
    return total_cost


@compile_function
def _choose_replaced_set(round_number: int, target: int, bytes_by_pair: Any, weight: Any) -> int:
    """Return the set whose tree is replaced, never the first.

    It is the least loaded set; in every third round, the sets take turns.
    """
    set_count = weight.shape[0]
    if round_number % 3 == 2:
        return int(1 + (round_number // 3 + target) % (set_count - 1))
    replaced_set, fewest_bytes = 1, np.inf
    for set_number in range(1, set_count):
        carried_bytes = 0.0
        for source in range(bytes_by_pair.shape[0]):
            carried_bytes += weight[set_number, source, target] * bytes_by_pair[source, target]
        if carried_bytes < fewest_bytes:
            replaced_set, fewest_bytes = set_number, carried_bytes
    return replaced_set


@compile_function
def _replace_tree(
    target: int,
    replaced_set: int,
    bytes_by_pair: Any,
    next_edge: Any,
    weight: Any,
    head: Any,
    load: Any,
    tree: Any,
    max_load: float,
    doublings: int,
) -> None:
    """Replace the tree of a set, move its load and balance all pairs; undo everything if the total cost grows."""
    previous_cost = _compute_total_cost(load, max_load, doublings)
    old_load, old_weight, old_tree = (
        load.copy(),
        weight[:, :, target].copy(),
        next_edge[replaced_set, target].copy(),
    )
    for source in range(bytes_by_pair.shape[0]):
        carried_bytes = weight[replaced_set, source, target] * bytes_by_pair[source, target]
        if carried_bytes > 0:
            add_load(source, target, next_edge[replaced_set, target], head, load, -carried_bytes)
            add_load(source, target, tree, head, load, carried_bytes)
    next_edge[replaced_set, target] = tree
    balance_pairs(target, bytes_by_pair, next_edge, weight, head, load, max_load, doublings, 3)
    if _compute_total_cost(load, max_load, doublings) > previous_cost:
        load[:] = old_load
        weight[:, :, target] = old_weight
        next_edge[replaced_set, target] = old_tree


@compile_function
def _contains_tree(tree: Any, trees: Any, target: int) -> bool:
    is_in_use = False
    for set_number in range(len(trees)):
        is_in_use = is_in_use or bool((trees[set_number, target] == tree).all())
    return is_in_use


@compile_function
def replace_trees(
    round_number: int,
    target_order: Any,
    links: Any,
    bytes_by_pair: Any,
    next_edge: Any,
    weight: Any,
    load: Any,
    workspace: Any,
    doublings: int,
) -> None:
    """Try the cheapest tree for each target. Every fourth tree has shortest paths only, for the first set."""
    for target in target_order:
        max_load = load.max()
        price_sum = set_prices(load, doublings, workspace.price)
        is_shortest = len(weight) == 1 or (round_number + target) % 4 == 0
        workspace.price[:] += price_sum if is_shortest else _HOP_PRICE * price_sum / load.size
        grow_tree(
            target,
            links,
            workspace.price,
            workspace.distance,
            workspace.tree,
            workspace.heap_keys,
            workspace.heap_nodes,
        )
        if not _contains_tree(workspace.tree, next_edge, target):
            replaced_set = (
                0 if is_shortest else _choose_replaced_set(round_number, target, bytes_by_pair, weight)
            )
            _replace_tree(
                target,
                replaced_set,
                bytes_by_pair,
                next_edge,
                weight,
                links.head,
                load,
                workspace.tree,
                max_load,
                doublings,
            )
        balance_pairs(target, bytes_by_pair, next_edge, weight, links.head, load, max_load, doublings, 1)


@compile_function
def route_equally(
    links: Any, bytes_by_pair: Any, next_edge: Any, weight: Any, load: Any, workspace: Any
) -> None:
    """Route equal parts of the demand: the first set on shortest paths, the others on paths that avoid loaded links."""
    set_count, nodes = weight.shape[0], bytes_by_pair.shape[0]
    for set_number in range(set_count):
        for target in range(nodes):
            max_load = load.max() + 1e-300
            workspace.price[:] = 1 + load / max_load / (nodes if set_number == 0 else 1)
            grow_tree(
                target,
                links,
                workspace.price,
                workspace.distance,
                next_edge[set_number, target],
                workspace.heap_keys,
                workspace.heap_nodes,
            )
            for source in range(nodes):
                weight[set_number, source, target] = 1 / set_count
                if source != target and bytes_by_pair[source, target] > 0:
                    add_load(
                        source,
                        target,
                        next_edge[set_number, target],
                        links.head,
                        load,
                        bytes_by_pair[source, target] / set_count,
                    )


@compile_function
def price_demand(links: Any, bytes_by_pair: Any, workspace: Any, load: Any) -> float:
    """Return the cost of all pairs on their cheapest paths at the workspace's prices. Fill `load` with their bytes."""
    cost = 0.0
    load[:] = 0.0
    for target in range(bytes_by_pair.shape[0]):
        grow_tree(
            target,
            links,
            workspace.price,
            workspace.distance,
            workspace.tree,
            workspace.heap_keys,
            workspace.heap_nodes,
        )
        for source in range(bytes_by_pair.shape[0]):
            if bytes_by_pair[source, target] > 0:
                cost += bytes_by_pair[source, target] * workspace.distance[source]
                add_load(source, target, workspace.tree, links.head, load, bytes_by_pair[source, target])
    return cost


@compile_function
def join_equal_paths(next_edge: Any, weight: Any, head: Any) -> None:
    """If several sets have the same path for a pair, move their weights to the first of these sets."""
    set_count, nodes = weight.shape[0], weight.shape[1]
    for set_number in range(1, set_count):
        for target in range(nodes):
            for source in range(nodes):
                for earlier_set in range(set_number if weight[set_number, source, target] > 0 else 0):
                    node = source
                    while (
                        node != target
                        and next_edge[earlier_set, target, node] == next_edge[set_number, target, node]
                    ):
                        node = head[next_edge[set_number, target, node]]
                    if node == target:
                        weight[earlier_set, source, target] += weight[set_number, source, target]
                        weight[set_number, source, target] = 0.0
                        break
