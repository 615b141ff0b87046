"""Sets of routes: trees, weights, and how full the fullest link is beside a linear programme over free routes."""

import numpy as np
import pytest
from free_routes import least_maximum
from libraries import library

from testbed.design.model import Topology
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import make_demand, make_matrix_demand
from testbed.design.topology.finder import plan_topology
from testbed.errors import TopologyError

balancing = library("testbed.design.routing.balancing")


def sent(kind, nodes, seed):
    """Return bytes between all pairs: as many each, drawn, or drawn for a fifth of them."""
    random = np.random.default_rng(seed)
    size = np.ones((nodes, nodes)) if kind == "uniform" else random.random((nodes, nodes))
    if kind == "sparse":
        size *= random.random((nodes, nodes)) < 0.2
    np.fill_diagonal(size, 0.0)
    return make_matrix_demand(1e6 * size)


SMALL, LARGE = ((8, 3), (12, 4)), ((20, 4), (32, 6))


def topology_for(demand, degree, *, matched):
    return plan_topology(demand, degree).topology if matched else find_topology(demand.nodes, degree)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uniform", "random", "sparse"])
@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize(
    "sizes", [SMALL, pytest.param(LARGE, marks=pytest.mark.long)], ids=["small", "large"]
)
def test_the_fullest_link_carries_at_most_a_twentieth_more_than_over_free_routes(kind, matched, sizes):
    ratios, bounds = [], []
    for nodes, degree in sizes:
        demand = sent(kind, nodes, seed=nodes)
        topology = topology_for(demand, degree, matched=matched)
        best, found = least_maximum(topology, demand), balancing.find_balanced_routes(topology, demand)
        ratios.append(found.compute_link_bytes(demand).max() / best)
        bounds.append(found.bound_bytes / best)
    assert min(ratios) >= 1 - 1e-6
    assert max(ratios) <= 1.05, ratios
    assert max(bounds) <= 1 + 1e-6
    assert min(bounds) >= 0.95, bounds


@pytest.mark.long
@pytest.mark.parametrize("sets", [1, 2, 4])
def test_a_set_forwards_by_destination_and_loads_are_those_of_its_paths(sets):
    used = 0
    for seed in range(6):
        demand = sent("sparse" if seed % 2 else "random", 10 + seed, seed)
        topology = topology_for(demand, 4, matched=seed % 3 == 0)
        found = balancing.find_balanced_routes(topology, demand, max_paths=sets, seed=seed)
        assert found.set_count == sets
        size = np.zeros((demand.nodes, demand.nodes))
        size[demand.source, demand.target] = demand.size_bytes
        carried, next_hop, part = np.zeros(len(topology.edges)), {}, np.zeros_like(size)
        for one in found.list_routes():
            nodes = found.list_nodes(one.path)
            assert (nodes[0], nodes[-1]) == (one.source, one.target)
            assert len(set(nodes)) == len(nodes)
            for node, edge in zip(nodes, one.path, strict=False):
                assert topology.edges[edge][0] == node
                assert next_hop.setdefault((one.set_number, one.target, node), edge) == edge
                carried[edge] += one.weight * size[one.source, one.target]
            part[one.source, one.target] += one.weight
            used += one.set_number > 0
        assert part == pytest.approx(1 - np.eye(demand.nodes))
        assert found.compute_link_bytes(demand) == pytest.approx(carried)
    assert used >= (0, 0, 100, 0, 300)[sets]


@pytest.mark.long
def test_more_paths_are_never_worse():
    better = 0
    for seed in range(8):
        demand = sent(("uniform", "random", "sparse")[seed % 3], 8 + seed, seed)
        topology = topology_for(demand, 4, matched=seed % 2 == 0)
        most = [
            balancing.find_balanced_routes(topology, demand, max_paths=paths).compute_link_bytes(demand).max()
            for paths in (1, 2, 3, 4)
        ]
        assert most == sorted(most, reverse=True)
        better += most[3] < most[0]
    assert better >= 6


def test_the_first_set_holds_a_shortest_way_for_every_pair(true_hops):
    demand = sent("sparse", 16, seed=3)
    topology = topology_for(demand, 4, matched=True)
    found, hops = balancing.find_balanced_routes(topology, demand), true_hops(16, topology.edges)
    for source in range(16):
        for target in range(16):
            assert len(found.find_path(source, target)) == hops[source, target]


def test_parallel_links_carry_alike():
    topology = Topology(2, 4, False, (), ((0, 1),) * 4 + ((1, 0),) * 4)
    demand = make_demand(2, (), [(0, 1, 4e6), (1, 0, 2e6)])
    found = balancing.find_balanced_routes(topology, demand)
    assert found.compute_link_bytes(demand) == pytest.approx([1e6] * 4 + [0.5e6] * 4, rel=0.01)


@pytest.mark.slow
def test_equal_arguments_give_equal_routes():
    demand = sent("random", 12, seed=1)
    topology = topology_for(demand, 4, matched=False)
    one, other = (
        balancing.find_balanced_routes(topology, demand, seed=5),
        balancing.find_balanced_routes(topology, demand, seed=5),
    )
    assert (one.next_edge == other.next_edge).all()
    assert (one.weight == other.weight).all()


def test_without_demand_there_is_one_set_of_shortest_routes(true_hops):
    topology = find_topology(12, 4)
    found = balancing.find_balanced_routes(topology, make_demand(12))
    assert found.set_count == 1
    assert np.isnan(found.compute_gap(make_demand(12)))
    everybody = 1.0 - np.eye(12)
    assert found.compute_link_bytes(everybody).sum() == true_hops(12, topology.edges).sum()


@pytest.mark.parametrize("paths", [0, 5])
def test_paths_that_hosts_have_no_addresses_for_are_refused(paths):
    with pytest.raises(TopologyError, match="paths per pair: give 1 to 4"):
        balancing.find_balanced_routes(find_topology(6, 2), make_demand(6), max_paths=paths)
