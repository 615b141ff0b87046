"""Glimmerglass as public captures and clients have it: the driver on the capture, the twin against the capture.

The exchanges are those of five public clients: QualiSystems/cloudshell-L1-glimmerglass (TCP, commands end with CR),
ericrqs/cloudshell-L1-glimmerglass (waits for its tag), MonALISA's Sys300Telnet with captures of 2005, pynt's
OXCFetcher with rows of 2007, and a class over telnetlib that waits for `;` and the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import glimmerglass_capture as capture
import pytest
from glimmerglass_capture import PlainServer
from needs import needs

from ocs_drivers import CrossConnects, open_switch
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import PortLocked
from ocs_drivers.model import PortState, Power
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.echo import EchoCanceller
from ocs_drivers.vendors.glimmerglass import GlimmerglassTl1, codec
from ocs_drivers.vendors.glimmerglass.driver import PlainTextTransport

pytestmark = pytest.mark.codec

# -- the driver on the capture


@pytest.fixture
@needs("socket")
def server() -> Iterator[PlainServer]:
    server = PlainServer()
    yield server
    server.close()


def test_the_circuits_of_the_capture_are_read_over_a_plain_socket(server):
    with open_switch(f"glimmerglass+tl1://127.0.0.1:{server.port}") as switch:
        seen = switch.read()
        assert seen.connections == CrossConnects(capture.CIRCUITS)
        assert seen.unfit == {}
        assert switch.identity().serial == "GG0472"
        assert switch.ports()[48 + 8].label == "OUT8"
        assert switch.power([1, 4, 5, 48 + 1, 48 + 8]) == {
            1: Power(-12.05),
            4: Power(-11.93),
            5: Power(-50.66, below_floor=True),
            49: Power(-51.85, below_floor=True),
            56: Power(-13.63),
        }
    verbs = [command.split(":")[0] for command in server.commands]
    assert verbs == [
        "ACT-USER",
        "rtrv-system-info",
        *("rtrv-crs-fiber", "RTRV-CFG-FIBER"),  # read
        *("rtrv-crs-fiber", "RTRV-CFG-FIBER"),  # ports
        "rtrv-crs-fiber",  # power
        "CANC-USER",
    ]


def test_rows_of_2005_are_read():
    free = (
        "GGN:IPORTID=10001,IPORTNAME=,OPORTID=0,OPORTNAME=,CONNID=0,CONNSTATE=single,CONNCAUSE=none,"
        "INPWR=-49.162,OUTPWR=0.000,PWRLOSS=0.000,CONNLOCK=0,CONNLOCKUSER="
    )
    dark = (
        "GGN:IPORTID=10002,IPORTNAME=,OPORTID=20015,OPORTNAME=,CONNID=0,CONNSTATE=fault,"
        "CONNCAUSE=initial_connection_timer_expired,INPWR=-48.549,OUTPWR=-49.354,PWRLOSS=0.836,CONNLOCK=0,"
        "CONNLOCKUSER="
    )
    rows = codec.decode_circuits((free, dark))
    assert [(row.source, row.output, row.is_settled) for row in rows] == [(1, None, False), (2, 15, True)]
    assert [row.output_power for row in rows] == [None, Power(-49.354, below_floor=True)]
    (port,) = codec.decode_ports(
        ("GGN:PORTID=20064,PORTNAME=to 5530-stack #4, rack=3,PORTDIR=output,PORTHEALTH=good,PORTPRIV=0x1",)
    )
    assert (port.is_input, port.number, port.label) == (False, 64, "to 5530-stack #4")


def test_a_comma_in_a_name_is_part_of_it():
    (port,) = codec.decode_ports(("PORTID=10001,PORTNAME=rack 3, slot 2,PORTCOMMENT=a=b,PORTHEALTH=good",))
    assert port.label == "rack 3, slot 2"


class Pieces:
    """A transport that receives what it was given, a piece at a time."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.is_open = True

    def open(self, timeout_s: float) -> None:
        del timeout_s

    def send(self, data: bytes, deadline: Deadline) -> None:
        del data, deadline

    def receive(self, deadline: Deadline) -> bytes:
        del deadline
        return self._pieces.pop(0)


