"""`testbed switch` and `testbed sim switch`: one switch, as an operator uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from needs import needs

from ocs_drivers.errors import PortError, UnknownPort
from ocs_drivers.model import PortInfo, PortState, Side
from testbed.commands.devices.ports import PortNames, read_pairs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
@needs("process", "socket")
def twin(shared_twin):
    return shared_twin("glimmerglass", "--size=8x8", "--switch-time-ms=1")


@pytest.fixture
def ask(twin, testbed):
    """Run a command on the twin, which is empty before."""
    twin.do("clear_fault", fault="all")
    twin.do("operator", disconnect=list(range(1, 9)))

    def run(*words):
        return testbed("switch", twin.urls["tl1"], *words)

    return run


def test_identity_says_that_it_is_simulated(ask):
    ran = ask("identity", "--json")
    assert ran.code == 0
    assert ran.json["simulated"] is True
    assert ran.json["identity"]["serial"].startswith("SIM")
    assert (ran.json["capabilities"]["inputs"], ran.json["capabilities"]["outputs"]) == (8, 8)
    assert "SIMULATED" in ask("identity").out


def test_ports_are_numbered_alike_and_named_by_the_device(ask):
    ports = ask("ports", "--json").json["ports"]
    assert [(port["number"], port["name"]) for port in (ports[0], ports[8])] == [(1, "10001"), (9, "20001")]


def test_connect_takes_numbers_and_names_and_touches_nothing_else(ask, twin):
    twin.do("operator", connect=[[8, 16]])
    assert ask("connect", "1:10", "10002:20001").code == 0
    assert twin.truth() == {1: 10, 2: 9, 8: 16}
    assert ask("disconnect", "10001").code == 0
    assert twin.truth() == {2: 9, 8: 16}


def test_read_tells_pairs_and_a_revision_to_compare_with(ask, twin):
    twin.do("operator", connect=[[1, 9]])
    seen = ask("read", "--json").json
    assert seen["connections"] == [[1, 9]]

    stale = ask("apply", "2:10", "--expect", "0" * 16, "--json")
    fresh = ask("apply", "2:10", "--expect", seen["revision"], "--json")

    assert (stale.code, stale.json["error"]["code"]) == (1, "ocs.conflict")
    assert (fresh.code, twin.truth()) == (0, {2: 10})


def test_apply_reads_a_file_and_keeps_to_its_scope(ask, twin, tmp_path):
    twin.do("operator", connect=[[1, 9], [8, 16]])
    plan = tmp_path / "plan.txt"
    plan.write_text("# spine\n1:10, 2:11\n3:12 # leaf\n")
    assert ask("apply", "--file", plan, "--scope", "1,2,3").code == 0
    assert twin.truth() == {1: 10, 2: 11, 3: 12, 8: 16}


def test_a_dry_run_moves_nothing_and_says_so_by_its_exit_code(ask, twin):
    ran = ask("apply", "1:9", "--dry-run", "--json")
    assert ran.code == 2
    assert ran.json["steps"] == [{"kind": "add", "pairs": [[1, 9]]}]
    assert twin.truth() == {}
    assert ask("apply", "--dry-run").code == 0


def test_a_dark_circuit_is_an_error_only_when_light_is_required(ask, twin):
    twin.do("set_fault", fault="dark_input", port=1)
    assert ask("apply", "1:9").code == 0
    ran = ask("apply", "1:9", "2:10", "--require-light", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "ocs.no_light")
    assert twin.truth() == {1: 9, 2: 10}


def test_power_is_told_for_the_ports_asked(ask, twin):
    twin.do("operator", connect=[[1, 9]])
    told = ask("power", "1", "20001", "--json").json["power"]
    assert set(told) == {"1", "9"}
    assert told["9"]["dbm"] < told["1"]["dbm"] < 0


def test_watch_sees_what_another_operator_does(ask, twin):
    command = [sys.executable, "-m", "testbed.cli", "switch", twin.urls["tl1"]]
    with subprocess.Popen(
        [*command, "watch", "--every", "0.05", "--json"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as watching:
        first = json.loads(watching.stdout.readline())
        twin.do("operator", connect=[[4, 12]])
        for line in watching.stdout:
            if "added" in (sight := json.loads(line)):
                break
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
    assert first["connections"] == []
    assert sight["added"] == [[4, 12]]
    assert watching.returncode == 130


def test_what_is_said_on_the_wire_is_kept(ask, tmp_path):
    path = tmp_path / "wire.jsonl"
    assert ask("read", "--record", path).code == 0
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["what"] for entry in entries[:3]] == ["open", "sent", "received"]
    assert ask("read", "--record", path).code == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("connect", "1:99"), "ocs.port.unknown"),
        (("connect", "1-9"), "ocs.port"),
        (("connect", "1:9", "1:10"), "ocs.port"),
        (("connect", "1:9", "2:9"), "ocs.port"),
        (("shutter", "close", "1"), "ocs.unsupported"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(ask, twin, words, code):
    ran = ask(*words, "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, code)
    assert twin.truth() == {}


@pytest.mark.socket
def test_nobody_answers(testbed):
    ran = testbed("switch", "glimmerglass+tl1://127.0.0.1:1", "read", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "ocs.transport.connect")


def test_a_real_switch_is_not_moved_without_consent(monkeypatch, capsys):
    from types import SimpleNamespace

    from testbed.commands.context import CommandContext
    from testbed.commands.devices.changes import SwitchHome
    from testbed.errors import RefusedToMove

    real = SimpleNamespace(address="x://real", identity=lambda: SimpleNamespace(serial="002414"))
    command = SwitchHome(address=real.address)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(RefusedToMove, match="--yes"):
        command.check_consent(real, "connect 1 pair", CommandContext())
    SwitchHome(address=real.address, yes=True).check_consent(real, "connect 1 pair", CommandContext())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "\n"))
    with pytest.raises(RefusedToMove, match="was not changed"):
        command.check_consent(real, "connect 1 pair", CommandContext())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "y\n"))
    command.check_consent(real, "connect 1 pair", CommandContext())


# -- ports by name


def both_sides() -> PortNames:
    return PortNames(
        {
            1: PortInfo(1, Side.IN, PortState.ENABLED, name="0"),
            2: PortInfo(2, Side.IN, PortState.ENABLED, name="1"),
            3: PortInfo(3, Side.OUT, PortState.ENABLED, name="0"),
            4: PortInfo(4, Side.OUT, PortState.ENABLED, name="1"),
        }
    )


def test_a_number_is_a_number_and_an_equals_sign_makes_it_a_name():
    assert both_sides().parse_pairs(["1:3"]) == {1: 3}
    assert both_sides().parse_pairs(["=1:=0"]) == {2: 3}


def test_a_name_on_both_sides_needs_its_place():
    with pytest.raises(UnknownPort, match="an input and an output"):
        both_sides().find_number("=0", None)


def test_a_name_on_the_other_side_is_unknown_here():
    with pytest.raises(UnknownPort, match="input side"):
        both_sides().find_number("=7", Side.IN)


def test_a_pair_needs_two_ends():
    with pytest.raises(PortError, match="INPUT:OUTPUT"):
        both_sides().parse_pairs(["1"])


def test_comments_and_commas_in_a_file_of_pairs(tmp_path):
    path = tmp_path / "pairs"
    path.write_text("1:2,3:4\n\n# 9:9\n5:6 7:8 # tail\n")
    assert read_pairs(path) == ["1:2", "3:4", "5:6", "7:8"]


# -- twins from the command line


@pytest.mark.process
@pytest.mark.socket
def test_a_twin_serves_until_it_is_interrupted(testbed):
    command = [sys.executable, "-m", "testbed.cli", "sim", "switch", "polatis", "--size", "4x4"]
    with subprocess.Popen(
        [*command, "--fault", "fail_port=3"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as served:
        ready = json.loads(served.stdout.readline())
        states = {
            p["number"]: p["state"] for p in testbed("switch", ready["scpi"], "ports", "--json").json["ports"]
        }
        served.send_signal(signal.SIGINT)
        assert served.wait(60) == 0
    assert {"scpi", "tl1", "rest", "control"} <= set(ready)
    assert (states[3], states[4]) == ("failed", "enabled")


def test_families_are_listed_and_an_unknown_one_is_refused(testbed_process):
    assert "polatis" in testbed_process("sim", "switch", "list").out.split()
    ran = testbed_process("sim", "switch", "nobody")
    assert ran.code == 2
    assert "polatis" in ran.err


@pytest.mark.long
def test_an_interrupted_move_says_what_may_still_happen(start_twin):
    twin = start_twin("calient", "--size=8x8", "--switch-time-ms=30000")
    command = [sys.executable, "-m", "testbed.cli", "switch", twin.urls["tl1"], "connect", "1:10", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as moving:
        deadline = time.monotonic() + 60
        while not twin.truth():  # the command has arrived
            assert time.monotonic() < deadline
        moving.send_signal(signal.SIGINT)
        told = json.loads(moving.communicate(timeout=60)[0])["error"]
    assert moving.returncode == 130
    assert (told["code"], told["who"]) == ("interrupted", "unknown")
    assert "may still execute it" in told["message"]


def test_a_failure_tells_every_pair_to_programs(ask, twin):
    twin.do("set_fault", fault="drop_command", count=1)
    ran = ask("connect", "1:10", "--json")
    assert ran.code == 1
    assert ran.json["error"]["pairs"] == [{"input": 1, "output": 10, "status": "failed"}]
