"""All hosts as one, over the SSH of hosts that are real to the kernel."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("jsonschema")
skip_without("pydantic")

from testbed.errors import HostError
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.inventory import parse_lab
from testbed.lab.simulated.lifecycle import ensure_key, start_lab

kernel = pytest.mark.kernel


@pytest.fixture(scope="module")
@needs("process")
def lab(small_lab_text):
    text = small_lab_text(3, 2, name=f"fleet-{os.getpid()}")
    with start_lab(parse_lab(text, Path("fleet.yaml")), hosts="kernel", may_move=True) as up:
        yield up.lab


@pytest.fixture(scope="module")
@needs("socket")
def fleet(lab):
    with SshFleet(lab) as fleet:
        yield fleet


def on_all(fleet, command):
    return dict.fromkeys((host.name for host in fleet.hosts), command)


def wait_until(fact, timeout_s=60.0):
    """Poll until something is so; the deadline is only there for when it never is."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < deadline, "it never came to be"
        threading.Event().wait(0.01)


def runs(fleet, host, pid):
    """Return whether a host has a process of that number; every host counts its own."""
    return fleet.run({host: f"kill -0 {pid}"})[host].exit_status == 0


def pid_left_in(fleet, host, name):
    """Return the number that a command leaves in a file of its host's home, once it is there."""
    command = f"until grep -q . {name} 2>/dev/null; do sleep 0.01; done; cat {name}"
    return int(fleet.run({host: command}, timeout_s=60)[host].stdout)


def fleet_threads():
    return [thread for thread in threading.enumerate() if thread.name == "fleet"]


# ------------------------------------------------------------------------------------------------ run
@kernel
def test_each_host_runs_its_own_command_on_its_own_input(fleet):
    commands = {"a": "tr a-z A-Z; hostname >&2", "b": "wc -c; exit 3", "c": "cat"}
    done = fleet.run(commands, stdin={"a": "hello", "b": "1234"})
    assert (done["a"].stdout, done["a"].stderr, done["a"].exit_status) == ("HELLO", "a\n", 0)
    assert (done["b"].stdout.strip(), done["b"].exit_status) == ("4", 3)
    assert (done["c"].stdout, done["c"].exit_status) == ("", 0), "no input given: it has ended, not stalled"
    assert list(done) == ["a", "b", "c"]
    assert {host: result.host for host, result in done.items()} == {"a": "a", "b": "b", "c": "c"}


@kernel
def test_hosts_run_at_the_same_time(fleet):
    """Each waits for a file that another makes on it over SSH: one after the other cannot end."""
    commands = {
        host: f"ssh {after} touch told; until [ -e told ]; do sleep 0.02; done"
        for host, after in ("ab", "bc", "ca")
    }
    assert {result.exit_status for result in fleet.run(commands, timeout_s=60).values()} == {0}


@kernel
def test_a_command_ended_by_a_signal_has_no_exit_status(fleet):
    assert fleet.run({"a": "kill -9 $$"})["a"].exit_status == -1


@kernel
def test_output_that_is_no_text_and_large_output_arrive(fleet):
    done = fleet.run({"a": r"printf '\377x'", "b": "head -c 3000000 /dev/zero | tr '\\0' z"})
    assert done["a"].stdout == "�x"
    assert done["b"].stdout == "z" * 3_000_000


@kernel
def test_too_slow_hosts_are_all_named_and_their_commands_ended(fleet):
    slow = dict.fromkeys("ac", "echo $$ > slow; exec sleep 600")
    with pytest.raises(HostError, match=r"a: not finished after 2 s; c: not finished after 2 s") as caught:
        fleet.run({**slow, "b": "true"}, timeout_s=2)
    assert caught.value.host == "a"
    for host in "ac":
        pid = pid_left_in(fleet, host, "slow")
        wait_until(lambda host=host, pid=pid: not runs(fleet, host, pid))
    assert fleet.run({"a": "echo still here"})["a"].stdout == "still here\n"


