import random
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest

from testbed.design.routing.balance import balance, shortest_paths_of
from testbed.design.routing.next_hops import next_hops
from testbed.design.topology.demand import AllReduceDemand, demand_of
from testbed.design.topology.finder import find
from testbed.design.topology.hops import hop_table
from testbed.errors import TopologyError


def a_job(seed, nodes=14, degree=4, matching_degree=2, simplex=False, pairs=30):
    chance = random.Random(seed)
    triples = [(*chance.sample(range(nodes), 2), chance.randint(1, 100)) for _ in range(pairs)]
    demand = demand_of(nodes, [AllReduceDemand(nodes, 100)], triples)
    return demand, find(demand, degree, matching_degree=matching_degree, simplex=simplex).topology


@pytest.mark.parametrize(("simplex", "bought"), [(False, 0), (False, 2), (True, 0), (True, 1), (True, 3)])
def test_hops_and_next_hops_are_shortest(simplex, bought, true_hops):
    for seed in range(10):
        nodes = 12 + 5 * seed
        _, topology = a_job(seed, nodes, degree=4, matching_degree=bought, simplex=simplex)
        expected = true_hops(nodes, topology.edges)
        assert (hop_table(nodes, topology.edges) == expected).all()
        table = next_hops(nodes, topology.edges)
        links = set(topology.edges)
        for source in range(nodes):
            for target in range(nodes):
                path = table.path(source, target)
                assert len(path) - 1 == expected[source, target]
                assert set(pairwise(path)) <= links


def test_hops_of_what_is_not_connected(true_hops):
    edges = [(0, 1), (1, 0), (2, 3), (1, 3)]
    assert (hop_table(5, edges) == true_hops(5, edges)).all()
    assert hop_table(2, []).tolist() == [[0, -1], [-1, 0]]
    with pytest.raises(TopologyError, match="node 0 has no path to node 2"):
        next_hops(5, edges)


def test_more_links_than_a_word_has_bits_are_refused():
    with pytest.raises(TopologyError, match="at most 62"):
        next_hops(2, [(0, 1)] * 63 + [(1, 0)] * 63)


def test_loads_of_next_hops_count_every_hop():
    _, topology = a_job(1, nodes=24)
    table = next_hops(24, topology.edges)
    everybody = 1.0 - np.eye(24)
    loads = table.loads(everybody)
    assert loads.sum() == table.hops.sum()
    counted = Counter(hop for s in range(24) for t in range(24) for hop in pairwise(table.path(s, t)))
    for (source, target), times in counted.items():
        links = table.slots[source] == target
        assert loads[source][links].sum() == times


def simple_paths(edges, source, target, longest):
    onward = defaultdict(list)
    for one, other in edges:
        onward[one].append(other)
    found, waiting = [], [(source,)]
    while waiting:
        path = waiting.pop()
        if path[-1] == target:
            found.append(path)
        elif len(path) <= longest:
            waiting += [(*path, node) for node in onward[path[-1]] if node not in path]
    return found


def test_the_shortest_simple_paths_are_found():
    seen = Counter()
    for seed in range(8):
        demand, topology = a_job(
            seed, nodes=12 + seed % 3 * 2, degree=4 if seed % 2 else 3, matching_degree=seed % 2 * 2
        )
        table = next_hops(demand.nodes, topology.edges)
        paths = shortest_paths_of(demand, table, count=5, longer=2)
        for pair, (source, target) in enumerate(
            zip(demand.source.tolist(), demand.target.tolist(), strict=True)
        ):
            least = int(table.hops[source, target])
            lengths = sorted(
                len(path) - 1 for path in simple_paths(topology.edges, source, target, least + 2)
            )
            mine = [paths.path(pair, number) for number in range(int(paths.found[pair]))]
            assert [len(path) for path in mine] == lengths[:5]
            assert len(set(mine)) == len(mine)
            for path in mine:
                nodes = [
                    source,
                    *(int(table.slots[link // table.width, link % table.width]) for link in path),
                ]
                assert [link // table.width for link in path] == nodes[:-1]
                assert nodes[-1] == target
                assert len(set(nodes)) == len(nodes)
            seen["longer ones"] += len(mine[-1]) > least
            seen["several shortest"] += len(mine) > 1 and len(mine[1]) == least
            seen["fewer than asked"] += len(mine) < 5
    assert min(seen["longer ones"], seen["several shortest"]) >= 20, seen


@pytest.mark.parametrize(("count", "longer"), [(0, 1), (2, -1)])
def test_no_paths_asked_for(count, longer):
    demand, topology = a_job(1)
    with pytest.raises(TopologyError, match="ask for 1 or more"):
        shortest_paths_of(demand, next_hops(demand.nodes, topology.edges), count=count, longer=longer)


def least_maximum(demand, paths, links, carried):
    """Return the least load of the fullest link over all splits, by a linear programme."""
    optimize = pytest.importorskip("scipy.optimize", reason="scipy is the oracle here")
    ways = [(pair, way) for pair in range(len(demand.source)) for way in range(paths.found[pair])]
    carries = np.zeros((links, len(ways) + 1))
    carries[:, -1] = -1
    adds_up = np.zeros((len(demand.source), len(ways) + 1))
    for column, (pair, way) in enumerate(ways):
        carries[list(paths.path(pair, way)), column] = 1
        adds_up[pair, column] = 1
    best = optimize.linprog(
        [0] * len(ways) + [1], A_ub=carries, b_ub=-carried.reshape(-1), A_eq=adds_up, b_eq=demand.size_bytes
    )
    return best.fun


def test_the_fullest_link_carries_little_more_than_in_the_best_split():
    ratios = []
    for seed in range(8):
        demand, topology = a_job(seed, nodes=16, pairs=60)
        table = next_hops(16, topology.edges)
        paths = shortest_paths_of(demand, table)
        carried = np.full(table.slots.shape, float(seed % 2 * 20))
        found = balance(demand, table, paths, carried)
        assert found.share.sum(axis=1) == pytest.approx(1)
        recounted = carried.copy().reshape(-1)
        for pair, way in zip(*np.nonzero(found.share), strict=True):
            recounted[list(paths.path(pair, way))] += found.share[pair, way] * demand.size_bytes[pair]
        assert found.loads.reshape(-1) == pytest.approx(recounted)
        ratios.append(found.loads.max() / least_maximum(demand, paths, table.slots.size, carried))
    assert min(ratios) >= 1 - 1e-9
    assert max(ratios) <= 1.2, ratios
