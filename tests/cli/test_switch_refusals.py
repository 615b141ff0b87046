"""`testbed switch`: what it refuses, what it says while a robot moves, and what it never undoes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from libraries import skip_without

from ocs_drivers.families import FAMILIES as SCHEMES
from sim.twins.__main__ import main

skip_without("pyvisa_py")
skip_without("asyncssh")
skip_without("h11")

FAMILIES = {
    "glimmerglass": ("tl1", "8x8", ()),
    "calient": ("rest", "8x8", ()),
    "polatis": ("scpi", "8x8", ()),
    "rome": (
        "telnet",
        "8x8",
        (
            "--speed=1000",
            "--option=idle_s=1e9",
        ),
    ),
    "sonic": ("cli", "8x8", ("--option=idle_s=1e9",)),
    "dicon": ("scpi", "2x8", ()),
}
REFUSED = [
    (("connect", "\uff11:9"), "ocs.port.unknown", "no port '\uff11'"),
    (("connect", f"1:{'9' * 5000}"), "ocs.port.unknown", "(5000 characters)"),
    (("apply",), "usage", "--empty"),
    (
        ("connect", "2:<other>"),
        "ocs.port.busy",
        "Pass --replace to drop the circuits that these inputs have now.",
    ),
]


@pytest.mark.parametrize(("words", "code", "says"), REFUSED, ids=["digit", "digits", "nothing", "drops"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_refused_leaves_the_device_as_it_was(shared_twin, testbed, family, words, code, says):
    front, size, options = FAMILIES[family]
    twin = shared_twin(family, f"--size={size}", *options)
    inputs = int(size.partition("x")[0])
    output = inputs + 5  # of a bank: the first of its second input
    twin.do("operator", connect=[[2, output]])
    truth = twin.truth()

    ran = testbed(
        "switch", twin.urls[front], *(w.replace("<other>", str(output + 2)) for w in words), "--yes", "--json"
    )

    assert (ran.code, ran.json["error"]["code"]) == (1, code), ran.out + ran.err
    assert says in ran.json["error"]["message"]
    assert "Traceback" not in ran.err
    assert twin.truth() == truth


@pytest.fixture
def glass(shared_twin):
    """Provide a quick twin with a circuit from input 1."""
    twin = shared_twin("glimmerglass", "--size=8x8", "--switch-time-ms=1")
    twin.do("operator", connect=[[1, 9]])
    return twin


def test_replace_names_what_it_drops_and_does_it(glass, testbed):
    ran = testbed("switch", glass.urls["tl1"], "connect", "1:10", "2:11", "--replace", "--json")

    assert ran.code == 0
    assert "will drop 1->9" in ran.err
    assert ran.json["replaced"] == [[1, 9]]
    assert glass.truth() == {1: 10, 2: 11}


def test_nothing_is_announced_that_is_refused(glass, testbed):
    glass.do("operator", connect=[[1, 9], [4, 10]])
    ran = testbed("switch", glass.urls["tl1"], "connect", "1:10", "--replace", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (1, "ocs.port.busy")
    assert "drop" not in ran.err
    assert glass.truth() == {1: 9, 4: 10}


def test_a_circuit_that_is_there_is_not_dropped(glass, testbed):
    ran = testbed("switch", glass.urls["tl1"], "connect", "1:9", "3:12", "--json")

    assert (ran.code, ran.json["replaced"]) == (0, [])
    assert glass.truth() == {1: 9, 3: 12}


def test_empty_takes_everything_down(glass, testbed):
    assert testbed("switch", glass.urls["tl1"], "apply", "--empty").code == 0
    assert glass.truth() == {}


def test_an_empty_scope_is_not_the_whole_switch(glass, testbed):
    ran = testbed("switch", glass.urls["tl1"], "apply", "2:10", "--scope", "", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (1, "ocs.port.unknown")
    assert "the scope is empty" in ran.json["error"]["message"]
    assert glass.truth() == {1: 9}


@pytest.mark.parametrize(("family", "front"), [("rome", "telnet"), ("afm", "cli")])
def test_the_queued_work_of_others_is_never_undone(start_twin, testbed, family, front):
    twin = start_twin(family, "--size=8x8")
    twin.do("queue_job", kind="connect", pair=[4, 12], user="maria")
    twin.do("queue_job", kind="connect", pair=[1, 12 + 3], user="maria")

    for words in (("1:10",), ("2:15",), ("1:10", "--replace"), ("2:15", "--replace")):
        ran = testbed("switch", twin.urls[front], "connect", *words, "--yes", "--json")
        assert (ran.code, ran.json["error"]["code"]) == (1, "ocs.conflict"), ran.out + ran.err
        assert "1->15" in ran.json["error"]["message"]
        assert "remove it at the robot" in ran.json["error"]["message"]
    assert "pending: connect 1->15 for maria" in testbed("switch", twin.urls[front], "read").out

    assert [job["pair"] for job in twin.do("robot")["queue"]][-1] == [1, 15]


def test_what_is_provisioned_on_a_calient_is_cleared_as_the_error_says(start_twin, testbed):
    twin = start_twin("calient", "--size=8x8", "--switch-time-ms=1")
    url = twin.urls["tl1"]
    host, _, port = url.rpartition("/")[2].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as engineer, engineer.makefile("rwb") as line:
        for command in (b"ACT-USER::admin:1::admin;", b"ENT-CRS::1.1.1,1.1.3:2::LAB,1WAY;"):
            line.write(command)
            line.flush()
            while not line.readline().startswith(b";"):
                pass

    ran = testbed("switch", url, "connect", "1:10", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "ocs.conflict"), ran.out
    assert "apply INPUT:OUTPUT --scope INPUTS" in ran.json["error"]["message"]

    assert testbed("switch", url, "apply", "1:10", "--scope", "1").code == 0
    assert twin.truth() == {1: 10}


@pytest.mark.long
def test_a_robot_that_dies_is_told_of_with_what_is_unknown(start_twin, tmp_path):
    twin = start_twin("rome", "--size=8x8")
    command = [
        sys.executable,
        "-m",
        "testbed.cli",
        "switch",
        twin.urls["telnet"],
        "connect",
        "1:10",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as moving:
        while not twin.do("robot")["queue"]:
            assert moving.poll() is None
        twin.kill()
        out, err = moving.communicate(timeout=60)
    error = json.loads(out)["error"]
    assert (moving.returncode, error["code"], error["who"]) == (1, "ocs.partial", "unknown")
    assert error["pairs"] == [{"input": 1, "output": 10, "status": "unknown"}]
    assert "connect 1->10: " in err
    assert "no answer for" in err
    assert "Traceback" not in err


@pytest.mark.long
def test_the_timeout_ends_a_move_and_names_what_is_unknown(start_twin, testbed):
    twin = start_twin("telescent", "--size=8x8")

    ran = testbed("switch", twin.urls["cli"], "connect", "1:10", "--timeout", "3", "--yes", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (1, "timed_out.moving")
    assert ran.json["error"]["pairs"] == [{"input": 1, "output": 10, "status": "unknown"}]
    assert "unknown: 1->10" in ran.json["error"]["message"]
    assert "Traceback" not in ran.err


def test_a_jam_names_the_command_that_homes_the_robot(start_twin, testbed):
    twin = start_twin("rome", "--size=8x8", "--speed=1000", "--option=idle_s=1e9")
    twin.do("set_fault", fault="jam")

    ran = testbed("switch", f"{twin.urls['telnet']}?poll_s=0.1", "connect", "1:10", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (1, "ocs.robot"), ran.out
    assert "testbed switch ADDRESS home" in ran.json["error"]["message"]


@pytest.mark.socket
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--size", "8"), "'8' is not a size"),
        (("--size", "9" * 5000), "is not a size"),
        (("--speed", "nan"), "is not a speed"),
        (("--option", "dance=1"), "no option 'dance'"),
        (("--fault", "dance"), "unknown fault 'dance'"),
        (("--dance",), "unrecognized arguments: --dance"),
    ],
    ids=["size", "digits", "speed", "option", "fault", "unknown"],
)
def test_a_bad_option_of_a_twin_names_the_command_that_was_typed(capsys, options, says):
    with pytest.raises(SystemExit) as ended:
        main(["--called-as", "testbed sim switch", "polatis", *options])

    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert "testbed sim switch: error: " in told
    assert says in told
    assert "sim.twins" not in told


def test_the_command_for_a_twin_ends_as_the_twin_does(testbed_process):
    ran = testbed_process("sim", "switch", "polatis", "--size", "8")

    assert ran.code == 2
    assert "testbed sim switch: error: " in ran.err
    assert "sim.twins" not in ran.err
    assert "Traceback" not in ran.err


def test_help_lists_schemes_accounts_and_examples(testbed):
    text = testbed("switch", "--help").out

    assert [scheme for scheme in SCHEMES if scheme not in text] == []
    assert {"LIGHTBED_OCS_USER", "LIGHTBED_OCS_CREDENTIALS"} <= set(text.replace(",", " ").split())
    assert "testbed switch polatis+tl1://10.0.0.7 read" in text
