"""`python -m sim.twins FAMILY`: what can be asked for on the command line, and how it says that something cannot be."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from sim.models.clock import VirtualClock
from sim.twins.families import FAMILIES, make_twin
from sim.twins.plant import Plant
from sim.twins.switch.settings import SettingError, TwinSettings

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-W", "error", "-m", "sim.twins"]


def run(*words):
    """Return a command that ends by itself."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, cwd=ROOT, timeout=30, check=False
    )


@contextmanager
def serving(*words):
    """Return a Polatis while it serves: its ready line."""
    command = [*COMMAND, "polatis", *words]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=ROOT) as process:
        try:
            yield json.loads(process.stdout.readline())
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def connection_to(url):
    host, _, port = url.rpartition("/")[2].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10.0)


def ask(url, line):
    with connection_to(url) as connection:
        connection.sendall(line.encode() + b"\n")
        with connection.makefile("rb") as stream:
            return stream.readline().decode().rstrip("\r\n")


def truth_of(ready):
    return json.loads(ask(ready["control"], '{"do": "truth"}'))


@pytest.mark.process
def test_the_families_are_listed_one_a_line():
    ended = run("--list")
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, list(FAMILIES), "")


@pytest.mark.socket
@pytest.mark.process
def test_the_ready_line_has_whole_addresses_at_the_host_and_port_asked_for():
    with socket.create_server(("127.77.0.9", 0)) as probe:
        port = probe.getsockname()[1]
    with serving("--host", "127.77.0.9", "--port", f"tl1={port}", "--size", "4x6") as ready:
        assert (ready["ready"], ready["simulated"], ready["family"]) == (True, True, "polatis")
        assert ready["tl1"] == f"polatis+tl1://127.77.0.9:{port}"
        assert ready["scpi"].startswith("polatis+scpi://127.77.0.9:")
        assert ready["control"].startswith("tcp://127.77.0.9:")
        assert ask(ready["scpi"], ":oxc:swit:size?") == "4,6"


@pytest.mark.socket
@pytest.mark.process
def test_time_account_boot_mode_and_options_are_as_asked_for():
    words = ["--size", "4x4", "--boot-mode", "AUTOSAVE", "--speed", "1000", "--switch-time-ms", "2000"]
    account = ["--user", "me", "--password", "", "--option", "when_occupied=replace"]
    with serving(*words, *account) as ready:
        assert ask(ready["scpi"], ":oxc:swit:conn:add (@1),(@5);*OPC?") == "1"
        assert (
            ask(ready["scpi"], ":oxc:swit:conn:add (@2),(@5);stat?;:syst:err?") == '(@2),(@5);0, "No error"'
        )
        truth = truth_of(ready)
        assert truth["boot_mode"] == "AUTOSAVE"
        assert truth["last_busy_s"] >= 2.0
        with connection_to(ready["tl1"]) as line:
            line.sendall(b"ACT-USER::me:1::;")
            assert b"COMPLD" in line.recv(1000)


@pytest.mark.socket
@pytest.mark.process
def test_faults_are_set_before_the_ready_line():
    faults = ["fail_port=3", "stuck=[1,9]", 'lossy={"pair":[2,10],"loss_db":4}', "drop_command"]
    with serving("--size", "8x8", *(word for fault in faults for word in ("--fault", fault))) as ready:
        assert truth_of(ready)["ports"]["3"] == "F"
        two = ":oxc:swit:conn:add (@1,2),(@9,10);*OPC?;stat?"
        assert ask(ready["scpi"], two) == "1;(@),(@)"
        assert ask(ready["scpi"], two + ";:pmon:pow? (@10)") == "1;(@2),(@10);(-5.50)"


@pytest.mark.socket
@pytest.mark.process
def test_a_device_that_refuses_from_the_start():
    with serving("--fault", "refuse") as ready:
        with pytest.raises(ConnectionRefusedError):
            connection_to(ready["scpi"])
        assert json.loads(ask(ready["control"], '{"do": "clear_fault", "fault": "refuse"}')) == {"ok": True}
        assert ask(ready["scpi"], ":oxc:swit:size?") == "48,48"


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["semaphore"], "'calient'"),
        ([], "(--list shows them)"),
        (["polatis", "--option", "colour=red"], "this family has no option 'colour'; known: "),
        (["polatis", "--option", "hitless=perhaps"], "option hitless must be one of no, yes, not 'perhaps'"),
        (["polatis", "--option", "hitless"], "--option"),
        (
            ["polatis", "--fault", "hiccups=1"],
            "unknown fault 'hiccups'; this device knows: close_connection, ",
        ),
        (["polatis", "--fault", "fail_port=99"], "--fault fail_port=99: port 99 does not exist"),
        (["polatis", "--fault", "fail_port"], "field 'port' is missing"),
        (["polatis", "--fault", "lossy=[1,50]"], "field 'loss_db' is missing"),
        (["polatis", "--port", "whisper=1"], "frontends are scpi, tl1, "),
        (["polatis", "--port", "scpi=http"], "a port is a number from 0 to 65535"),
        (["polatis", "--port", "scpi=99999"], "--port scpi=99999: frontends are"),
        (["polatis", "--port", "scpi=\N{FULLWIDTH DIGIT EIGHT}"], "a port is a number"),
        (["polatis", "--size", "8"], "--size"),
        (["polatis", "--size", "0x8"], "--size"),
        (["polatis", "--speed", "0"], "--speed"),
        (["polatis", "--speed", "nan"], "--speed"),
    ],
)
def test_what_cannot_be_had_is_said_with_what_can(words, complaint):
    ended = run(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_takes_an_option_that_it_does_not_know(family):
    pytest.importorskip("asyncssh")
    pytest.importorskip("h11")
    settings = TwinSettings("ocs1", 8, 8, Plant({}), VirtualClock(), options={"colour": "red"})
    with pytest.raises(SettingError, match="colour"):
        make_twin(family, settings)


def test_an_unknown_family_is_told_the_known_ones():
    with pytest.raises(SettingError, match="unknown family 'semaphore'; known"):
        make_twin("semaphore", TwinSettings("ocs1", 8, 8, Plant({}), VirtualClock()))