@pytest.mark.parametrize("cut", range(1, 12))
def test_control_sequences_are_removed_in_any_pieces(cut):
    raw = b'a\x1b[62;1"p\x1b>b'
    line: Any = PlainTextTransport(Pieces(raw[:cut], raw[cut:] + b"c"))  # type: ignore[arg-type]
    line.open(1.0)
    assert line.receive(Deadline(1)) + line.receive(Deadline(1)) == b"abc"


def test_an_escape_that_never_ends_is_passed_on():
    line: Any = PlainTextTransport(Pieces(b"\x1b[" + b"1" * 40))  # type: ignore[arg-type]
    line.open(1.0)
    assert line.receive(Deadline(1)) == b"\x1b[" + b"1" * 40


# -- the twin against the capture


class Client:
    """Somebody else's client in memory: it sends lines and waits for what it takes for the end of an answer."""

    def __init__(self, world: Any, *, eol: str, until: str) -> None:
        self._world, self._eol, self._until = world, eol, until
        self._client = world.attach("tl1")
        world.settle()
        self.greeting = self._client.receive().decode()

    def ask(self, command: str) -> str:
        self._client.send((command + self._eol).encode())
        text = ""
        for _ in range(100):
            self._world.advance(0.01)
            text += self._client.receive().decode()
            if re.search(self._until, text, re.DOTALL | re.MULTILINE):
                break
        else:
            raise AssertionError(f"no {self._until!r} in {text!r}")
        return text + self._client.receive().decode()


def rows_of(text: str) -> list[str]:
    return re.findall(r'^   "(.*)"\r$', text, re.MULTILINE)


def pages_of(text: str) -> list[int]:
    return [len(rows_of(page)) for page in text.split(">\r\n<")]


def without_readings(row: str) -> str:
    return re.sub(r"(INPWR|OUTPWR|PWRLOSS)=-?\d+\.\d+", r"\1=#", row)


@pytest.fixture
def quali(world) -> Client:
    client = Client(world("glimmerglass", size=(48, 48)), eol="\r", until=r";\s*<")
    assert client.greeting.endswith("<")
    client.ask("ACT-USER::admin:1::admin;")
    return client


def test_the_twin_prints_the_ports_of_the_capture(quali):
    text = quali.ask("RTRV-CFG-FIBER::10001&&10048&20001&&20048:1;")
    assert rows_of(text) == capture.port_rows()
    assert pages_of(text) == list(capture.PORT_PAGES)
    assert text.startswith("RTRV-CFG-FIBER::10001&&10048&20001&&20048:1;\r\n\r\n\n   ocs1 ")


def test_the_twin_prints_the_circuits_of_the_capture(quali):
    quali.ask("ent-crs-fiber::10001&10004,20008&20005:2;")
    rows = rows_of(quali.ask("rtrv-crs-fiber::all:3;"))
    licensed = [row for row in capture.circuit_rows() if "MC-" not in row]
    assert [without_readings(row) for row in rows] == [without_readings(row) for row in licensed]


# -- clients: every command that they send


