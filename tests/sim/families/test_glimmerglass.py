"""The simulated Glimmerglass: the published commands and rows, by raw bytes; denials, reports, faults, power."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.twins.families.glimmerglass import CircuitEnd, CircuitState, Numbering, format_circuit_row
from sim.twins.frontends.tl1 import Denial
from sim.twins.plant import Plant

HEADER = r"\r\n\n   ocs1 \d\d-\d\d-\d\d \d\d:\d\d:\d\d\r\n"
PAGE_BREAK = re.compile(rf">\r\n<{HEADER}M  \S+ COMPLD\r\n")
FRAME = re.compile(
    rf"(?P<echo>[^\r\n]*;\r\n){HEADER}M  (?P<tag>\S+) (?P<how>COMPLD|DENY)\r\n(?P<body>(?:   .*\r\n)*);\r\n<"
)
REPORT = re.compile(r"\r\n\n   ocs1 \S+ \S+\r\nA  (\d+) (REPT [A-Z ]+)\r\n((?:   .*\r\n)*);")


class Terminal:
    """A client in memory that knows nothing but bytes and frames."""

    def __init__(self, world: Any, *, login: bool = True) -> None:
        self.world = world
        self._client = world.attach("tl1")
        world.settle()
        self.greeting = self._client.receive()
        self.reports: list[tuple[str, str]] = []
        if login:
            assert self.ask("ACT-USER::admin:1::admin;") == []

    def raw(self, command: str) -> str:
        """Return everything that comes at once."""
        self._client.send(command.encode() + b"\r\n")
        self.world.settle()
        return self._client.receive().decode("latin-1")

    def wait(self, seconds: float) -> str:
        self.world.advance(seconds)
        return self._client.receive().decode("latin-1")

    def frame(self, command: str) -> re.Match[str]:
        """Return the answer to one command once the mirrors have arrived; reports on the way are kept."""
        text = self.raw(command) + self.wait(0.1)
        self.reports += [(event, body.strip()) for _, event, body in REPORT.findall(text)]
        frame = FRAME.fullmatch(PAGE_BREAK.sub("", REPORT.sub("", text)))
        assert frame, text
        assert frame["echo"].strip() == command
        return frame

    def ask(self, command: str) -> list[str]:
        frame = self.frame(command)
        assert frame["how"] == "COMPLD", frame[0]
        return [line.strip().strip('"') for line in frame["body"].splitlines()]

    def denied(self, command: str) -> str:
        frame = self.frame(command)
        assert frame["how"] == "DENY", frame[0]
        return frame["body"].split()[0]

    def circuits(self) -> dict[int, int]:
        rows = self.ask("rtrv-crs-fiber::all:6;")
        ends = [map(int, re.search(r":IPORTID=(\d+),.*OPORTID=(\d+)", row).groups()) for row in rows]
        return {source: output for source, output in ends if source and output}

    @property
    def closed(self) -> bool:
        return self._client.is_closed


@pytest.fixture
def device(world):
    return world("glimmerglass", size=(48, 48))


@pytest.fixture
def terminal(device):
    return Terminal(device)


# -- what is published


def test_published_prompt_and_end_of_a_reply(device):
    terminal = Terminal(device, login=False)
    assert terminal.greeting.endswith(b"<")
    text = terminal.raw("ACT-USER::admin:1::admin;")
    assert text.endswith(";\r\n<")
    assert FRAME.fullmatch(text)["tag"] == "1"


def test_published_system_info_tells_size_and_numbers(terminal):
    fields = dict(
        re.fullmatch(r"GGN:(\w+)=(\S+)", line).groups() for line in terminal.ask("rtrv-system-info:::2;")
    )
    assert fields["LicensedPortMatrix"] == "48x48"
    assert fields["SerialNumber"].startswith("SIM")
    assert {"SystemType", "ChassisType", "SoftwareActiveVersion"} < fields.keys()


def test_published_rows_of_ports(device, terminal):
    device.do("set_fault", fault="fail_port", port=49)
    rows = terminal.ask("RTRV-CFG-FIBER::all:3;")
    assert len(rows) == 96
    assert re.fullmatch(r"GGN:PORTID=10001,.*PORTNAME=IN1,.*PORTHEALTH=good,.*", rows[0])
    assert re.fullmatch(r"GGN:PORTID=20001,.*PORTNAME=OUT1,.*PORTHEALTH=bad,.*", rows[48])


def test_published_connection(device, terminal):
    assert terminal.ask("ent-crs-fiber::10001,20017:4;") == []
    assert device.truth() == {1: 48 + 17}


def test_published_duplex_connection_in_one_command(device, terminal):
    terminal.ask("ent-crs-fiber::10001&10002,20002&20001:4;")
    assert device.truth() == {1: 48 + 2, 2: 48 + 1}


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("dlt-crs-fiber::10001:5;", {2: 50, 3: 51}),
        ("dlt-crs-fiber::10001,20001:5;", {2: 50, 3: 51}),
        ("dlt-crs-fiber::10001&10003,20001&20003:5;", {2: 50}),
        ("dlt-crs-fiber::all:5;", {}),
    ],
)
def test_published_disconnections(device, terminal, command, left):
    terminal.ask("ent-crs-fiber::10001&10002&10003,20001&20002&20003:4;")
    assert terminal.ask(command) == []
    assert device.truth() == left


def test_published_row_of_2005():
    row = format_circuit_row(
        "2005", CircuitEnd(10046, "", -5.873), CircuitEnd(20047, "", -6.762), CircuitState("steady")
    )
    assert row == (
        "GGN:IPORTID=10046,IPORTNAME=,OPORTID=20047,OPORTNAME=,CONNID=0,CONNSTATE=steady,CONNCAUSE=none,"
        "INPWR=-5.873,OUTPWR=-6.762,PWRLOSS=0.889,CONNLOCK=0,CONNLOCKUSER="
    )


def test_rows_tell_light_and_darkness(device, terminal):
    device.twin.device.plant = Plant({"switches": [], "hosts": [], "link": {"transmit_power_dbm": -5.573}})
    terminal.ask("ent-crs-fiber::10046,20047:4;")
    (row,) = terminal.ask("rtrv-crs-fiber::10046:6;")
    assert ",INPWR=-5.87," in row
    assert ",OUTPWR=-7.07,SIGBAND=1550,PWRLOSS=1.20," in row
    assert row.endswith("CONNNAME=IN46,CONNSTATE=steady,CONNCAUSE=none,CONNLOCK=0,CONNLOCKUSER=admin")
    device.do("set_fault", fault="dark_input", port=46)
    (row,) = terminal.ask("rtrv-crs-fiber::10046:6;")
    assert ",CONNSTATE=fault,CONNCAUSE=initial_connection_timer_expired," in row
    assert float(re.search(r"OUTPWR=([-.\d]+)", row)[1]) < -49
    (row,) = terminal.ask("rtrv-crs-fiber::20001:6;")
    assert row.startswith("GGN:IPORTID=0,IPORTGROUP=,IPORTNAME=,IPORTCOMMENT=,INPWR=NA,OPORTID=20001,")
    assert row.endswith(
        "PWRLOSS=NA,CONNID=0,CONNNAME=,CONNSTATE=single,CONNCAUSE=none,CONNLOCK=0,CONNLOCKUSER="
    )


@pytest.mark.parametrize("keyword", ["OPMODE=Sync", "OPMODE=sync"])
def test_published_sync_is_answered_when_the_mirrors_have_arrived(terminal, keyword):
    text = terminal.raw(f"ent-crs-fiber::10001,20017:4:::{keyword};")
    assert not FRAME.search(text)
    assert terminal.wait(0.021).endswith("COMPLD\r\n;\r\n<")


def test_published_async_is_answered_at_once(terminal):
    assert FRAME.search(terminal.raw("ent-crs-fiber::10001,20017:4:::OPMODE=Async;"))
    assert terminal.raw("rtrv-crs-fiber::all:6;").count("CONNSTATE=moving") == 2  # at both ends
    terminal.wait(0.021)
    assert terminal.raw("rtrv-crs-fiber::all:6;").count("CONNSTATE=steady") == 2
    assert FRAME.search(terminal.raw("dlt-crs-fiber::10001:5:::OPMODE=Async;"))


def test_published_monitoring_period(terminal):
    assert terminal.ask("ED-PARAM:::1:::NAME=PowerMonitoringPeriod,VAL=5;") == []
    assert terminal.denied("ED-PARAM:::1:::NAME=Colour,VAL=5;") == "IDNV"
    assert terminal.denied("ED-PARAM:::1:::NAME=PowerMonitoringPeriod;") == "IPMS"


# -- denials and logins


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("ent-crs-fiber::10001:4;", "IIAC"),
        ("ent-crs-fiber::10001,20049:4;", "IIAC"),
        ("ent-crs-fiber::20001,10001:4;", "IIAC"),
        ("ent-crs-fiber::10000,20001:4;", "IIAC"),
        ("ent-crs-fiber::1,17:4;", "IIAC"),
        ("ent-crs-fiber::10001&10002,20001:4;", "IIAC"),
        ("ent-crs-fiber::10001&10001,20001&20002:4;", "IIAC"),
        ("ent-crs-fiber::10002,20009:4;", "SNVS"),
        ("ent-crs-fiber::10009,20009:4;", "SNVS"),
        ("ent-crs-fiber::10001,20001:4:::OPMODE=later;", "IDNV"),
        ("dlt-crs-fiber::10002,20003:4;", "SNVS"),
        ("rtrv-colour::all:4;", "ICNV"),
    ],
)
def test_denials_change_nothing(device, terminal, command, code):
    terminal.ask("ent-crs-fiber::10002,20002:4;")
    terminal.ask("ent-crs-fiber::10003,20009:4;")
    before = device.truth()
    assert terminal.denied(command) == code
    assert device.truth() == before


@pytest.mark.parametrize(
    ("fault", "code"), [("fail_port", "SROF"), ("lock_port", "SNVS"), ("disable_port", "SNVS")]
)
def test_unfit_ports_are_denied(device, terminal, fault, code):
    device.do("set_fault", fault=fault, port=1)
    assert terminal.denied("ent-crs-fiber::10001,20017:4;") == code


def test_a_device_may_replace_what_is_in_the_way(world):
    terminal = Terminal(world("glimmerglass", size=(8, 8), when_occupied="replace"))
    terminal.ask("ent-crs-fiber::10001,20001:4;")
    terminal.ask("ent-crs-fiber::10002,20001:4;")
    assert terminal.circuits() == {10002: 20001}


def test_logins(device):
    terminal = Terminal(device, login=False)
    assert terminal.denied("rtrv-crs-fiber::all:6;") == "PLNA"
    assert terminal.denied("ACT-USER::admin:1::wrong;") == "PICC"
    terminal.ask("ACT-USER::admin:1::admin;")
    assert terminal.ask("RTRV-HDR:::1;") == []
    assert terminal.ask("CANC-USER::admin:1;") == []
    assert terminal.denied("RTRV-HDR:::1;") == "PLNA"


def test_sessions_expire_and_are_limited(device, terminal):
    device.do("set_fault", fault="max_sessions", count=1)
    assert Terminal(device, login=False).denied("ACT-USER::admin:1::admin;") == "SROF"
    device.do("set_fault", fault="expire_session")
    assert terminal.denied("RTRV-HDR:::1;") == "PLNA"
    terminal.ask("ACT-USER::admin:1::admin;")


# -- several clients, reports


def test_changes_by_anybody_are_reported_to_who_is_logged_in(device, terminal):
    stranger = Terminal(device, login=False)
    other = Terminal(device)
    other.ask("ent-crs-fiber::10001,20017:4;")
    device.do("operator", disconnect=[1])
    assert terminal.circuits() == {}
    assert [event for event, _ in terminal.reports] == ["REPT DBCHG"] * 2
    assert terminal.reports[0][1].endswith(':ENT-CRS-FIBER:10001,20017"')
    assert terminal.reports[1][1].endswith(':DLT-CRS-FIBER:10001,20017"')
    assert stranger.denied("RTRV-HDR:::1;") == "PLNA"
    assert stranger.reports == []


@pytest.mark.parametrize(("reports", "own", "others"), [("no", 0, 0), ("others", 0, 1), ("yes", 1, 1)])
def test_a_device_may_report_changes_to_whom_it_likes(world, reports, own, others):
    device = world("glimmerglass", size=(8, 8), reports=reports)
    terminal, other = Terminal(device), Terminal(device)
    terminal.ask("ent-crs-fiber::10001,20001:4;")
    other.ask("RTRV-HDR:::1;")
    assert (len(terminal.reports), len(other.reports)) == (own, others)


# -- faults and power


def test_an_ignored_command_is_completed_all_the_same(device, terminal):
    device.do("set_fault", fault="drop_command")
    assert terminal.ask("ent-crs-fiber::10001,20017:4;") == []
    assert device.truth() == {}


def test_a_stuck_mirror_makes_only_the_others(device, terminal):
    device.do("set_fault", fault="stuck", pair=[1, 49])
    terminal.ask("ent-crs-fiber::10001&10002,20001&20002:4;")
    assert terminal.circuits() == {10002: 20002}


def test_an_answer_under_a_wrong_tag(device, terminal):
    device.do("set_fault", fault="wrong_tag")
    assert [terminal.frame("RTRV-HDR:::7;")["tag"] for _ in range(2)] == ["79", "7"]


def test_reports_between_command_and_answer(device, terminal):
    device.do("set_fault", fault="report_noise", count=1)
    assert terminal.ask("RTRV-HDR:::7;") == []
    assert [event for event, _ in terminal.reports] == ["REPT ALM FIBER"]


@pytest.mark.parametrize(("mode", "left"), [("DARK", {}), ("RESTORE", {}), ("AUTOSAVE", {10001: 20001})])
def test_power_cycle(world, mode, left):
    device = world("glimmerglass", size=(8, 8), settings={"boot_mode": mode})
    terminal = Terminal(device)
    terminal.ask("ent-crs-fiber::10001,20001:4;")
    device.do("power_cycle")
    assert terminal.closed
    assert Terminal(device).circuits() == left


@given(st.integers(0, 99_999), st.integers(1, 100), st.integers(1, 100))
def test_numbers_and_ports_are_one_to_one(number, inputs, outputs):
    numbering = Numbering(inputs, outputs)
    try:
        port = numbering.find_port(number)
    except Denial:
        assert not 10_000 < number <= 10_000 + inputs
        assert not 20_000 < number <= 20_000 + outputs
    else:
        assert numbering.find_number(port) == number


def test_every_port_has_a_number_of_its_own():
    numbering = Numbering(3, 2)
    numbers = [numbering.find_number(port) for port in range(1, 6)]
    assert numbers == [10001, 10002, 10003, 20001, 20002]
    assert [numbering.find_port(number) for number in numbers] == list(range(1, 6))


# -- over a real socket


def test_somebody_elses_client_over_tcp(shared_twin):
    twin = shared_twin("glimmerglass", "--size=8x8", "--user=me", "--password=secret")
    host, port = twin.urls["tl1"].removeprefix("glimmerglass+tl1://").split(":")
    with socket.create_connection((host, int(port)), 10) as client, client.makefile("rwb") as stream:
        for command in ("ACT-USER::me:1::secret;", "ent-crs-fiber::10001,20007:2;"):
            stream.write(command.encode() + b"\n")
            stream.flush()
            while not stream.readline().startswith(b";"):
                pass
    assert twin.truth() == {1: 8 + 7}
