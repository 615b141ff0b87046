"""AllReduce on hosts that are real to the kernel: bytes prove the rings; every failure has a name and an end."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import library, skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")
skip_without("jsonschema")

from testbed.design.model import RingOrder
from testbed.design.topology.demand import make_demand
from testbed.design.topology.strides import list_rings
from testbed.errors import CollectiveError, CollectiveTimeout, WrongResult
from testbed.lab.control import send_request
from testbed.lab.hosts.reachability import ping_all
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.measure.collectives.ranks import CollectiveSpec, Configuration, run_collectives
from testbed.measure.collectives.rows import find_misplaced_traffic
from testbed.measure.collectives.spec import make_all_to_all
from testbed.measure.stall import run_tcp_stream
from testbed.operate.design import build_design, replace_routes
from testbed.operate.journal import Journal
from testbed.operate.session import open_lab

balancing = library("testbed.design.routing.balancing")

ROOT = Path(__file__).parents[3]
HOST_PYTHON = ROOT / ".venv-host" / "bin" / "python"
MIB = 1 << 20

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        not HOST_PYTHON.exists(), reason="needs torch on the simulated hosts: `make install` makes .venv-host"
    ),
]

# Ranks and guards among a host's own processes (the shell that looks has brackets where they have a dot).
OUR_PROCESSES = "grep -lsE 'collective[.]py|guard[.]py' /proc/[0-9]*/cmdline || true"
KILL_THE_RANK = """
for process in $(grep -ls 'collective[.]py' /proc/[0-9]*/cmdline); do
    grep -qs 'guard[.]py' $process || kill -9 $(echo $process | cut -d/ -f3)
