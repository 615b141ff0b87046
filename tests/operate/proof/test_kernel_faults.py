"""Faults planted on hosts that are real to the kernel: each is told once, by its name; a healthy lab has none."""

from __future__ import annotations

import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from patch_lists import wiring_of

from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.lab.hosts.forwarding import install, plan_forwarding, read_macs
from testbed.operate.design import Design
from testbed.operate.intent import ApplyRecord
from testbed.operate.path import follow_path, trace_kernel_path
from testbed.operate.session import LabSession, open_lab
from testbed.operate.unfinished import find_unfinished_operations

pytestmark = pytest.mark.kernel

PYTHON = str(Path(sys.executable).resolve())
CROSSED = wiring_of(["A1-C1", "A2-D2", "B1-C2", "B2-D1"], 4, 2)
OTHER_RING = Design("crossed", find_topology(4, 2), CROSSED, find_routes(CROSSED))


def test_proofs_of_a_healthy_lab_find_nothing(ring):
    for _ in range(3):
        report = ring.session.prove(ring.design)
        assert report.findings == ()
        assert (report.circuits, report.links_received) == (8, 8)
        assert report.pairs == report.pairs_reached == 12


A, D = "10.100.1.100", "10.100.4.100"
A_BLOCK = "10.100.1.0/25"
OTHER_NIC = f"ip route get {A} | grep -q nic1 && n=nic2 || n=nic1"
FILTER = (
    "nft add table ip x; nft 'add chain ip x y {{ type filter hook {hook} priority 0; }}'; "
    "nft add rule ip x y {rule}"
)
HIDE = "mount --bind /bin/false $(command -v nft)"
"""A host without the program shows no filter: packets alone tell of it."""
NO_TCP = FILTER.format(hook="forward", rule="ip protocol tcp drop")
NO_LARGE = FILTER.format(hook="forward", rule="ip length gt 1500 drop")
LOSS = FILTER.format(hook="prerouting", rule="iifname nic1 numgen random mod 100 lt 30 drop")
AT_NIC = (
    "nft add table netdev x; nft 'add chain netdev x y { type filter hook ingress device nic1 priority 0; }'; "
    "nft add rule netdev x y drop"
)
ASIDE = "protocol all u32 match u32 0 0 action mirred egress redirect dev lo"
KERNEL_FAULTS = {
    "TCP is filtered": (NO_TCP, [("packet_filter", "c")]),
    "a port is filtered": (
        FILTER.format(hook="output", rule="udp dport 4791 drop"),
        [("packet_filter", "c")],
    ),
    "TCP is not forwarded": (f"{NO_TCP}; {HIDE}", [("no_tcp", None)]),
    "large packets are not forwarded": (f"{NO_LARGE}; {HIDE}", [("no_large_packets", None)]),
    "nothing is forwarded": (
        f"{FILTER.format(hook='forward', rule='counter drop')}; {HIDE}",
        [("unreachable", None)],
    ),
    "30 % loss": (f"{LOSS}; {HIDE}", [("lossy_path", None)]),
    "filter at a NIC": (AT_NIC, [("packet_filter", "c")]),
    "NIC that hands up nothing": (f"{AT_NIC}; {HIDE}", [("not_heard", None)]),
    "filter of tc": (
        f"tc qdisc add dev nic1 clsact; tc filter add dev nic1 ingress {ASIDE}",
        [("wrong_queue", "c/nic1")],
    ),
    "slow class": (
        "tc class change dev nic2 parent 2: classid 2:2 htb rate 10mbit prio 1 quantum 65536",
        [("wrong_rate", "c/nic2")],
    ),
    "rule with a table": (
        f"ip route add blackhole {D} table 99; ip rule add prio 99 iif nic1 lookup 99",
        [("wrong_rule", "c")],
    ),
    "MTU of a route": (
        f"ip route replace $(ip -4 route show match {A} proto 107 | tail -1) proto 107 mtu lock 600",
        [("wrong_route", "c")],
    ),
    "part of a bridge": (
        "ip link add name br9 type bridge; ip link set br9 up; ip link set nic2 master br9",
        [("wrong_master", "c/nic2")],
    ),
    "address of another host on lo": ("ip addr add 10.100.4.100/32 dev lo", [("wrong_address", "c/lo")]),
    "route deleted": (f"ip route del {A_BLOCK}", [("missing_route", "c")]),
    "routes flushed": ("ip route flush proto 107", [("missing_route", "c")]),
    "route over another link": (
        f"{OTHER_NIC}; ip route replace {A}/32 dev $n scope link src 10.100.3.100 proto 107",
        [("wrong_route", "c")],
    ),
    "route of somebody else": (f"ip route add prohibit {A}/32 proto static", [("wrong_route", "c")]),
    "route that drops": (f"ip route replace blackhole {A}/32 proto 107", [("wrong_route", "c")]),
    "route too many": ("ip route add 10.200.0.0/24 dev nic1 proto 107", [("extra_route", "c")]),
    "neighbours flushed": ("ip neigh flush nud permanent dev nic1", [("wrong_neighbour", "c")]),
    "neighbour of another NIC": (
        "set $(ip -4 neigh show dev nic1); ip neigh replace $1 lladdr 02:00:00:00:00:09 nud permanent dev nic1",
        [("wrong_neighbour", "c")],
    ),
    "forwarding off": ("sysctl -qw net.ipv4.ip_forward=0", [("forwarding_off", "c")]),
    "forwarding of a NIC off": (
        "sysctl -qw net.ipv4.conf.nic2.forwarding=0",
        [("forwarding_off", "c/nic2")],
    ),
    "rp_filter": ("sysctl -qw net.ipv4.conf.all.rp_filter=1", [("wrong_sysctl", "c")]),
    "arp_ignore": ("sysctl -qw net.ipv4.conf.nic1.arp_ignore=0", [("wrong_sysctl", "c")]),
    "node address gone": ("ip addr del 10.100.3.100/32 dev lo", [("wrong_address", "c/lo")]),
    "address of a NIC gone": ("ip addr flush dev nic2", [("wrong_address", "c/nic2")]),
    "another address": ("ip addr add 10.9.9.9/32 dev nic2", [("wrong_address", "c/nic2")]),
    "MTU": ("ip link set dev nic1 mtu 1500", [("wrong_mtu", "c/nic1")]),
    "rate": (
        "tc qdisc replace dev nic1 root tbf rate 10mbit burst 128kb latency 50ms",
        [("wrong_rate", "c/nic1")],
    ),
    "interface down": ("ip link set dev nic1 down", [("interface_down", "c/nic1")]),
    "interface renamed": (
        "ip link set dev nic1 down; ip link set dev nic1 name gone",
        [("missing_interface", "c/nic1")],
    ),
    "Python that does not run": (f"mount --bind /bin/false {PYTHON}", [("not_probed", "c")]),
    "rule that drops": (f"ip rule add prio 99 to {D} prohibit", [("wrong_rule", "c")]),
}


