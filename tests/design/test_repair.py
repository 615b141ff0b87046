import random
from collections import Counter
from itertools import pairwise

import pytest

from testbed.design.demand import AllReduceDemand, demand_of
from testbed.design.finder import find
from testbed.design.look_ahead import look_ahead, start
from testbed.design.model import Nic
from testbed.design.repair import plan_repair
from testbed.design.routes import find_routes
from testbed.design.topology import find_topology
from testbed.design.wiring import wire
from testbed.errors import TopologyError


def a_lab(seed, *, planes=1, simplex=False, nodes=12):
    chance = random.Random(seed)
    pairs = [(*chance.sample(range(nodes), 2), chance.randint(1, 99)) for _ in range(3 * nodes)]
    finding = find(
        demand_of(nodes, [AllReduceDemand(nodes, 1)], pairs), 4, matching_degree=2, simplex=simplex
    )
    spare = [pair for part in (*finding.fillers, *finding.matchings) for pair in part]
    ring = {(a, b) for a in range(nodes) for b in range(nodes) if (b - a) % nodes in (1, nodes - 1)}
    return wire(finding.topology, planes=planes), [pair for pair in spare if pair not in ring]


@pytest.mark.parametrize(("planes", "simplex"), [(1, False), (4, False), (1, True)])
def test_whatever_fibre_is_lost_data_goes_on_and_rings_are_restored(planes, simplex):
    seen = Counter()
    for seed in range(6):
        wiring, spare = a_lab(seed, planes=planes, simplex=simplex)
        for dead in sorted({link.source for link in wiring.links}):
            repair = plan_repair(wiring, dead, spare, planes=planes)
            lost = [detour.lost for detour in repair.detours]
            assert {*repair.running.links, *lost} == set(wiring.links)
            for detour in repair.detours:
                assert set(detour.path) <= set(repair.running.links)
                assert detour.path[0].source.node == detour.lost.source.node
                assert detour.path[-1].target.node == detour.lost.target.node
                assert all(one.target.node == other.source.node for one, other in pairwise(detour.path))
            hops = find_routes(repair.running)
            assert all(
                len(d.path) == hops.hops(d.lost.source.node, d.lost.target.node) for d in repair.detours
            )
            check_wiring(repair.repatched, dead, planes, duplex=not simplex)
            if repair.make:
                made = {(link.source.node, link.target.node) for link in repair.repatched.links}
                assert {(link.source.node, link.target.node) for link in lost} & made
                given_up = {(link.source.node, link.target.node) for link in repair.remove}
                assert given_up <= {edge for pair in spare for edge in (pair, pair[::-1])}
            seen[repair.why.split(" has ")[-1]] += 1
            seen["restored"] += bool(repair.make)
    assert seen["restored"] >= 40, seen
    assert len(seen) >= 3, seen


def check_wiring(wiring, dead, planes, *, duplex):
    assert len(set(wiring.link_from)) == len(wiring.links) == len(set(wiring.link_into))
    assert dead not in wiring.link_from
    assert dead not in wiring.link_into
    assert all(link.source.node != link.target.node for link in wiring.links)
    if planes > 1:
        assert all(link.source.index == link.target.index for link in wiring.links)
    if duplex:
        assert {(link.target, link.source) for link in wiring.links} == {
            (link.source, link.target) for link in wiring.links
        }
    find_routes(wiring)


def test_a_ring_is_closed_over_three_links_and_stays_so_without_links_to_give():
    wiring = wire(find_topology(12, 4))
    repair = plan_repair(wiring, Nic(0, 0))
    assert [len(detour.path) for detour in repair.detours] == [3, 3]
    assert (repair.remove, repair.make) == ((), ())
    assert repair.repatched == repair.running
    assert "stays until the fibre is replaced" in repair.why


