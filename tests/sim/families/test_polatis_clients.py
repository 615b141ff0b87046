"""Public clients of Polatis switches over TL1 and SCPI, against the twin: bytes sent, and words looked for.

Bytes and patterns are facts read from those programs; none of their code is here. Which repository each is from, and
what the twin does not do, stands in `docs/reference/evidence.md`. Clients of REST are in `test_polatis_rest.py`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

SIZE = 16


class Wire:
    """A client in memory that sends a command and takes what comes for its answer."""

    def __init__(self, switch: Any, frontend: str) -> None:
        self._switch = switch
        self._client = switch.attach(frontend)

    def __call__(self, command: str) -> str:
        self._client.send(command.encode())
        self._switch.advance(1.0)
        return self._client.receive().decode()


@pytest.fixture
def switch(world):
    return world("polatis", size=(SIZE, SIZE))


@pytest.fixture
def tl1(switch):
    return Wire(switch, "tl1")


def logged_in(switch: Any) -> Wire:
    send = Wire(switch, "tl1")
    assert "COMPLD" in send("ACT-USER::admin:1::root;")
    return send


# -- QualiSystems, cloudshell-L1-polatis (and the one by ericrqs that it grew from): TL1


class Quali:
    """The exchanges of the L1 driver: a tag that counts, the name from the login, one answer that ends with it."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._tag = wire, 0
        found = re.search(r"^(.*)\s+\d+-", self("ACT-USER::admin:{tag}::root;"), re.MULTILINE)
        assert found is not None
        self.name = found[1].strip()

    def __call__(self, command: str) -> str:
        self._tag += 1
        name = getattr(self, "name", "")
        answer = self._wire(command.format(tag=self._tag, name=name) + "\n")
        assert re.findall(rf"M\s+{self._tag}\s+([A-Z ]+)[^;]*;", answer) == ["COMPLD"], answer
        assert answer.count(";") == 1, answer
        return answer


@pytest.fixture
def quali(tl1):
    return Quali(tl1)


def test_the_l1_driver_loads_the_inventory(switch, tl1):
    switch.do("operator", connect=[[1, SIZE + 1]])
    quali = Quali(tl1)
    assert quali.name == "ocs1"
    assert re.search(r"SN=SIM\d+", quali('RTRV-INV:"{name}":OCS:{tag}:;'))
    kind = re.search(r'"(.*),(.*),(.*),(.*)"', quali('RTRV-NETYPE:"{name}"::{tag}:;'))
    assert kind is not None
    assert kind.groups()[2:] == ("OCS", "6.5.2.18")
    size = quali('RTRV-EQPT:"{name}":SYSTEM:{tag}:::PARAMETER=SIZE;')
    assert f"SYSTEM:SIZE={SIZE}x{SIZE}" in size
    assert re.findall(r'"(\d+),(\d+)"', quali('RTRV-PATCH:"{name}"::{tag}:;')) == [("1", str(SIZE + 1))]
    for verb, form in (("SHUTTER", r'"\d+:\S+"'), ("POWER", r'"\d+:\S+"'), ("PMON", r'"\d+:\S+?,.*"')):
        ports = 2 * SIZE
        assert len(re.findall(form, quali(f'RTRV-PORT-{verb}:"{{name}}":1&&{ports}:{{tag}}:;'))) == ports


def test_the_l1_driver_maps_and_clears(switch, quali):
    for source, output in (
        (2, SIZE + 1),
        (1, SIZE + 2),
    ):  # both ways of two logical ports, lower numbers first
        quali(f'ENT-PATCH:"{{name}}":{source},{output}:{{tag}}:;')
    assert switch.truth() == {2: SIZE + 1, 1: SIZE + 2}
    quali('DLT-PATCH:"{name}":2:{tag}:;')
    quali(f'DLT-PATCH:"{{name}}":1&{SIZE + 1}:{{tag}}:;')
    assert switch.truth() == {}


def test_the_l1_driver_meets_a_switch_without_a_name(switch, tl1):
    switch.twin.device.name = ""
    unnamed = Quali(tl1)
    assert unnamed.name == "( nil )"  # which it then leaves empty
    unnamed.name = ""
    unnamed('RTRV-PATCH:"{name}"::{tag}:;')


def test_the_l1_driver_reads_no_report_of_its_own_change(switch, quali):
    quali(f'ENT-PATCH:"{{name}}":1,{SIZE + 1}:{{tag}}:;')  # asserts that one `;` comes
    other = logged_in(switch)
    quali('DLT-PATCH:"{name}":1:{tag}:;')
    assert "REPT DBCHG" in other("")


def test_reports_of_ones_own_changes_are_an_option(world):
    send = logged_in(world("polatis", size=(SIZE, SIZE), own_reports="yes"))
    assert "REPT DBCHG" in send(f"ENT-PATCH::1,{SIZE + 1}:2:;")


def test_changes_by_rest_and_by_people_are_reported_to_all(switch):
    send = logged_in(switch)
    switch.do("operator", connect=[[1, SIZE + 1]])
    assert "REPT DBCHG" in send("")


