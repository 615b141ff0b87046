"""Forwarding plans: following the written routes, link by link, reaches every address over the planned hops."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import library, skip_without

skip_without("asyncssh")
skip_without("pydantic")

from patch_lists import wiring_of

from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.route_sets import map_routes
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import make_matrix_demand
from testbed.errors import HostError
from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.hosts.forwarding import (
    find_blocks,
    install,
    list_set_addresses,
    plan_forwarding,
    read_macs,
)
from testbed.lab.inventory import parse_lab

balancing = library("testbed.design.routing.balancing")


def macs_of(lab):
    return {
        host.name: {nic.name: f"02:00:00:00:{h:02x}:{k:02x}" for k, nic in enumerate(host.nics)}
        for h, host in enumerate(lab.hosts)
    }


def routes_of(part):
    """Return destination -> (device, next hop) as one host's batch has them.

    The next hop of a direct route is itself.
    """
    table = {}
    for line in part.batch:
        words = line.split()
        if words[:2] == ["route", "replace"]:
            via = words[words.index("via") + 1] if "via" in words else words[2].removesuffix("/32")
            table[IPv4Network(words[2])] = (words[words.index("dev") + 1], via)
    return table


def taken(part, address):
    """Return device and next hop towards an address: the longest prefix counts."""
    table = routes_of(part)
    return table[max((one for one in table if IPv4Address(address) in one), key=lambda one: one.prefixlen)]


def neighbours_of(part):
    """Return (device, address) -> MAC."""
    found = {}
    for line in part.batch:
        words = line.split()
        if words[:2] == ["neigh", "replace"]:
            found[words[words.index("dev") + 1], words[2]] = words[words.index("lladdr") + 1]
    return found


topologies = st.one_of(
    st.tuples(st.just(True), st.integers(3, 9), st.integers(1, 3)),
    st.tuples(st.just(False), st.integers(3, 9), st.sampled_from([2])),
).filter(lambda drawn: drawn[1] > drawn[2])


@pytest.mark.long
@settings(max_examples=40)
@given(topologies)
def test_following_the_routes_reaches_every_address_over_the_planned_links(small_lab_text, drawn):
    simplex, nodes, degree = drawn
    lab = parse_lab(small_lab_text(nodes, degree), "x.yaml")
    wiring = make_wiring(find_topology(nodes, degree, simplex=simplex))
    routes = find_routes(wiring)
    macs = macs_of(lab)
    plan = plan_forwarding(lab, wiring, routes, macs)
    owner_of_mac = {mac: (host, nic) for host, nics in macs.items() for nic, mac in nics.items()}
    links = {lab.nic_label(link.source): lab.nic_label(link.target) for link in wiring.links}
    for s, source in enumerate(lab.hosts):
        for t, target in enumerate(lab.hosts):
            for address in [target.address, *(nic.address for nic in target.nics)] if s != t else []:
                here, hops = source.name, 0
                while here != target.name:
                    device, via = taken(plan[here], address)
                    host, nic = owner_of_mac[neighbours_of(plan[here])[device, via]]
                    # The frame goes where light goes, and its MAC address is that of the NIC there.
                    assert links[f"{here}/{device}"] == f"{host}/{nic}"
                    here, hops = host, hops + 1
                    assert hops <= nodes
                if address == target.address:
                    assert hops == routes.count_hops(s, t)


def planned_routes(topology, seed):
    """Return the routes of a plan whose pairs send drawn amounts, on the wiring of its topology too."""
    sent = np.random.default_rng(seed).random((topology.nodes, topology.nodes))
    routes = balancing.find_balanced_routes(
        topology, make_matrix_demand(sent * (1 - np.eye(topology.nodes))), seed=seed
    )
    wiring = make_wiring(topology)
    return routes, wiring, map_routes(routes, wiring)


@pytest.mark.slow
def test_every_set_reaches_its_addresses_over_the_planned_path(small_lab_text):
    followed = 0
    for nodes, degree in ((4, 2), (6, 4), (8, 4)):
        lab = parse_lab(small_lab_text(nodes, degree), "x.yaml")
        routes, wiring, sets = planned_routes(find_topology(nodes, degree), nodes)
        plan = plan_forwarding(lab, wiring, sets[0], macs_of(lab), sets[1:])
        owner = {nic.address: (node, nic) for node, host in enumerate(lab.hosts) for nic in host.nics}
        for one in routes.list_routes():
            address = str(list_set_addresses(lab.hosts[one.target])[one.set_number])
            here, path = one.source, [one.source]
            while here != one.target:
                _, via = taken(plan[lab.hosts[here].name], address)
                here, _ = owner[IPv4Address(via)]
                path.append(here)
            assert tuple(path) == routes.list_nodes(one.path)
            followed += one.set_number > 0
        for host in lab.hosts:
            lines = [line.split() for line in plan[host.name].batch]
            installed = [line for line in lines if line[:2] == ["route", "replace"]]
            assert len(installed) <= routes.set_count * (nodes - 1) + degree
            assert len({line[2] for line in installed}) == len(installed)
            assert not any("nexthop" in line for line in lines)  # the kernel would hash over them
            own = list_set_addresses(host)[: routes.set_count]
            for line in installed:
                source = line[line.index("src") + 1]
                assert IPv4Address(source) in own
                if line[2].startswith("198.18."):
                    assert int(IPv4Address(source)) % 4 == int(IPv4Address(line[2].split("/")[0])) % 4
            held = [line[2] for line in lines if line[:2] == ["addr", "replace"] and line[4] == "lo"]
            assert held == [f"{address}/32" for address in own]
    assert followed >= 60


def with_addresses(lab, *rows):
    """Return a lab whose hosts have these addresses: the node address, then those of the NICs."""
    hosts = [
        replace(
            host,
            address=IPv4Address(first),
            nics=tuple(
                replace(nic, address=IPv4Address(address))
                for nic, address in zip(host.nics, nics, strict=True)
            ),
        )
        for host, (first, *nics) in zip(lab.hosts, rows, strict=True)
    ]
    return replace(lab, hosts=tuple(hosts))


def blocks(lab):
    return [[str(block) for block in find_blocks(lab, host)] for host in lab.hosts]


def test_addresses_of_a_host_are_one_block_where_nobody_else_is_in_it(lab):
    assert blocks(lab) == [["10.100.1.0/25"], ["10.100.2.0/25"], ["10.100.3.0/25"]]
    by_switch = [(f"10.0.0.{h}", f"10.0.1.{h}", f"10.0.2.{h}") for h in (1, 2, 3)]
    assert blocks(with_addresses(lab, *by_switch))[0] == ["10.0.0.1/32", "10.0.1.1/32", "10.0.2.1/32"]
    apart = [(f"10.0.{h}.1", f"10.1.{h}.2", f"10.1.{h}.3") for h in (1, 2, 3)]
    assert blocks(with_addresses(lab, *apart))[0] == ["10.0.1.1/32", "10.1.1.2/31"]
    mixed = [("10.0.0.1", "10.0.0.2", "10.0.0.6"), ("10.0.0.5", "10.0.1.2", "10.0.1.3")]
    assert blocks(with_addresses(lab, *mixed, ("10.0.2.1", "10.99.0.2", "10.99.0.3"))) == [
        ["10.0.0.0/30", "10.0.0.6/32"],
        ["10.0.0.5/32", "10.0.1.2/31"],
        ["10.0.2.1/32", "10.99.0.2/32", "10.99.0.3/32"],  # the management network is nobody's
    ]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.integers(0, 2**11 - 1), min_size=9, max_size=9, unique=True))
def test_blocks_hold_the_addresses_of_their_host_and_of_no_other(small_lab_text, drawn):
    lab = parse_lab(small_lab_text(3, 2), "x.yaml")
    rows = [[str(IPv4Address("172.16.0.0") + one) for one in drawn[at : at + 3]] for at in (0, 3, 6)]
    lab = with_addresses(lab, *rows)
    for host, own in zip(lab.hosts, rows, strict=True):
        found = find_blocks(lab, host)
        others = {IPv4Address(one) for row in rows if row is not own for one in row}
        assert all(sum(IPv4Address(one) in block for block in found) == 1 for one in own)
        assert not any(one in block for block in found for one in others)
        assert all(block.prefixlen >= 24 for block in found)


def test_hosts_whose_set_addresses_would_be_the_same_are_refused(lab):
    twin = replace(lab.hosts[1], address=IPv4Address(int(lab.hosts[0].address) + 2**15))
    lab = replace(lab, hosts=(lab.hosts[0], twin, lab.hosts[2]))
    _, wiring, sets = planned_routes(find_topology(3, 2), 1)
    with pytest.raises(HostError, match=r"hosts a and b would both get address 198\.18"):
        plan_forwarding(lab, wiring, sets[0], macs_of(lab), (sets[0],))


@pytest.fixture
def lab(small_lab_text):
    return parse_lab(small_lab_text(3, 2), "x.yaml")


@pytest.fixture
def ring_plan(lab):
    wiring = make_wiring(find_topology(3, 2))
    return plan_forwarding(lab, wiring, find_routes(wiring), macs_of(lab))


def test_the_plan_of_one_host_in_full(ring_plan):
    part = ring_plan["a"]
    assert part.batch == (
        "route flush proto 107",
        "addr flush dev lo label lo:lightbed",
        "addr replace 10.100.1.100/32 dev lo label lo:lightbed",
        "link set dev nic1 mtu 9000 up",
        "neigh flush dev nic1 nud all",
        "addr flush dev nic1",
        "addr replace 10.100.1.1/32 dev nic1",
        "link set dev nic2 mtu 9000 up",
        "neigh flush dev nic2 nud all",
        "addr flush dev nic2",
        "addr replace 10.100.1.2/32 dev nic2",
        "neigh replace 10.100.2.1 lladdr 02:00:00:00:01:00 nud permanent dev nic1",
        "neigh replace 10.100.3.1 lladdr 02:00:00:00:02:00 nud permanent dev nic2",
        "route flush root 10.100.2.0/25",
        "route flush root 10.100.3.0/25",
        "route replace 10.100.2.1/32 dev nic1 scope link src 10.100.1.100 proto 107",
        "route replace 10.100.3.1/32 dev nic2 scope link src 10.100.1.100 proto 107",
        "route replace 10.100.2.0/25 dev nic1 via 10.100.2.1 onlink src 10.100.1.100 proto 107",
        "route replace 10.100.3.0/25 dev nic2 via 10.100.3.1 onlink src 10.100.1.100 proto 107",
    )
    assert part.batch_text.splitlines() == list(part.batch)


def test_the_kernel_settings_cover_all_default_and_every_nic(ring_plan):
    words = shlex.split(ring_plan["a"].install_command)
    assert words[:3] == ["sysctl", "-q", "-w"]
    assert words[-4:] == ["&&", "ip", "-batch", "-"]
    expected = {"net/ipv4/ip_forward=1", "net/ipv4/tcp_no_metrics_save=1"} | {
        f"net/ipv4/conf/{name}/{key}"
        for name in ("all", "default", "nic1", "nic2")
        for key in ("arp_ignore=1", "arp_announce=2", "rp_filter=0", "send_redirects=0")
    }
    expected |= {f"net/ipv4/conf/{nic}/forwarding=1" for nic in ("nic1", "nic2")}
    assert set(words[3:-4]) == expected


def test_parallel_links_have_a_route_of_their_own(small_lab_text):
    lab = parse_lab(small_lab_text(2, 2), "x.yaml")
    wiring = wiring_of(["A1-B1", "A2-B2"], 2, 2)
    table = routes_of(plan_forwarding(lab, wiring, find_routes(wiring), macs_of(lab))["a"])
    assert table[IPv4Network("10.100.2.1")] == ("nic1", "10.100.2.1")
    assert table[IPv4Network("10.100.2.2")] == ("nic2", "10.100.2.2")


class ScriptedFleet:
    """Answers commands from a table; keeps what it was told. Stands for SSH."""

    def __init__(self, hosts, answer):
        self.hosts = hosts
        self.answer = answer
        self.calls = []

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        self.calls.append((dict(commands), dict(stdin or {})))
        return {host: CommandResult(host, *self.answer(host)) for host in commands}


def listing(host, **changes):
    interfaces = [
        {"ifname": nic.name, "address": f"02:{host.name}:{nic.name}", "addr_info": []} for nic in host.nics
    ]
    interfaces.append({"ifname": "mgmt", "address": "02:x", "addr_info": [{"local": str(host.management)}]})
    return json.dumps([entry | changes.get(entry["ifname"], {}) for entry in interfaces])


def test_macs_are_read_once_per_host(lab):
    fleet = ScriptedFleet(
        lab.hosts, lambda name: (0, listing(next(h for h in lab.hosts if h.name == name)), "")
    )
    assert read_macs(fleet)["b"] == {"nic1": "02:b:nic1", "nic2": "02:b:nic2"}
    assert len(fleet.calls) == 1


def test_an_interface_that_is_not_there_is_named(lab):
    fleet = ScriptedFleet(lab.hosts, lambda name: (0, json.dumps([{"ifname": "lo"}]), ""))
    with pytest.raises(HostError, match=r"host a has no interface nic1 \(it has lo\); correct the lab file"):
        read_macs(fleet)


def test_the_management_interface_is_never_touched(lab):
    host = lab.hosts[0]
    carries = {"nic2": {"addr_info": [{"local": str(host.management)}]}}
    fleet = ScriptedFleet(lab.hosts, lambda name: (0, listing(host, **carries), ""))
    with pytest.raises(HostError, match=r"nic2 of host a carries the management address 10\.99\.0\.11"):
        read_macs(fleet)


def test_installation_is_one_command_a_host(lab, ring_plan):
    fleet = ScriptedFleet(lab.hosts, lambda name: (0, "", ""))
    install(fleet, ring_plan)
    ((commands, inputs),) = fleet.calls
    assert set(commands) == set(inputs) == {"a", "b", "c"}
    assert inputs["b"] == ring_plan["b"].batch_text


def test_every_host_that_fails_is_named_with_its_last_word(lab, ring_plan):
    fleet = ScriptedFleet(
        lab.hosts, lambda name: (0, "", "") if name == "a" else (1, "", f"first\nno {name}")
    )
    with pytest.raises(
        HostError, match="routes cannot be installed on b: no b; c: no c; log in there"
    ) as caught:
        install(fleet, ring_plan)
    assert caught.value.host == "b"


def test_addresses_are_those_of_the_lab_file(lab, ring_plan):
    for host in lab.hosts:
        given_out = [
            IPv4Address(line.split()[2].removesuffix("/32"))
            for line in ring_plan[host.name].batch
            if line.startswith("addr replace")
        ]
        assert given_out == [host.address, *(nic.address for nic in host.nics)]