@kernel
def test_an_unknown_host_is_named_with_those_that_there_are(fleet):
    with pytest.raises(HostError, match="no connection to host 'zz'; the open fleet has a, b, c"):
        fleet.run({"zz": "true"})


@kernel
def test_an_interrupt_reaches_the_caller_at_once_and_ends_the_commands(lab):
    def interrupt_when_it_runs():
        pid_left_in(fleet, "b", "interrupted")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with SshFleet(lab) as fleet:
        waiter = threading.Thread(target=interrupt_when_it_runs)
        waiter.start()
        with pytest.raises(KeyboardInterrupt):  # waiting for the command would take longer than a test may
            fleet.run({"b": "echo $$ > interrupted; exec sleep 600"}, timeout_s=600)
        waiter.join()
        pid = pid_left_in(fleet, "b", "interrupted")
        wait_until(lambda: not runs(fleet, "b", pid))


# ------------------------------------------------------------------------------------------- connections
def unreachable_lab(small_lab_text, tmp_path, ports):
    """Return three hosts on this machine's loopback, each at its port."""
    key = tmp_path / "key"
    ensure_key(key)
    lab = parse_lab(small_lab_text(3, 2), Path("x.yaml"))
    hosts = tuple(
        replace(host, management=IPv4Address("127.0.0.1"), ssh_port=port)
        for host, port in zip(lab.hosts, ports, strict=True)
    )
    return replace(lab, hosts=hosts, ssh_key=key)


