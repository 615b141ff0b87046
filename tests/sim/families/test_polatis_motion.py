"""Dark and lit circuits, and waiting clients, while mirrors move on a virtual clock."""

from __future__ import annotations

import json

import pytest
from needs import needs

SWITCH_TIME_S = 0.02


@pytest.fixture
@needs("socket")
def twin(start_twin):
    return start_twin(virtual=True)


def lit(twin):
    return dict(twin.truth()["lit"])


def command(twin, client, line):
    """Send a set command and wait until it is in the books."""
    assert client.ask(f"{line};:oxc:swit:size?") == "8,8"


def advance(twin, seconds=SWITCH_TIME_S):
    assert twin.control("advance", seconds=seconds)["ok"]


def test_light_comes_after_the_switch_time(twin):
    client = twin.scpi()
    command(twin, client, ":oxc:swit:conn:add (@1),(@9)")
    assert client.ask(":oxc:swit:conn:stat?;:pmon:pow? (@9)") == "(@1),(@9);(-60.00)"
    advance(twin, 0.019)
    assert lit(twin) == {}
    advance(twin, 0.001)
    assert lit(twin) == {1: 9}
    assert client.ask(":pmon:pow? (@9)") == "(-1.50)"


def test_opc_answers_when_the_light_is_there(twin):
    client = twin.scpi()
    client.send(":oxc:swit:conn:add (@1),(@9);*OPC?")
    twin.until(lambda truth: truth["changes"] == 1)
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(1)
    client.socket.settimeout(10.0)
    advance(twin)
    assert client.line() == "1"
    assert lit(twin) == {1: 9}


def test_opc_without_question_mark_blocks_nobody(twin):
    client = twin.scpi()
    command(twin, client, ":oxc:swit:conn:add (@1),(@9);*OPC")
    assert client.ask("*ESR?") == "0"
    advance(twin)
    assert client.ask("*ESR?") == "1"


def test_tl1_completes_when_the_light_is_there(twin):
    client = twin.tl1().login()
    client.send("ENT-PATCH::1,9:5:;")
    twin.until(lambda truth: truth["changes"] == 1)
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(1)
    client.socket.settimeout(10.0)
    advance(twin)
    assert "\r\nM  5 COMPLD" in client.frame()


def settled(twin, client, line):
    command(twin, client, line)
    advance(twin)


def test_a_whole_configuration_darkens_what_it_keeps(twin):
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:only (@1,2),(@9,10)")
    command(twin, client, ":oxc:swit:conn:only (@1,3),(@9,11)")
    assert lit(twin) == {}
    advance(twin)
    assert lit(twin) == {1: 9, 3: 11}


def test_a_hitless_switch_does_not(start_twin):
    twin = start_twin(virtual=True, hitless="yes")
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:only (@1,2),(@9,10)")
    command(twin, client, ":oxc:swit:conn:only (@1,3),(@9,11)")
    assert lit(twin) == {1: 9}


def test_single_changes_leave_the_others_alone(twin):
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:only (@1,2),(@9,10)")
    command(twin, client, ":oxc:swit:conn:add (@3),(@11)")
    command(twin, client, ":oxc:swit:conn:sub (@2),(@10)")
    assert lit(twin) == {1: 9}
    advance(twin)
    assert lit(twin) == {1: 9, 3: 11}


def test_the_same_configuration_moves_nothing(twin):
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:only (@1,2),(@9,10)")
    assert client.ask(":oxc:swit:conn:only (@2,1),(@10,9);*OPC?") == "1"
    assert lit(twin) == {1: 9, 2: 10}
    assert twin.truth()["changes"] == 1


def test_a_later_change_of_the_same_port_wins(twin):
    client = twin.scpi()
    command(twin, client, ":oxc:swit:conn:add (@1),(@9)")
    advance(twin, 0.01)
    command(twin, client, ":oxc:swit:conn:sub (@1),(@9);add (@1),(@10)")
    advance(twin, 0.01)
    assert lit(twin) == {}
    advance(twin, 0.01)
    assert lit(twin) == {1: 10}


