import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest

from testbed.design.evaluation.job import sum_bytes_by_pair
from testbed.design.model import Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.plans.file import Plan
from testbed.design.repair import apply_detours, find_non_ring_pairs, match_nics, pair_nics, plan_repair
from testbed.design.routing.routes import find_routes
from testbed.design.sharing.look_ahead import plan_look_ahead, start_on_first_plane
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import AllReduceDemand
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.strategies import default_strategy
from testbed.errors import TopologyError


def a_lab(seed, *, planes=1, simplex=False):
    """Return rings over two NICs of twelve nodes, random pairs over two; some or all of their links may be given up."""
    chance = random.Random(seed)
    rings = find_topology(12, 2, simplex=simplex)
    pairs = [pair for _ in range(2) for pair in some_pairs(chance, simplex=simplex)]
    both = pairs if simplex else [*pairs, *(pair[::-1] for pair in pairs)]
    topology = replace(rings, degree=4, edges=tuple(sorted((*rings.edges, *both))))
    spare = find_non_ring_pairs(topology)
    assert set(spare) == {min(pair, pair if simplex else pair[::-1]) for pair in pairs} - set(rings.edges)
    return make_wiring(topology, plane_count=planes), spare if seed % 3 else spare[::2]


def some_pairs(chance, *, simplex):
    """Return every node sends once and receives once, and never to itself; with duplex links, in pairs."""
    nodes = chance.sample(range(12), 12)
    return list(zip(nodes, nodes[1:] + nodes[:1], strict=True) if simplex else batched(nodes))


def batched(nodes):
    return zip(nodes[::2], nodes[1::2], strict=True)


def edges(links):
    return Counter((link.source.node, link.target.node) for link in links)


def edges_of_rings(links, spare, *, simplex):
    bought = {edge for pair in spare for edge in ((pair,) if simplex else (pair, pair[::-1]))}
    return Counter({edge: count for edge, count in edges(links).items() if edge not in bought})


@pytest.mark.long
@pytest.mark.parametrize(("planes", "simplex"), [(1, False), (4, False), (1, True), (4, True)])
def test_whatever_fibre_is_lost_data_goes_on_and_rings_are_restored(planes, simplex):
    seen = Counter()
    for seed in range(3):
        wiring, spare = a_lab(seed, planes=planes, simplex=simplex)
        needed = edges_of_rings(wiring.links, spare, simplex=simplex)
        for dead in sorted({link.source for link in wiring.links}):
            lost = silenced(wiring, dead) if simplex and seed % 2 else None
            repair = plan_repair(wiring, [dead], spare, planes=planes, failed_links=lost)
            check_detours(wiring, repair)
            check_wiring(repair.repatched, planes, duplex=not simplex)
            restored = needed & edges(repair.repatched.links)
            worked = edges_of_rings(repair.running.links, spare, simplex=simplex)
            assert restored >= worked, "what still works is not traded away"
            if repair.new_links or repair.removed_links:
                assert dead not in {nic for link in repair.repatched.links for nic in link}
                assert restored > worked or worked == needed
                assert lit(repair.repatched), "a NIC in the dark does not send"
                kept = {*repair.running.links, *(lost or ())} - set(repair.removed_links)
                assert {*kept, *repair.new_links} >= set(repair.repatched.links)
            seen["restored"] += restored == needed
            seen["on its detour"] += restored != needed
    assert seen["restored"] >= 40, seen
    assert seen["on its detour"] >= 1, seen


@pytest.mark.parametrize("simplex", [False, True], ids=["duplex", "one-way"])
def test_two_fibres_at_once_are_repaired_together(simplex):
    seen = Counter()
    for seed in range(30):
        wiring, spare = a_lab(seed, simplex=simplex)
        dead = random.Random(seed).sample(sorted(wiring.link_by_transmitter), 2)
        repair = plan_repair(wiring, dead, spare)
        check_detours(wiring, repair)
        check_wiring(repair.repatched, 1, duplex=not simplex)
        needed = edges_of_rings(wiring.links, spare, simplex=simplex)
        restored = needed & edges(repair.repatched.links)
        assert restored >= edges_of_rings(repair.running.links, spare, simplex=simplex)
        if repair.new_links:
            assert not {nic for link in repair.repatched.links for nic in link}.intersection(dead)
            assert lit(repair.repatched)
        seen["all restored"] += restored == needed
    assert 10 <= seen["all restored"] < 30, seen


def lit(wiring):
    return set(wiring.link_by_transmitter) <= set(wiring.link_by_receiver)


def silenced(wiring, dead):
    """Return what a cut of the transmit fibre takes: its link, and what the darkened receiver's NIC sends."""
    link = wiring.link_by_transmitter[dead]
    return [link, wiring.link_by_transmitter[link.target]]