done
"""
# What a card with a broken offload engine does: one byte of every large segment is not what was sent. No checksum
# notices, because between hosts of one kernel none is computed.
CORRUPT = """
table netdev corrupt {
    chain received {
        type filter hook ingress device nic1 priority 0;
        meta l4proto tcp meta length > 8000 @th,4000,8 set 0x7f
    }
}
"""


def lab_text(hosts, nics):
    """Return a lab file with one switch, fibres in order."""
    ports = hosts * nics
    lines = [
        f"name: collective-{hosts}-{os.getpid()}",
        "simulated: true",
        "management: 10.99.0.0/24",
        "link: {rate_mbps: 100, represents_gbps: 25, mtu: 9000}",
        "switches:",
        f"  - {{name: ocs1, address: 'polatis+scpi://10.99.0.2:5025', inputs: {ports}, outputs: {ports}}}",
        f"ssh: {{python: '{HOST_PYTHON}'}}",
        "hosts:",
    ]
    for host in range(hosts):
        lines += [f"  - name: {chr(ord('a') + host)}", f"    management: 10.99.0.{11 + host}"]
        lines += [f"    address: 10.100.{host + 1}.100", "    nics:"]
        for nic in range(nics):
            port = host * nics + nic + 1
            place = f"name: nic{nic + 1}, address: 10.100.{host + 1}.{nic + 1}"
            lines.append(f"      - {{{place}, transmit: 'ocs1:{port}', receive: 'ocs1:{ports + port}'}}")
    return "\n".join(lines) + "\n"


class Bench:
    """A lab that is up, with a design in force."""

    def __init__(self, up, session, design):
        self.up, self.session, self.design = up, session, design
        self.lab, self.fleet = session.lab, session.fleet
        self.brought = session.bring_up(design)
        assert self.brought.verify_report.findings == ()

    def run(self, *configurations, lab=None, deadline_s=240.0, on_progress=lambda *_: None):
        spec = CollectiveSpec("run", self.design.name, configurations, min_time_s=0.05)
        parts = (lab or self.lab, self.design.wiring, self.design.routes, spec)
        return run_collectives(self.fleet, *parts, deadline_s=deadline_s, on_progress=on_progress)

    def short_deadline_s(self):
        """Return seconds in which ranks get ready and end on a machine as busy as this, and ten to notice nothing."""
        began = time.monotonic()
        self.run(self.rings("one ring", 1024, count=1))
        return 10 + 2 * (time.monotonic() - began)

    def rings(self, name, *sizes, count=None):
        return Configuration(name, list_rings(self.design.topology)[:count], sizes)

    def cut(self, fibre):
        send_request(self.up.control_addresses["plant"], {"do": "cut", "fibre": fibre})

    def splice(self, fibre):
        send_request(self.up.control_addresses["plant"], {"do": "uncut", "fibre": fibre})

    @contextmanager
    def spliced_again(self, fibre):
        try:
            yield
        finally:
            self.splice(fibre)
            self.session.install_routes(self.design)

    def our_processes(self):
        found = self.fleet.run({host.name: OUR_PROCESSES for host in self.lab.hosts})
        return {host: done.stdout for host, done in found.items() if done.stdout}

    def links_of(self, ring):
        """Return the links that join neighbours of a ring, as (host, NIC) that send on them."""
        nodes = self.design.wiring.nodes
        sources = (
            link.source
            for link in self.design.wiring.links
            if (link.target.node - link.source.node) % nodes == ring.stride
        )
        return {(self.lab.hosts[nic.node].name, self.lab.get_nic(nic).name) for nic in sources}

    def link_into(self, label):
        links = self.design.wiring.links
        return next(self.lab.link_label(ln) for ln in links if self.lab.nic_label(ln.target) == label)


@contextmanager
def bench(directory, hosts, nics, *, simplex=False):
    path = directory / "lab.yaml"
    path.write_text(lab_text(hosts, nics))
    with (
        start_lab(load_lab(path), hosts="kernel", may_move=True) as up,
        Journal(directory / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        yield Bench(up, session, build_design(up.lab, simplex=simplex))


@pytest.fixture(scope="module")
@needs("process", "socket")
def small(tmp_path_factory):
    """Provide four hosts in a ring, two NICs each."""
    with bench(tmp_path_factory.mktemp("small"), 4, 2) as four:
        yield four


# ---------------------------------------------------------------------------------- the bytes prove the rings
@pytest.fixture(scope="module")
@needs("process", "socket")
def twelve(tmp_path_factory):
    with bench(tmp_path_factory.mktemp("twelve"), 12, 4) as hosts:
        yield hosts


@pytest.fixture(scope="module", params=["small", pytest.param("twelve", marks=pytest.mark.long)])
def proof(request):
    """Provide the hosts on which one launch is measured."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def measured(proof):
    """Provide one launch: one ring, all rings, all as when ranks get sorted, and exchanges over hops."""
    hosts = len(proof.lab.hosts)
    in_order = [RingOrder(ring.stride, tuple(range(hosts))) for ring in list_rings(proof.design.topology)]
    return proof.run(
        proof.rings("one ring", 4096, MIB, count=1),
        proof.rings("all rings", 4096, MIB),
        Configuration("sorted", tuple(in_order), (MIB,)),
        make_all_to_all("all-to-all", hosts, (MIB,)),
        Configuration("hops", (), (MIB,), ((0, 3 if hosts == 12 else 2),)),
    )


def sent_by(result, configuration):
    rows = (e for e in result.nic_bytes if (e.configuration, e.size_bytes) == (configuration, MIB))
    return {(entry.host, entry.nic): entry for entry in rows}


def iterations_of(result, configuration):
    rows = (t for t in result.timings if (t.configuration, t.size_bytes) == (configuration, MIB))
    return next(rows).iterations


