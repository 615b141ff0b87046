"""The whole way on hosts that are real to the kernel: patch, forward, ping, probe, and what faults look like."""

from __future__ import annotations

import itertools
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import library, skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from patch_lists import wiring_of

from ocs_drivers import open_switch
from ocs_drivers.model import CrossConnects
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.route_sets import map_routes
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import make_demand
from testbed.lab.control import send_request
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.hosts.forwarding import install, list_set_addresses, plan_forwarding, read_macs
from testbed.lab.hosts.probe import probe_links
from testbed.lab.hosts.reachability import ping_all
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.apply import apply_plan
from testbed.operate.journal import Journal
from testbed.operate.plan import plan_lab
from testbed.operate.probe_findings import count_received_links, judge_probe
from testbed.operate.proof.judge import verify_lab

balancing = library("testbed.design.routing.balancing")

pytestmark = pytest.mark.kernel

RING = make_wiring(find_topology(4, 2))
CROSSED = wiring_of(["A1-C1", "A2-D2", "B1-C2", "B2-D1"], 4, 2)
PARALLEL = wiring_of(["A1-B1", "A2-B2", "C1-D1", "C2-D2", "B3-C3"], 4, 3)
ONE_WAY = make_wiring(find_topology(4, 2, simplex=True))
epochs = itertools.count(1)


def four_hosts(lab):
    """Return the first four hosts of the 12-host lab with three NICs each, under a name of their own."""
    python = str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:3], python=python) for host in lab.hosts[:4])
    return replace(lab, name=f"four-{os.getpid()}", hosts=hosts)


class Bench:
    """The lab under test with everything open; `bring_up` patches and installs routes."""

    def __init__(self, up, fleet, switch, journal):
        self.up, self.lab, self.fleet, self.switch, self.journal = up, up.lab, fleet, switch, journal
        self.switches = {"ocs1": switch}
        self.macs = read_macs(fleet)

    def patch(self, wiring):
        plan = plan_lab(self.lab, wiring, self.switches)
        apply_plan(self.lab, plan, self.switches, self.journal)
        return plan

    def forward(self, wiring):
        install(self.fleet, plan_forwarding(self.lab, wiring, find_routes(wiring), self.macs))

    def bring_up(self, wiring):
        plan = self.patch(wiring)
        self.forward(wiring)
        return plan

    def probe(self, wiring):
        heard = probe_links(self.fleet, self.lab, next(epochs), window_s=0.2)
        return heard, judge_probe(self.lab, wiring, heard)

    def plant(self, do, **details):
        return send_request(self.up.control_addresses["plant"], {"do": do, **details})


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench(testbed12, tmp_path_factory):
    journal_path = tmp_path_factory.mktemp("journal") / "journal.sqlite"
    with (
        start_lab(four_hosts(testbed12), hosts="kernel", may_move=True) as up,
        SshFleet(up.lab) as fleet,
        open_switch(up.lab.switches[0].address) as switch,
        Journal(journal_path) as journal,
    ):
        yield Bench(up, fleet, switch, journal)


@pytest.mark.parametrize("wiring", [RING, CROSSED, ONE_WAY], ids=["ring", "crossed", "one-way"])
def test_every_pair_reaches_every_other_over_the_planned_hops(bench, wiring):
    bench.bring_up(wiring)
    reached = ping_all(bench.fleet)
    assert reached.missing_pairs == ()
    routes = find_routes(wiring)
    names = [host.name for host in bench.lab.hosts]
    planned = {(names[s], names[t]): routes.count_hops(s, t) for s in range(4) for t in range(4) if s != t}
    assert reached.hop_count_by_pair == planned
    assert max(planned.values()) >= 2, "somebody must forward"


@pytest.mark.parametrize("wiring", [RING, PARALLEL, ONE_WAY], ids=["ring", "parallel", "one-way"])
def test_a_healthy_lab_verifies(bench, wiring):
    plan = bench.bring_up(wiring)
    report = verify_lab(bench.lab, plan, bench.switches, bench.fleet, epoch=next(epochs))
    assert report.findings == ()
    assert report.links_received == report.circuits == len(wiring.links)


def sent_bytes(bench, host):
    """Return what each NIC of a host has sent so far."""
    names = [nic.name for nic in bench.lab.hosts[host].nics]
    files = " ".join(f"/sys/class/net/{name}/statistics/tx_bytes" for name in names)
    name = bench.lab.hosts[host].name
    return dict(
        zip(names, map(int, bench.fleet.run({name: f"cat {files}"})[name].stdout.split()), strict=True)
    )


def test_each_set_of_routes_carries_what_its_addresses_send_and_is_proven(bench):
    """Hosts 0 and 2 of the ring have two paths, one in each set: by 1 and by 3."""
    topology = find_topology(4, 2)
    found = balancing.find_balanced_routes(topology, make_demand(4, (), [(0, 2, 1e6), (2, 0, 1e6)]))
    sets = map_routes(found, RING)
    used = [number for number in range(found.set_count) if found.weight[number, 0, 2] > 0]
    plan = bench.patch(RING)
    install(bench.fleet, plan_forwarding(bench.lab, RING, sets[0], bench.macs, sets[1:]))
    one, other = bench.lab.hosts[0], bench.lab.hosts[2]
    taken = set()
    for number in used:
        address = list_set_addresses(other)[number]
        nic = bench.lab.get_nic(sets[number].first_link[0, 2].source).name
        before = sent_bytes(bench, 0)
        command = f"ip -4 -o route get {address}; ping -q -c 100 -i 0.01 -s 1400 {address}"
        said = bench.fleet.run({one.name: command})[one.name].stdout
        after = sent_bytes(bench, 0)
        assert f"src {list_set_addresses(one)[number]} " in said
        assert "100 received" in said
        carried = {name: after[name] - before[name] for name in after}
        assert carried[nic] >= 140_000
        assert all(carried[name] <= 14_000 for name in carried if name != nic)
        taken.add(nic)
    assert len(taken) == 2

    def findings():
        report = verify_lab(
            bench.lab,
            plan,
            bench.switches,
            bench.fleet,
            epoch=next(epochs),
            routes=sets[0],
            further_routes=sets[1:],
        )
        return [(finding.kind, finding.subject) for finding in report.findings]

    assert findings() == []
    last, address = used[-1], list_set_addresses(other)[used[-1]]
    between = bench.lab.hosts[sets[last].first_link[0, 2].target.node].name
    policy = f"src 0.0.0.0/0 dst {address}/32 dir fwd"  # of IPsec: nothing that a proof compares
    bench.fleet.run({between: f"ip xfrm policy add {policy} action block"})
    assert findings() == [("unreachable", f"{one.name} -> {other.name} (set {last} of routes)")]
    bench.fleet.run({between: f"ip xfrm policy del {policy}"})
    bench.fleet.run({one.name: f"ip route del {address}/32"})
    assert findings() == [("missing_route", one.name)]


