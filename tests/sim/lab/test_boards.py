"""Boards of a simulated lab: processes that a stand-in plays, so that these tests need no simulator of hardware."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.lab.document import parse_document
from sim.lab.model import LabError
from sim.twins.hosts import netns
from sim.twins.plant import Plant

PATIENCE_S = 60.0
STAND_IN = """
import json, socket, sys
nic = {"interface": "port1", "namespace": sys.argv[1]}
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
wire.bind(("port1", 0x88B5))
print("warming up", flush=True)
print(json.dumps({"ready": True, "nic": nic}), flush=True)
while True:
    frame = wire.recv(2000)
    wire.send(frame[6:12] + frame[:6] + frame[12:14] + frame[14:][::-1])
"""
"""It answers each frame of an ethertype for experiments with its bytes in reverse."""
CLIENT = """
import socket
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
wire.bind(("nic1", 0x88B5))
wire.settimeout(20)
wire.send(bytes.fromhex("ffffffffffff02000000000188b5") + b"hello board".ljust(46, b"."))
print(wire.recv(2000)[14:].strip(b".").decode())
"""


def add_board(raw, *command, ports=1):
    """Add a board to a document whose switch gets as many ports more."""
    (switch,) = raw["switches"]
    size = switch["inputs"]
    for host in raw["hosts"]:
        for nic in host["nics"]:
            nic["receive"]["port"] += ports
    switch |= {"inputs": size + ports, "outputs": size + ports}
    raw["boards"] = [
        {
            "name": "board1",
            "ports": [
                {
                    "name": f"port{at + 1}",
                    "transmit": {"switch": "ocs1", "port": size + at + 1},
                    "receive": {"switch": "ocs1", "port": 2 * size + ports + at + 1},
                    **({"command": list(command)} if command and not at else {}),
                }
                for at in range(ports)
            ],
        }
    ]
    return raw


def python(program, *arguments):
    return [sys.executable, "-c", program, *arguments]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda b: b.update(name="a"), "boards[0].name: host a is already used at hosts[0].name"),
        (lambda b: b.update(name="fab"), "boards[0].name: the lab itself uses the name fab"),
        (lambda b: b.update(ports=[]), "boards[0].ports: [] should be non-empty"),
        (lambda b: b["ports"][0].update(command=[]), "boards[0].ports[0].command: [] should be non-empty"),
        (
            lambda b: b["ports"][0].update(name="lo"),
            "boards[0].ports[0].name: the lab itself uses the name lo",
        ),
        (lambda b: b["ports"][1].update(name="port1"), "boards[0].ports[1].name: port port1 is already used"),
        (
            lambda b: b["ports"][0]["transmit"].update(port=1),
            "boards[0].ports[0].transmit: port ocs1:1 is already used at hosts[0].nics[0].transmit",
        ),
        (
            lambda b: b["ports"][0]["receive"].update(port=1),
            "boards[0].ports[0].receive.port: port 1 of ocs1 is not for receive fibres",
        ),
    ],
)
def test_a_wrong_board_is_refused_with_its_path(labs, change, complaint):
    raw = add_board(labs.document(), ports=2)
    change(raw["boards"][0])
    with pytest.raises(LabError) as caught:
        parse_document(json.dumps(raw))
    assert caught.value.what.removeprefix("wiring document: ").startswith(complaint)


def test_fibres_of_boards_carry_light(labs):
    plant = Plant(add_board(labs.document(hosts=2, nics=1)))
    plant.update_switch("ocs1", {1: 6, 3: 4})
    assert {path.receiver: path.transmitter for path in plant.list_light_paths()} == {
        "a/nic1": "board1/port1",
        "board1/port1": "a/nic1",
    }


@pytest.fixture(scope="module")
def board_lab(kernel_labs):
    raw = add_board(kernel_labs.wiring(), *python(STAND_IN, "{namespace}"), ports=2)
    with kernel_labs.supervised(raw, key=kernel_labs.key) as up:
        assert up.ready["ready"] is True, up.ready
        yield up


def light_at_inputs(lab, *ports):
    """Return whether light enters each of these inputs, once a circuit shows it."""
    truth = lab.control("plant", {"do": "truth"})
    lit = {path["input"]: path["arrives"] for path in truth["paths"]}
    return [lit[port] for port in ports]


@pytest.mark.kernel
def test_a_board_answers_once_circuits_lead_to_it(board_lab):
    namespace = f"{board_lab.lab_id}-board1"
    assert board_lab.ready["boards"] == {"board1": {"port1": {"interface": "port1", "namespace": namespace}}}
    # Inputs 1-4 and outputs 7-10 are of hosts; 5, 6, 11 and 12 are of the board, whose port 2 is dark.
    board_lab.scpi(":oxc:swit:conn:add (@1,5,6),(@11,7,8)")
    assert board_lab.ssh("a", f"{sys.executable} -c '{CLIENT}'") == "draob olleh"
    assert light_at_inputs(board_lab, 1, 5, 6) == [True, True, False]


@pytest.mark.kernel
def test_the_namespace_of_a_board_has_no_address(board_lab):
    command = ["ip", "-n", f"{board_lab.lab_id}-board1", "-br", "addr", "show", "dev", "port1"]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert words[0].startswith("port1@")
    assert [word for word in words if "/" in word] == []


@pytest.mark.kernel
def test_a_process_that_ends_takes_its_light_with_it(kernel_labs):
    program = "import signal; print('{\"ready\": true}', flush=True); signal.pause()"
    raw = add_board(kernel_labs.wiring(), *python(program))
    with kernel_labs.supervised(raw, key=kernel_labs.key) as up:
        (pid,) = netns.list_processes([f"{up.lab_id}-board1"])
        up.scpi(":oxc:swit:conn:add (@5),(@6)")
        assert light_at_inputs(up, 5) == [True]
        os.kill(pid, signal.SIGTERM)
        kernel_labs.eventually(lambda: light_at_inputs(up, 5) == [False])


@pytest.mark.kernel
@pytest.mark.parametrize("way", ["input", "SIGTERM", "SIGKILL"])
def test_a_process_ends_with_its_lab(kernel_labs, tmp_path, way):
    """It notes SIGTERM in a file; the kernel kills it with the supervisor."""
    note = tmp_path / "note"
    program = (
        "import pathlib, signal, sys\n"
        "def end(*_): pathlib.Path(sys.argv[1]).write_text('ended'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('{\"ready\": true}', flush=True)\n"
        "signal.pause()\n"
    )
    raw = add_board(kernel_labs.wiring(hosts=1), *python(program, str(note)))
    with kernel_labs.supervised(raw, key=kernel_labs.key) as up:
        (pid,) = netns.list_processes([f"{up.lab_id}-board1"])
        if way == "input":
            up.end_input()
        else:
            up.process.send_signal(signal.Signals[way])
            up.process.wait(PATIENCE_S)
        kernel_labs.eventually(lambda: not kernel_labs.runs(pid))
    assert note.exists() == (way != "SIGKILL")
    if way == "SIGKILL":
        kernel_labs.sim_lab("--down")
    assert kernel_labs.traces(up.lab_id) == []


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("import sys; sys.exit('no such model')", "board board1/port1 ended with status 1: no such model"),
        (
            'print(\'{"ok": false, "error": {"message": "no model"}}\'); raise SystemExit(3)',
            "board board1/port1 ended with status 3: no model",
        ),
    ],
)
def test_a_process_that_does_not_get_ready_is_named_with_its_error(kernel_labs, program, complaint):
    raw = add_board(kernel_labs.wiring(hosts=1), *python(program))
    exit_status, refusal = kernel_labs.refusal(raw)
    assert (exit_status, refusal["code"], refusal["error"]) == (1, "board", complaint)


@pytest.mark.process
@pytest.mark.socket
def test_with_modelled_hosts_a_board_is_its_fibres(labs):
    raw = add_board(
        labs.document(subnet=labs.free_subnet("127.97"), mode="model"), "/no/such/program", ports=2
    )
    with labs.supervised(raw) as up:
        assert (up.ready["ready"], up.ready["boards"]) == (True, {"board1": {}})
        up.scpi(":oxc:swit:conn:add (@7,8),(@9,10)")
        assert light_at_inputs(up, 7, 8) == [True, False]