def test_an_idle_nic_restores_the_ring_at_no_cost():
    topology = find_topology(12, 2)
    wiring = wire(topology)
    roomy = type(wiring)(12, 3, False, wiring.links)
    repair = plan_repair(roomy, Nic(0, 0))
    assert repair.remove == ()
    assert {link.source for link in repair.make} == {Nic(0, 2), Nic(1, 0)}


def test_a_bought_link_is_borrowed_before_one_of_the_rings():
    """From 0 to 2 lead 0-1-2 over ring links, and 0-5-2 over two bought ones."""
    wiring = wire(find_topology(12, 4, method="exhaustive"))
    lost = wiring.link_from[Nic(0, 0)]
    ways = [
        plan_repair(wiring, lost.source, spare).detours[0].path for spare in ([], [(0, 5), (5, 6), (1, 6)])
    ]
    assert [link.target.node for link in ways[1]] == [5, 6, 1]
    assert len(ways[0]) == len(ways[1])


def test_a_dark_nic_loses_nothing():
    wiring = wire(find_topology(12, 2))
    with pytest.raises(TopologyError, match="is on no link"):
        plan_repair(wiring, Nic(0, 5))


def test_a_node_cut_off_is_named():
    with pytest.raises(TopologyError, match="without the lost fibre node 0 has no path to node 1"):
        plan_repair(wire(find_topology(2, 1)), Nic(0, 0))


# ------------------------------------------------------------------------------------- look-ahead


def test_the_next_job_is_patched_on_the_idle_plane_and_flipped_to():
    first, second = wire(find_topology(12, 4)), wire(find_topology(12, 4, demands=[AllReduceDemand(4, 1)]))
    planes = start(first)
    ahead = look_ahead(planes, second)
    assert (ahead.onto_second, len(ahead.make), ahead.remove, len(ahead.flip)) == (True, 48, (), 48)
    assert planes.lit() == set(first.links)
    assert ahead.after.lit() == set(second.links)
    assert ahead.dark_s(0.01) == 0.01
    assert ahead.hidden_s(circuit_s=30.0, flip_s=0.01) == pytest.approx(48 * 30 - 0.01)
    back = look_ahead(ahead.after, first)  # its circuits are still there
    assert (back.onto_second, back.make, back.remove) == (False, (), ())
    assert back.after.lit() == set(first.links)
    assert look_ahead(planes, first).flip == ()


def test_jobs_of_other_nodes_stay_lit():
    """Nodes 0-5 flip to their next job; nodes 6-11 keep theirs."""
    both = wire(find_topology(6, 2))
    other = [
        type(link)(Nic(link.source.node + 6, link.source.index), Nic(link.target.node + 6, link.target.index))
        for link in both.links
    ]
    planes = start(type(both)(12, 2, False, (*both.links, *other)))
    upcoming = wire(find_topology(6, 2, demands=[AllReduceDemand(6, 1)]))
    turned = type(upcoming)(
        12, 2, False, tuple(link for link in upcoming.links if link.source.node + link.target.node != 5)
    )
    ahead = look_ahead(planes, turned, shard=range(6))
    assert {nic.node for nic in ahead.flip} == set(range(6))
    assert ahead.after.lit() == {*turned.links, *other}


def test_a_job_outside_its_shard_is_refused():
    wiring = wire(find_topology(6, 2))
    with pytest.raises(TopologyError, match="not among the interfaces of this job"):
        look_ahead(start(wiring), wiring, shard=[0, 1, 2])
    with pytest.raises(TopologyError, match="a node of the shard"):
        look_ahead(start(wiring), wiring, shard=range(7))


def test_a_shard_on_both_planes_is_refused():
    wiring = wire(find_topology(6, 2))
    empty = type(wiring)(6, 2, False, ())
    half = look_ahead(start(wiring), empty, shard=[0]).after
    with pytest.raises(TopologyError, match="both planes"):
        look_ahead(half, wire(find_topology(6, 2, demands=[AllReduceDemand(3, 1)])))
