"""Messages that share a path: every fabric gives them the same links as if each were routed alone."""

import numpy as np
import pytest

from sim.models.network.engine import program
from sim.models.network.engine.program import make_neighbours, make_routes
from sim.models.network.execution.circuits import CircuitSwitch
from sim.models.network.fabrics import (
    join_domains,
    make_circulant,
    make_direct_fabric,
    make_expander,
    make_fat_tree,
    make_ideal_switch,
    make_rail_only,
    make_rail_optimized,
    make_routed_fabric,
    share_hosts,
)

RING = [(node, (node + 1) % 16) for node in range(16)]


def route_both_ways():
    """Return a ring of links both ways; each way is a set of routes, and pairs of one hop use the short way only."""
    nodes, links = np.arange(16), np.arange(32).reshape(2, 16)
    onward = np.repeat(links[:, None, :], 16, axis=1)
    onward[:, nodes, nodes] = -1
    weights = np.full((2, 16, 16), 0.5)
    weights[:, nodes, (nodes + 1) % 16] = [[1.0], [0.0]]
    back = [(target, source) for source, target in RING]
    return make_routed_fabric(16, RING + [back[node - 1] for node in range(16)], 100, onward, weights)


FABRICS = {
    "ideal": lambda: make_ideal_switch(16, 100),
    "fattree": lambda: make_fat_tree(16, 100),
    "oversub": lambda: make_fat_tree(16, 100, oversubscription=2),
    "circulant": lambda: make_circulant(16, (1, 15, 6, 10), 100),
    "expander": lambda: make_expander(16, 4, 100),
    "rail-only": lambda: make_rail_only(16, 4, 100, 900),
    "rail-optimized": lambda: make_rail_optimized(16, 4, 100, 900),
    "circuits": lambda: CircuitSwitch(16, 4, 100).make_fabric(),
    "domains": lambda: join_domains(make_fat_tree(16, 100), 4, 900),
    "direct": lambda: make_direct_fabric(
        16, [(node, node ^ bit) for node in range(16) for bit in (1, 2, 4, 8)], 100
    ),
    "routed": route_both_ways,
    "shared hosts": lambda: share_hosts(make_circulant(8, (1, 7, 3, 5), 100), 2, 900),
}


@pytest.mark.parametrize("name", FABRICS)
def test_choices_repeat_after_the_number_that_the_router_states(name):
    fabric = FABRICS[name]()
    sources, targets, choices = (
        column.ravel() for column in np.meshgrid(np.arange(16), np.arange(16), np.arange(11), indexing="ij")
    )
    alone, reduced = (
        fabric.find_routes(sources, targets, c) for c in (choices, choices % fabric.choice_count)
    )

    assert [column.tolist() for column in alone] == [column.tolist() for column in reduced]


def test_a_fabric_whose_choices_do_not_repeat_shares_no_paths():
    assert make_fat_tree(16, 100, balance="hash").choice_count is None
    fixed = make_direct_fabric(16, RING, 100, paths={(0, 2): [(0, 1, 2)]})
    assert fixed.choice_count is None


def test_planned_routes_repeat_after_the_number_of_their_sets():
    fabric = route_both_ways()
    sources, targets, choices = np.array([0, 0, 0, 0]), np.array([2, 2, 2, 1]), np.array([0, 1, 3, 1])
    first, links = fabric.find_routes(sources, targets, choices)
    paths = np.split(links, first[1:-1])
    assert fabric.choice_count == 2
    assert [path.size for path in paths] == [2, 14, 14, 1]
    assert paths[1].tolist() == paths[2].tolist()


@pytest.mark.parametrize(("limit", "count"), [(0, "1 paths"), (1, "2 links"), (2, "3 entries")])
def test_routes_that_are_too_many_to_number_are_refused(monkeypatch, limit, count):
    routes = make_routes(np.array([0, 3]), np.array([0, 1, 1]))
    monkeypatch.setattr(program, "MAX_COUNT", limit)
    with pytest.raises(ValueError, match=f"^{count} in the routes, .* simulate fewer messages at once"):
        make_neighbours(routes, np.zeros(2, dtype=bool))


def test_links_that_are_never_full_need_no_numbers(monkeypatch):
    routes = make_routes(np.array([0, 3]), np.array([0, 1, 1]))
    monkeypatch.setattr(program, "MAX_COUNT", 2)
    assert make_neighbours(routes, np.ones(2, dtype=bool)).links.size == 0
