"""Every fault does what its name says, once or until it is cleared, and nothing else."""

from __future__ import annotations

import pytest
from needs import needs

NO_ERROR = '0, "No error"'


@pytest.fixture
@needs("socket")
def twin(start_twin):
    return start_twin()


@pytest.fixture
@needs("socket")
def client(twin):
    return twin.scpi()


def test_a_dropped_command_is_not_done_and_nobody_says_so(twin, client):
    twin.set_fault("drop_command", count=1)
    assert client.ask(":oxc:swit:conn:add (@1),(@9);*OPC?") == "1"
    assert client.ask(":oxc:swit:conn:stat?;:syst:err?") == f"(@),(@);{NO_ERROR}"
    assert client.ask(":oxc:swit:conn:add (@1),(@9);stat?") == "(@1),(@9)"


def test_a_dropped_command_on_tl1_is_even_confirmed(twin):
    client = twin.tl1().login()
    twin.set_fault("drop_command", count=2)
    assert client.ask("ENT-PATCH::1,9:1:;") == []
    assert client.ask("OPR-PORT-SHUTTER::1:2:;") == []
    assert client.ask("RTRV-PATCH:::3:;") == []
    assert client.ask("RTRV-PORT-SHUTTER::1:4:;") == ["1:OPEN"]


def test_garbage(twin, client):
    twin.set_fault("garbage", count=2)
    client.send(":oxc:swit:size?")
    noise = client.socket.recv(100)
    assert noise.endswith(b"\r\n")
    assert noise != b"8,8\r\n"
    twin.clear_fault("garbage")
    assert client.ask(":oxc:swit:size?") == "8,8"


def test_garbage_on_tl1_ends_like_a_frame(twin):
    client = twin.tl1().login()
    twin.set_fault("garbage", count=1)
    client.send("RTRV-HDR:::1:;")
    assert client.socket.recv(1000).endswith(b"\n;")
    assert client.ask("RTRV-HDR:::2:;") == []


def test_a_delayed_reply(start_twin):
    twin = start_twin(virtual=True)
    client = twin.scpi()
    twin.set_fault("delay_reply", seconds=3.0)
    client.send(":oxc:swit:conn:add (@1),(@9);stat?")
    twin.until(lambda truth: truth["connections"] == [[1, 9]])
    twin.control("advance", seconds=2.9)
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(1)
    client.socket.settimeout(10.0)
    twin.control("advance", seconds=0.1)
    assert client.line() == "(@1),(@9)"
    twin.clear_fault("delay_reply")
    assert client.ask(":oxc:swit:size?") == "8,8"


def test_connections_closed_now(twin, client):
    login = twin.tl1().login()
    client.ask("*IDN?")
    twin.set_fault("close_connection")
    assert client.rest() == b""
    assert login.frame() == ""
    assert twin.scpi().ask(":oxc:swit:size?") == "8,8"


@pytest.mark.parametrize(("executed", "connections"), [(True, [[1, 9]]), (False, [])])
def test_connection_closed_after_some_commands(twin, client, executed, connections):
    twin.set_fault("close_connection", after_commands=2, executed=executed)
    assert client.ask(":oxc:swit:size?") == "8,8"
    client.send(":oxc:swit:conn:add (@1),(@9);*OPC?")
    assert client.rest() == b""
    assert twin.truth()["connections"] == connections
    assert twin.scpi().ask(":oxc:swit:size?;size?") == "8,8;8,8"


@pytest.mark.parametrize("kept", [0, 3, 9])
def test_connection_closed_within_a_reply(twin, client, kept):
    twin.set_fault("close_connection", after_bytes=kept)
    client.send("*IDN?")
    assert client.rest() == b"Polatis,I"[:kept]
    assert twin.scpi().ask(":oxc:swit:size?") == "8,8"


