"""Routes that keep the fullest link as empty as they can: sets of priced trees, and weights of every pair and set.

Links are priced by a power of their load, which grows from round to round. In each, every target is offered the
tree of cheapest ways into it, in place of the one that carries least, and every pair moves bytes from its dearest
way to its cheapest. That is coordinate descent on a smooth form of the largest load.

How far the answer is from the best of any routing is known from below: for any prices of links, no routing has a
fullest link below (what all pairs pay on their cheapest ways) / (sum of prices), the dual of the linear programme.
Prices are improved by multiplicative weights.

Import this inside functions: it brings numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Topology
from testbed.design.routing.balancing_loops import begin, improve, join_equal_ways, priced_demand, set_prices
from testbed.design.routing.priced_trees import Links, Room, lay_all
from testbed.design.routing.route_sets import MOST_SETS, RouteSets, matrix_of, ways_of
from testbed.design.topology.demand import Demand
from testbed.design.topology.hops import hop_table
from testbed.errors import TopologyError

Floats = NDArray[np.float64]

_FEW_NODES = 64
_SCHEDULE = ((4, 12), (5, 12), (6, 16), (7, 16), (8, 20))
"""Doublings of the power, and rounds at it, for few nodes."""
_SHORT = tuple((doublings, rounds // 6) for doublings, rounds in _SCHEDULE)
"""The same for many nodes."""
_QUICK = ((4, 2), (6, 3), (8, 3))
"""The same for searches."""
_CLOSE = 0.01
"""So near to the bound there is nothing to be gained by another try."""
_STEPS = 0.01
"""Weights are multiples of a thousandth, and not below this: a connection for less is not worth its packets."""
_BOUND_ROUNDS = 60


def route(
    topology: Topology, demand: Demand, *, most_paths: int = MOST_SETS, seed: int = 0, tries: int = 3
) -> RouteSets:
    """Return routes between all nodes and weights for the pairs of a demand, on which the fullest link carries little.

    AllReduces of the demand are not looked at: give the bytes of their rings as pairs. Pairs without demand take the
    first set. The best of several `tries` with `most_paths` sets, and with fewer, is taken: more paths are never worse.
    There are fewer tries where one comes within a hundredth of the bound, and a single one with more than 64 nodes. The
    same arguments give the same routes. Raises `TopologyError` for a topology that is not connected, and for a number
    of paths that hosts have no addresses for.
    """
    if not 1 <= most_paths <= MOST_SETS:
        raise TopologyError(f"{most_paths} paths a pair: hosts have 1 to {MOST_SETS} addresses for them")
    _check_connected(topology)
    size, links = matrix_of(demand), _links_of(topology)
    if not size.any():
        return _without_demand(topology, links)
    few = topology.nodes <= _FEW_NODES
    found = [
        _best_of(topology, links, size, sets, (seed, tries if few else 1))
        for sets in range(most_paths, 0 if few and tries > 1 else most_paths - 1, -1)
    ]
    best, bound = min(found, key=_fullest(size)), max(one.bound_bytes for one in found)
    onward = np.full((most_paths, *size.shape), -1, dtype=np.int64)
    weight = np.zeros((most_paths, *size.shape))
    onward[: best.sets], weight[: best.sets] = _pruned(best, links), best.weight
    return RouteSets(topology, onward, weight, bound)


def _fullest(size: Floats) -> Callable[[RouteSets], float]:
    return lambda found: float(found.link_bytes(size).max())


def _best_of(topology: Topology, links: Links, size: Floats, sets: int, draws: tuple[int, int]) -> RouteSets:
    """Return the best of so many tries with a number of sets, which are not pruned; `draws` are seed and tries."""
    (seed, tries), few, scale = draws, topology.nodes <= _FEW_NODES, size.max()
    bound, done = 0.0, []
    for number in range(tries):
        onward, weight, load, priced = _descend(
            links,
            size / scale,
            sets,
            np.random.default_rng((seed, number)),
            _SCHEDULE if few else _SHORT,
        )
        join_equal_ways(onward, weight, links.head)
        bound = max(bound, priced, _bound(links, size / scale, load, _BOUND_ROUNDS if few else 2))
        done.append(RouteSets(topology, onward, _rounded(weight, size), bound * scale))
        if done[-1].gap(size) < _CLOSE:
            break
    best = min(done, key=_fullest(size))
    return RouteSets(topology, best.onward, best.weight, bound * scale)


def quick_route(topology: Topology, demand: Demand, *, most_paths: int = MOST_SETS) -> RouteSets:
    """Return routes as `route` does, from a tenth of its rounds and without a bound: for searches, which ask often.

    Raises as `route`.
    """
    _check_connected(topology)
    size, links = matrix_of(demand), _links_of(topology)
    if not size.any():
        return _without_demand(topology, links)
    random = np.random.default_rng(0)
    onward, weight, *_ = _descend(links, size / size.max(), most_paths, random, _QUICK)
    join_equal_ways(onward, weight, links.head)
    found = RouteSets(topology, onward, _rounded(weight, size))
    return RouteSets(topology, _pruned(found, links), found.weight)


def _links_of(topology: Topology) -> Links:
    table = np.array(topology.edges, dtype=np.int64).reshape(-1, 2)
    tail, head = table[:, 0].copy(), table[:, 1].copy()
    into = np.argsort(head, kind="stable")
    return Links(tail, head, np.searchsorted(head[into], np.arange(topology.nodes + 1)), into)


def _room(nodes: int, links: Links) -> Room:
    entries = links.head.size + nodes + 1
    return Room(
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
    """Return trees, weights, loads, and the best bound from prices on the way."""
    nodes, bound = len(size), 0.0
    onward = np.full((sets, nodes, nodes), -1, dtype=np.int64)
    weight, load, room = np.zeros((sets, nodes, nodes)), np.zeros(links.head.size), _room(nodes, links)
    begin(links, size, onward, weight, load, room)
    turn = 0
    for doublings, rounds in schedule:
        for _ in range(rounds):
            load[:] = 0.0
            lay_all(onward, weight, size, links.head, load)  # afresh: small differences would add up
            improve(turn, random.permutation(nodes), links, size, onward, weight, load, room, doublings)
            turn += 1
        total = set_prices(load, doublings, room.price)
        bound = max(bound, priced_demand(links, size, room, np.zeros(load.size)) / total)
    return onward, weight, load, bound


def _bound(links: Links, size: Floats, load: Floats, rounds: int) -> float:
    """Return the best dual bound met on the way of multiplicative weights, which begin at the prices of a load."""
    room, answer = _room(len(size), links), np.zeros(load.size)
    best, starts = 0.0, []
    for doublings in (3, 4, 5, 6, 7):
        set_prices(load, doublings, room.price)
        starts.append(room.price / room.price.sum())
        best = max(best, priced_demand(links, size, room, answer) / room.price.sum())
    price = np.mean(starts, axis=0)
    for turn in range(rounds):
        room.price[:] = price
        best = max(best, priced_demand(links, size, room, answer) / price.sum())
        price = price * np.exp((answer / answer.max() - 1) / (1 + turn / 8))
        price = price / price.sum() + 1e-12
    return best


def _rounded(weight: Floats, size: Floats) -> Floats:
    """Return weights in thousandths, none of them tiny; pairs without demand take the first set."""
    sets = len(weight)
    kept = np.where(weight < _STEPS, 0.0, np.round(weight, 3))
    kept[0][size == 0] = 1.0
    kept[1:, size == 0] = 0.0
    top = np.argmax(kept, axis=0)
    for number in range(sets):
        others = kept.sum(axis=0) - kept[number]
        kept[number] = np.where(top == number, np.round(1 - others, 3), kept[number])
    return kept


def _pruned(found: RouteSets, links: Links) -> NDArray[np.int64]:
    """Return the trees without what no pair uses, there or back; the first set stays whole."""
    onward = np.full_like(found.onward, -1)
    for number, there in enumerate(ways_of(found.weight)):
        at, to = np.nonzero(there)
        while at.size:
            edge = found.onward[number, to, at]
            onward[number, to, at] = edge
            at = links.head[edge]
            at, to = at[at != to], to[at != to]
    return onward


def _without_demand(topology: Topology, links: Links) -> RouteSets:
    """Return one set of shortest routes that load the links alike if every pair sends the same."""
    nodes = topology.nodes
    size = np.ones((nodes, nodes)) - np.eye(nodes)
    schedule = _SCHEDULE if nodes <= _FEW_NODES else _SHORT
    onward, weight, *_ = _descend(links, size, 1, np.random.default_rng(0), schedule)
    return RouteSets(topology, onward, weight)


def _check_connected(topology: Topology) -> None:
    hops = hop_table(topology.nodes, topology.edges)
    if hops.size and hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {source} has no path to node {target}: the topology is not connected; add links between its parts"
        )
