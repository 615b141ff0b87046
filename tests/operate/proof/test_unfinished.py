"""An apply that was killed is one finding, wherever it was killed; what else is wrong is told with it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Network

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.design.model import Link
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.lab.hosts.kernel_state import EMPTY_STATE, list_installation_states, plan_state
from testbed.lab.model import make_shard
from testbed.operate.intent import TopologySource
from testbed.operate.plan import list_circuits
from testbed.operate.unfinished import IncompleteOperation

A1 = "a/nic1 -> b/nic1"
ALL = "a, b, c, d, e, f, g, h, i, j, k, l"


def over_other_nics(wiring):
    """Return a wiring in which every circuit and nearly every route is another."""
    turned = {0: 1, 1: 0, 2: 3, 3: 2}
    links = (Link(*(nic._replace(index=turned[nic.index]) for nic in link)) for link in wiring.links)
    return replace(wiring, links=tuple(links))


def with_exchanged_targets(wiring, seed, pairs):
    """Return a wiring that differs in a few links, both ways of each, as the topology of another job may."""
    draw = random.Random(seed)
    duplex = {frozenset(link) for link in wiring.links}
    for _ in range(pairs):
        one, other = draw.sample(sorted(map(sorted, duplex)), 2)
        duplex -= {frozenset(one), frozenset(other)}
        duplex |= {frozenset((one[0], other[1])), frozenset((other[0], one[1]))}
    links = (Link(*ends) for ends in map(sorted, duplex) if ends[0].node != ends[1].node)
    both = [way for link in links for way in (link, Link(link.target, link.source))]
    return replace(wiring, links=tuple(sorted(both)))


def is_connected(wiring):
    reached, todo = {0}, [0]
    while todo:
        here = todo.pop()
        for link in wiring.links:
            if link.source.node == here and link.target.node not in reached:
                reached.add(link.target.node)
                todo.append(link.target.node)
    return len(reached) == wiring.nodes


def before_routes(world, before):
    """Plant an apply that moved the circuits and no host."""
    world.kernels = world.configured_for(before)


def before_anything(world, before):
    world.patch(before)
    world.kernels = world.configured_for(before)


def among_circuits(world, before):
    """Plant a switch that changes circuit by circuit: some are removed, some made, no host is reached."""
    before_anything(world, before)
    planned = {circuit.input_port: circuit.output_port for circuit in world.circuits}
    held = world.held["ocs1"]
    moving = sorted(port for port in planned if held.get(port) != planned[port])
    free = moving[: len(moving) // 2]
    held = {port: out for port, out in held.items() if port not in free}
    for port in free:
        if planned[port] not in held.values():
            held[port] = planned[port]
    world.held["ocs1"] = held


def among_hosts(world, before):
    """Plant an apply that was done with the first six hosts."""
    old = world.configured_for(before)
    world.kernels |= {host: old[host] for host in "ghijkl"}


BOUNDARIES = (before_anything, among_circuits, before_routes, among_hosts)


@pytest.mark.long
@pytest.mark.parametrize("kill", BOUNDARIES)
def test_a_kill_at_each_boundary_is_one_finding(worlds, kill):
    """Also where so little differs that most routes are those of the plan: they would be told one by one."""
    seen = Counter()
    for seed in range(4):
        world = worlds()
        before = (
            with_exchanged_targets(world.wiring, seed, 1 + seed % 4)
            if seed
            else over_other_nics(world.wiring)
        )
        if not is_connected(before):
            continue
        kill(world, before)
        kinds = {kind for kind, _ in world.told()}
        seen["told as faults without the record"] += not kinds <= {"other_topology"}
        world.leave_unfinished(before)
        assert world.told() == [("unfinished", "op")], seed
        seen["labs"] += 1
    assert seen["labs"] >= 4
    assert seen["told as faults without the record"] >= 3


def test_the_finding_counts_what_it_explains(worlds):
    world = worlds()
    before = over_other_nics(world.wiring)
    among_circuits(world, before)
    planned = {(c.input_port, c.output_port) for c in world.circuits}
    missing = len(planned - set(world.held["ocs1"].items()))
    extra = len(set(world.held["ocs1"].items()) - planned)
    assert 24 <= missing <= 48
    world.leave_unfinished(before)
    (finding,) = world.findings()
    assert finding.detail.startswith(f"killed: {missing} planned circuits are missing (")
    assert f"; {extra} circuits of the earlier topology remain (" in finding.detail
    assert finding.detail.endswith(f"; 12 hosts are as epoch 1 left them ({ALL})")
    assert finding.hint == "again"


@pytest.mark.long
def test_a_kill_in_the_middle_of_a_host_is_one_finding_after_every_line(worlds):
    world = worlds()
    before = over_other_nics(world.wiring)
    world.leave_unfinished(before)
    part = world.part_of("e", world.wiring)
    states = list(list_installation_states(plan_state(world.part_of("e", before)), part))
    assert len(states) == 51
    for state in states[:-1:5]:
        world.install("e", state)
        assert world.told() == [("unfinished", "op")]
    world.install("e", states[-1])
    (finding,) = world.findings()
    assert finding.detail == "killed", "nothing is left: it was killed before it could say so"


@pytest.mark.parametrize("line", [0, 1, 6, 25, 38])
def test_a_first_apply_that_was_killed_is_one_finding(worlds, line):
    """Nothing was before it: the switch and hosts hold nothing, or one host the beginning."""
    world = worlds()
    world.leave_unfinished()
    world.held["ocs1"] = {}
    for host in "abcdefghijkl":
        world.install(host, EMPTY_STATE)
        world.change(host, sysctls=dict.fromkeys(world.kernels["a"].sysctls, "0") or SYSCTLS_OFF)
    world.install("a", list(list_installation_states(EMPTY_STATE, world.part_of("a", world.wiring)))[line])
    if not line:
        world.change("a", sysctls=SYSCTLS_OFF)
    (finding,) = world.findings()
    assert finding.detail.startswith("killed: 48 planned circuits are missing (")
    assert "b, c, d, e, f, g, h, i, j, k, l)" in finding.detail


SYSCTLS_OFF = {
    "net/ipv4/ip_forward": "0",
    **{f"net/ipv4/conf/nic{k}/forwarding": "0" for k in (1, 2, 3, 4)},
}


def route_over_another_link(world):
    """Lead one route of e over a NIC by which neither topology leads it."""
    kernel = world.kernels["e"]
    address = world.lab.hosts[0].address
    route = next(one for one in kernel.routes if address in IPv4Network(one.target))
    ways = {world.routes.first_link[4, 0].source.index}
    ways |= {int(route.device[-1]) - 1, {0: 1, 1: 0, 2: 3, 3: 2}[int(route.device[-1]) - 1]}
    device = next(f"nic{k + 1}" for k in range(4) if k not in ways)
    wrong = replace(route, device=device, gateway="")
    world.change("e", routes=tuple(wrong if one == route else one for one in kernel.routes))


def route_removed(world):
    routes = world.kernels["e"].routes
    world.change("e", routes=routes[1:])


def neighbour_of_another_nic(world):
    entries = dict(world.kernels["e"].neighbours)
    first = next(iter(entries))
    entries[first] = replace(entries[first], mac="02:00:00:00:63:63")
    world.change("e", neighbours=entries)


REAL = {
    "a route over a third link": (route_over_another_link, ("wrong_route", "e")),
    "a route removed": (route_removed, ("missing_route", "e")),
    "a neighbour's MAC": (neighbour_of_another_nic, ("wrong_neighbour", "e")),
    "MTU": (lambda w: w.change_interface("e/nic2", mtu=1500), ("wrong_mtu", "e/nic2")),
    "interface down": (lambda w: w.lose("e/nic2", is_up=False), ("interface_down", "e/nic2")),
    "transmit fibre cut": (lambda w: w.loss_db.update({"a/nic1:transmit": 99}), ("no_light", A1)),
    "transmit fibre dirty": (lambda w: w.loss_db.update({"a/nic1:transmit": 3}), ("excess_loss", A1)),
    "host off": (lambda w: w.off.update(k="no answer"), ("host_off", "k")),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", REAL)
@pytest.mark.parametrize("kill", [before_routes, among_hosts, before_anything])
def test_a_real_fault_is_told_beside_the_unfinished_apply(worlds, kill, fault):
    world = worlds()
    before = over_other_nics(world.wiring)
    world.leave_unfinished(before)
    kill(world, before)
    plant, expected = REAL[fault]
    plant(world)
    assert world.told() == sorted([("unfinished", "op"), expected])


@pytest.mark.parametrize(
    ("name", "loss_db", "kind"),
    [
        ("b/nic1:receive", 99, "no_carrier"),
        ("b/nic1:receive", 3, "excess_loss"),
        (("ocs1", 1, 53), 3, "excess_loss"),
    ],
)
def test_light_is_judged_where_the_circuits_stand(worlds, name, loss_db, kind):
    world = worlds()
    before = over_other_nics(world.wiring)
    world.leave_unfinished(before)
    before_routes(world, before)
    world.loss_db[name] = loss_db
    assert world.told() == sorted([("unfinished", "op"), (kind, A1)])


def test_a_circuit_that_is_of_neither_topology_is_told(worlds):
    world = worlds()
    before = over_other_nics(world.wiring)
    world.leave_unfinished(before)
    before_anything(world, before)
    held = world.held["ocs1"]
    (one, out), (other, out_too) = sorted(held.items())[:2]
    held[one], held[other] = out_too, out  # somebody crossed two of the old ones
    kinds = Counter(kind for kind, _ in world.told())
    assert kinds["unfinished"] == 1
    assert kinds["extra_circuit"] == 2
    assert 2 <= kinds["missing_circuit"] <= 4
    assert len(kinds) == 3


def test_a_circuit_that_was_removed_after_the_switches_were_done_is_told(worlds):
    world = worlds()
    before = over_other_nics(world.wiring)
    world.leave_unfinished(before, circuits_stood=True)
    before_routes(world, before)
    del world.held["ocs1"][1]
    assert world.told() == [("missing_circuit", A1), ("unfinished", "op")]


def test_a_circuit_of_both_topologies_that_is_gone_is_told(worlds):
    world = worlds()
    before = with_exchanged_targets(world.wiring, 3, 1)
    kept = min(set(before.links) & set(world.wiring.links))
    world.leave_unfinished(before)
    before_anything(world, before)
    label = world.lab.link_label(kept)
    del world.held["ocs1"][next(c.input_port for c in world.circuits if c.link == kept)]
    assert world.told() == sorted([("missing_circuit", label), ("unfinished", "op")])


@pytest.mark.slow
def test_of_two_that_were_killed_one_after_the_other_both_are_looked_at(worlds):
    """The first was to replace the ring on other NICs, and came to three hosts; the second came to none."""
    world = worlds()
    oldest, killed = over_other_nics(world.wiring), with_exchanged_targets(world.wiring, 5, 3)
    assert is_connected(killed)
    before_anything(world, oldest)
    between = world.configured_for(killed)
    world.kernels |= {host: between[host] for host in "abc"}
    world.leave_unfinished(killed, oldest)
    found = world.findings()
    assert len(found) == 1, found
    (finding,) = found
    assert "3 hosts are as epoch 2 left them (a, b, c)" in finding.detail
    assert "9 hosts are as epoch 1 left them (d, e, f, g, h, i, j, k, l)" in finding.detail


def test_another_topology_that_is_named_is_compared_as_it_is(worlds):
    """The unfinished apply was of another design than the one that is proved: it explains nothing here."""
    world = worlds()
    world.leave_unfinished(over_other_nics(world.wiring))
    (one,) = world.left
    other = replace(one.intent, wiring=over_other_nics(world.wiring))
    world.left = (replace(one, intent=other),)
    before_routes(world, over_other_nics(world.wiring))
    assert world.told() == [("other_topology", ALL), ("unfinished", "op")]


def test_circuits_between_hosts_that_the_apply_is_not_for_are_not_counted(worlds):
    """A ring of four hosts was to be replaced on two of them; the apply leaves the links of c and d alone."""
    world, ring = worlds("ab", degree=1), make_wiring(find_topology(4, 2))
    world.leave_unfinished(ring)
    (one,) = world.left
    world.left = (replace(one, replaced=(replace(one.replaced[0], hosts=tuple("abcd"), nics={}),)),)
    four = make_shard(world.lab, "abcd")
    circuits = list_circuits(four, ring)
    world.held["ocs1"] = {circuit.input_port: circuit.output_port for circuit in circuits}
    ours = [one for one in circuits if min(one.link.source.node, one.link.target.node) < 2]
    extra = {four.link_label(circuit.link) for circuit in ours} - set(
        map(world.lab.link_label, world.wiring.links)
    )
    assert len(ours) == 6 < len(circuits)
    details = [finding.detail for finding in world.findings() if finding.kind == "unfinished"]
    assert f"{len(extra)} circuits of the earlier topology remain" in details[0]


def test_an_epoch_whose_stored_plan_cannot_be_read_explains_with_shortest_routes(worlds):
    """A later release may refuse a plan that an earlier one stored: that ends no proof."""
    world = worlds()
    before = over_other_nics(world.wiring)
    world.leave_unfinished(before)
    (one,) = world.left
    stored = replace(one.replaced[0], topology_source=TopologySource("--plan old.json", plan_text="{}"))
    world.left = (replace(one, replaced=(stored,)),)
    before_anything(world, before)
    assert world.told() == [("unfinished", "op")]


def test_circuits_of_a_killed_discovery_are_told_with_it(worlds):
    world = worlds(degree=2)
    world.held["ocs1"][4] = 52  # a/nic4 to itself: both are idle
    world.left = (IncompleteOperation("d", "a discovery", "discover", circuits=frozenset({("ocs1", 4, 52)})),)
    (finding,) = world.findings()
    assert (finding.kind, finding.subject) == ("unfinished", "d")
    assert finding.detail == "a discovery: 1 of its circuits still exist: a/nic4 -> a/nic4"
    world.left = (replace(world.left[0], circuits=frozenset({("ocs1", 3, 52)})),)
    assert ("extra_circuit", "a/nic4 -> a/nic4") in world.told()