def check_detours(wiring, repair):
    lost = [detour.lost_link for detour in repair.detours]
    assert {*repair.running.links, *lost} == set(wiring.links)
    hops = find_routes(repair.running)
    over = apply_detours(hops, repair.detours)
    for detour in repair.detours:
        source, target = detour.lost_link.source.node, detour.lost_link.target.node
        assert set(detour.path) <= set(repair.running.links)
        assert (detour.path[0].source.node, detour.path[-1].target.node) == (source, target)
        assert all(one.target.node == other.source.node for one, other in pairwise(detour.path))
        assert len(detour.path) == hops.count_hops(source, target)
        assert over.path(source, target) == detour.path
    assert all(over.count_hops(*pair) == hops.count_hops(*pair) for pair in hops.first_link)


def check_wiring(wiring, planes, *, duplex):
    assert len(set(wiring.link_by_transmitter)) == len(wiring.links) == len(set(wiring.link_by_receiver))
    assert all(link.source.node != link.target.node for link in wiring.links)
    if planes > 1:
        assert all(link.source.index == link.target.index for link in wiring.links)
    if duplex:
        assert {(link.target, link.source) for link in wiring.links} == {
            (link.source, link.target) for link in wiring.links
        }
    find_routes(wiring)


def test_a_ring_is_closed_over_three_links_and_stays_so_without_links_to_give():
    wiring = make_wiring(find_topology(12, 4))
    repair = plan_repair(wiring, [Nic(0, 0)])
    assert [len(detour.path) for detour in repair.detours] == [3, 3]
    assert (repair.removed_links, repair.new_links) == ((), ())
    assert repair.repatched == repair.running
    assert "stays until the fibre or GPU is replaced" in repair.reason


def test_an_idle_nic_restores_the_ring_at_no_cost():
    topology = find_topology(12, 2)
    wiring = make_wiring(topology)
    roomy = type(wiring)(12, 3, False, wiring.links)
    repair = plan_repair(roomy, [Nic(0, 0)])
    assert repair.removed_links == ()
    assert {link.source for link in repair.new_links} == {Nic(0, 2), Nic(1, 0)}


@pytest.mark.parametrize(("nodes", "simplex"), [(2, False), (5, True)], ids=["pair", "one-way ring"])
def test_an_idle_nic_joins_again_what_no_detour_can(nodes, simplex):
    wiring = make_wiring(find_topology(nodes, 1, simplex=simplex))
    repair = plan_repair(type(wiring)(nodes, 2, simplex, wiring.links), [Nic(0, 0)])
    assert {detour.path for detour in repair.detours} == {()}
    assert edges(repair.repatched.links) == edges(wiring.links)
    assert repair.reason == "the ring is closed by a link of its own again"
    find_routes(repair.repatched)


def fits(one, other, planes):
    return one.node != other.node and (planes == 1 or one.index == other.index)


def test_as_many_loose_ends_are_joined_as_can_be():
    """Against all ways to join them: duplex among five NICs of three nodes, one-way from four to four."""
    seen = Counter()
    nics = [Nic(node, index) for node, count in enumerate((4, 2, 2)) for index in range(count)]
    for seed in range(30):
        chance = random.Random(seed)
        some, senders, receivers = (chance.sample(nics, count) for count in (5, 4, 4))
        for planes in (1, 2):
            pairs, links = pair_nics(some, planes), match_nics(senders, receivers, planes)
            assert all(fits(*pair, planes) for pair in (*pairs, *links))
            assert len({nic for pair in pairs for nic in pair}) == 2 * len(pairs)
            assert len(dict(links)) == len({there for _, there in links}) == len(links)
            found = max(
                sum(fits(one, other, planes) for one, other in zip(order[::2], order[1::2], strict=False))
                for order in permutations(some)
            )
            most = max(
                sum(fits(one, other, planes) for one, other in zip(senders, order, strict=True))
                for order in permutations(receivers)
            )
            assert (len(pairs), len(links)) == (found, most)
            seen[found, most] += 1
    assert len(seen) >= 4, seen


def test_receivers_that_come_first_are_served_first():
    senders, receivers = [Nic(0, 0), Nic(1, 0)], [Nic(2, 0), Nic(2, 1), Nic(3, 0)]
    for first in receivers:
        assert first in dict(match_nics(senders, receivers, preferred=[first])).values()


def test_a_bought_link_is_borrowed_before_one_of_the_rings():
    """From 0 to 2 lead 0-1-2 over ring links, and 0-5-2 over two bought ones."""
    wiring = make_wiring(find_topology(12, 4, method="exhaustive"))
    lost = wiring.link_by_transmitter[Nic(0, 0)]
    ways = [
        plan_repair(wiring, [lost.source], spare).detours[0].path for spare in ([], [(0, 5), (5, 6), (1, 6)])
    ]
    assert [link.target.node for link in ways[1]] == [5, 6, 1]
    assert len(ways[0]) == len(ways[1])


