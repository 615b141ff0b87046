"""The simulated mOSW: its monitor as published, selections, the error queue, and PyVISA as its client."""

from __future__ import annotations

from typing import Any

import pytest

from sim.twins.plant import Plant

BANKS, CHANNELS = 2, 8


class Terminal:
    def __init__(self, world: Any) -> None:
        self._world = world
        self._client = world.attach("scpi")

    def say(self, text: str, end: str = "\n") -> str:
        self._client.send((text + end).encode())
        self._world.settle()
        return self._client.receive().decode("latin-1")


@pytest.fixture
def device(world):
    return world("mosw", size=(BANKS, BANKS * CHANNELS))


@pytest.fixture
def terminal(device):
    return Terminal(device)


def test_published_monitor_tells_direction_and_power(device, terminal):
    device.twin.device.plant = Plant({"switches": [], "hosts": [], "link": {"transmit_power_dbm": -7.7}})
    assert terminal.say(":ROUTe:MONitor? 1") == "0, -8.000\n"


def test_a_dark_monitor_reads_the_end_of_its_range(device, terminal):
    device.do("set_fault", fault="dark_input", port=2)
    assert terminal.say(":ROUT:MON? 2") == "0, -100.000\n"
    assert terminal.say(":ROUT:MON? 1") == "0, -0.300\n"


def test_a_selection_is_silent_and_is_told(terminal):
    assert terminal.say(":ROUTe:CLOSe 1,1,5") == ""
    assert terminal.say(":ROUTe:CLOSe? 1") == "5\n"
    assert terminal.say("rout:clos? 2", end="\r\n") == "1\n"
    assert terminal.say(":SYSTem:ERRor?") == '0, "No error"\n'


@pytest.mark.parametrize(("form", "answer"), [("channel", "5"), ("pair", "1, 5"), ("triple", "1,1,5")])
def test_forms_that_the_answer_may_have(world, form, answer):
    terminal = Terminal(world("mosw", size=(BANKS, BANKS * CHANNELS), close_reply=form))
    terminal.say(":ROUTe:CLOSe 1,1,5")
    assert terminal.say(":ROUTe:CLOSe? 1") == f"{answer}\n"


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (":ROUTe:CLOSe 3,1,5", -222),
        (":ROUTe:CLOSe 1,2,5", -222),
        (":ROUTe:CLOSe 1,1,9", -222),
        (":ROUTe:CLOSe 1,1", -109),
        (":ROUTe:CLOSe 1,1,5,5", -108),
        (":ROUTe:CLOSe 1,1,x", -224),
        (":ROUTe:CLOSe? 3", -222),
        (":ROUTe:MONitor? 3", -222),
        (":ROUTe:OPEN 1", -113),
    ],
)
def test_a_refusal_is_silent_and_waits_in_the_queue(device, terminal, command, number):
    before = device.truth()
    assert terminal.say(command) == ""
    assert terminal.say(":SYST:ERR?").startswith(f"{number}, ")
    assert terminal.say(":SYST:ERR?") == '0, "No error"\n'
    assert device.truth() == before


@pytest.mark.parametrize(
    ("fault", "number"), [("fail_port", -240), ("lock_port", -221), ("disable_port", -221)]
)
def test_unfit_ports_are_refused(device, terminal, fault, number):
    device.do("set_fault", fault=fault, port=BANKS + 5)
    terminal.say(":ROUTe:CLOSe 1,1,5")
    assert terminal.say(":SYST:ERR?").startswith(f"{number}, ")
    assert terminal.say(":ROUTe:CLOSe? 1") == "1\n"


def test_the_queue_is_shared_by_clients_and_lost_without_power(device, terminal):
    terminal.say("FOO")
    terminal.say("BAR")
    assert Terminal(device).say(":SYST:ERR?").startswith("-113")
    device.do("power_cycle")
    assert Terminal(device).say(":SYST:ERR?;*OPC?") == '0, "No error";1\n'


def test_an_ignored_command_leaves_no_error(device, terminal):
    device.do("set_fault", fault="drop_command")
    terminal.say(":ROUTe:CLOSe 1,1,5")
    assert terminal.say(":ROUTe:CLOSe? 1;:SYST:ERR?") == '1;0, "No error"\n'


def test_a_wrong_answer(device, terminal):
    device.do("set_fault", fault="wrong_reply")
    assert terminal.say(":ROUTe:CLOSe? 1") == f"{CHANNELS + 1}\n"
    device.do("set_fault", fault="wrong_reply", count=5)
    device.do("clear_fault", fault="wrong_reply")
    assert terminal.say(":ROUTe:CLOSe? 1") == "1\n"


def test_pyvisa_drives_it(shared_twin):
    pytest.importorskip("pyvisa_py")
    import pyvisa

    twin = shared_twin("mosw", "--size=2x16")
    host, port = twin.urls["scpi"].partition("//")[2].partition("?")[0].split(":")
    resource = pyvisa.ResourceManager("@py").open_resource(
        f"TCPIP::{host}::{port}::SOCKET", read_termination="\n", write_termination="\n", timeout=5000
    )
    try:
        resource.write(":ROUTe:CLOSe 2,1,7")
        assert resource.query(":ROUTe:CLOSe? 2") == "7"
        assert resource.query_ascii_values(":ROUTe:MONitor? 2") == [0.0, -0.3]
    finally:
        resource.close()
    assert twin.truth()[2] == 2 + 8 + 7
