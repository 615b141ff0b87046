"""The state of a kernel, read from what iproute2 6.1 printed on a host of a simulated lab, beside its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.errors import HostError
from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.hosts.forwarding import plan_forwarding
from testbed.lab.hosts.kernel_state import (
    Neighbour,
    Route,
    make_state_command,
    parse_state,
    plan_state,
    read_kernels,
)

RECORDED = Path(__file__).with_name("recorded_state.txt").read_text(encoding="utf-8")


def test_the_recorded_host_has_its_interfaces_routes_and_settings():
    state = parse_state(RECORDED)
    assert sorted(state.interfaces) == ["lo", "mgmt", "nic1", "nic2", "nic3"]
    nic = state.interfaces["nic1"]
    assert (nic.is_up, nic.has_carrier, nic.mtu) == (True, True, 9000)
    assert nic.addresses == {"10.100.1.1/32"}
    assert nic.rate_mbps == pytest.approx(state.interfaces["nic2"].rate_mbps)
    assert nic.rate_mbps <= 100
    assert state.interfaces["lo"].addresses == {"127.0.0.1/8", "10.100.1.100/32"}
    ours = [route for route in state.routes if route.protocol == "107"]
    assert len(ours) == 6, "three links, three other hosts"
    assert Route("10.100.2.1/32", "nic1", "", "10.100.1.100", "107") in ours
    assert [entry for entry in state.neighbours.values() if entry.is_permanent] != []
    assert state.sysctls["net/ipv4/ip_forward"] == "1"
    assert state.sysctls["net/ipv4/conf/nic3/forwarding"] == "1"


def test_the_recorded_host_holds_what_its_plan_leaves_there(testbed12):
    hosts = tuple(replace(host, nics=host.nics[:3]) for host in testbed12.hosts[:4])
    lab = replace(testbed12, hosts=hosts)
    state = parse_state(RECORDED)
    wiring = make_wiring(find_topology(4, 3))
    macs = {host.name: {nic.name: "02:00:00:00:00:01" for nic in host.nics} for host in lab.hosts}
    planned = plan_state(plan_forwarding(lab, wiring, find_routes(wiring), macs)["a"])
    assert {route.target: route for route in state.routes if route.protocol == "107"} == planned.routes
    entries = {key for key, entry in state.neighbours.items() if entry.is_permanent}
    assert planned.neighbours.keys() == entries
    assert planned.sysctls.items() <= state.sysctls.items()
    assert {name: state.interfaces[name].mtu for name in planned.mtus} == planned.mtus
    assert all(planned.addresses[name] <= state.interfaces[name].addresses for name in planned.addresses)


EMPTY = "motd: welcome\n=== address\n[]\n=== route\n{}\n=== rule\n[]\n=== neigh\n{}\n=== qdisc\n{}\n=== files\n{}\n"


def text(route="[]", neigh="[]", qdisc="[]", files=""):
    return EMPTY.format(route, neigh, qdisc, files)


def test_a_route_that_drops_has_no_device():
    """The forms of iproute2: a host route has no length, `blackhole` has a type and no device."""
    state = parse_state(text(route='[{"type":"blackhole","dst":"10.1.1.7","protocol":"107","flags":[]}]'))
    assert state.routes == (Route("10.1.1.7/32", "", "", "", "107"),)


def test_a_neighbour_that_failed_has_no_address():
    state = parse_state(text(neigh='[{"dst":"10.1.1.2","dev":"v0","state":["FAILED"]}]'))
    assert state.neighbours == {("v0", "10.1.1.2"): Neighbour("", False)}


@pytest.mark.parametrize("cut", range(0, len(RECORDED), 331))
def test_an_answer_that_was_cut_off_is_an_error_that_names_the_host(testbed12, cut):
    host = testbed12.hosts[0]

    class Cut:
        hosts = (host,)

        def run(self, commands):
            assert commands == {"a": make_state_command(host)}
            return {"a": CommandResult("a", 0, RECORDED[:cut], "")}

    if "=== files\n" in RECORDED[:cut]:
        assert read_kernels(Cut(), testbed12)["a"].interfaces
    else:
        with pytest.raises(HostError, match="the state of host a cannot be read"):
            read_kernels(Cut(), testbed12)
