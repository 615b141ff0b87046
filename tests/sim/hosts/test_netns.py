"""Named network namespaces: batches, threads that enter, processes found and ended."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from needs import needs

from sim.twins.hosts import netns
from sim.twins.hosts.netns import KernelFault

pytestmark = pytest.mark.kernel


@pytest.fixture
@needs("process")
def name():
    made = f"tn{os.getpid()}-x"
    netns.add_namespaces([made])
    yield made
    netns.end_processes([made])
    netns.delete_namespaces([made])


def links_of(name):
    return netns.call_in_namespace(name, lambda: [link for _, link in socket.if_nameindex()])


def test_a_namespace_is_listed_until_it_is_deleted(name):
    assert netns.list_namespaces(name) == (name,)
    netns.delete_namespaces([name, "tn-that-never-was"])
    assert netns.list_namespaces(name) == ()


def test_only_the_entering_thread_is_inside(name):
    netns.run_batch("ip", ["link add inside type veth peer name other"], name)
    assert "inside" in links_of(name)
    assert "inside" not in [link for _, link in socket.if_nameindex()]


def test_a_batch_names_the_line_that_failed_and_what_the_tool_said(name):
    with pytest.raises(KernelFault, match=r"`ip link set nowhere up` failed: Cannot find device") as caught:
        netns.run_batch("ip", ["link set lo up", "link set nowhere up", "link set lo down"], name)
    assert caught.value.code == "kernel"


def test_no_lines_start_no_process():
    netns.run_batch("ip", [], "a-namespace-that-is-not-there")


def test_an_unknown_namespace_is_named():
    with pytest.raises(KernelFault, match="network namespace tn-none does not exist"):
        netns.call_in_namespace("tn-none", lambda: None)


def test_an_exception_inside_comes_out(name):
    with pytest.raises(ZeroDivisionError):
        netns.call_in_namespace(name, lambda: 1 // 0)


def test_a_socket_listens_inside_and_only_there(name):
    netns.run_batch("ip", ["link set lo up"], name)
    with netns.bind_in_namespace(name, "127.0.0.1", 7) as listener:
        listener.listen()
        netns.call_in_namespace(name, lambda: socket.create_connection(("127.0.0.1", 7), timeout=5).close())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", 7), timeout=5)


def test_an_address_in_use_is_an_error_with_a_code(name):
    netns.run_batch("ip", ["link set lo up"], name)
    with netns.bind_in_namespace(name, "127.0.0.1", 7) as listener:
        listener.listen()
        with pytest.raises(KernelFault, match=r"cannot listen on 127\.0\.0\.1:7") as caught:
            netns.bind_in_namespace(name, "127.0.0.1", 7)
    assert caught.value.code == "address_in_use"


def test_parameters_are_set_inside_only_and_unknown_ones_left_out(name):
    def forwarding():
        return Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()

    outside = forwarding()
    netns.set_sysctls(name, {"ipv4/ip_forward": 1, "ipv4/no_such_thing": 1})
    assert netns.call_in_namespace(name, forwarding) == "1"
    assert forwarding() == outside


def test_processes_inside_are_found_and_ended(name):
    sleeper = subprocess.Popen(["ip", "netns", "exec", name, "sh", "-c", "echo in; exec sleep 60"], stdout=-1)
    assert sleeper.stdout.readline() == b"in\n"
    assert netns.list_processes([name]) == (sleeper.pid,)
    netns.end_processes([name])
    assert netns.list_processes([name]) == ()
    assert sleeper.wait() == -9
    sleeper.stdout.close()