def test_quali_reads_the_whole_switch(quali):
    quali.ask("ent-crs-fiber::10001&10002,20002&20001:2;")
    system = quali.ask("rtrv-system-info:::3;")
    assert re.search(r"LicensedPortMatrix=(\d+)x(\d+)", system).groups() == ("48", "48")
    assert re.search(
        r'SerialNumber=\S+".*SystemType=\S+".*"(\S+):ChassisType=\S+".*SoftwareActiveVersion=\S+"',
        system,
        re.DOTALL,
    ).groups() == ("GGN",)
    ports = rows_of(quali.ask("RTRV-CFG-FIBER::all:4;"))
    assert (
        sum(bool(re.search(r"PORTID=\d+.*PORTNAME=(IN|OUT)\d+.*PORTHEALTH=good", row)) for row in ports) == 96
    )
    named = r"IPORTID=(\d+).*IPORTNAME=(\S+),IP.*OPORTID=(\d+).*OPORTNAME=(\S+),OP"
    found = [re.search(named, row) for row in rows_of(quali.ask("rtrv-crs-fiber::all:5;"))]
    circuits = {match.groups() for match in found if match}
    assert circuits == {("10001", "IN1", "20002", "OUT2"), ("10002", "IN2", "20001", "OUT1")}


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("ent-crs-fiber::10003,20047:5;", {1: 50, 2: 49, 3: 95}),  # one way
        ("ent-crs-fiber::10003&10004,20004&20003:5;", {1: 50, 2: 49, 3: 52, 4: 51}),  # both ways
        ("dlt-crs-fiber::10001:5;", {2: 49}),
        ("dlt-crs-fiber::20002:5;", {2: 49}),  # ports named physically may be outputs
        ("dlt-crs-fiber::10001&10002:5;", {}),
        ("dlt-crs-fiber::10001&10009:5;", {2: 49}),
    ],
)
def test_quali_changes_circuits(world, command, left):
    made = world("glimmerglass", size=(48, 48))
    client = Client(made, eol="\r", until=r";\s*<")
    client.ask("ACT-USER::admin:1::admin;")
    client.ask("ent-crs-fiber::10001&10002,20002&20001:2;")
    assert "COMPLD" in client.ask(command)
    assert made.truth() == left


def test_a_client_that_waits_for_its_tag(world):
    client = Client(world("glimmerglass", size=(48, 48)), eol="\n", until=r"M\s+1\s+([A-Z ]+)[^;]*;")
    assert "COMPLD" in client.ask("ACT-USER::admin:1::admin;")
    assert len(rows_of(client.ask("rtrv-crs-fiber::all:1;"))) == 96


def test_monalisa_watches_and_changes(world):
    made = world("glimmerglass", size=(48, 48), rows="2005")
    client = Client(made, eol="\n", until=r"^;\r?$")
    assert "M  acon COMPLD" in client.ask("act-user::admin:acon::admin;")
    assert "M  pcon COMPLD" in client.ask("rtrv-hdr:::pcon;")
    client.ask("ent-crs-fiber::10001&10015,20015&20001:mcon;")
    rows = [row.split(":")[1].split(",") for row in rows_of(client.ask("rtrv-crs-fiber::all:cmon;"))]
    assert {len(row) for row in rows} == {12}
    circuits = {(row[0], row[2], row[5]) for row in rows if not {"IPORTID=0", "OPORTID=0"} & set(row)}
    assert circuits == {
        ("IPORTID=10001", "OPORTID=20015", "CONNSTATE=steady"),
        ("IPORTID=10015", "OPORTID=20001", "CONNSTATE=steady"),
    }
    row = rows_of(client.ask("rtrv-crs-fiber::10001&20015:icon;"))[0]
    assert row.split(",")[5] == "CONNSTATE=steady"
    powers = rows_of(client.ask("rtrv-port-power::all:pmon;"))
    assert powers[0] == "GGN:PORTID=10001,PORTPOWER=-0.300"
    assert re.fullmatch(r"GGN:PORTID=20048,PORTPOWER=-\d\d\.\d{3}", powers[-1])
    client.ask("dlt-crs-fiber::10001,20015:dcon;")
    client.ask("dlt-crs-fiber::10015,20001:dcon;")
    assert made.truth() == {}


def test_pynt_fetches_ports_and_circuits(world):
    made = world("glimmerglass", size=(64, 64), rows="2005", greeting="terminal")
    client = Client(made, eol="\n", until=r"\r\n;")
    assert client.greeting.startswith('\x1b[62;1"p')
    assert "COMPLD" in client.ask("ACT-USER::admin:1::admin;")
    ports = [
        dict(field.split("=") for field in row.split(":")[1].split(","))
        for row in rows_of(client.ask("RTRV-CFG-FIBER::all:2;"))
    ]
    assert [row["PORTCAT"] for row in ports] == ["nor"] * 128
    assert {row["PORTPRIV"] for row in ports} == {"0x1"}
    assert [(row["PORTID"], row["PORTDIR"]) for row in ports[63:65]] == [
        ("10064", "input"),
        ("20001", "output"),
    ]
    assert "COMPLD" in client.ask("CANC-USER::admin:3;")


