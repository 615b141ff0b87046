"""Faults of hosts, fibres and switches planted one at a time: each is told by its name, and none as another."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.lab.hosts.forwarding import make_forwarding_path
from testbed.lab.hosts.kernel_state import Neighbour, Route
from testbed.lab.hosts.packet_rules import PacketFilter, PolicyRule
from testbed.lab.hosts.receivers import PowerThresholds, ReceiverReading
from testbed.operate.drift.report import judge_modules
from testbed.operate.findings import FINDING_KINDS
from testbed.operate.model import VerifyReport
from testbed.operate.proof.host_findings import WRONG_MTU


@pytest.mark.slow
def test_a_healthy_lab_has_no_findings(worlds):
    for options in ({}, {"simplex": True}, {"monitors": False}, {"modules": False}, {"degree": 2}):
        assert worlds(**options).told() == []


# Hosts: each function plants one fault.


def without_routes(world, host="e", count=1):
    routes = world.kernels[host].routes
    world.change(host, routes=routes[count:] if count else ())


def with_route(world, host="e", **parts):
    first, *others = world.kernels[host].routes
    world.change(host, routes=(replace(first, **parts), *others))


def via_another_link(world):
    """Lead one host's packets to another over the wrong link of the two."""
    kernel = world.kernels["e"]
    relayed = next(route for route in kernel.routes if route.gateway)
    other = next(r for r in kernel.routes if r.gateway and r.device != relayed.device)
    wrong = replace(relayed, device=other.device, gateway=other.gateway)
    world.change("e", routes=tuple(wrong if route == relayed else route for route in kernel.routes))


def blackhole(world):
    with_route(world, device="", gateway="", source="")


def extra_route(world):
    more = Route("10.200.0.1/32", "nic1", "", "", "107")
    world.change("e", routes=(*world.kernels["e"].routes, more))


def without_neighbour(world, count=1):
    entries = world.kernels["e"].neighbours
    world.change("e", neighbours=dict(list(entries.items())[count:]))


def with_neighbour(world, **parts):
    entries = dict(world.kernels["e"].neighbours)
    first = next(iter(entries))
    entries[first] = replace(entries[first], **parts)
    world.change("e", neighbours=entries)


def sysctl(world, path, value):
    world.change("e", sysctls={**world.kernels["e"].sysctls, path: value})


def without_node_address(world):
    """Remove it with the routes that send from it, as the kernel does."""
    world.change_interface("e/lo", addresses=frozenset({"127.0.0.1/8"}))
    source = str(world.lab.hosts[4].address)
    world.change("e", routes=tuple(r for r in world.kernels["e"].routes if r.source != source))


def address_of_another(world):
    own = world.kernels["e"].interfaces["lo"].addresses
    world.change_interface("e/lo", addresses=own | {f"{world.lab.hosts[7].address}/32"})


def killed_before_routes(world):
    """Kill an apply whose journal is not at hand: every host holds the routes of the plan before."""
    world.kernels = world.configured_for(over_other_nics(world.wiring))


def over_other_nics(wiring):
    """Return a wiring of the same hosts, each link led over other NICs."""
    turned = {0: 1, 1: 0, 2: 3, 3: 2}
    links = (type(link)(*(nic._replace(index=turned[nic.index]) for nic in link)) for link in wiring.links)
    return replace(wiring, links=tuple(links))


def killed_in_the_middle_of_hosts(world):
    """Kill it later: six hosts hold the new routes, six those of the plan before."""
    before = world.configured_for(over_other_nics(world.wiring))
    world.kernels |= {host: before[host] for host in "abcdef"}


def killed_between_flush_and_routes(world):
    world.change("e", routes=(), neighbours={})


def never_configured(world):
    for host in world.kernels:
        world.change(host, routes=(), neighbours={})
        for nic in ("nic1", "nic2", "nic3", "nic4"):
            world.change_interface(f"{host}/{nic}", addresses=frozenset())


