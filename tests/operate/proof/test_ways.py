"""Ways between hosts that answer: full-size packets, TCP, and most of many pings pass, or a finding says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.design.model import Routes
from testbed.lab.hosts.reachability import Reachability
from testbed.operate.model import LabPlan
from testbed.operate.proof.judge import judge_evidence
from testbed.operate.proof.reach_findings import (
    MAX_PINGS,
    MIN_PINGS,
    BlamedParts,
    count_pings,
    find_loss_floor,
    judge_reachability,
    trace_round_trips,
)


@pytest.fixture(scope="module")
def world(worlds):
    return worlds()


def told(world, **ways):
    """Return what is told of a healthy lab, the ways between whose hosts are changed."""
    whole = world.evidence()
    evidence = replace(whole, reached=(replace(whole.reached[0], **ways),))
    found = judge_evidence(world.lab, LabPlan(world.wiring, world.circuits, ()), world.routes, evidence)
    return [(one.kind, one.subject) for one in found]


def pairs(world, is_concerned):
    """Return the pairs, by name, whose way there and back `is_concerned`."""
    names = [host.name for host in world.lab.hosts]
    return frozenset(
        (names[a], names[b])
        for (_, a, b), links in trace_round_trips([world.routes]).items()
        if is_concerned(links)
    )


def forwarded_by(world, node):
    """Return the pairs, by name, whose packets a node forwards."""
    here = world.lab.hosts[node].name
    through = pairs(world, lambda way: any(node in (nic.node for nic in link) for link in way))
    return frozenset(pair for pair in through if here not in pair)


def test_a_host_that_forwards_no_tcp_is_named(world):
    assert told(world, pairs_without_tcp=forwarded_by(world, 2)) == [("no_tcp", "c")]


def test_a_host_that_forwards_no_large_packets_is_named_and_tcp_is_a_consequence(world):
    stopped = forwarded_by(world, 2)
    assert told(world, small_only_pairs=stopped, pairs_without_tcp=stopped) == [("no_large_packets", "c")]


def test_a_route_with_an_mtu_of_its_own_is_named_by_its_pair(world):
    assert told(world, small_only_pairs=frozenset({("l", "e")})) == [("no_large_packets", "l -> e")]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=30)
def test_the_link_that_loses_packets_is_named_and_large_packets_and_tcp_are_consequences(world, data):
    links = sorted({link for pair in world.routes.first_link for link in world.routes.path(*pair)})
    worst = data.draw(st.sampled_from(links))
    through = pairs(world, lambda way: worst in way)
    lost = dict.fromkeys(pairs(world, bool), (0, 25))
    gone = data.draw(st.lists(st.integers(1, 25), min_size=len(through), max_size=len(through)))
    lost |= {pair: (count, 25) for pair, count in zip(sorted(through), gone, strict=True)}
    found = told(world, loss_by_pair=lost, small_only_pairs=through, pairs_without_tcp=through)
    assert found == [("lossy_path", world.lab.link_label(worst))]


def test_links_that_no_ping_tells_apart_are_named_together(worlds):
    world = worlds("ab", degree=1)
    assert told(world, loss_by_pair={("a", "b"): (9, 106), ("b", "a"): (9, 106)}) == [
        ("lossy_path", "a/nic1 -> b/nic1 or b/nic1 -> a/nic1")
    ]


def test_a_host_of_another_mtu_is_one_finding(worlds):
    world = worlds()
    kernel = world.kernels["c"]
    nic = next(name for name in kernel.interfaces if name == "nic1")
    small = {**kernel.interfaces, nic: replace(kernel.interfaces[nic], mtu=1500)}
    world.change("c", interfaces=small)
    through = pairs(world, lambda way: any(2 in (end.node for end in link) for link in way))
    assert told(world, small_only_pairs=through, pairs_without_tcp=through) == [("wrong_mtu", "c/nic1")]


def test_links_of_one_host_that_lose_packets_are_one_finding(world):
    lost = dict.fromkeys(
        pairs(world, lambda way: any(2 in (nic.node for nic in link) for link in way)), (5, 25)
    )
    assert told(world, loss_by_pair=lost) == [("lossy_path", "c")]


def test_a_ping_or_two_that_are_lost_are_no_finding(world):
    assert told(world, loss_by_pair={("a", "b"): (2, 25)}) == []


@pytest.mark.parametrize("hosts", ["abcd", "abcdefghijkl"])
def test_so_many_pings_find_a_loss_of_four_per_cent(worlds, hosts):
    routes = worlds(hosts, degree=2).routes
    pings = count_pings([routes])
    assert MIN_PINGS <= min(pings.values()) <= max(pings.values()) <= MAX_PINGS
    assert find_loss_floor([routes], pings) <= 0.04
    assert find_loss_floor([routes], {}) is None


def test_each_set_of_routes_is_judged_by_its_own_paths(world):
    """A second set has one path, over two links: what is lost there is told with the set, or by its links."""
    routes = world.routes
    ends, links = (
        {(link.source.node, link.target.node): link for link in world.wiring.links},
        world.wiring.links,
    )
    a, b = next(pair for pair in routes.first_link if routes.count_hops(*pair) == 2)
    c = routes.path(a, b)[0].target.node
    further = Routes({(a, b): ends[a, c], (c, b): ends[c, b], (b, a): ends[b, c], (c, a): ends[c, a]})
    names = (world.lab.hosts[a].name, world.lab.hosts[b].name)

    def told(second, blamed=()):
        reached = (*world.evidence().reached, second)
        blame = BlamedParts(frozenset(blamed), frozenset())
        found = judge_reachability(world.lab, (routes, further), reached, blame)
        return [(one.kind, one.subject) for one in found]

    asked = (names, names[::-1])
    silent = Reachability(asked, frozenset({names[::-1]}), {}, 0.0)
    assert told(silent) == [("unreachable", f"{names[0]} -> {names[1]} (set 1 of routes)")]
    assert told(silent, [ends[c, b]]) == []
    lossy = Reachability(asked, frozenset(asked), {}, 0.0, loss_by_pair=dict.fromkeys(asked, (9, 25)))
    ((kind, subject),) = told(lossy)
    assert (kind, subject.count(" or ")) == ("lossy_path", 3)
    assert told(lossy, links) == []