@pytest.fixture
@needs("socket")
def silent_port():
    """Provide a port that is taken, so that nobody else can listen there, and that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_all_hosts_that_do_not_answer_are_named(small_lab_text, tmp_path, silent_port):
    lab = unreachable_lab(small_lab_text, tmp_path, [silent_port] * 3)
    before = fleet_threads()
    with pytest.raises(HostError) as caught, SshFleet(lab):
        pytest.fail("nobody answers there")
    message = str(caught.value)
    assert all(f"{host} (127.0.0.1): " in message for host in "abc")
    assert "Check that the hosts are up" in message
    assert fleet_threads() == before


@kernel
def test_one_host_that_does_not_answer_is_named_alone(lab, silent_port):
    gone = replace(lab.hosts[1], management=IPv4Address("127.0.0.1"), ssh_port=silent_port)
    before = set(fleet_threads())
    with pytest.raises(HostError) as caught, SshFleet(replace(lab, hosts=(lab.hosts[0], gone, lab.hosts[2]))):
        pytest.fail("b is not there")
    assert caught.value.host == "b"
    assert "a (" not in str(caught.value)
    assert set(fleet_threads()) == before


@kernel
def test_a_connection_lost_while_a_command_runs_is_told(lab):
    with SshFleet(lab) as fleet, fleet.start(on_all(fleet, "echo here; exec cat")) as launch:
        heard = launch.read_lines(60)
        assert sorted(next(heard) for _ in range(3)) == [("a", "here"), ("b", "here"), ("c", "here")]
        # The session's sshd is the parent of our command: without it, the line is cut.
        fleet.run({"b": "pid=$PPID; kill -9 $pid"}, timeout_s=60)
        wait_until(lambda: "b" not in launch.running)
        assert launch.running == ("a", "c")
        launch.close_input()
        done = launch.wait(60)
        assert {host: result.exit_status for host, result in done.items()} == {"a": 0, "b": -1, "c": 0}
        with pytest.raises(HostError, match="b: "):
            fleet.run(on_all(fleet, "true"))


@kernel
def test_a_closed_fleet_leaves_no_thread(lab):
    before = set(fleet_threads())
    with SshFleet(lab) as fleet:
        assert len(set(fleet_threads()) - before) == 1
        fleet.run(on_all(fleet, "true"))
    assert set(fleet_threads()) == before


# ------------------------------------------------------------------------------------------------ put
@kernel
def test_files_arrive_byte_for_byte_privately_and_go_with_the_fleet(lab):
    content = bytes(range(256)) * 300
    with SshFleet(lab) as fleet:
        folder = fleet.put({"a.bin": content, "empty": b""})
        assert not folder.startswith("/")
        names = fleet.run(on_all(fleet, f"cd {folder} && ls && stat -c %a . && sha256sum < a.bin && pwd"))
        digest = sys.modules["hashlib"].sha256(content).hexdigest()
        for result in names.values():
            listed = result.stdout.split()
            assert listed[:3] == ["a.bin", "empty", "700"]
            assert listed[3] == digest
        homes = {result.stdout.split()[-1] for result in names.values()}
        assert fleet.put({"a.bin": b""}) != folder
    for home in homes:
        assert not Path(home).exists()
    with SshFleet(lab) as again:
        gone = again.run(on_all(again, f"test -e {folder}"))
    assert {result.exit_status for result in gone.values()} == {1}


@kernel
def test_a_host_that_cannot_store_files_says_why(lab):
    with SshFleet(lab) as fleet:
        fleet.run({"b": "rm -rf .cache && touch .cache"})
        try:
            with pytest.raises(HostError, match=r"copying files failed on b: exit .*File exists|Not a dir"):
                fleet.put({"x": b"1"})
        finally:
            fleet.run({"b": "rm .cache"})


# ---------------------------------------------------------------------------------------------- start
@kernel
def test_lines_of_all_hosts_come_merged_and_input_goes_to_one_or_all(fleet):
    with fleet.start(on_all(fleet, "while read word; do echo $word from $(hostname); done")) as launch:
        launch.send("one\n", host="b")
        assert next(launch.read_lines(60)) == ("b", "one from b")
        launch.send("all\n")
        lines = launch.read_lines(60)
        assert sorted(next(lines) for _ in range(3)) == [(host, f"all from {host}") for host in "abc"]
        assert list(launch.read_lines(0.05)) == [], "nothing more; they wait for input"
        assert launch.running == ("a", "b", "c")
        launch.close_input()
        assert list(launch.read_lines(60)) == []
        done = launch.wait(60)
    assert {host: result.stdout for host, result in done.items()} == {
        "a": "all from a\n",
        "b": "one from b\nall from b\n",
        "c": "all from c\n",
    }


@kernel
@pytest.mark.parametrize("attempt", range(10))
def test_lines_end_when_the_last_command_ends_not_at_the_timeout(fleet, attempt):
    with fleet.start(on_all(fleet, "echo x")) as launch:
        assert sorted(launch.read_lines(600)) == [("a", "x"), ("b", "x"), ("c", "x")]  # a test may take less


@kernel
def test_a_last_line_without_its_end_is_a_line(fleet):
    with fleet.start({"a": "printf 'first\\nlast'"}) as launch:
        assert list(launch.read_lines(60)) == [("a", "first"), ("a", "last")]


@kernel
def test_waiting_for_what_runs_on_names_it(fleet):
    with fleet.start({"a": "true", "c": "cat"}) as launch:
        with pytest.raises(HostError, match=r"the command on c is still running after 0\.3 s"):
            launch.wait(0.3)
        launch.close_input()
        done = launch.wait(60)
    assert {host: result.exit_status for host, result in done.items()} == {"a": 0, "c": 0}


@kernel
def test_leaving_a_launch_ends_commands_that_ignore_the_end_of_their_input(fleet):
    with fleet.start({"a": "echo $$ > left; exec sleep 60"}):
        pid = pid_left_in(fleet, "a", "left")
        assert runs(fleet, "a", pid)
    wait_until(lambda: not runs(fleet, "a", pid))


@kernel
def test_sending_to_a_command_that_has_ended_is_harmless(fleet):
    with fleet.start({"a": "true", "b": "cat"}) as launch:
        wait_until(lambda: launch.running == ("b",))
        launch.send("late\n")
        assert next(launch.read_lines(60)) == ("b", "late")