HOST_FAULTS = {
    "one route missing": (without_routes, [("missing_route", "e")]),
    "all routes flushed": (lambda w: without_routes(w, count=0), [("missing_route", "e")]),
    "a route over another link": (via_another_link, [("wrong_route", "e")]),
    "a route that drops": (blackhole, [("wrong_route", "e")]),
    "a route with another source": (lambda w: with_route(w, source="10.100.5.1"), [("wrong_route", "e")]),
    "a route with an MTU": (lambda w: with_route(w, options="mtu 600"), [("wrong_route", "e")]),
    "part of a bridge": (lambda w: w.lose("e/nic2", master="br0"), [("wrong_master", "e/nic2")]),
    "an address of another host on lo": (address_of_another, [("wrong_address", "e/lo")]),
    "a route too many": (extra_route, [("extra_route", "e")]),
    "a neighbour missing": (without_neighbour, [("wrong_neighbour", "e")]),
    "all neighbours missing": (lambda w: without_neighbour(w, 99), [("wrong_neighbour", "e")]),
    "a neighbour's MAC": (lambda w: with_neighbour(w, mac="02:00:00:00:63:63"), [("wrong_neighbour", "e")]),
    "a neighbour learnt": (lambda w: with_neighbour(w, is_permanent=False), [("wrong_neighbour", "e")]),
    "a neighbour that failed": (lambda w: with_neighbour(w, mac=""), [("wrong_neighbour", "e")]),
    "forwarding off": (lambda w: sysctl(w, "net/ipv4/ip_forward", "0"), [("forwarding_off", "e")]),
    "forwarding of one NIC off": (
        lambda w: sysctl(w, make_forwarding_path("nic2"), "0"),
        [("forwarding_off", "e/nic2")],
    ),
    "rp_filter": (lambda w: sysctl(w, "net/ipv4/conf/all/rp_filter", "1"), [("wrong_sysctl", "e")]),
    "arp_ignore": (lambda w: sysctl(w, "net/ipv4/conf/nic1/arp_ignore", "0"), [("wrong_sysctl", "e")]),
    "arp_announce": (lambda w: sysctl(w, "net/ipv4/conf/nic1/arp_announce", "0"), [("wrong_sysctl", "e")]),
    "send_redirects": (lambda w: sysctl(w, "net/ipv4/conf/all/send_redirects", "1"), [("wrong_sysctl", "e")]),
    "tcp metrics": (lambda w: sysctl(w, "net/ipv4/tcp_no_metrics_save", "0"), [("wrong_sysctl", "e")]),
    "no node address": (without_node_address, [("wrong_address", "e/lo")]),
    "no address of a NIC": (
        lambda w: w.lose("e/nic3", addresses=frozenset()),
        [("wrong_address", "e/nic3")],
    ),
    "another address of a NIC": (
        lambda w: w.change_interface("e/nic3", addresses=frozenset({"10.100.5.77/32"})),
        [("wrong_address", "e/nic3")],
    ),
    "MTU": (lambda w: w.change_interface("e/nic2", mtu=1500), [("wrong_mtu", "e/nic2")]),
    "rate": (lambda w: w.change_interface("e/nic2", rate_mbps=10.0), [("wrong_rate", "e/nic2")]),
    "interface down": (lambda w: w.lose("e/nic2", is_up=False), [("interface_down", "e/nic2")]),
    "two interfaces down": (
        lambda w: (w.lose("e/nic2", is_up=False), w.lose("h/nic1", is_up=False)),
        [("interface_down", "e/nic2"), ("interface_down", "h/nic1")],
    ),
    "host off": (lambda w: w.off.update(e="no answer"), [("host_off", "e")]),
    "two hosts off": (lambda w: w.off.update(e="no", h="no"), [("host_off", "e"), ("host_off", "h")]),
    "packet filter": (lambda w: w.dropping.add("e"), [("unreachable", "e")]),
    "killed before routes": (
        killed_before_routes,
        [("other_topology", "a, b, c, d, e, f, g, h, i, j, k, l")],
    ),
    "killed in the middle of hosts": (
        killed_in_the_middle_of_hosts,
        [("other_topology", "a, b, c, d, e, f")],
    ),
    "killed on a host": (killed_between_flush_and_routes, [("not_configured", "e")]),
    "never configured": (never_configured, [("not_configured", "a, b, c, d, e, f, g, h, i, j, k, l")]),
}


MAIN = PolicyRule(32766, "all", "all", "main", "", "32766: from all lookup main", looks_up_main=True)
"""Policy rule that every host has, and which asks the routes of the lab."""


def ask_first(world, rule, *routes):
    """Plant a policy rule before that of the routes, and the table that it asks; it leads packets astray."""
    world.change("e", rules=(rule, MAIN), routes_by_table={rule.table: routes})
    world.dropping.add("e")


def rule(words, source="all", target="all", table="", action="", **more):
    return PolicyRule(99, source, target, table, action, words, **more)


def filtered(world, **parts):
    world.change("e", filters=(PacketFilter("table ip x, chain y (hook forward): drop", **parts),))