def test_a_class_over_telnet(world):
    made = world("glimmerglass", size=(8, 8), rows="2005")
    client = Client(made, eol="\n", until=";\r\n<")
    client.ask("act-user::admin:1::admin;")
    client.ask("ent-crs-fiber::10001,20002:1:::OPMODE=Async;")
    client.ask("ent-crs-fiber::10002,20001:1:::OPMODE=Async;")
    band = client.ask("rtrv-sigtype-fiber::10001:2;")
    assert re.search(r"PORTID=(.*),PORTNAME=(.*),SIGTYPE=(\d+)", band).groups() == ("10001", "", "1550")
    status = (
        "IPORTID=(.*),IPORTNAME=(.*),OPORTID=(.*),OPORTNAME=(.*),CONNID=(.*),CONNSTATE=(.*),CONNCAUSE=(.*),"
        "INPWR=(.*),OUTPWR=(.*),PWRLOSS=(.*)"
    )
    assert re.search(status, client.ask("rtrv-crs-fiber::20001:1;")).group(1, 3, 6) == (
        "10002",
        "20001",
        "steady",
    )
    client.ask("dlt-crs-fiber::10001:1:::OPMODE=Async;")
    assert made.truth() == {2: 9}
    client.ask("dlt-crs-fiber::all:1;")
    assert made.truth() == {}
    assert "COMPLD" in client.ask("canc-user:::1;")


# -- the driver on the twin, as other releases are


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"rows": "2005"}, {"echo": "no"}, {"greeting": "terminal"}, {"reports": "yes"}],
    ids=lambda options: "+".join(options) or "2016",
)
def test_the_driver_takes_every_release(world, options):
    made = world("glimmerglass", size=(48, 48), **options)
    switch = GlimmerglassTl1(
        made.device,
        made.transport("tl1"),
        credentials=Credentials("admin", "admin"),
        timeout_s=5,
        clock=made.clock,
    )
    switch.open()
    assert switch.connect({1: 48 + 8, 4: 48 + 5}).complete
    assert switch.read().connections == CrossConnects({1: 56, 4: 53})
    assert switch.power([1, 2, 49])[49].below_floor
    assert switch.disconnect([1, 4]).complete
    assert len(switch.ports()) == 96
    switch.close()


def test_an_input_that_feeds_a_splitter_is_refused_before_a_command(world):
    made = world("glimmerglass", size=(48, 48))
    switch = GlimmerglassTl1(
        made.device,
        made.transport("tl1"),
        credentials=Credentials("admin", "admin"),
        timeout_s=5,
        clock=made.clock,
    )
    switch.open()
    decode = codec.decode_circuits
    with pytest.MonkeyPatch.context() as patch:
        row = "GGN:IPORTID=10003,OPORTID=20049,OPORTNAME=MC-1,CONNSTATE=steady"
        patch.setattr(codec, "decode_circuits", lambda lines: (*decode(lines), *decode((row,))))
        assert switch.read().connections == CrossConnects()
        with pytest.raises(PortLocked) as caught:
            switch.connect({3: 49})
        assert {port for port, info in switch.ports().items() if info.state is PortState.LOCKED} == {3}
    assert caught.value.ports == (3,)
    assert made.truth() == {}
    switch.close()


@pytest.mark.parametrize("password", [b"secret", b"******", b""])
@pytest.mark.parametrize("cut", [3, 18, 20, 24])
def test_a_login_may_be_repeated_with_its_password_hidden(password, cut):
    raw = b"<ACT-USER::admin:1::" + password + b";\r\n   ocs1"
    line: Any = EchoCanceller(Pieces(raw[:cut], raw[cut:]))  # type: ignore[arg-type]
    line.open(1.0)
    line.send(b"ACT-USER::admin:1::secret;\r\n", Deadline(1))
    assert line.receive(Deadline(1)) + line.receive(Deadline(1)) == b"<\r\n   ocs1"
