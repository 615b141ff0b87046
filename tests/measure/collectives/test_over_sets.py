"""Collectives on the sets of routes of a plan: the parts of rings and pairs, and loads of links."""

import numpy as np
import pytest
from libraries import library

from testbed.design.model import RingOrder
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import make_demand, make_matrix_demand
from testbed.measure.collectives.rows import compute_weights, sum_link_shares
from testbed.measure.collectives.spec import Configuration, make_all_to_all

balancing = library("testbed.design.routing.balancing")

RING = find_topology(4, 2)


def test_a_pair_takes_its_weights_and_both_ways_round_carry_half():
    sets = balancing.find_balanced_routes(RING, make_demand(4, (), [(0, 2, 1e6), (2, 0, 1e6)]))
    exchange = Configuration("across", (), (1 << 20,), ((0, 2), (2, 0)))
    weights = compute_weights(exchange, sets)
    assert [sorted(of_pair)[-2:] for of_pair in weights] == [[0.5, 0.5]] * 2
    shares = sum_link_shares(make_wiring(RING), sets, exchange, weights)
    assert len(shares) == 8
    assert list(shares.values()) == pytest.approx([0.5] * 8)


def test_shares_of_an_all_to_all_are_what_the_routes_say():
    random = np.random.default_rng(3)
    topology = find_topology(8, 4)
    sets = balancing.find_balanced_routes(
        topology, make_matrix_demand(random.random((8, 8)) * (1 - np.eye(8)))
    )
    exchange = make_all_to_all("all", 8, (1024,))
    shares = sum_link_shares(make_wiring(topology), sets, exchange, compute_weights(exchange, sets))
    each = (1 - np.eye(8)) / 7
    assert sorted(shares.values()) == pytest.approx(sorted(sets.compute_link_bytes(each)))


def test_a_ring_takes_of_a_set_what_all_its_hops_have_of_it():
    sets = balancing.find_balanced_routes(RING, make_demand(4, (), [(0, 2, 1e6), (2, 0, 1e6)]))
    over = Configuration("ring", (RingOrder(1, (0, 1, 2, 3)),), (1024,))
    assert compute_weights(over, sets) == ((1.0, *[0.0] * (sets.set_count - 1)),)
    alone = balancing.find_balanced_routes(RING, make_demand(4), max_paths=1)
    shares = sum_link_shares(make_wiring(RING), alone, over, compute_weights(over, alone))
    assert list(shares.values()) == pytest.approx([2 * 3 / 4] * 4)
    assert shares == over.collective.compute_link_shares(
        make_wiring(RING), find_routes(make_wiring(RING)), over
    )