def test_busy_time_is_what_the_device_itself_takes(twin):
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:only (@1,2),(@9,10)")
    advance(twin, 100.0)
    command(twin, client, ":oxc:swit:disc:all")
    advance(twin, 0.01)
    command(twin, client, ":oxc:swit:conn:add (@1),(@9)")
    advance(twin, 100.0)
    truth = twin.truth()
    assert truth["busy_s"] == pytest.approx(0.02 + 0.03)
    assert truth["last_busy_s"] == pytest.approx(0.03)
    assert (truth["simulated"], truth["now_s"]) == (True, pytest.approx(200.03))


def test_renderers_are_told_of_darkness_and_of_light(start_twin):
    calls = []

    class Recorder:
        def render(self, before, after):
            calls.append((before, after))

    nics = [
        {
            "name": f"nic{k}",
            "transmit": {"switch": "ocs1", "port": k},
            "receive": {"switch": "ocs1", "port": 8 + k},
        }
        for k in (1, 2)
    ]
    document = {"switches": [{"name": "ocs1"}], "hosts": [{"name": "a", "nics": nics}]}
    twin = start_twin(virtual=True, wiring=document, renderers=[Recorder()])
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:only (@1,2),(@10,9)")
    crossed = {"a/nic2": "a/nic1", "a/nic1": "a/nic2"}
    assert calls == [({}, crossed)]
    settled(twin, client, ":oxc:swit:conn:only (@1),(@10)")
    assert calls[1:] == [(crossed, {}), ({}, {"a/nic2": "a/nic1"})]
    client.send(":oxc:swit:port:dis (@10)")
    assert client.ask(":syst:err?") == '0, "No error"'
    assert calls[3:] == [({"a/nic2": "a/nic1"}, {})]


def power_cycle(twin):
    assert twin.control("power_cycle")["ok"]
    twin.control("advance", seconds=SWITCH_TIME_S)


@pytest.mark.parametrize(("mode", "kept"), [("DARK", {}), ("RESTORE", {1: 9}), ("AUTOSAVE", {1: 9, 2: 10})])
def test_what_a_power_cycle_leaves(twin, mode, kept):
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:add (@1),(@9)")
    command(twin, client, f":oxc:boot:mode {mode}")
    settled(twin, client, ":oxc:swit:conn:add (@2),(@10)")
    client.send("nonsense")
    assert client.ask("*STB?") == "4"
    assert twin.control("power_cycle")["ok"]
    assert client.rest() == b""
    assert lit(twin) == {}
    advance(twin)
    assert lit(twin) == kept
    again = twin.scpi()
    assert again.ask(":oxc:boot:mode?;*STB?") == f"{mode};0"


def test_a_power_cycle_ends_logins_and_motion(twin):
    login = twin.tl1().login()
    client = twin.scpi()
    command(twin, client, ":oxc:swit:conn:add (@1),(@9)")
    power_cycle(twin)
    assert "ENT-PATCH:1,9" in login.frame()
    assert login.frame() == ""
    assert lit(twin) == {}
    assert twin.truth()["last_busy_s"] == 0.0
    assert twin.scpi().ask("*OPC?") == "1"


def test_a_device_without_power_answers_nobody(start_twin):
    twin = start_twin(boot_mode="AUTOSAVE", virtual=True)
    client = twin.scpi()
    settled(twin, client, ":oxc:swit:conn:add (@1),(@9)")
    control = start_cycle(twin, off_s=5.0)
    assert client.rest() == b""
    with pytest.raises(ConnectionRefusedError):
        twin.scpi()
    advance(twin, 5.0)
    assert json.loads(control.readline())["connections"] == [[1, 9]]
    advance(twin)
    assert twin.scpi().ask(":oxc:swit:conn:stat?") == "(@1),(@9)"
    assert lit(twin) == {1: 9}


def start_cycle(twin, off_s):
    """Ask for a power cycle without waiting for its end."""
    connection = twin.open_control()
    connection.write(json.dumps({"do": "power_cycle", "off_s": off_s}).encode() + b"\n")
    connection.flush()
    return connection
