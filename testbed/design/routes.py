"""Routes over any wiring: shortest, destination-based, balanced over links, the same each time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from testbed.design.model import Link, RingOrder, Routes, Wiring
from testbed.errors import TopologyError

#: Times every destination's tree is taken out and laid again on the load of all others. After four
#: rounds the fullest link of a circulant of up to 40 nodes carries at most a fifth more than the mean.
_ROUNDS = 4

Path = tuple[Link, ...]


def find_routes(wiring: Wiring) -> Routes:
    """Shortest routes between all nodes, forwarded by destination.

    The first links towards each destination form a tree into it, so there are no loops, and a direct
    link is always taken. Among equally short ways (and parallel links) the one is taken whose links
    carry fewest pairs already. Raises `TopologyError` naming a pair that has no path.
    """
    outgoing = _links_by_source(wiring)
    hops = [_hops_to(wiring, target) for target in range(wiring.nodes)]
    load: dict[Link, int] = dict.fromkeys(wiring.links, 0)
    trees: dict[int, Mapping[int, Path]] = {}
    for _ in range(_ROUNDS):
        for target in range(wiring.nodes):
            _count(trees.get(target, {}), load, -1)
            trees[target] = _tree(target, hops[target], outgoing, load)
            _count(trees[target], load, +1)
    return Routes({(node, target): path[0] for target, tree in trees.items() for node, path in tree.items()})


def ring_links(
    wiring: Wiring, order: RingOrder, routes: Routes | None = None, *, copy: int = 0
) -> tuple[tuple[Link, ...], ...]:
    """The links data takes from each position of a ring to the next, the last to the first included.

    A direct link is taken where there is one; of parallel links the `copy`-th (rings that repeat
    a stride take different copies). Otherwise data takes the routes (`find_routes` when not given).
    Raises `TopologyError` when two neighbours of the ring have no path.
    """
    direct = _links_by_pair(wiring)
    paths: list[Path] = []
    for source, target in zip(order.order, order.order[1:] + order.order[:1], strict=True):
        parallel = direct.get((source, target))
        if parallel:
            paths.append((parallel[copy % len(parallel)],))
        else:
            routes = routes or find_routes(wiring)
            paths.append(routes.path(source, target))
    return tuple(paths)


def _links_by_source(wiring: Wiring) -> Mapping[int, Sequence[Link]]:
    outgoing: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        outgoing[link.source.node].append(link)
    return outgoing


def _links_by_pair(wiring: Wiring) -> Mapping[tuple[int, int], Sequence[Link]]:
    pairs: dict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        pairs[link.source.node, link.target.node].append(link)
    return pairs


def _hops_to(wiring: Wiring, target: int) -> dict[int, int]:
    """Hops from every node to `target`, found backwards from it."""
    senders: dict[int, set[int]] = defaultdict(set)
    for link in wiring.links:
        senders[link.target.node].add(link.source.node)
    hops = {target: 0}
    waiting = deque([target])
    while waiting:
        node = waiting.popleft()
        for sender in senders[node]:
            if sender not in hops:
                hops[sender] = hops[node] + 1
                waiting.append(sender)
    unreached = sorted(set(range(wiring.nodes)) - set(hops))
    if unreached:
        raise TopologyError(
            f"node {unreached[0]} has no path to node {target}: the wiring is not connected; "
            f"add links between its parts"
        )
    return hops


def _tree(
    target: int, hops: Mapping[int, int], outgoing: Mapping[int, Sequence[Link]], load: Mapping[Link, int]
) -> dict[int, Path]:
    """A path from every node to `target`, each the continuation of its neighbour's, nearest nodes first.

    The squares of the loads are summed, so that one full link weighs more than two half full ones.
    """
    carried = dict(load)
    paths: dict[int, Path] = {target: ()}
    for node in sorted(hops, key=lambda node: (hops[node], (node - target) % len(hops))):
        if node == target:
            continue
        ways = [
            (link, *paths[link.target.node])
            for link in outgoing[node]
            if hops[link.target.node] == hops[node] - 1
        ]
        paths[node] = min(ways, key=lambda way: (sum(carried[link] ** 2 for link in way), way))
        for link in paths[node]:
            carried[link] += 1
    del paths[target]
    return paths


def _count(tree: Mapping[int, Path], load: dict[Link, int], sign: int) -> None:
    """Add (or take away) the pairs that a tree puts on each of its links."""
    for path in tree.values():
        for link in path:
            load[link] += sign