# -- other clients of TL1


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("ED-EQPT::TIMEOUT:123:::ADMIN=60;", None),
        ("RTRV-NETYPE:::123:;", r'\W*"(\S+),(\S+),(\S+),(\S+)"'),
        ("RTRV-PATCH:::123:;", r'\W*"(\d+),(\d+)"'),
        ("RTRV-PORT-LABEL::1&&32:123:;", r'\W*"(\d+):(\S+)"'),
        ("RTRV-PORT-SHUTTER::1&&32:123:;", r'\W*"(\d+):(\S+)"'),
        ("RTRV-PORT-PMON::1&&32:123:;", r'\W*"(\d+):(\S+),(\S+),(\S+)"'),
        ("RTRV-EQPT::PMON:123:::PARAMETER=CONFIG;", r'\W*"PMON::PORT=(\d+),MODE=(\S+)"'),
        ("RTRV-PORT-POWER::1&&32:123:;", r'\W*"(\d+):(\S+)"'),
        ("RTRV-PORT-ATTEN::17&&32:123:;", None),
        ("RTRV-EQPT::ATTEN:123:::PARAMETER=CONFIG;", None),
        ("OPR-PORT-SHUTTER::1&&32:123:;", None),
        ("RLS-PORT-SHUTTER::1&&32:123:;", None),
        ("SET-PORT-ATTEN::20:123::: MODE=ABSOLUTE,LEVEL=-10.0;", None),
        ("SET-PORT-ATTEN::20:123:::MODE=NONE;", None),
        ('ED-PORT-LABEL::2:123:::LABEL="FCSW49/2/3 in";', None),
        ("set-port-pmon::1&&32:1:::wave=1310;", None),
        ("ent-port-flap::1:123::1000, 500, 1;", None),
        ("rtrv-port-flap::1:123::;", r'\W*"1:1000,500,1"'),
        ("RTRV-PORT-FLAP:::123:;", r'\W*"1:1000,500,1"'),
        ("OPR-PORT-FLAP::1:123;", None),
        ("RLS-PORT-FLAP::1:123;", None),
        ("ent-patch::3&4,19&20:123::frcd;", None),
        ("rtrv-patch::11&4&10:123:;", r'\W*"4,20"'),
        ("dlt-patch::3&20:123::frcd;", None),
        ("dlt-patch::all:123:;", None),
        ("CANC-USER::admin:123:;", None),
    ],
)
def test_commands_of_scripts_and_libraries_are_completed(switch, command, pattern):
    """Test-bed classes over telnet, polatis_tl1.sh, pypolatis: each reads up to the first `;`, and looks at lines."""
    send = logged_in(switch)
    send("ENT-PATCH::4,20:2:;")
    send("ED-PORT-LABEL::1&&32:3:::LABEL=rack4;")
    send("ENT-PORT-FLAP::1:4::1000,500,1;")
    answer = send(command + "\n")
    assert "COMPLD" in answer
    assert answer.count(";") == 1
    assert pattern is None or any(re.match(pattern, line) for line in answer.split("\n"))


def test_a_desktop_program_takes_one_packet_for_an_answer(switch):
    """A C# program: no line ends, one `recv` a command; the third line, stripped, is the first row."""
    send = Wire(switch, "tl1")
    assert "COMPLD" in send("ACT-USER::admin:1::root;")
    assert "COMPLD" in send("ENT-PATCH::1,20:123:;")
    assert send("RTRV-PATCH:::123:;").strip("\r\n; ").split("\r\n")[2].strip(' "') == "1,20"
    assert "COMPLD" in send("DLT-PATCH::ALL:123:;")


def test_a_portal_confirms_by_reading(switch):
    """A lab portal: lower case, the end of an answer is a line with `;` alone, powers (mistaken) from `pmon`."""
    send = Wire(switch, "tl1")
    for command in ("act-user::admin:1::root;", "ent-patch::1,20:1:;"):
        assert re.search(r"(?m)^\s*;\s*$", send(command + "\r\n"))
    assert '"1,20"' in send("rtrv-patch:::1:;\r\n")
    assert re.search(r'"\d+:[\d.]+,[\d.-]+,\d+"', send("rtrv-port-pmon::1&&32:1:;\r\n"))
    send("dlt-patch::1&20:1:;\r\n")
    assert "1,20" not in send("rtrv-patch:::1:;\r\n")


def test_a_flap_that_is_released_stops(switch):
    send = logged_in(switch)
    send("ENT-PORT-FLAP::1:2::1000,1000,100;")
    send("OPR-PORT-FLAP::1:3;")
    send("RLS-PORT-FLAP::1:4;")
    switch.advance(2.0)
    states = set()
    for _ in range(8):
        switch.advance(0.5)
        states.add(switch.do("truth")["ports"]["1"])
    assert states == {"E"}


# -- clients of SCPI


def test_programs_over_scpi_connect_replace_and_ask(switch):
    """wllzhk/Polatis_OST_Controller and instrument classes: sets answer nothing, a path without its first colon."""
    send = Wire(switch, "scpi")
    assert send("*idn?\n").startswith("Polatis,")
    assert send(":oxc:swit:conn:only (@1,2),(@17,18)\n") == ""
    assert send("oxc:swit:conn:add (@15),(@31)\n") == ""
    assert send("oxc:swit:conn:port? 15\n") == '"31"\r\n'
    assert send(":oxc:swit:conn:sub (@1),(@17)\n") == ""
    assert send(":oxc:swit:conn:only (@1),(@20); stat?\r\n") == "(@1),(@20)\r\n"
    assert switch.truth() == {1: 20}
    assert send(":oxc:swit:size?\n") == f"{SIZE},{SIZE}\r\n"
    assert send(":syst:err:all?\n").startswith("0,")