def test_traffic_is_back_at_once_after_a_switch_change(bench):
    """The old neighbours would be wrong for half a minute, and pings wait for seconds at most."""
    bench.bring_up(RING)
    assert ping_all(bench.fleet).is_complete
    bench.patch(CROSSED)
    bench.forward(CROSSED)
    assert ping_all(bench.fleet, deadline_s=15.0).missing_pairs == ()


def test_installing_again_and_over_another_epoch_leaves_no_leftovers(bench):
    def state():
        return {
            host: result.stdout
            for host, result in bench.fleet.run(
                {
                    host.name: "ip -4 route; ip -4 neigh show nud permanent; ip -4 address show; ip rule"
                    for host in bench.lab.hosts
                }
            ).items()
        }

    bench.bring_up(RING)
    first = state()
    bench.forward(RING)
    assert strip_order(state()) == strip_order(first)
    bench.bring_up(CROSSED)
    bench.bring_up(RING)
    assert strip_order(state()) == strip_order(first)


def strip_order(states):
    return {host: sorted(line.strip() for line in text.splitlines()) for host, text in states.items()}


def test_the_management_interface_is_left_alone(bench):
    def management():
        commands = {
            host.name: f"ip -4 -o address show to {host.management}; ip -4 route show proto kernel"
            for host in bench.lab.hosts
        }
        return {host: result.stdout for host, result in bench.fleet.run(commands).items()}

    before = management()
    bench.bring_up(RING)
    assert management() == before
    assert all(text.strip() for text in before.values())


def raw_scpi(bench, line):
    """Send one line to the switch by a bare socket, as a second operator would."""
    host, port = bench.lab.switches[0].address.removeprefix("polatis+scpi://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(line + b";*OPC?\r\n")
        assert connection.recv(100).strip() == b"1"


def test_a_circuit_taken_down_by_a_raw_line_stops_exactly_its_link_and_verify_names_it(bench):
    plan = bench.bring_up(RING)
    circuit = plan.circuits[0]
    raw_scpi(bench, f":oxc:swit:conn:sub (@{circuit.input_port}),(@{circuit.output_port})".encode())
    heard, findings = bench.probe(RING)
    label = bench.lab.link_label(circuit.link)
    assert [(finding.kind, finding.subject) for finding in findings] == [("no_carrier", label)]
    # The reverse link ends in a NIC that still has light; it is silent because its sender has none.
    assert count_received_links(bench.lab, RING, heard) == len(RING.links) - 2
    report = verify_lab(bench.lab, plan, bench.switches, bench.fleet, epoch=next(epochs))
    assert [(finding.kind, finding.subject) for finding in report.findings] == [("missing_circuit", label)]
    assert bench.bring_up(RING).has_changes
    assert bench.probe(RING)[1] == ()


@pytest.mark.parametrize("end", ["transmit", "receive"])
def test_swapped_fibres_of_the_same_pair_of_hosts_are_named(bench, end):
    bench.bring_up(PARALLEL)
    bench.plant("swap", fibres=[f"a/nic1:{end}", f"a/nic2:{end}"])
    try:
        _, findings = bench.probe(PARALLEL)
    finally:
        bench.plant("unswap")
    (finding,) = findings
    assert finding.kind == "swapped"
    moved = ("a/nic1 -> b/nic1", "a/nic2 -> b/nic2")
    if end == "receive":
        moved = ("b/nic1 -> a/nic1", "b/nic2 -> a/nic2")
    assert finding.subject == " and ".join(moved)
    assert bench.probe(PARALLEL)[1] == ()


def test_a_cut_fibre_is_named_and_heals(bench):
    plan = bench.bring_up(RING)
    bench.plant("cut", fibre="c/nic1:transmit")
    try:
        report = verify_lab(bench.lab, plan, bench.switches, bench.fleet, epoch=next(epochs))
    finally:
        bench.plant("uncut", fibre="c/nic1:transmit")
    victim = next(link for link in RING.links if bench.lab.nic_label(link.source) == "c/nic1")
    told = [(finding.kind, finding.subject) for finding in report.findings]
    assert told == [("no_light", bench.lab.link_label(victim))]
    assert verify_lab(bench.lab, plan, bench.switches, bench.fleet, epoch=next(epochs)).ok


def test_in_the_dark_nobody_hears_anybody(bench):
    bench.switch.apply(CrossConnects())
    heard, findings = bench.probe(RING)
    assert {finding.kind for finding in findings} == {"no_carrier"}
    assert len(findings) == len(RING.links)
    assert not any(nic.has_carrier or nic.frames for nic in heard.nics.values())
