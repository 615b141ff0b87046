"""Exchanges of public clients with our twins: their commands in their order, and the answers that they parse.

The clients were read for the facts of the wire; the evidence page names them. Sessions that run on today's Python from
a package index are driven themselves, in tests/clients.
"""

from __future__ import annotations

import re
from typing import Any

import pytest


class Wire:
    """Bytes to a twin in memory, and what comes back."""

    def __init__(self, world: Any, frontend: str) -> None:
        self.world = world
        self._client = world.attach(frontend)
        world.settle()
        self._client.receive()

    def say(self, text: str, seconds: float = 0.0) -> str:
        """Send just this, and return what has come when nothing happens any more, or after so long."""
        self._client.send(text.encode())
        self.world.settle()
        if seconds:
            self.world.advance(seconds)
        return self._client.receive().decode("latin-1")


# -- Polatis over SCPI


@pytest.fixture
def scpi(world):
    return Wire(world("polatis", size=(16, 16)), "scpi")


def test_a_header_is_relative_to_the_one_before_it(scpi):
    """An experiment with OpenFlow switches sends `only` and asks `stat?` behind it, with a blank between."""
    answer = scpi.say(":oxc:swit:conn:only (@1,2),(@17,18); stat?\r\n", 1)
    assert answer == "(@1,2),(@17,18)\r\n"
    assert scpi.say(":oxc:swit:disc:all\r\n", 1) == ""
    assert scpi.world.truth() == {}


def test_a_client_ends_every_command_with_a_semicolon(scpi):
    """R. Polster's class, which cites manual PROD-B-100-03-0, and Polatis3000; both cut two characters off answers."""
    assert scpi.say("*IDN?\r\n").startswith("Polatis,")
    assert scpi.say("*RST;\r\n") == ""
    assert scpi.say(":oxc:swit:conn:add (@1),(@17);\r\n", 1) == ""
    assert scpi.say(":oxc:swit:conn:stat?\r\n")[:-2] == "(@1),(@17)"
    assert scpi.say(":oxc:swit:conn:port? 1\r\n")[:-2] == '"17"'
    assert scpi.say(":oxc:boot:mode aut;\r\n") == ""
    assert scpi.say(":oxc:boot:mode?\r\n")[:3].upper() == "AUT"
    pattern = scpi.say(":oxc:swit:conn:stat?\r\n")[:-2]  # as it saves and loads a pattern
    scpi.say("*RST;\r\n", 1)
    assert scpi.world.truth() == {}
    scpi.say(f":oxc:swit:conn:only {pattern};\r\n", 1)
    assert scpi.world.truth() == {1: 17}


def test_lists_have_blanks(scpi):
    """Python tuples in lists of ports: a blank after each comma, and between the lists."""
    scpi.say(":oxc:swit:conn:add (@1, 2, 3), (@19, 25, 17)\n", 1)
    assert scpi.say(":oxc:swit:conn:stat?\n") == "(@1,2,3),(@19,25,17)\r\n"


def test_headers_without_a_colon_in_front(scpi):
    """devicecontrol-polatis of hpn-bristol; an OXC class on telnetlib."""
    scpi.say("oxc:swit:conn:only (@1,2),(@17,18)\n", 1)
    answer = scpi.say("oxc:swit:conn:stat?\n")
    assert [part.strip("(@)\r\n").split(",") for part in answer.split("),(")] == [["1", "2"], ["17", "18"]]
    scpi.say("oxc:swit:conn:sub (@1),(@17)\n", 1)
    address = scpi.say(":syst:comm:netw:addr?\n").strip()
    assert {pair.split("=")[0] for pair in address.split()} == {"IP", "Gateway", "Mask", "Broadcast"}
    assert re.findall(r"-(\d+)x(\d+)-", scpi.say("*IDN?\n").split(",")[1]) == [("16", "16")]
    powers = scpi.say(":pmon:pow? (@17,18,19)\n").strip("()\r\n").split(",")
    assert [float(power) < 0 for power in powers] == [True] * 3
    scpi.say("oxc:swit:disc:all\n", 1)
    assert scpi.say("oxc:swit:conn:stat?\n") == "(@),(@)\r\n"


def test_an_add_is_repeated_until_it_reads_back(scpi):
    """A C# station: `ADD ...;*OPC?` and `*CLS;PORT? 2;*OPC?`, of which it reads the first number."""
    for _ in range(2):
        assert scpi.say(":OXC:SWITch:CONNect:ADD (@2),(@18);*OPC?\n", 1).strip() == "1"
        assert scpi.say("*CLS;:OXC:SWITch:CONNect:PORT? 2;*OPC?\n").startswith('"18"')
    assert scpi.say(":OXC:SWITch:CONNect:SUB (@2),(@18);*OPC?\n", 1).strip() == "1"
    assert scpi.world.truth() == {}


def test_a_shell_script_reads_status_and_all_errors(scpi):
    """serial_optical_control, and a bash client on /dev/tcp."""
    assert scpi.say("*STB?\r\n").strip().isdecimal()
    assert scpi.say(":syst:err:all?\r\n") == '0, "No error"\r\n'
    assert scpi.say(":oxc:swit:size?\r\n") == "16,16\r\n"


# -- Polatis over TL1


@pytest.fixture
def tl1(world):
    wire = Wire(world("polatis", size=(8, 8)), "tl1")
    assert "COMPLD" in wire.say("ACT-USER::admin:1::root;")
    return wire


def test_a_cross_connection_class_forces(tl1):
    """The `_tl1` client: lists, `:frcd;`, and all ports with the same word."""
    tl1.say("ent-patch::1&2,9&10:5:;\n", 1)
    assert "COMPLD" in tl1.say("ent-patch::1,11:6::frcd;\n", 1)
    assert tl1.world.truth()[1] == 11
    assert "COMPLD" in tl1.say("dlt-patch::all:7:;\n", 1)
    assert tl1.world.truth() == {}


# -- Glimmerglass


@pytest.fixture
def glimmerglass(world):
    wire = Wire(world("glimmerglass", size=(8, 8)), "tl1")
    assert "COMPLD" in wire.say("ACT-USER::admin:1::admin;")
    return wire


def test_monalisa_connects_both_ways_and_asks_for_both_ends(glimmerglass):
    """Sys300Telnet of MonALISA."""
    glimmerglass.say("ent-crs-fiber::10001&10007,20007&20001:mc;\n", 1)
    assert glimmerglass.world.truth() == {1: 8 + 7, 7: 8 + 1}
    answer = glimmerglass.say("rtrv-crs-fiber::10001&20007:ic;\n")
    assert re.search(r"IPORTID=10001,.*OPORTID=20007,", answer)
    assert re.search(r"CONNSTATE=(steady|fault)", answer)


def test_a_script_connects_with_a_mode_in_small_letters(glimmerglass):
    """GxcConnections: `opmode=sync`."""
    glimmerglass.say("ENT-CRS-FIBER::10001&10002,20001&20002:1:::opmode=sync;\n", 1)
    assert len(glimmerglass.world.truth()) == 2
    assert "COMPLD" in glimmerglass.say("DLT-CRS-FIBER::10001&10002,20001&20002:1:::opmode=sync;\n", 1)
    assert glimmerglass.world.truth() == {}
    assert "COMPLD" in glimmerglass.say("ED-PARAM:::1:::NAME=PowerMonitoringPeriod,VAL=5;\n")
