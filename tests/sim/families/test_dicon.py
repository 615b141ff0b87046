"""The simulated DiCon: what its manual's page shows, by raw bytes, by PyVISA and by pyserial; faults; power."""

from __future__ import annotations

from typing import Any

import pytest

from sim.models.clock import VirtualClock
from sim.twins.families import make_twin
from sim.twins.plant import Plant
from sim.twins.switch.settings import SettingError, TwinSettings

BANKS, CHANNELS = 6, 4


class Terminal:
    """A client in memory that knows nothing but bytes."""

    def __init__(self, world: Any, frontend: str = "scpi") -> None:
        self._world = world
        self._client = world.attach(frontend)

    def say(self, text: str, end: str = "\r") -> str:
        self._client.send((text + end).encode())
        self._world.settle()
        return self._client.receive().decode("latin-1")

    @property
    def closed(self) -> bool:
        return self._client.is_closed


@pytest.fixture
def device(world):
    return world("dicon", size=(BANKS, BANKS * CHANNELS))


@pytest.fixture(params=["scpi", "serial"])
def terminal(request, device):
    return Terminal(device, request.param)


# -- what is published


def test_published_set_is_silent_and_query_tells_the_channel(terminal):
    assert terminal.say("ROUT6:SCAN 2") == ""
    assert terminal.say("ROUT6:SCAN?") == "2\r"


def test_published_next_goes_on_and_begins_again(terminal):
    terminal.say("ROUT6:SCAN 3")
    channels = [terminal.say("ROUT6:SCAN:NEXT;:ROUT6:SCAN?") for _ in range(3)]
    assert channels == ["4\r", "1\r", "2\r"]


def test_published_header_path_is_remembered_so_that_a_keyword_is_enough(terminal):
    terminal.say("ROUT6:SCAN 2")
    assert terminal.say("SCAN?") == "2\r"
    assert terminal.say("SCAN 4;SCAN?") == "4\r"


def test_published_open_state_of_a_bank(device, terminal):
    assert terminal.say("ROUTE2:OPEN:STATE?") == "0\r"
    device.do("operator", disconnect=[2])
    assert terminal.say("ROUTE2:OPEN:STATE?") == "1\r"
    assert terminal.say("ROUT2:SCAN?") == "0\r"


# -- grammar


@pytest.mark.parametrize("header", ["ROUT3:SCAN?", "route3:scan?", ":Rout3:Scan?", "ROUTE3:SCAN?"])
def test_keywords_are_short_or_long_in_any_case(terminal, header):
    terminal.say("ROUT3:SCAN 4")
    assert terminal.say(header) == "4\r"


@pytest.mark.parametrize(
    "nonsense", ["ROU3:SCAN?", "*FOO?", "ROUT3:SCAN x", "ROUT3:SCAN", "ROUT3:SCAN 1,2", ";;"]
)
def test_nonsense_is_silent_and_changes_nothing(device, terminal, nonsense):
    before = device.truth()
    assert terminal.say(nonsense) == ""
    assert device.truth() == before


@pytest.mark.parametrize("command", ["ROUT7:SCAN 1", "ROUT1:SCAN 5", "ROUT1:SCAN 0", "ROUT0:SCAN 1"])
def test_banks_and_channels_that_do_not_exist_change_nothing(device, terminal, command):
    before = device.truth()
    assert terminal.say(command) == ""
    assert device.truth() == before


def test_a_line_feed_ends_no_command(terminal):
    assert terminal.say("ROUT1:SCAN?", end="\n") == ""
    assert terminal.say("", end="\r") == "1\r"


def test_chained_answers_come_on_one_line_or_on_their_own(world, terminal):
    assert terminal.say("ROUT1:SCAN?;:ROUT2:SCAN?") == "1;1\r"
    apart = Terminal(world("dicon", size=(2, 8), separate_lines="yes"))
    assert apart.say("ROUT1:SCAN?;:ROUT2:SCAN?") == "1\r1\r"


def test_options_for_a_device_that_forgets_and_one_that_does_not_say_who_it_is(world):
    terminal = Terminal(world("dicon", size=(2, 8), forgets_path="yes", identity="no"))
    assert terminal.say("ROUT2:SCAN?") == "1\r"
    assert terminal.say("SCAN?") == ""
    assert terminal.say("ROUT2:SCAN 3;SCAN?") == "3\r"
    assert terminal.say("*IDN?") == ""


# -- one state behind all frontends


def test_clients_on_both_fronts_see_one_state(device):
    tcp, line, other = Terminal(device), Terminal(device, "serial"), Terminal(device)
    tcp.say("ROUT2:SCAN 3")
    assert [one.say("ROUT2:SCAN?") for one in (tcp, line, other)] == ["3\r"] * 3
    assert device.truth()[2] == BANKS + CHANNELS + 3


def test_light_comes_when_the_mirror_has_arrived(device, terminal):
    device.advance(1.0)
    terminal.say("ROUT1:SCAN 2")
    assert [1, BANKS + 2] not in device.do("truth")["lit"]
    device.advance(0.016)
    assert [1, BANKS + 2] in device.do("truth")["lit"]


