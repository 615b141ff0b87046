import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from testbed.design.routing.next_hops import compute_next_hops
from testbed.design.topology.demand import AllReduceDemand, make_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.topology.hops import make_hop_table
from testbed.errors import TopologyError


def a_job(seed, nodes=14, degree=4, matching_degree=2, simplex=False, pairs=30):
    chance = random.Random(seed)
    triples = [(*chance.sample(range(nodes), 2), chance.randint(1, 100)) for _ in range(pairs)]
    demand = make_demand(nodes, [AllReduceDemand(nodes, 100)], triples)
    return demand, plan_topology(demand, degree, matching_degree=matching_degree, simplex=simplex).topology


@pytest.mark.parametrize(("simplex", "bought"), [(False, 0), (False, 2), (True, 0), (True, 1), (True, 3)])
def test_hops_and_next_hops_are_shortest(simplex, bought, true_hops):
    for seed in range(10):
        nodes = 12 + 5 * seed
        _, topology = a_job(seed, nodes, degree=4, matching_degree=bought, simplex=simplex)
        expected = true_hops(nodes, topology.edges)
        assert (make_hop_table(nodes, topology.edges) == expected).all()
        table = compute_next_hops(nodes, topology.edges)
        links = set(topology.edges)
        for source in range(nodes):
            for target in range(nodes):
                path = table.find_path(source, target)
                assert len(path) - 1 == expected[source, target]
                assert set(pairwise(path)) <= links


def test_hops_of_what_is_not_connected(true_hops):
    edges = [(0, 1), (1, 0), (2, 3), (1, 3)]
    assert (make_hop_table(5, edges) == true_hops(5, edges)).all()
    assert make_hop_table(2, []).tolist() == [[0, -1], [-1, 0]]
    with pytest.raises(TopologyError, match="node 0 has no path to node 2"):
        compute_next_hops(5, edges)


def test_more_links_than_a_word_has_bits_are_refused():
    with pytest.raises(TopologyError, match="at most 62"):
        compute_next_hops(2, [(0, 1)] * 63 + [(1, 0)] * 63)


def test_loads_of_next_hops_count_every_hop():
    _, topology = a_job(1, nodes=24)
    table = compute_next_hops(24, topology.edges)
    everybody = 1.0 - np.eye(24)
    loads = table.compute_loads(everybody)
    assert loads.sum() == table.hops.sum()
    counted = Counter(hop for s in range(24) for t in range(24) for hop in pairwise(table.find_path(s, t)))
    for (source, target), times in counted.items():
        links = table.neighbours[source] == target
        assert loads[source][links].sum() == times