OTHERS_OF_A_KIND = {
    "TCP is filtered",
    "filter at a NIC",
    "rule that drops",
    "slow class",
    "route of somebody else",
    "route that drops",
    "neighbour of another NIC",
    "forwarding of a NIC off",
    "arp_ignore",
    "address of a NIC gone",
    "address of another host on lo",
    "node address gone",
    "MTU of a route",
    "routes flushed",
}
"""Each is told by the same lines as another here, and planted in memory by `test_planted_faults.py`."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(name, marks=pytest.mark.long if name in OTHERS_OF_A_KIND else ())
        for name in KERNEL_FAULTS
    ],
)
def test_a_fault_of_a_kernel_is_told_once_and_rightly(ring, fault):
    command, expected = KERNEL_FAULTS[fault]
    ring.on("c", command)
    if expected[0][1] is None:  # which host or pair it is told of depends on the routes
        assert [kind for kind, _ in ring.told()] == [expected[0][0]]
    else:
        assert ring.told() == expected


def test_an_apply_that_ended_before_the_routes_is_told_as_another_topology(ring):
    ring.session.apply(ring.session.plan(OTHER_RING))
    assert ring.told(OTHER_RING) == [("other_topology", "a, b, c, d")]


class Killed(BaseException):
    """The process is gone: nothing after it is done."""


def kill_after(bench, lines):
    """Apply the crossed topology, and be killed when host c has obeyed some lines of its batch, and no other host."""

    def begin(session, design):
        parts = plan_forwarding(session.lab, design.wiring, design.routes, read_macs(session.fleet))
        if lines:
            install(session.fleet, {"c": replace(parts["c"], batch=parts["c"].batch[:lines])})
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabSession, "install_routes", begin)
        patch.setattr(ApplyRecord, "store_state", lambda *_arguments: None)
        with pytest.raises(Killed):
            bench.session.bring_up(OTHER_RING)
    with sqlite3.connect(bench.runs / "lightbed.sqlite") as connection:
        connection.execute("update intents set owner = '1 gone/0' where applied_at is null")
    connection.close()
    return find_unfinished_operations(bench.runs, bench.lab)


@pytest.mark.parametrize(
    "lines", [8, *(pytest.param(other, marks=pytest.mark.long) for other in (0, 3, 20, -1))]
)
def test_an_apply_that_was_killed_on_a_host_is_one_finding(ring, lines):
    """The judge takes for the state after each line what the kernel holds then."""
    left = kill_after(ring, lines)
    (finding,) = ring.session.prove(OTHER_RING, left).findings
    assert finding.kind == "unfinished"
    words = " left them (a, b, d)" if lines else " left them (a, b, c, d)"
    assert words in finding.detail
    assert ("1 hosts are partly configured (c)" in finding.detail) == bool(lines)


def test_a_fault_is_told_beside_the_apply_that_was_killed(ring):
    left = kill_after(ring, 20)
    ring.on("d", f"ip route replace blackhole {A}/32 proto 107")
    ring.on("b", "ip link set dev nic1 mtu 1500")
    ring.ask("plant", "loss", fibre="a/nic1:transmit", loss_db=3)
    found = ring.session.prove(OTHER_RING, left).findings
    kinds = sorted((finding.kind, finding.subject) for finding in found)
    assert kinds[1:] == [("unfinished", left[0].operation), ("wrong_mtu", "b/nic1"), ("wrong_route", "d")]
    assert kinds[0][0] == "excess_loss"


def test_a_host_and_a_switch_that_are_off_are_one_finding_each(ring):
    *others, last = ring.lab.hosts
    nobody = replace(last, ssh_port=1)
    with open_lab(replace(ring.lab, hosts=(*others, nobody)), None, skip_unreachable=True) as session:
        (finding,) = session.prove(ring.design).findings
        assert (finding.kind, finding.subject) == ("host_off", "d")
        assert "no session with" in finding.detail
    switch = replace(ring.lab.switches[0], address=f"{ring.lab.switches[0].address.rpartition(':')[0]}:1")
    with open_lab(replace(ring.lab, switches=(switch,)), None, skip_unreachable=True) as session:
        (finding,) = session.prove(ring.design).findings
        assert (finding.kind, finding.subject) == ("switch_off", "ocs1")


def test_the_kernels_way_is_the_planned_one_until_a_route_is_changed(ring):
    def way():
        return trace_kernel_path(ring.session, ring.design, 2, 0)

    planned = follow_path(ring.session, ring.design, 2, 0)
    assert [(hop.sender, hop.receiver) for hop in planned] == [(h.sender, h.receiver) for h in way().hops]
    assert not way().differs_from_plan
    ring.on("c", f"ip route replace blackhole {A}/32 proto 107")
    assert way().differs_from_plan
    assert "c" in way().stop_reason