def test_a_closing_that_was_called_off(twin, client):
    twin.set_fault("close_connection", after_commands=1)
    twin.set_fault("close_connection", after_bytes=1)
    twin.clear_fault("close_connection")
    assert client.ask(":oxc:swit:size?") == "8,8"


def test_refusing(twin, client):
    twin.set_fault("refuse")
    for connect in (twin.scpi, twin.tl1):
        with pytest.raises(ConnectionRefusedError):
            connect()
    assert client.ask(":oxc:swit:size?") == "8,8"
    twin.clear_fault("refuse")
    assert twin.scpi().ask(":oxc:swit:size?") == "8,8"
    assert twin.tl1().login()


def test_a_failed_port(twin, client):
    client.ask(":oxc:swit:conn:add (@1,2),(@9,10);*OPC?")
    twin.set_fault("fail_port", port=9)
    assert client.ask(":oxc:swit:port:stat? (@9,10);:pmon:pow? (@9,10)") == "(F,E);(-60.00,-1.50)"
    assert twin.truth()["lit"] == [[2, 10]]
    assert client.ask(":oxc:swit:conn:add (@3),(@9);:syst:err?") == '-240, "Hardware error;port 9 has failed"'
    assert twin.tl1().login().denied("ENT-PATCH::3,9:1:;") == "SROF"
    twin.clear_fault("fail_port", port=9)
    assert twin.truth()["lit"] == [[1, 9], [2, 10]]


def test_a_locked_port_keeps_its_light_and_its_connection(twin, client):
    client.ask(":oxc:swit:conn:add (@1),(@9);*OPC?")
    twin.set_fault("lock_port", port=9)
    locked = '-221, "Settings conflict;port 9 is locked"'
    for line in ("conn:only (@2),(@10)", "conn:sub (@1),(@9)", "disc:all", "conn:only (@2),(@9)"):
        assert client.ask(f":oxc:swit:{line};:syst:err?") == locked
    assert twin.truth()["lit"] == [[1, 9]]
    assert twin.truth()["locked"] == [9]
    twin.clear_fault("lock_port")
    assert client.ask(":oxc:swit:disc:all;:syst:err?") == NO_ERROR


def test_a_disabled_port(twin, client):
    twin.set_fault("disable_port", port=1)
    assert client.ask(":oxc:swit:port:stat? (@1)") == "(D)"
    assert client.ask(":oxc:swit:conn:add (@1),(@9);:syst:err?") == (
        '-221, "Settings conflict;port 1 is disabled"'
    )
    twin.clear_fault("disable_port")
    assert client.ask(":oxc:swit:port:stat? (@1)") == "(E)"


def test_a_lossy_cross_connect(twin, client):
    client.ask(":oxc:swit:conn:add (@1),(@9);*OPC?")
    twin.set_fault("lossy", pair=[1, 9], loss_db=4.0)
    assert client.ask(":pmon:pow? (@1,9)") == "(-0.30,-5.50)"
    twin.clear_fault("lossy", pair=[1, 9])
    assert client.ask(":pmon:pow? (@9)") == "(-1.50)"


@pytest.mark.parametrize("verb", ["only", "add"])
def test_a_stuck_pair_is_not_made(twin, client, verb):
    twin.set_fault("stuck", pair=[1, 9])
    line = f":oxc:swit:conn:{verb} (@1,2),(@9,10);*OPC?;:syst:err?"
    assert client.ask(line) == f"1;{NO_ERROR}"
    assert client.ask(":oxc:swit:conn:stat?") == "(@2),(@10)"
    twin.clear_fault("stuck", pair=[1, 9])
    assert client.ask(":oxc:swit:conn:add (@1),(@9);stat?") == "(@2,1),(@10,9)"


