"""Kernel labs begin, are refused, end, are killed, and nothing of them stays."""

from __future__ import annotations

import signal
import socket
import subprocess
from ipaddress import IPv4Network

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.lab.inventory import end_labs

pytestmark = pytest.mark.kernel
PATIENCE_S = 60.0


def test_a_taken_subnet_is_refused_with_code_and_cure_and_leaves_nothing(kernel_labs, lab):
    subnet = lab.ready["subnet"].removesuffix(".0/24")
    exit_status, said = kernel_labs.refusal(kernel_labs.wiring(2, subnet))
    assert (exit_status, said["ready"], said["code"]) == (1, False, "subnet_taken")
    assert "another lab uses it" in said["error"]
    there = kernel_labs.status().values()  # other tests may run labs beside
    assert [one["id"] for one in there if one["subnet"] == lab.ready["subnet"]] == [lab.lab_id]


def test_a_subnet_that_overlaps_an_address_of_the_machine_is_refused(kernel_labs, lab):
    """A claim of its own, but around a network that this machine already has a route to."""
    raw = kernel_labs.wiring(subnet=lab.ready["subnet"].removesuffix(".0/24"))
    raw["management"] = str(IPv4Network(lab.ready["subnet"]).supernet(prefixlen_diff=1))
    subnet = IPv4Network(raw["management"])
    raw["control"] = f"{subnet[1]}:7000"
    raw["switches"][0].update(scpi=f"{subnet[9]}:1", tl1=f"{subnet[9]}:2", control=f"{subnet[9]}:3")
    exit_status, said = kernel_labs.refusal(raw)
    assert (exit_status, said["code"]) == (1, "subnet_taken")
    assert f"{lab.lab_id}-0 uses" in said["error"]


def test_two_labs_stand_beside_each_other(kernel_labs, lab):
    with kernel_labs.kernel() as other:
        assert other.lab_id != lab.lab_id
        assert (lab.ssh("a", "hostname"), other.ssh("a", "hostname")) == ("a", "a")
        assert {lab.lab_id, other.lab_id} <= set(kernel_labs.status())
        other.end_input()
    assert kernel_labs.traces(other.lab_id) == []
    assert lab.ssh("a", "hostname") == "a"


@pytest.mark.parametrize("way", ["input", "SIGTERM", "SIGINT"])
def test_nothing_is_left_when_the_lab_is_asked_to_end(kernel_labs, way):
    with kernel_labs.kernel() as up:
        if way == "input":
            assert up.end_input() == 0
        else:
            up.process.send_signal(signal.Signals[way])
            assert up.process.wait(PATIENCE_S) == 0
        assert kernel_labs.traces(up.lab_id) == []
        kernel_labs.eventually(lambda: not kernel_labs.host_processes(up.lab_id))


def test_a_detached_lab_outlives_its_input_and_ends_when_named(kernel_labs):
    with kernel_labs.kernel("--detached") as up:
        up.process.stdin.close()
        assert up.ssh("a", "hostname") == "a"
        assert kernel_labs.sim_lab("--down", up.lab_id)[1] == {"removed": [up.lab_id]}
        assert up.process.wait(PATIENCE_S) == 0
        assert kernel_labs.traces(up.lab_id) == []


def test_a_stopped_supervisor_is_killed_when_its_lab_is_named(kernel_labs, monkeypatch):
    """SIGTERM reaches nobody there; what it leaves is removed like any debris."""
    monkeypatch.setattr("sim.lab.inventory._END_TIMEOUT_S", 0.3)
    with kernel_labs.kernel() as up:
        up.process.send_signal(signal.SIGSTOP)
        assert end_labs([up.lab_id]) == (up.lab_id,)
        assert up.process.wait(PATIENCE_S) == -signal.SIGKILL
        assert kernel_labs.traces(up.lab_id) == []
        kernel_labs.eventually(lambda: not kernel_labs.host_processes(up.lab_id))


def test_a_killed_supervisor_takes_its_hosts_along_and_down_removes_the_rest(kernel_labs):
    """A lab that another worker starts removes debris, too: where it came first, one more supervisor is killed."""
    for _ in range(10):
        with kernel_labs.kernel() as up:
            up.process.kill()
            up.process.wait(PATIENCE_S)
            kernel_labs.eventually(lambda lab_id=up.lab_id: not kernel_labs.host_processes(lab_id))
            debris = kernel_labs.status().get(up.lab_id)
            removed = kernel_labs.sim_lab("--down")[1]["removed"]
            kernel_labs.eventually(lambda lab_id=up.lab_id: kernel_labs.traces(lab_id) == [])
        if up.lab_id in removed:
            assert (debris["state"], debris["pid"], debris["namespaces"]) == ("debris", None, 4)
            return
    pytest.fail("ten times somebody else removed what a killed supervisor left")


def test_processes_that_outlive_a_killed_supervisor_are_ended_by_down(kernel_labs):
    """Somebody's shell in a host's network survives the host; its namespace must go all the same."""
    with kernel_labs.kernel() as up:
        inside = ["ip", "netns", "exec", f"{up.lab_id}-a", "sh", "-c", "echo in; exec sleep 60"]
        with subprocess.Popen(inside, stdout=subprocess.PIPE) as left:
            assert left.stdout.readline() == b"in\n"
            up.process.kill()
            up.process.wait(PATIENCE_S)
            kernel_labs.sim_lab("--down")
            assert left.wait(PATIENCE_S) == -signal.SIGKILL
        assert kernel_labs.traces(up.lab_id) == []


def test_a_new_lab_on_the_subnet_of_a_killed_one_starts(kernel_labs):
    subnet = kernel_labs.free_subnet()
    with kernel_labs.kernel(subnet=subnet) as killed:
        killed.process.kill()
        killed.process.wait(PATIENCE_S)
        with kernel_labs.kernel(subnet=subnet) as up:
            assert up.ssh("b", "hostname") == "b"
            assert kernel_labs.traces(killed.lab_id) == []


def test_a_lab_that_fails_half_way_leaves_nothing(kernel_labs):
    """The hosts stand already when the control address turns out to be taken on the root side."""
    raw = kernel_labs.wiring()
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        raw["control"] = raw["control"].replace("7000", str(stranger.getsockname()[1]))
        exit_status, said = kernel_labs.refusal(raw)
    assert (exit_status, said["ready"], said["code"]) == (1, False, "address_in_use")
    assert raw["management"] not in {one["subnet"] for one in kernel_labs.status().values()}


def test_a_key_is_needed_to_log_in(kernel_labs):
    raw = kernel_labs.wiring()
    del raw["authorized_key"]
    assert kernel_labs.refusal(raw)[1]["error"].startswith("wiring document: authorized_key")


def test_ending_a_lab_that_is_not_there_names_those_that_are(kernel_labs, lab):
    exit_status, said, _ = kernel_labs.sim_lab("--down", "lbffffff")
    assert (exit_status, said["code"]) == (1, "no_such_lab")
    assert lab.lab_id in said["hint"]
