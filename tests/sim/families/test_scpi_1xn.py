"""The simulated 1xN switches of several makes, and the grammar that all small SCPI twins share."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.clock import VirtualClock
from sim.twins.families import make_twin
from sim.twins.frontends.scpi import MAX_LINE_BYTES, LineReader, compile_header, split_units
from sim.twins.plant import Plant
from sim.twins.switch.settings import SettingError, TwinSettings


class Terminal:
    def __init__(self, world: Any, frontend: str = "scpi", end: str = "\n") -> None:
        self._world = world
        self._client = world.attach(frontend)
        self._end = end

    def say(self, text: str) -> str:
        self._client.send((text + self._end).encode())
        self._world.settle()
        return self._client.receive().decode("latin-1")


def test_one_bank_by_default_words(world):
    terminal = Terminal(world("scpi-1xn", size=(1, 8)))
    assert terminal.say(":ROUTe:CHANnel 3") == ""
    assert terminal.say(":rout:chan?") == "3\n"
    assert terminal.say(":SYST:ERR?") == '0, "No error"\n'
    assert terminal.say("*IDN?") == "Simulated,1x8,SIM336831,1.0\n"


def test_several_banks_have_numbers(world):
    device = world("scpi-1xn", size=(2, 8))
    terminal = Terminal(device)
    terminal.say(":ROUT2:CHAN 3")
    assert terminal.say(":ROUT1:CHAN?;:ROUT2:CHAN?") == "1;3\n"
    assert device.truth() == {1: 3, 2: 2 + 4 + 3}


@pytest.mark.parametrize(("end", "text"), [("lf", "\n"), ("cr", "\r"), ("crlf", "\r\n")])
def test_words_and_line_ends_can_be_chosen(world, end, text):
    device = world("scpi-1xn", size=(1, 8), header="SWITch", end=end, errors="no", identity="no")
    terminal = Terminal(device, end=text)
    terminal.say("SWIT 5")
    assert terminal.say(":SWITCH?") == f"5{text}"
    assert terminal.say("SYST:ERR?") == ""
    assert terminal.say("*IDN?") == ""


# What public clients of each make send and expect, in their order. A question and its answer, or a command and "".
EXCHANGES = {
    # OITG's wand and its forks; a pyvisa class that wants `eol 1x8\r\n` and nothing else
    "leoni-eol": [("type?", "eol 1x8\r\n"), ("ch5", ""), ("ch?", "5\r\n"), ("firmware?", "ver3.27\r\n")],
    # qudi's osw12 (reads to CRLF, writes LF), pnpq
    "thorlabs-osw": [("S 2", ""), ("S?", "2\r\n"), ("S 1", ""), ("S?", "1\r\n")],
    # photonmover, instrumental, FiberSwitchGUI: they throw the first byte away, then read a line
    "dicon-module": [
        ("CF?", "\n1,8\r\n"),
        ("PK", ""),
        ("I1?", "\n0\r\n"),
        ("I1 3", ""),
        ("I1?", "\n3\r\n"),
        ("I1 0", ""),
        ("I1?", "\n0\r\n"),
    ],
    # ULPythonLab, SiEPIClab
    "jds-sb": [
        ("CLOSE 3", ""),
        ("OPC?", "0\n"),
        ("CLOSE?", "3\n"),
        ("RESET", ""),
        ("CLOSE?", "0\n"),
        ("CLOSE 8", ""),
        ("CLOSE?", "8\n"),
        ("CLOSE 0", ""),
    ],
    # a Santec SX1 class (formerly JGR Optics)
    "santec-sx1": [
        ("MODule:NUMber?", "1\n"),
        ("MODule:CATalog?", '"SX 1Ax8"\n'),
        ("MODule:SELect 1", ""),
        ("CFG:SWT:END?", "8\n"),
        ("CLOSe 8", ""),
        ("STAT:OPER:COND?", "1\n"),
        ("CLOSe?", "8\n"),
        ("CLOSe", ""),
        ("CLOSe?", "1\n"),
        ("ROUTe0:HOMe", ""),
        ("*TST?", "0\n"),
        ("*ESR?", "0\n"),
    ],
}
ENDS = {"leoni-eol": "\r\n", "dicon-module": "\r"}


@pytest.mark.parametrize("make", EXCHANGES)
def test_clients_of_a_make_are_answered(world, make):
    terminal = Terminal(world("scpi-1xn", size=(1, 8), make=make), "serial", ENDS.get(make, "\n"))
    for said, expected in EXCHANGES[make]:
        assert (said, terminal.say(said)) == (said, expected)


@pytest.mark.parametrize(
    ("make", "question", "answer"), [("jds-sb", "OPC?", "1"), ("santec-sx1", "STAT:OPER:COND?", "0")]
)
def test_a_mirror_that_rests_is_told(world, make, question, answer):
    device = world("scpi-1xn", size=(1, 8), make=make)
    terminal = Terminal(device)
    terminal.say("CLOSE 3")
    device.advance(1)
    assert terminal.say(question) == f"{answer}\n"


@pytest.mark.parametrize(("make", "command"), [("dicon-module", "PK"), ("jds-sb", "RESET")])
def test_a_parked_switch_lets_no_light_pass(world, make, command):
    device = world("scpi-1xn", size=(1, 8), make=make)
    Terminal(device, end=ENDS.get(make, "\n")).say(command)
    assert device.truth() == {}


@pytest.mark.parametrize("options", [{"make": "acme"}, {"end": "ff"}, {"errors": "maybe"}, {"baud": "fast"}])
def test_options_without_sense(options):
    plant = Plant({"switches": [], "hosts": []})
    with pytest.raises(SettingError, match=f"option {next(iter(options))} must be"):
        make_twin("scpi-1xn", TwinSettings("ocs1", 1, 8, plant, VirtualClock(), options=options))


def test_addresses_say_what_a_driver_must_know(shared_twin):
    twin = shared_twin("scpi-1xn", "--size=2x8", "--option=header=ROUTe#:CHANnel", "--option=end=cr")
    options = parse_qs(urlsplit(twin.urls["scpi"]).query)
    assert options == {
        "banks": ["2"],
        "channels": ["4"],
        "set": [":ROUTe{bank}:CHANnel {channel}"],
        "query": [":ROUTe{bank}:CHANnel?"],
        "errors": [":SYSTem:ERRor?"],
        "end": ["cr"],
    }
    assert "baud=9600" in twin.urls["serial"]


def test_pyserial_drives_a_leoni_eol(shared_twin):
    serial = pytest.importorskip("serial")
    twin = shared_twin("scpi-1xn", "--size=1x8", "--option=make=leoni-eol")
    path = twin.urls["serial"].partition("//")[2].partition("?")[0]
    with serial.Serial(path, 57600, timeout=5) as line:
        line.write(b"ch7\r\nch?\r\n")
        assert line.readline() == b"7\r\n"
    assert twin.truth() == {1: 1 + 7}


# -- grammar

commands = st.lists(st.sampled_from(["ROUT1:SCAN 2", "*IDN?", ":SYST:ERR?", "x", ""]), max_size=6)


@given(commands, st.data(), st.sampled_from([b"\r", b"\n", b"\r\n"]))
def test_any_split_gives_the_same_lines(lines, data, ends):
    stream = b"".join(line.encode() + ends[-1:] for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    reader = LineReader(ends)
    found = [
        line
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for line in reader.feed(stream[start:end])
    ]
    assert found == [line for line in lines if line]


@given(st.binary(max_size=200))
def test_any_bytes_are_lines_or_nothing(data):
    reader = LineReader(b"\n")
    lines = reader.feed(data) + reader.feed(b"\n")
    for line in lines:
        for unit in split_units(line):
            assert unit.header
    assert reader.feed(b"*IDN?\n") == ["*IDN?"]


def test_a_line_without_end_is_dropped():
    reader = LineReader(b"\n")
    assert reader.feed(b"x" * (MAX_LINE_BYTES + 1)) == []
    assert reader.feed(b"*IDN?\n") == ["*IDN?"]


def test_a_number_in_a_header_may_be_left_out():
    pattern = compile_header("ROUTe#:SCAN?")
    assert [pattern.fullmatch(text)[1] for text in ("ROUT:SCAN?", "route12:scan?")] == ["", "12"]
    assert pattern.fullmatch("ROUT12345:SCAN?") is None