def test_no_bank_reaches_the_channels_of_another(device):
    with pytest.raises(AssertionError, match="other side"):
        device.do("operator", connect=[[1, BANKS + CHANNELS + 1]])


@pytest.mark.parametrize(("mode", "channel"), [("DARK", 1), ("RESTORE", 1), ("AUTOSAVE", 3)])
def test_power_cycle(world, mode, channel):
    device = world("dicon", size=(2, 8), settings={"boot_mode": mode})
    terminal = Terminal(device)
    terminal.say("ROUT2:SCAN 3")
    device.do("power_cycle")
    assert terminal.closed
    assert Terminal(device).say("ROUT2:SCAN?") == f"{channel}\r"


# -- faults


def test_an_ignored_command(device, terminal):
    device.do("set_fault", fault="drop_command")
    assert [terminal.say("ROUT1:SCAN 2"), terminal.say("ROUT1:SCAN?")] == ["", "1\r"]
    terminal.say("ROUT1:SCAN 2")
    assert terminal.say("ROUT1:SCAN?") == "2\r"


def test_a_stuck_mirror_leaves_the_bank_open(device, terminal):
    device.do("set_fault", fault="stuck", pair=[1, BANKS + 2])
    terminal.say("ROUT1:SCAN 2")
    assert terminal.say("ROUT1:SCAN?") == "0\r"


def test_a_wrong_answer_names_a_channel_that_is_not_there(device, terminal):
    device.do("set_fault", fault="wrong_reply", count=1)
    assert [terminal.say("ROUT1:SCAN?") for _ in range(2)] == [f"{CHANNELS + 1}\r", "1\r"]
    assert device.do("truth")["fired"]["wrong_reply"] == 1


def test_noise_keeps_its_ending(device, terminal):
    device.do("set_fault", fault="garbage")
    answer = terminal.say("ROUT1:SCAN?")
    assert answer.endswith("1\r")
    assert len(answer) > 2


def test_a_late_answer_comes_in_its_time(device, terminal):
    device.do("set_fault", fault="delay_reply", seconds=2.0)
    assert terminal.say("ROUT1:SCAN?") == ""
    device.advance(2.0)
    assert terminal.say("") == "1\r"


def test_a_half_open_line_hears_and_says_nothing(device, terminal):
    device.do("set_fault", fault="half_open")
    assert terminal.say("ROUT1:SCAN 2;SCAN?") == ""
    assert not terminal.closed
    device.do("clear_fault", fault="all")
    assert terminal.say("ROUT1:SCAN?") == "1\r"


@pytest.mark.parametrize(("executed", "channel"), [(True, 2), (False, 1)])
def test_a_line_that_is_cut_at_a_command(device, terminal, executed, channel):
    device.do("set_fault", fault="close_connection", after_commands=1, executed=executed)
    assert terminal.say("ROUT1:SCAN 2") == ""
    assert terminal.closed
    assert Terminal(device).say("ROUT1:SCAN?") == f"{channel}\r"


def test_a_failed_channel_is_refused_in_silence(device, terminal):
    device.do("set_fault", fault="fail_port", port=BANKS + 2)
    terminal.say("ROUT1:SCAN 2")
    assert terminal.say("ROUT1:SCAN?") == "1\r"


# -- what it can be made of


@pytest.mark.parametrize(
    ("inputs", "options", "why"),
    [
        (3, {}, "8 outputs cannot be divided among 3 banks; size 2x16 is two 1x8 switches"),
        (2, {"colour": "red"}, "this family has no option 'colour'"),
        (2, {"baud": "fast"}, "option baud must be a number, not"),
    ],
)
def test_settings_it_cannot_have(inputs, options, why):
    plant = Plant({"switches": [], "hosts": []})
    with pytest.raises(SettingError, match=why):
        make_twin("dicon", TwinSettings("ocs1", inputs, 8, plant, VirtualClock(), options=options))


# -- somebody else's clients on real wires


def test_pyvisa_drives_it_over_tcp(shared_twin):
    pytest.importorskip("pyvisa_py")
    import pyvisa

    twin = shared_twin("dicon", "--size=2x16")
    host, port = twin.urls["scpi"].partition("//")[2].partition("?")[0].split(":")
    resource = pyvisa.ResourceManager("@py").open_resource(
        f"TCPIP::{host}::{port}::SOCKET", read_termination="\r", write_termination="\r", timeout=5000
    )
    try:
        resource.write("ROUT2:SCAN 7")
        assert resource.query("ROUT2:SCAN?") == "7"
        assert resource.query("*IDN?").startswith("DiCon")
    finally:
        resource.close()
    assert twin.truth()[2] == 2 + 8 + 7


def test_pyserial_drives_it_over_a_serial_line(shared_twin):
    serial = pytest.importorskip("serial")
    twin = shared_twin("dicon", "--size=2x16", "--option=baud=115200")
    path = twin.urls["serial"].partition("//")[2].partition("?")[0]
    with serial.Serial(path, 115200, timeout=5) as line:
        line.write(b"ROUT2:SCAN 7\rROUT2:SCAN?\r")
        assert line.read_until(b"\r") == b"7\r"
    assert twin.truth()[2] == 2 + 8 + 7