@pytest.mark.parametrize("simplex", [False, True], ids=["duplex", "one-way"])
def test_the_pair_that_sends_least_gives_its_link_up(simplex):
    rings = find_topology(6, 1, simplex=True) if simplex else find_topology(6, 2)
    pairs = [(node, node + 3) for node in range(3)] + [(node + 3, node) for node in range(3)]
    topology = replace(rings, degree=rings.degree + 1, edges=tuple(sorted((*rings.edges, *pairs))))
    sent = np.zeros((6, 6))
    sent[0, 3], sent[4, 1] = 9.0, 5.0
    asked = [edge for edge in find_non_ring_pairs(topology) if edge[0] < 3]
    assert asked == [(0, 3), (1, 4), (2, 5)], "by node number when nothing is known"
    spare = find_non_ring_pairs(topology, sent)
    one_way = (1, 4), (2, 5), (3, 0), (5, 2), (4, 1), (0, 3)
    assert spare == (one_way if simplex else ((2, 5), (1, 4), (0, 3)))


def test_what_a_plan_sends_between_pairs_is_known_where_its_workload_can_be_built():
    topology, choice = find_topology(4, 2), WorkloadChoice("dlrm")
    workload = choice.make_workload(4)
    strategy = default_strategy(workload, 4)
    names = tuple(operator.name for operator in workload.operators)
    sent = sum_bytes_by_pair(Plan(choice, topology, 25.0, names, strategy, {}))
    assert np.array_equal(sent, traffic(workload, strategy, choice.make_cluster(4)).pairs)
    assert sent.sum() > 0
    for elsewhere in (
        WorkloadChoice("nobody's"),
        WorkloadChoice("of-another-machine.onnx"),
        WorkloadChoice("bert"),
    ):
        assert sum_bytes_by_pair(Plan(elsewhere, topology, 25.0, names, strategy, {})) is None


def test_a_dark_nic_loses_nothing():
    wiring = make_wiring(find_topology(12, 2))
    with pytest.raises(TopologyError, match="NIC 5 of node 0 has no link, so there is nothing to repair"):
        plan_repair(wiring, [Nic(0, 5)])


def test_a_node_cut_off_is_named():
    with pytest.raises(
        TopologyError, match="without the lost link, node 0 has no path to node 1: replace the fibre"
    ):
        plan_repair(make_wiring(find_topology(2, 1)), [Nic(0, 0)])


# ------------------------------------------------------------------------------------- look-ahead


def test_the_next_job_is_patched_on_the_idle_plane_and_flipped_to():
    first, second = (
        make_wiring(find_topology(12, 4)),
        make_wiring(find_topology(12, 4, demands=[AllReduceDemand(4, 1)])),
    )
    planes = start_on_first_plane(first)
    ahead = plan_look_ahead(planes, second)
    assert (ahead.uses_second_plane, len(ahead.new_links), ahead.removed_links, len(ahead.flipped_nics)) == (
        True,
        48,
        (),
        48,
    )
    assert planes.find_lit_links() == set(first.links)
    assert ahead.planes_after.find_lit_links() == set(second.links)
    assert ahead.compute_outage_s(0.01) == 0.01
    back = plan_look_ahead(ahead.planes_after, first)  # its circuits are still there
    assert (back.uses_second_plane, back.new_links, back.removed_links) == (False, (), ())
    assert back.planes_after.find_lit_links() == set(first.links)
    assert plan_look_ahead(planes, first).flipped_nics == ()


def test_jobs_of_other_nodes_stay_lit():
    """Nodes 0-5 flip to their next job; nodes 6-11 keep theirs."""
    both = make_wiring(find_topology(6, 2))
    other = [
        type(link)(Nic(link.source.node + 6, link.source.index), Nic(link.target.node + 6, link.target.index))
        for link in both.links
    ]
    planes = start_on_first_plane(type(both)(12, 2, False, (*both.links, *other)))
    upcoming = make_wiring(find_topology(6, 2, demands=[AllReduceDemand(6, 1)]))
    turned = type(upcoming)(
        12, 2, False, tuple(link for link in upcoming.links if link.source.node + link.target.node != 5)
    )
    ahead = plan_look_ahead(planes, turned, nodes=range(6))
    assert {nic.node for nic in ahead.flipped_nics} == set(range(6))
    assert ahead.planes_after.find_lit_links() == {*turned.links, *other}


def test_a_job_outside_its_nodes_is_refused():
    wiring = make_wiring(find_topology(6, 2))
    with pytest.raises(TopologyError, match="which is not a NIC of the job's nodes"):
        plan_look_ahead(start_on_first_plane(wiring), wiring, nodes=[0, 1, 2])
    with pytest.raises(TopologyError, match="the job names node 6, but the planes have 6 nodes"):
        plan_look_ahead(start_on_first_plane(wiring), wiring, nodes=range(7))


def test_a_job_on_both_planes_is_refused():
    wiring = make_wiring(find_topology(6, 2))
    empty = type(wiring)(6, 2, False, ())
    half = plan_look_ahead(start_on_first_plane(wiring), empty, nodes=[0]).planes_after
    with pytest.raises(TopologyError, match="both planes"):
        plan_look_ahead(half, make_wiring(find_topology(6, 2, demands=[AllReduceDemand(3, 1)])))
