"""Balanced routes that minimise the load of the fullest link: sets of cheapest-path trees, and their weights.

The price of a link is a power of its load; the exponent grows from round to round. In each round, the tree of cheapest
paths to every target replaces another tree to it unless the total cost grows, and every pair moves bytes from its
dearest path to its cheapest. This is coordinate descent on a smooth form of the largest load.

A lower bound shows how far the result may be from the best routing: for any prices of links, the
fullest link of every routing carries at least (cost of all pairs on their cheapest paths) / (sum of prices), the dual
of the linear programme. Multiplicative weights improve the prices.

`onward[c, t, v]` is the link on which node v sends towards t in set c, `weight[c, s, t]` the fraction of the bytes
from s to t in set c. A link's price is a high power of the ratio of its load to the largest load, so that the
fullest links decide; the exponent is 2^`doublings` - 1.

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
from testbed.design.routing.route_sets import MAX_SETS, RouteSets, find_used_routes, matrix_of
from testbed.design.topology.demand import Demand
from testbed.design.topology.hops import hop_table
from testbed.errors import TopologyError

Floats = NDArray[np.float64]

_FEW_NODES = 64
_SCHEDULE = ((4, 12), (5, 12), (6, 16), (7, 16), (8, 20))
"""Pairs of `doublings` and a number of rounds, for at most `_FEW_NODES` nodes."""
_SHORT_SCHEDULE = tuple((doublings, rounds // 6) for doublings, rounds in _SCHEDULE)
"""The same pairs for more nodes."""
_QUICK_SCHEDULE = ((4, 2), (6, 3), (8, 3))
"""The same pairs for searches."""
_CLOSE_GAP = 0.01
"""Gap to the bound below which no further try is made."""
_SMALLEST_WEIGHT = 0.01
"""Smallest weight; weights are multiples of a thousandth. Less traffic does not justify a connection."""
_BOUND_ROUNDS = 60

_HALVINGS = 8
_HOP_PRICE = 0.01
"""Price of each hop in addition to its load, relative to the mean price: of equally full paths the shorter is taken."""


def route(
    topology: Topology, demand: Demand, *, max_paths: int = MAX_SETS, seed: int = 0, tries: int = 3
) -> RouteSets:
    """Return routes between all nodes, with weights for the pairs of a demand that keep the fullest link low.

    AllReduces of the demand are ignored: give the bytes of their rings as pairs. Pairs without demand take the first
    set. With at most 64 nodes and several `tries`, fewer sets are tried too, so that more paths are never worse; tries
    end early once one comes within 1 % of the bound. With more nodes there is a single try. The same arguments give
    the same routes. Raises `TopologyError` for a topology that is not connected, and for a number of
    paths outside 1 to `MAX_SETS`.
    """
    if not 1 <= max_paths <= MAX_SETS:
        raise TopologyError(f"{max_paths} paths per pair: hosts have 1 to {MAX_SETS} addresses for them")
    _check_connected(topology)
    size, links = matrix_of(demand), _links_of(topology)
    if not size.any():
        return _route_without_demand(topology, links)
    few = topology.nodes <= _FEW_NODES
    routes = [
        _route_best(topology, links, size, sets, seed, tries if few else 1)
        for sets in range(max_paths, 0 if few and tries > 1 else max_paths - 1, -1)
    ]
    best, bound = min(routes, key=_fullest_link_key(size)), max(one.bound_bytes for one in routes)
    onward = np.full((max_paths, *size.shape), -1, dtype=np.int64)
    weight = np.zeros((max_paths, *size.shape))
    onward[: best.sets], weight[: best.sets] = _prune(best, links), best.weight
    return RouteSets(topology, onward, weight, bound)


def _fullest_link_key(size: Floats) -> Callable[[RouteSets], float]:
    return lambda found: float(found.link_bytes(size).max())


def _route_best(
    topology: Topology, links: Links, size: Floats, sets: int, seed: int, tries: int
) -> RouteSets:
    """Return the best of several tries with `sets` sets, without pruning."""
    few, scale = topology.nodes <= _FEW_NODES, size.max()
    bound, candidates = 0.0, []
    for number in range(tries):
        onward, weight, load, priced = _descend(
            links,
            size / scale,
            sets,
            np.random.default_rng((seed, number)),
            _SCHEDULE if few else _SHORT_SCHEDULE,
        )
        join_equal_paths(onward, weight, links.head)
        bound = max(bound, priced, _find_bound(links, size / scale, load, _BOUND_ROUNDS if few else 2))
        candidates.append(RouteSets(topology, onward, _round(weight, size), bound * scale))
        if candidates[-1].gap(size) < _CLOSE_GAP:
            break
    best = min(candidates, key=_fullest_link_key(size))
    return RouteSets(topology, best.onward, best.weight, bound * scale)


def route_quickly(topology: Topology, demand: Demand, *, max_paths: int = MAX_SETS) -> RouteSets:
    """Return routes as `route` does, with fewer rounds, one try and no bound: for searches.

    Raises `TopologyError` for a topology that is not connected.
    """
    _check_connected(topology)
    size, links = matrix_of(demand), _links_of(topology)
    if not size.any():
        return _route_without_demand(topology, links)
    random = np.random.default_rng(0)
    onward, weight, *_ = _descend(links, size / size.max(), max_paths, random, _QUICK_SCHEDULE)
    join_equal_paths(onward, weight, links.head)
    routes = RouteSets(topology, onward, _round(weight, size))
    return RouteSets(topology, _prune(routes, links), routes.weight)


def _links_of(topology: Topology) -> Links:
    table = np.array(topology.edges, dtype=np.int64).reshape(-1, 2)
    tail, head = table[:, 0].copy(), table[:, 1].copy()
    into = np.argsort(head, kind="stable")
    return Links(tail, head, np.searchsorted(head[into], np.arange(topology.nodes + 1)), into)


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
    """Return trees, weights, loads, and the best bound that the prices of the rounds gave."""
    nodes, bound = len(size), 0.0
    onward = np.full((sets, nodes, nodes), -1, dtype=np.int64)
    weight, load, workspace = (
        np.zeros((sets, nodes, nodes)),
        np.zeros(links.head.size),
        _make_workspace(nodes, links),
    )
    route_equally(links, size, onward, weight, load, workspace)
    turn = 0
    for doublings, rounds in schedule:
        for _ in range(rounds):
            load[:] = 0.0
            add_demand(onward, weight, size, links.head, load)  # recomputed: rounding errors would add up
            replace_trees(
                turn, random.permutation(nodes), links, size, onward, weight, load, workspace, doublings
            )
            turn += 1
        total = set_prices(load, doublings, workspace.price)
        bound = max(bound, price_demand(links, size, workspace, np.zeros(load.size)) / total)
    return onward, weight, load, bound


def _find_bound(links: Links, size: Floats, load: Floats, rounds: int) -> float:
    """Return the best dual bound of `rounds` rounds of multiplicative weights, starting from the prices of a load."""
    workspace, answer = _make_workspace(len(size), links), np.zeros(load.size)
    best, starts = 0.0, []
    for doublings in (3, 4, 5, 6, 7):
        set_prices(load, doublings, workspace.price)
        starts.append(workspace.price / workspace.price.sum())
        best = max(best, price_demand(links, size, workspace, answer) / workspace.price.sum())
    price = np.mean(starts, axis=0)
    for turn in range(rounds):
        workspace.price[:] = price
        best = max(best, price_demand(links, size, workspace, answer) / price.sum())
        price = price * np.exp((answer / answer.max() - 1) / (1 + turn / 8))
        price = price / price.sum() + 1e-12
    return best


def _round(weight: Floats, size: Floats) -> Floats:
    """Return weights of at least `_SMALLEST_WEIGHT`, in thousandths; pairs without demand use the first set."""
    sets = len(weight)
    rounded = np.where(weight < _SMALLEST_WEIGHT, 0.0, np.round(weight, 3))
    rounded[0][size == 0] = 1.0
    rounded[1:, size == 0] = 0.0
    top = np.argmax(rounded, axis=0)
    for number in range(sets):
        others = rounded.sum(axis=0) - rounded[number]
        rounded[number] = np.where(top == number, np.round(1 - others, 3), rounded[number])
    return rounded


def _prune(routes: RouteSets, links: Links) -> NDArray[np.int64]:
    """Return the trees with only the entries that some pair uses, in either direction; the first set stays complete."""
    onward = np.full_like(routes.onward, -1)
    for number, is_used in enumerate(find_used_routes(routes.weight)):
        at, to = np.nonzero(is_used)
        while at.size:
            edge = routes.onward[number, to, at]
            onward[number, to, at] = edge
            at = links.head[edge]
            at, to = at[at != to], to[at != to]
    return onward


def _route_without_demand(topology: Topology, links: Links) -> RouteSets:
    """Return one set of shortest routes that loads the links evenly if every pair sends the same."""
    nodes = topology.nodes
    size = np.ones((nodes, nodes)) - np.eye(nodes)
    schedule = _SCHEDULE if nodes <= _FEW_NODES else _SHORT_SCHEDULE
    onward, weight, *_ = _descend(links, size, 1, np.random.default_rng(0), schedule)
    return RouteSets(topology, onward, weight)


def _check_connected(topology: Topology) -> None:
    hops = hop_table(topology.nodes, topology.edges)
    if hops.size and hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {source} has no path to node {target}: the topology is not connected; add links between its parts"
        )


@compile_function
def set_prices(load: Any, doublings: int, price: Any) -> float:
    """Fill `price` with the price of each link, and return the sum."""
    top, total = load.max(), 0.0
    for link in range(load.size):
        price[link] = _price(load[link] / top, doublings)
        total += price[link]
    return total


@compile_function
def _price(fullness: float, doublings: int) -> float:
    power = fullness
    for _ in range(doublings):
        power *= power
    return power / max(fullness, 1e-9)


@compile_function
def _path_price(
    node: int, target: int, onward: Any, head: Any, load: Any, top: float, doublings: int
) -> float:
    total = 0.0
    while node != target:
        total += _price(load[onward[node]] / top, doublings)
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
    """Return whether the new path is the dearer one after `moved` bytes have moved to it."""
    add_load(source, target, old, head, load, -moved)
    add_load(source, target, new, head, load, moved)
    before = _path_price(source, target, old, head, load, top, doublings)
    after = _path_price(source, target, new, head, load, top, doublings)
    add_load(source, target, new, head, load, -moved)
    add_load(source, target, old, head, load, moved)
    return after > before


@compile_function
def _even_out_pair(
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
    """Move bytes of one pair from its dearest used set to its cheapest until both cost the same."""
    best, worst, least, most = 0, -1, np.inf, -1.0
    for number in range(len(weight)):
        price = _path_price(source, target, onward[number, target], head, load, top, doublings)
        if price < least:
            least, best = price, number
        if weight[number, source, target] > 0 and price > most:
            most, worst = price, number
    if worst in (best, -1) or most <= least * (1 + 1e-6):
        return
    old, new = onward[worst, target], onward[best, target]
    low, high = 0.0, weight[worst, source, target]
    if _overshoots(source, target, old, new, head, load, top, doublings, high * size):
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if _overshoots(source, target, old, new, head, load, top, doublings, middle * size):
                high = middle
            else:
                low = middle
        # The lower end: moving more would make the new path the dearer one.
        high = low
    add_load(source, target, old, head, load, -high * size)
    add_load(source, target, new, head, load, high * size)
    weight[worst, source, target] -= high
    weight[best, source, target] += high


@compile_function
def even_out(
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
    """Even out all pairs that send to a target."""
    for _ in range(sweeps):
        for source in range(size.shape[0]):
            if size[source, target] > 0:
                _even_out_pair(
                    source, target, size[source, target], onward, weight, head, load, top, doublings
                )


@compile_function
def _total_cost(load: Any, top: float, doublings: int) -> float:
    total = 0.0
    for link in range(load.size):
        total += _price(load[link] / top, doublings) * load[link]
    return total


@compile_function
def _choose_replaced_set(turn: int, target: int, size: Any, weight: Any) -> int:
    """Return the set whose tree is replaced, never the first.

    It is the least loaded set, and in every third round the next in turn.
    """
    sets = weight.shape[0]
    if turn % 3 == 2:
        return int(1 + (turn // 3 + target) % (sets - 1))
    place, least = 1, np.inf
    for number in range(1, sets):
        carried = 0.0
        for source in range(size.shape[0]):
            carried += weight[number, source, target] * size[source, target]
        if carried < least:
            place, least = number, carried
    return place


@compile_function
def _replace_tree(
    target: int,
    place: int,
    size: Any,
    onward: Any,
    weight: Any,
    head: Any,
    load: Any,
    tree: Any,
    top: float,
    doublings: int,
) -> None:
    """Replace the tree of a set, move its load and even out; undo all of it if the total cost grows."""
    before = _total_cost(load, top, doublings)
    old_load, old_weight, old_tree = load.copy(), weight[:, :, target].copy(), onward[place, target].copy()
    for source in range(size.shape[0]):
        carried = weight[place, source, target] * size[source, target]
        if carried > 0:
            add_load(source, target, onward[place, target], head, load, -carried)
            add_load(source, target, tree, head, load, carried)
    onward[place, target] = tree
    even_out(target, size, onward, weight, head, load, top, doublings, 3)
    if _total_cost(load, top, doublings) > before:
        load[:] = old_load
        weight[:, :, target] = old_weight
        onward[place, target] = old_tree


@compile_function
def _is_known(tree: Any, trees: Any, target: int) -> bool:
    is_known = False
    for number in range(len(trees)):
        is_known = is_known or bool((trees[number, target] == tree).all())
    return is_known


@compile_function
def replace_trees(
    turn: int,
    order: Any,
    links: Any,
    size: Any,
    onward: Any,
    weight: Any,
    load: Any,
    workspace: Any,
    doublings: int,
) -> None:
    """Try the currently cheapest tree for every target in turn; a tree of shortest paths goes to the first set."""
    for target in order:
        top = load.max()
        total = set_prices(load, doublings, workspace.price)
        shortest = len(weight) == 1 or (turn + target) % 4 == 0
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
        if not _is_known(workspace.tree, onward, target):
            place = 0 if shortest else _choose_replaced_set(turn, target, size, weight)
            _replace_tree(
                target, place, size, onward, weight, links.head, load, workspace.tree, top, doublings
            )
        even_out(target, size, onward, weight, links.head, load, top, doublings, 1)


@compile_function
def route_equally(links: Any, size: Any, onward: Any, weight: Any, load: Any, workspace: Any) -> None:
    """Route equal parts of the demand, set by set: the first on shortest paths, the others on paths that avoid load."""
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
    """Return the cost of all pairs on their cheapest paths at the workspace's prices; fill `load` with the bytes."""
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
    """Move the weights of a pair's sets with the same path to the first of these sets."""
    sets, nodes = weight.shape[0], weight.shape[1]
    for number in range(1, sets):
        for target in range(nodes):
            for source in range(nodes):
                for earlier in range(number if weight[number, source, target] > 0 else 0):
                    node = source
                    while node != target and onward[earlier, target, node] == onward[number, target, node]:
                        node = head[onward[number, target, node]]
                    if node == target:
                        weight[earlier, source, target] += weight[number, source, target]
                        weight[number, source, target] = 0.0
                        break