@pytest.mark.parametrize(("name", "count"), [("one ring", 1), ("all rings", None)])
def test_each_ring_lies_on_its_links_and_nowhere_else(proof, measured, name, count):
    hosts, rings = len(proof.lab.hosts), list_rings(proof.design.topology)[:count]
    ring_bytes = 2 * (hosts - 1) / hosts * MIB / len(rings) * iterations_of(measured, name)
    idle = sent_by(measured, name)
    nics = len(proof.design.wiring.links)
    assert len(idle) == nics
    for ring in rings:
        places = proof.links_of(ring)
        assert len(places) == hosts
        shares = [idle.pop(place).sent_bytes for place in places]
        assert shares == [pytest.approx(ring_bytes, rel=0.05)] * hosts
    assert len(idle) == nics - hosts * len(rings)
    assert max((entry.sent_bytes for entry in idle.values()), default=0) < 0.02 * ring_bytes


@pytest.mark.long
def test_an_exchange_takes_all_sets_of_routes_with_their_weights(small):
    """Hosts 0 and 2 of the ring have two ways, one in each set."""
    topology = small.design.topology
    sets = balancing.find_balanced_routes(topology, make_demand(4, (), [(0, 2, 1e6), (2, 0, 1e6)]))
    design = replace_routes(small.design, sets)
    small.session.install_routes(design)
    across = Configuration("across", (), (4 * MIB,), ((0, 2), (2, 0)))
    spec = CollectiveSpec("run", "sets", (across,), min_time_s=0.05, sets=sets)
    parts = (small.lab, design.wiring, design.routes, spec)
    result = run_collectives(small.fleet, *parts, deadline_s=240.0)
    small.session.install_routes(small.design)
    assert find_misplaced_traffic(result.nic_bytes) == ()
    (timing,) = result.timings
    assert timing.limit_mbps == pytest.approx(2 * small.lab.link.rate_mbps)
    assert sum(entry.sent_bytes > MIB for entry in result.nic_bytes) == 8


def test_the_check_that_ships_agrees(measured):
    others = {"sorted", "all-to-all"}
    assert (
        find_misplaced_traffic([entry for entry in measured.nic_bytes if entry.configuration not in others])
        == ()
    )


def test_an_exchange_sends_what_was_planned_and_lost_packets_again(proof, measured):
    """Exchanges over several hops overflow queues; on a busy machine some NIC sends a twentieth again, and more."""
    sent = sent_by(measured, "all-to-all")
    again = [entry.sent_bytes / entry.expected_bytes for entry in sent.values() if entry.expected_bytes]
    assert len(again) == len(proof.design.wiring.links)
    assert min(again) >= 0.95
    assert max(again) <= 1.5


def test_sorted_ranks_put_all_rings_on_the_same_links_and_the_check_says_so(proof, measured):
    rings = list_rings(proof.design.topology)
    planned = sent_by(measured, "all rings")
    scale = iterations_of(measured, "sorted") / iterations_of(measured, "all rings")
    as_planned = {
        place: replace(entry, expected_bytes=planned[place].expected_bytes * scale)
        for place, entry in sent_by(measured, "sorted").items()
    }
    assert len(find_misplaced_traffic(list(as_planned.values()))) == len(proof.design.wiring.links)
    heavy = {place: e.sent_bytes / e.expected_bytes for place, e in as_planned.items() if e.sent_bytes > MIB}
    assert heavy.keys() == proof.links_of(rings[0])
    assert list(heavy.values()) == [pytest.approx(len(rings), rel=0.05)] * len(proof.lab.hosts)


def test_timings_follow_their_definitions(proof, measured):
    hosts, rings = len(proof.lab.hosts), len(list_rings(proof.design.topology))
    names = [(timing.configuration, timing.size_bytes, timing.rings) for timing in measured.timings]
    assert names == [
        ("one ring", 4096, 1),
        ("one ring", MIB, 1),
        ("all rings", 4096, rings),
        ("all rings", MIB, rings),
        ("sorted", MIB, rings),
        ("all-to-all", MIB, 0),
        ("hops", MIB, 0),
    ]
    for timing in measured.timings:
        reduced = timing.collective == "all_reduce"
        assert (timing.wrong, timing.simulated) == (0, True)
        assert timing.ranks == (2 if timing.collective == "sendrecv" else hosts)
        assert 2 <= timing.iterations <= 20
        assert timing.algbw_mbps == pytest.approx(timing.size_bytes * 8 / timing.time_us)
        assert timing.busbw_mbps == pytest.approx(
            timing.algbw_mbps * (2 * (hosts - 1) / hosts if reduced else 1)
        )
        assert timing.busbw_mbps < timing.limit_mbps * 1.1, "the token bucket allows 16 KB at once"
    limits = {timing.configuration: timing.limit_mbps for timing in measured.timings}
    assert (limits["one ring"], limits["all rings"]) == pytest.approx((100, 100 * rings))
    assert measured.versions.keys() == {"torch", "host_python", "host_system", "collective_backend"}
    assert proof.our_processes() == {}