def test_a_second_operator(twin, client):
    client.ask(":oxc:swit:conn:only (@1,2),(@9,10);*OPC?")
    login = twin.tl1().login()
    reply = twin.control("operator", connect=[[3, 9]], disconnect=[10])
    assert reply == {"ok": True, "connections": [[3, 9]]}
    assert client.ask("*OPC?;:oxc:swit:conn:stat?") == "1;(@3),(@9)"
    changes = [login.frame().rpartition(":")[2] for _ in range(3)]
    assert changes == ['2,10"', '1,9"', '3,9"']
    assert twin.control("operator", connect=[[9, 1]])["error"] == "port 9 is on the other side"


def test_a_limit_of_sessions(twin):
    first = twin.tl1().login()
    twin.set_fault("max_sessions", count=1)
    second = twin.tl1()
    assert second.denied("ACT-USER::admin:1::root;") == "SROF"
    assert first.ask("CANC-USER::admin:2:;") == []
    assert second.login()
    only = twin.scpi()
    assert only.ask(":oxc:swit:size?") == "8,8"
    assert twin.scpi().rest() == b""
    twin.clear_fault("max_sessions")
    assert twin.scpi().ask(":oxc:swit:size?") == "8,8"


def test_an_expired_session(twin):
    client = twin.tl1().login()
    twin.set_fault("expire_session")
    assert client.denied("RTRV-PATCH:::1:;") == "PICC"
    assert client.login().ask("RTRV-PATCH:::2:;") == []


def test_everything_is_cleared_at_once(twin, client):
    for fault, fields in {
        "drop_command": {"count": 5},
        "garbage": {"count": 5},
        "delay_reply": {"seconds": 1000.0},
        "close_connection": {"after_commands": 1},
        "refuse": {},
        "max_sessions": {"count": 0},
        "fail_port": {"port": 1},
        "lock_port": {"port": 2},
        "disable_port": {"port": 3},
        "lossy": {"pair": [1, 9], "loss_db": 3.0},
        "stuck": {"pair": [2, 10]},
    }.items():
        twin.set_fault(fault, **fields)
    twin.clear_fault("all")
    line = ":oxc:swit:conn:only (@1,2,3),(@9,10,11);*OPC?;stat?;:pmon:pow? (@9,10,11);:syst:err?"
    expected = f"1;(@1,2,3),(@9,10,11);(-1.50,-1.50,-1.50);{NO_ERROR}"
    assert [client.ask(line), twin.scpi().ask(line)] == [expected] * 2


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            {"fault": "hiccups"},
            "unknown fault 'hiccups'; this device knows",
        ),
        ({"fault": "fail_port", "port": 99}, "port 99 does not exist"),
        ({"fault": "stuck", "pair": [1]}, "field 'pair' must be a pair [input, output], not [1]"),
        ({"fault": "lossy", "pair": [1, 9]}, "field 'loss_db' is missing"),
        ({}, "field 'fault' is missing"),
    ],
)
def test_wrong_faults_are_explained(twin, fields, complaint):
    reply = twin.control("set_fault", **fields)
    assert reply["ok"] is False
    assert complaint in reply["error"]


def test_real_time_is_not_advanced(twin):
    assert (
        "this device runs in real time; start it with a virtual clock to advance it"
        in twin.control("advance", seconds=1.0)["error"]
    )


def test_the_transcript_has_every_byte_with_its_direction(twin, client):
    client.ask(":oxc:swit:size?", "\r\n")
    twin.tl1().login()
    entries = twin.control("transcript", clear=True)["entries"]
    assert [(entry["front"], entry["direction"], entry["data"]) for entry in entries[:2]] == [
        ("scpi", "in", ":oxc:swit:size?\r\n"),
        ("scpi", "out", "8,8\r\n"),
    ]
    assert [(entry["front"], entry["direction"]) for entry in entries[2:]] == [("tl1", "in"), ("tl1", "out")]
    assert len({entry["session"] for entry in entries}) == 2
    assert [entry["seconds"] for entry in entries] == sorted(entry["seconds"] for entry in entries)
    assert twin.control("transcript")["entries"] == []
