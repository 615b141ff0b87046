"""The TL1 frontend, frame by frame, over real sockets."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs

from sim.twins.families.polatis.tl1_frontend import parse_ports
from sim.twins.frontends.tl1 import CommandReader, Denial, parse_command


@pytest.fixture
@needs("socket")
def twin(start_twin):
    return start_twin(16, 16)


@pytest.fixture
@needs("socket")
def client(twin):
    return twin.tl1().login()


def test_the_frame_of_an_answer(client):
    client.answer("ENT-PATCH::1&2,17&18:2:;")
    frame = client.answer("RTRV-PATCH:::123:;")
    shape = '\r\n   ocs1 NN-NN-NN NN:NN:NN\r\nM  123 COMPLD\r\n   "1,17"\r\n   "2,18"'
    assert re.sub(r"\d\d([-:])\d\d([-:])\d\d", r"NN\1NN\2NN", frame) == shape


def test_the_frame_of_a_denial(twin):
    frame = twin.tl1().answer("RTRV-HDR:::7:;")
    shape = "\r\n   ocs1 NN-NN-NN NN:NN:NN\r\nM  7 DENY\r\n   PICC\r\n   /* login needed */"
    assert re.sub(r"\d\d([-:])\d\d([-:])\d\d", r"NN\1NN\2NN", frame) == shape


def test_nothing_without_login(twin):
    client = twin.tl1()
    for command in ("RTRV-HDR:::1:;", "RTRV-PATCH:::2:;", "ENT-PATCH::1,17:3:;", "CANC-USER::admin:4:;"):
        assert client.denied(command) == "PICC"
    assert client.denied("ACT-USER::admin:5::wrong;") == "PICC"
    assert client.denied("ACT-USER::nobody:6::root;") == "PICC"
    assert client.login().ask("RTRV-PATCH:::7:;") == []
    assert client.ask("CANC-USER::admin:8:;") == []
    assert client.denied("RTRV-HDR:::9:;") == "PICC"


def test_a_login_holds_for_its_connection_only(twin):
    twin.tl1().login()
    assert twin.tl1().denied("RTRV-HDR:::1:;") == "PICC"


def test_quoted_password_and_account_of_our_own(start_twin):
    client = start_twin(user="lab", password="a;b").tl1()
    assert client.denied("ACT-USER::admin:1::root;") == "PICC"
    assert client.ask('ACT-USER::lab:1::"a;b";') == []


def test_who_the_device_is(client):
    assert client.ask("RTRV-NETYPE:::1:;") == ["POLATIS,I-OST-16x16-LU1-DMHNS-801,OCS,6.5.2.18"]
    (inventory,) = client.ask("RTRV-INV::OCS:1:;")
    assert re.match(r"OCS:SN=SIM\d{6},", inventory)
    assert client.ask("RTRV-HDR:::1:;") == []
    assert client.ask("RTRV-EQPT::SYSTEM:1:::PARAMETER=SIZE;") == ["SYSTEM:SIZE=16x16"]


def test_serials_agree_over_both_fronts(twin, client):
    serial = twin.scpi().ask("*IDN?").split(",")[2]
    assert f"SN={serial}," in client.ask("RTRV-INV::OCS:1:;")[0]


def test_connecting_and_disconnecting(twin, client):
    assert client.ask("ENT-PATCH::1,17:1:;") == []
    assert client.ask("ENT-PATCH::2&&4,20&18&&19:2:;") == []
    assert client.ask("RTRV-PATCH:::3:;") == ["1,17", "2,20", "3,18", "4,19"]
    assert client.ask("RTRV-PATCH::11&4&17:4:;") == ["1,17", "4,19"]
    assert client.ask("DLT-PATCH::1&18:5:;") == []
    assert twin.scpi().ask(":oxc:swit:conn:stat?") == "(@2,4),(@20,19)"
    assert client.ask("DLT-PATCH::ALL:6:;") == []
    assert client.ask("RTRV-PATCH:::7:;") == []


def test_force_goes_over_what_is_there(client):
    client.ask("ENT-PATCH::1,17:1:;")
    assert client.denied("ENT-PATCH::2,17:2:;") == "SNVS"
    assert client.ask("ent-patch::2,17:3::frcd;") == []
    assert client.ask("RTRV-PATCH:::4:;") == ["2,17"]


DENIALS = [
    ("ENT-PATCH::1,99:1:;", "IIAC"),
    ("ENT-PATCH::17,1:1:;", "IIAC"),
    ("ENT-PATCH::1:1:;", "IIAC"),
    ("ENT-PATCH::1&2,17:1:;", "IIAC"),
    ("ENT-PATCH::1&1,17&18:1:;", "IIAC"),
    ("ENT-PATCH::a,b:1:;", "IIAC"),
    ("ENT-PATCH::5,21:1:;", "SNVS"),
    ("DLT-PATCH::99:1:;", "IIAC"),
    ("RTRV-PATCH::0:1:;", "IIAC"),
    ("RTRV-PORT-POWER:::1:;", "IIAC"),
    ("RTRV-EQPT::SYSTEM:1:::PARAMETER=COLOUR;", "IIAC"),
    ("RTRV-EQPT::SYSTEM:1:;", "IPMS"),
    ("ED-EQPT::TIMEOUT:1:::ADMIN=soon;", "IDNV"),
    ("ED-EQPT::CLOCK:1:::ADMIN=1;", "IIAC"),
    ("SET-PORT-ATTEN::1:1:::MODE=ABSOLUTE,LEVEL=-3;", "IICM"),
    ("SET-PORT-ATTEN::17:1:::MODE=ABSOLUTE;", "IPMS"),
    ("SET-PORT-ATTEN::17:1:::MODE=LOUD,LEVEL=1;", "IDNV"),
    ("SET-PORT-ATTEN::17:1:::MODE=ABSOLUTE,LEVEL=low;", "IDNV"),
    ("SET-PORT-ATTEN::17:1:::MODE=ABSOLUTE,LEVEL=-300;", "IDRG"),
    ("SING:::1:;", "ICNV"),
    ('RTRV-HDR:"other"::1:;', "IITA"),
]


@pytest.mark.parametrize(("command", "code"), DENIALS)
def test_denials(client, command, code):
    client.ask("OPR-PORT-SHUTTER::5:1:;")
    assert client.denied(command) == code
    assert client.ask("RTRV-PATCH:::2:;") == []


def test_ctag_and_tid(client):
    assert "\r\nM  abc7 COMPLD" in client.answer('RTRV-HDR:"ocs1"::abc7:;')
    assert "\r\nM  0 COMPLD" in client.answer("RTRV-HDR;")


def test_shutters(twin, client):
    assert client.ask("OPR-PORT-SHUTTER::1&&2:1:;") == []
    assert client.ask("RTRV-PORT-SHUTTER::1&&3:2:;") == ["1:CLOSED", "2:CLOSED", "3:OPEN"]
    assert twin.scpi().ask(":oxc:swit:port:stat? (@1,3)") == "(D,E)"
    assert client.ask("RLS-PORT-SHUTTER::1&&2:3:;") == []
    assert client.ask("RTRV-PORT-SHUTTER::1:4:;") == ["1:OPEN"]


def test_power_and_its_offset(client):
    client.ask("ENT-PATCH::1,17:1:;")
    assert client.ask("RTRV-PORT-POWER::1&17&18:2:;") == ["1:-0.30", "17:-1.50", "18:-60.00"]
    assert client.ask("SET-PORT-PMON::17:3:::WAVE=1310,OFFSET=0.5;") == []
    assert client.ask("RTRV-PORT-PMON::1&17:4:;") == ["1:1550.0,0.0,4", "17:1310.0,0.5,4"]
    assert client.ask("RTRV-PORT-POWER::17:5:;") == ["17:-1.00"]
    assert client.ask("RTRV-EQPT::PMON:6:::PARAMETER=CONFIG;")[:1] == ["PMON::PORT=1,MODE=INPUT"]


@pytest.mark.parametrize(
    ("setting", "shown", "power"),
    [
        ("MODE=ABSOLUTE,LEVEL=-10.0", "ABSOLUTE,-10.0,0", "-10.00"),
        ("MODE=RELATIVE,LEVEL=-3.0", "RELATIVE,-3.0,0", "-4.50"),
        ("MODE=RELATIVE,LEVEL=-3.0,REFS=1", "RELATIVE,-3.0,1", "-3.30"),
        ("MODE=CONVERGED,LEVEL=-7.5", "CONVERGED,-7.5,0", "-7.50"),
    ],
)
def test_attenuation_changes_the_light(client, setting, shown, power):
    client.ask("ENT-PATCH::1,17:1:;")
    assert client.ask(f"SET-PORT-ATTEN::17:2:::{setting};") == []
    assert client.ask("RTRV-PORT-ATTEN::17:3:;") == [f"17:{shown}"]
    assert client.ask("RTRV-PORT-POWER::17:4:;") == [f"17:{power}"]
    mode = shown.partition(",")[0]
    assert client.ask("RTRV-EQPT::ATTEN:5:::PARAMETER=CONFIG;")[:2] == [
        f"ATTEN::PORT=17,MODE={mode}",
        "ATTEN::PORT=18,MODE=NONE",
    ]
    assert client.ask("SET-PORT-ATTEN::17:6:::MODE=NONE;") == []
    assert client.ask("RTRV-PORT-POWER::17:7:;") == ["17:-1.50"]


def test_labels(client):
    assert client.ask('ED-PORT-LABEL::2:1:::LABEL="node a; nic1, left:up";') == []
    assert client.ask("RTRV-PORT-LABEL::1&&2:2:;") == ["1:", "2:node a; nic1, left:up"]


def test_an_idle_session_expires(start_twin):
    twin = start_twin(virtual=True)
    client = twin.tl1().login()
    assert client.ask("ED-EQPT::TIMEOUT:1:::ADMIN=2;") == []
    assert client.ask("RTRV-EQPT::TIMEOUT:2:::PARAMETER=ADMIN;") == ["TIMEOUT:ADMIN=2"]
    twin.control("advance", seconds=119.0)
    assert client.ask("RTRV-HDR:::3:;") == []
    twin.control("advance", seconds=119.0)
    assert client.ask("RTRV-HDR:::4:;") == []
    twin.control("advance", seconds=121.0)
    assert client.denied("RTRV-HDR:::5:;") == "PICC"
    client.login().ask("ED-EQPT::TIMEOUT:6:::ADMIN=0;")
    twin.control("advance", seconds=1e6)
    assert client.ask("RTRV-HDR:::7:;") == []


def test_changes_are_reported_to_whoever_is_logged_in(twin, client):
    stranger = twin.tl1()
    twin.scpi().ask(":oxc:swit:conn:add (@1,2),(@17,18);*OPC?")
    reports = [client.frame() for _ in range(2)]
    heads = [re.search(r"\r\nA  (\d+) REPT DBCHG\r\n   \"(.*)\"$", report).groups() for report in reports]
    assert [atag for atag, _ in heads] == ["1", "2"]
    assert [line.partition("DBCHGSEQ=")[2] for _, line in heads] == ["1:ENT-PATCH:1,17", "2:ENT-PATCH:2,18"]
    client.ask("DLT-PATCH::1:9:;")
    assert "\r\nM  3 DENY" in stranger.answer("RTRV-HDR:::3:;")
    stranger.send("RTRV-HDR:::4:;")
    assert "\r\nM  4 DENY" in stranger.frame()  # and nothing was reported in between


def test_a_reader_gone_in_the_middle_disturbs_nobody(twin, client):
    other = twin.tl1().login()
    other.send("RTRV-PA")
    other.close()
    assert client.ask("ENT-PATCH::1,17:1:;") == []


# -- the grammar alone

TEXTS = st.sampled_from(
    ["RTRV-HDR:::1:", "ENT-PATCH::1&2,17&18:2:", 'ED-PORT-LABEL::1:3:::LABEL="a;b:c"', "ACT-USER::u:4::p"]
)


def test_bytes_in_any_pieces_give_the_same_commands():
    seen = Counter()

    @settings(max_examples=100)
    @given(st.lists(st.tuples(TEXTS, st.sampled_from(["", "\n", "\r\n"])), max_size=6), st.integers(1, 40))
    def check(commands, size):
        stream = "".join(f"{text};{ending}" for text, ending in commands).encode()
        expected = [text for text, _ in commands]
        reader = CommandReader()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [text for piece in pieces for text in reader.feed(piece)] == expected
        seen["in pieces"] += len(pieces) > len(commands) > 0

    check()
    assert seen["in pieces"] >= 20


def test_the_fields_of_a_command():
    command = parse_command('set-port-atten:"ocs1":33:c1::a,b:mode=ABSOLUTE,LEVEL=-10.0')
    assert (command.verb, command.tid, command.aid, command.ctag) == ("SET-PORT-ATTEN", "ocs1", "33", "c1")
    assert command.positional == ("a", "b")
    assert command.keywords == {"MODE": "ABSOLUTE", "LEVEL": "-10.0"}


@given(st.text(max_size=60))
def test_no_command_is_too_strange_to_be_parsed(text):
    assert parse_command(text).ctag


@given(st.lists(st.integers(1, 999), min_size=1, max_size=20))
def test_lists_of_ports(ports):
    assert parse_ports("&".join(map(str, ports))) == ports


def test_ranges_are_bounded():
    assert parse_ports("3&&5&9") == [3, 4, 5, 9]
    assert len(parse_ports("1&&999999999&1&&999999999")) == 4096
    for text in ("", "&1", "1&", "1&&&2", "x"):
        with pytest.raises(Denial):
            parse_ports(text)