# --------------------------------------------------------------------------------------------- one-way links
@pytest.fixture(scope="module")
@needs("process", "socket")
def thirteen(tmp_path_factory):
    """Provide thirteen hosts with four one-way links each."""
    with bench(tmp_path_factory.mktemp("thirteen"), 13, 4, simplex=True) as hosts:
        yield hosts


@pytest.mark.long
def test_one_way_links_are_patched_proven_and_routed(thirteen):
    wiring, routes = thirteen.design.wiring, thirteen.design.routes
    assert (wiring.simplex, len(wiring.links), thirteen.brought.verify_report.links_received) == (
        True,
        52,
        52,
    )
    pairs = {(link.source.node, link.target.node) for link in wiring.links}
    assert any((target, source) not in pairs for source, target in pairs)
    reached = ping_all(thirteen.fleet, deadline_s=10)
    assert reached.missing_pairs == ()
    names = [host.name for host in thirteen.lab.hosts]
    assert reached.hop_count_by_pair == {
        (names[s], names[t]): routes.count_hops(s, t) for s in range(13) for t in range(13) if s != t
    }


@pytest.mark.long
def test_a_ring_on_one_way_links_runs_in_their_direction(thirteen):
    result = thirteen.run(thirteen.rings("one ring", MIB, count=1))
    assert find_misplaced_traffic(result.nic_bytes) == ()
    busy = {(entry.host, entry.nic) for entry in result.nic_bytes if entry.sent_bytes > MIB}
    assert busy == thirteen.links_of(list_rings(thirteen.design.topology)[0])
    assert len(busy) == 13


# -------------------------------------------------------------------------------------------------- failures
@pytest.mark.long
def test_a_circuit_cut_before_the_run_is_named_within_the_deadline_and_leaves_nothing(small):
    fibre, deadline_s = "c/nic2:receive", small.short_deadline_s()
    with small.spliced_again(fibre):
        small.cut(fibre)
        with pytest.raises(CollectiveTimeout) as caught:
            small.run(
                small.rings("one ring", MIB, count=1), small.rings("two rings", MIB), deadline_s=deadline_s
            )
        assert small.our_processes() == {}
    message = str(caught.value)
    assert message.startswith("the AllReduce did not finish: rank 2 (c, at ")
    assert message.endswith(f" has no light on {small.link_into('c/nic2')}. All ranks were ended")


@pytest.mark.long
def test_a_circuit_cut_during_the_run_is_named_within_the_deadline_and_leaves_nothing(small):
    fibre, deadline_s = "b/nic1:receive", small.short_deadline_s()
    told = []

    def cut_after_the_first_row(*progress):
        told.append(progress)
        small.cut(fibre)

    with small.spliced_again(fibre):
        with pytest.raises(CollectiveTimeout) as caught:
            rings = small.rings("two rings", 65536, 32 * MIB, 8 * MIB)
            small.run(rings, deadline_s=deadline_s, on_progress=cut_after_the_first_row)
        assert small.our_processes() == {}
    assert told == [(1, 3, "default, two rings, 65536 B")]
    where = f"rank 1 (b, at two rings, {32 * MIB} B) has no light on {small.link_into('b/nic1')}"
    assert str(caught.value) == f"the AllReduce did not finish: {where}. All ranks were ended"