DEFAULT = Route("default", "mgmt", "192.0.2.1", "", "")
HOST_FAULTS |= {
    "a policy rule that drops": (
        lambda w: ask_first(
            w, rule("from all to 10.100.4.100/32 prohibit", target="10.100.4.100/32", action="prohibit")
        ),
        [("wrong_rule", "e")],
    ),
    "a policy rule with a table": (
        lambda w: ask_first(
            w, rule("from 10.100.5.0/24 lookup 7", source="10.100.5.0/24", table="7"), DEFAULT
        ),
        [("wrong_rule", "e")],
    ),
    "a policy rule for what the host itself sends": (
        lambda w: ask_first(w, rule("iif lo blackhole", action="blackhole", input_interface="lo")),
        [("wrong_rule", "e")],
    ),
    "no rule that asks the routes": (
        lambda w: (
            w.change(
                "e",
                rules=(replace(MAIN, table="default", description="lookup default", looks_up_main=False),),
            ),
            w.dropping.add("e"),
        ),
        [("wrong_rule", "e")],
    ),
    "a packet filter that is seen": (
        lambda w: (filtered(w), w.dropping.add("e")),
        [("packet_filter", "e")],
    ),
    "a packet filter that no ping meets": (filtered, [("packet_filter", "e")]),
    "a filter of tc": (
        lambda w: w.change_interface("e/nic2", queue_notes="clsact", has_ingress_hook=True),
        [("wrong_queue", "e/nic2")],
    ),
    "a queue that delays": (
        lambda w: w.change_interface("e/nic2", queue_notes="netem 8001:"),
        [("wrong_queue", "e/nic2")],
    ),
}

OF_OTHERS = {
    "a rule of other addresses": lambda w: w.change(
        "e", rules=(rule("", source="192.0.2.0/24", action="prohibit"), MAIN)
    ),
    "a rule whose table has routes of others": lambda w: w.change(
        "e",
        rules=(rule("", table="7"), MAIN),
        routes_by_table={"7": (replace(DEFAULT, target="192.0.2.0/24"),)},
    ),
    "a table with routes back": lambda w: w.change(
        "e", rules=(rule("", table="7"), MAIN), routes_by_table={"7": (replace(DEFAULT, options="throw"),)}
    ),
    "a rule of another interface": lambda w: w.change(
        "e", rules=(rule("", action="prohibit", input_interface="mgmt"), MAIN)
    ),
    "a rule of marked packets": lambda w: w.change(
        "e", rules=(rule("", action="prohibit", needs_mark=True), MAIN)
    ),
    "a rule behind the routes": lambda w: w.change("e", rules=(MAIN, rule("", action="prohibit"))),
    "a filter of another interface": lambda w: filtered(w, nics=("docker*",)),
    "a filter of other addresses": lambda w: filtered(w, blocks=("172.17.0.0/16",)),
}


@pytest.mark.parametrize("what", OF_OTHERS)
def test_rules_and_filters_that_take_no_packet_of_the_lab_are_not_told(worlds, what):
    world = worlds()
    OF_OTHERS[what](world)
    assert world.told() == []


# Light: the link a/nic1 -> b/nic1 is the first of the wiring, in and out of port 1.


def lossy(name, loss_db):
    return lambda world: world.loss_db.update({name: loss_db})


def foreign_circuit(world):
    """Lead input 1 elsewhere, as somebody else would: one circuit is gone, another is there."""
    held = world.held["ocs1"]
    out = {out: port for port, out in held.items()}
    other = next(output for output in range(49, 97) if output != held[1])
    del held[out[other]]
    world.held["ocs1"] = {**held, 1: other}


def off_by_one(world):
    """Patch another topology: every circuit is missing, and no fibre is at fault."""
    pairs = sorted(world.held["ocs1"].items())
    outputs = [out for _, out in pairs]
    world.held["ocs1"] = {port: out for (port, _), out in zip(pairs, outputs[4:] + outputs[:4], strict=True)}