def test_corruption_on_the_way_is_seen(small):
    if shutil.which("nft", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip("needs nft to corrupt packets: `make install` as root")
    made = small.fleet.run({"b": "PATH=$PATH:/usr/sbin nft -f -"}, stdin={"b": CORRUPT})
    assert (made["b"].exit_status, made["b"].stderr) == (0, "")
    try:
        with pytest.raises(
            WrongResult, match=r"two rings, 1048576 B: wrong elements in the result: \d+ on rank \d"
        ):
            small.run(small.rings("two rings", MIB))
    finally:
        small.fleet.run({"b": "PATH=$PATH:/usr/sbin nft delete table netdev corrupt"})
    assert small.our_processes() == {}


@pytest.mark.long
def test_after_splices_and_repairs_the_same_lab_measures_again(small):
    result = small.run(small.rings("two rings", MIB))
    assert [timing.wrong for timing in result.timings] == [0]
    assert find_misplaced_traffic(result.nic_bytes) == ()


def with_python(small, host, python):
    hosts = tuple(replace(h, python=python) if h.name == host else h for h in small.lab.hosts)
    return replace(small.lab, hosts=hosts)


def test_a_host_whose_python_lacks_torch_is_named_and_nobody_runs(small):
    folder = small.fleet.put({"python": f'#!/bin/sh\nexec {HOST_PYTHON} -S "$@"\n'.encode()})
    small.fleet.run({"c": f"chmod +x {folder}/python"})
    rows = []
    with pytest.raises(CollectiveError) as caught:
        lab = with_python(small, "c", f"{folder}/python")
        small.run(small.rings("one ring", 1024), lab=lab, on_progress=lambda *row: rows.append(row))
    assert not isinstance(caught.value, CollectiveTimeout)
    assert "1 of 4 ranks did not get ready, so none ran: rank 2 (c): " in str(caught.value)
    assert "No module named 'torch'" in str(caught.value)
    assert (rows, small.our_processes()) == ([], {})


def test_a_host_without_that_python_is_named_at_once(small):
    with pytest.raises(CollectiveError, match=r"1 of 4 ranks did not .*: rank 3 \(d\): .*/no/such/python"):
        small.run(small.rings("one ring", 1024), lab=with_python(small, "d", "/no/such/python"))
    assert small.our_processes() == {}


@pytest.mark.long
def test_a_rank_that_is_killed_is_named_long_before_the_deadline(small):
    with pytest.raises(
        CollectiveError, match=r"rank 2 \(c, at .*\) was ended by signal 9\. All ranks were ended$"
    ):
        small.run(
            small.rings("two rings", 65536, 32 * MIB),
            on_progress=lambda *_: small.fleet.run({"c": KILL_THE_RANK}),
        )
    assert small.our_processes() == {}


# ----------------------------------------------------------------------------------------------------- stall
def test_a_stream_across_dark_fibres_stalls_and_goes_on(small):
    into_b = [
        f"{small.lab.nic_label(link.target)}:receive"
        for link in small.design.wiring.links
        if link.target.node == 1
    ]
    with run_tcp_stream(small.fleet, *small.lab.hosts[:2]) as stream:
        began = time.monotonic()
        for fibre in into_b:
            small.cut(fibre)
        dark_from = time.monotonic()
        small.fleet.run({"a": "sleep 0.5"})
        dark_s = time.monotonic() - dark_from
        for fibre in into_b:
            small.splice(fibre)
        small.session.install_routes(small.design)
        # TCP tries again after at most as long as it has been dark, and this once more.
        small.fleet.run({"a": f"sleep {1.5 + 2 * (time.monotonic() - dark_from):.1f}"}, timeout_s=240)
        stall = stream.finish()
        whole_s = time.monotonic() - began
    assert dark_s <= stall.longest_gap_s < whole_s - 0.2, "it was dark that long, and the stream came back"
    assert stall.median_gap_s < stall.longest_gap_s / 4