A1 = "a/nic1 -> b/nic1"
LIGHT_FAULTS = {
    **{
        f"receiver dirty by {db} dB": (lossy("b/nic1:receive", db), [("excess_loss", A1)])
        for db in (1, 3, 10)
    },
    "receiver dirty by 18 dB": (lossy("b/nic1:receive", 18), [("excess_loss", A1)]),
    "receiver dirty by 30 dB": (lossy("b/nic1:receive", 30), [("no_carrier", A1)]),
    "transmit fibre dirty": (lossy("a/nic1:transmit", 3), [("excess_loss", A1)]),
    "mirror lossy": (lossy(("ocs1", 1, 53), 3), [("excess_loss", A1)]),
    "transmit fibre cut": (lossy("a/nic1:transmit", 99), [("no_light", A1)]),
    "receive fibre cut": (lossy("b/nic1:receive", 99), [("no_carrier", A1)]),
    "dead laser": (lambda w: w.dark_lasers.add("a/nic1"), [("no_light", A1)]),
    "cable cut": (
        lambda w: w.loss_db.update({"a/nic1:transmit": 99, "a/nic1:receive": 99}),
        [("dark_cable", "a/nic1")],
    ),
    "all cables of a host cut": (
        lambda w: w.loss_db.update(
            {f"a/nic{k}:{side}": 99 for k in (1, 2, 3, 4) for side in ("transmit", "receive")}
        ),
        [("dark_cable", "a")],
    ),
    "switch off": (lambda w: w.off.update(ocs1="no answer"), [("switch_off", "ocs1")]),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", HOST_FAULTS)
def test_a_fault_of_a_host_is_told_once_and_rightly(worlds, fault):
    check(worlds(), *HOST_FAULTS[fault])


@pytest.mark.parametrize("fault", LIGHT_FAULTS)
def test_a_fault_of_the_light_is_told_once_and_rightly(worlds, fault):
    check(worlds(), *LIGHT_FAULTS[fault])


def check(world, plant, expected):
    plant(world)
    told = world.told()
    assert told == sorted(expected)
    assert all(kind in FINDING_KINDS and FINDING_KINDS[kind].hint for kind, _ in told)


def test_forty_faults_are_planted():
    assert len(HOST_FAULTS) + len(LIGHT_FAULTS) >= 40


@pytest.mark.parametrize("side", ["transmit", "receive"])
@pytest.mark.parametrize("simplex", [False, True])
def test_swapped_fibres_are_one_finding(worlds, side, simplex):
    world = worlds(simplex=simplex)
    world.swap(f"a/nic1:{side}", f"e/nic1:{side}")
    assert [kind for kind, _ in world.told()] == ["swapped"]


@pytest.mark.parametrize("simplex", [False, True])
def test_exchanged_cables_are_one_finding(worlds, simplex):
    world = worlds(simplex=simplex)
    world.swap_cables("a/nic1", "e/nic1")
    (finding,) = world.findings()
    assert finding.kind == "swapped"
    assert "the whole cables of a/nic1 and e/nic1" in finding.detail


def test_a_receive_fibre_swapped_with_that_of_an_idle_nic_is_one_finding(worlds):
    world = worlds(degree=2)
    world.swap("b/nic1:receive", "e/nic4:receive")
    (finding,) = world.findings()
    assert (finding.kind, finding.subject) == ("swapped", A1)
    assert "the receive fibres at ocs1:68 and ocs1:53 are swapped" in finding.detail


def test_an_idle_nic_in_the_dark_does_not_send_so_that_its_light_alone_is_found(worlds):
    world = worlds(degree=2)
    world.swap("a/nic1:transmit", "e/nic4:transmit")
    assert world.told() == [("not_heard", A1)]


def test_another_topology_is_told_by_its_circuits_and_no_fibre_is_blamed(worlds):
    world = worlds()
    off_by_one(world)
    assert world.told() == [("extra_circuit", "ocs1"), ("missing_circuit", "ocs1")]


def test_a_switch_that_was_off_and_on_is_one_finding(worlds):
    world = worlds()
    world.held["ocs1"].clear()
    (finding,) = world.findings()
    assert (finding.kind, finding.subject, len(finding.parts)) == ("missing_circuit", "ocs1", 48)


def test_a_foreign_circuit_is_told_by_circuits_alone(worlds):
    world = worlds()
    foreign_circuit(world)
    told = world.told()
    assert {kind for kind, _ in told} == {"missing_circuit", "extra_circuit"}
    assert ("missing_circuit", A1) in told


def test_a_dark_receiver_behind_an_extra_circuit_is_no_second_finding(worlds):
    world = worlds(degree=2)
    world.held["ocs1"][4] = 52  # a/nic4 to itself: both are idle
    lossy("a/nic4:receive", 99)(world)
    assert world.told() == [("extra_circuit", "a/nic4 -> a/nic4")]


def test_without_monitors_a_dark_link_is_a_carrier_and_a_dark_cable_both_ends(worlds):
    world = worlds(monitors=False)
    lossy("a/nic1:transmit", 99)(world)
    assert world.told() == [("no_carrier", A1)]
    lossy("a/nic1:receive", 99)(world)
    assert world.told() == [("dark_cable", "a/nic1 and b/nic1")]


def test_a_module_that_reports_nothing_is_a_finding_and_no_error(worlds):
    world = worlds()
    evidence = world.evidence()
    first = ("b", "nic1")
    silent = ReceiverReading(reason="Operation not supported")
    world.evidence = lambda: replace(evidence, received={**evidence.received, first: silent})
    (finding,) = world.findings()
    assert (finding.kind, finding.subject) == ("no_module_readings", "b/nic1")
    assert finding.detail == "Operation not supported"
    assert VerifyReport(48, 48, (finding,)).ok
    assert not VerifyReport(48, 48, (finding, WRONG_MTU.report("b/nic1", "1500"))).ok


def test_power_outside_the_modules_window_is_told_where_no_loss_is(worlds):
    world = worlds()
    evidence = world.evidence()
    first = ("b", "nic1")
    received = {
        **evidence.received,
        first: replace(evidence.received[first], thresholds=PowerThresholds(-20.0, -18.0, -6.0, -5.0)),
    }
    world.evidence = lambda: replace(evidence, received=received)
    (finding,) = world.findings()
    assert (finding.kind, finding.subject) == ("power_out_of_window", A1)
    assert (
        finding.detail == "b/nic1: lane 1 receives -1.8 dBm, more than the -5.0 dBm that its module tolerates"
    )


def test_one_weak_lane_of_four_is_told_by_proof_and_drift_alike(worlds):
    """Thresholds are of a lane: the four together carry -1.9 dBm, 0.1 dB less than planned."""
    world = worlds()
    evidence = world.evidence()
    reading = ReceiverReading((-7.0, -7.0, -7.0, -18.5), thresholds=PowerThresholds(-18.0, -17.0, 1.0, 2.0))
    received = {**evidence.received, ("b", "nic1"): reading}
    world.evidence = lambda: replace(evidence, received=received)
    (finding,) = world.findings()
    assert (finding.kind, finding.subject) == ("power_out_of_window", A1)
    assert (
        finding.detail == "b/nic1: lane 4 receives -18.5 dBm, less than the -18.0 dBm that its module needs"
    )
    assert tuple(judge_modules(world.lab, world.circuits, evidence.reading_by_switch, received)) == (finding,)


def test_a_dark_lane_of_four_is_no_loss_of_the_fibre(worlds):
    """The other three carry 1.2 dB less than four would: connectors that are cleaned bring no laser back."""
    world = worlds()
    evidence = world.evidence()
    lane_dbm = evidence.received["b", "nic1"].power_dbm - 10 * math.log10(4)
    reading = ReceiverReading(
        (lane_dbm, lane_dbm, -math.inf, lane_dbm), thresholds=PowerThresholds(-18.0, -17.0, 1.0, 2.0)
    )
    world.evidence = lambda: replace(evidence, received={**evidence.received, ("b", "nic1"): reading})
    (finding,) = world.findings()
    assert (finding.kind, finding.subject) == ("power_out_of_window", A1)
    assert finding.detail == "b/nic1: lane 3 receives no light, but others do"


def test_a_switch_that_does_not_hold_still_is_one_finding(worlds):
    world = worlds()
    evidence = world.evidence()
    world.evidence = lambda: replace(evidence, changing=("ocs1",))
    assert world.told() == [("changing", "ocs1")]


def test_packets_over_another_way_are_told_where_no_route_explains_it(worlds):
    world = worlds()
    evidence = world.evidence()
    (reached,) = evidence.reached
    pair = next(pair for pair, hops in reached.hop_count_by_pair.items() if hops == 1)
    reached = (replace(reached, hop_count_by_pair={**reached.hop_count_by_pair, pair: 2}),)
    world.evidence = lambda: replace(evidence, reached=reached)
    assert world.told() == [("wrong_path", " -> ".join(pair))]


def test_two_faults_are_both_told(worlds):
    world = worlds()
    without_routes(world, "k")
    lossy("a/nic1:transmit", 99)(world)
    world.change_interface("h/nic2", mtu=1500)
    assert world.told() == [("missing_route", "k"), ("no_light", A1), ("wrong_mtu", "h/nic2")]


def test_a_neighbour_that_points_at_a_host_that_is_off_is_not_compared(worlds):
    world = worlds()
    world.off["e"] = "no answer"
    entries = {key: Neighbour(entry.mac, True) for key, entry in world.kernels["d"].neighbours.items()}
    world.change("d", neighbours=entries)
    assert world.told() == [("host_off", "e")]
