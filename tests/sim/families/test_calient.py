"""The simulated Calient over TL1: the published commands and rows, by raw bytes; denials, reports, faults, power."""

from __future__ import annotations

import re
import socket
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sim.models.clock import VirtualClock
from sim.twins.families import make_twin
from sim.twins.families.calient.circuits import PortNames
from sim.twins.plant import Plant
from sim.twins.switch.matrix import MatrixRefusal
from sim.twins.switch.settings import SettingError, TwinSettings

FRAME = re.compile(
    r"\r\n   ocs1 \d\d-\d\d-\d\d \d\d:\d\d:\d\d\r\nM  (?P<tag>\S+) (?P<how>COMPLD|DENY)\r\n"
    r"(?P<body>(?:(?:   |\").*\r\n)*)(?P<end>[;>])\r\n"
)
REPORT = re.compile(r"\r\n   ocs1 \S+ \S+\r\nA  (\d+) (REPT [A-Z ]+)\r\n((?:   .*\r\n)*);\r\n")
SIZE = 48


class Terminal:
    """A client in memory that knows nothing but bytes and frames."""

    def __init__(self, world: Any, *, login: bool = True, frontend: str = "tl1") -> None:
        self.world = world
        self._client = world.attach(frontend)
        world.settle()
        self.greeting = self._client.receive().decode()
        self.reports: list[tuple[str, str]] = []
        if login:
            assert "COMPLD" in self.raw("ACT-USER::admin:1::admin;")

    def raw(self, command: str) -> str:
        """Return everything that comes at once."""
        self._client.send(command.encode())
        self.world.settle()
        return self._client.receive().decode("latin-1")

    def frames(self, command: str) -> list[re.Match[str]]:
        """Return the blocks of the answer to one command; reports on the way are kept."""
        text = self.raw(command)
        self.reports += [(event, body.strip()) for _, event, body in REPORT.findall(text)]
        found = list(FRAME.finditer(REPORT.sub("", text)))
        assert "".join(frame[0] for frame in found) == REPORT.sub("", text), text
        return found

    def ask(self, command: str) -> list[str]:
        blocks = self.frames(command)
        assert [block["how"] for block in blocks] == ["COMPLD"] * len(blocks), [block[0] for block in blocks]
        assert [block["end"] for block in blocks] == [">"] * (len(blocks) - 1) + [";"]
        return [line.strip().strip('"') for block in blocks for line in block["body"].splitlines()]

    def denied(self, command: str) -> tuple[str, str]:
        (frame,) = self.frames(command)
        assert frame["how"] == "DENY", frame[0]
        code, text = frame["body"].splitlines()
        return code.strip(), text.strip(" /*")

    def make(self, source: str, target: str, way: str = "1WAY") -> str:
        """Provision and activate a circuit; gives its name."""
        name = f"{source}{'-' if way == '2WAY' else '>'}{target}"
        assert self.ask(f"ENT-CRS::{source},{target}:1::SYSTEM,{way};") == []
        assert self.ask(f"ACT-CRS::{source},{target}:1::{name},SYSTEM;") == []
        return name

    def states(self) -> dict[str, str]:
        """AS, OS and OC of every circuit by name."""
        rows = self.ask("RTRV-CRS:::::ALL;")
        return {row.partition(":")[0]: re.search(r"AS=\w+,OS=\w+,OC=\w+", row)[0] for row in rows}

    @property
    def closed(self) -> bool:
        return self._client.is_closed


PROVISIONED, MOVING = "AS=UMA,OS=RDY,OC=OK", "AS=IS,OS=RDY,OC=OK"
LIT, DARK = "AS=IS,OS=IS,OC=OK", "AS=IS,OS=IS,OC=FAIL"


@pytest.fixture
def device(world):
    return world("calient", size=(SIZE, SIZE))


@pytest.fixture
def terminal(device):
    return Terminal(device)


# -- what is published


def test_published_login(device):
    terminal = Terminal(device, login=False)
    assert terminal.greeting == ""
    text = terminal.raw("ACT-USER::admin:1::admin;")
    assert '"admin:admin,2"' in text
    assert re.search(r"/\* NOTICE.*\*/", text, re.DOTALL)
    assert "Already logged in" in terminal.denied("ACT-USER::admin:1::admin;")[1]
    assert terminal.ask("CANC-USER::admin:1;") == []
    assert "Login Not Active" in terminal.denied("RTRV-HDR:::1;")[1]


def test_published_row_of_a_provisioned_circuit(device, terminal):
    terminal.ask("ENT-CRS::1.1.1,1.1.2:1::DSTRAUB,2WAY;")
    assert terminal.ask("RTRV-CRS:::::ALL;") == [
        (
            "1.1.1-1.1.2:SRCPORT=1.1.1,DSTPORT=1.1.2,GRPNAME=DSTRAUB,CONNNAME=1.1.1-1.1.2,CONNTYPE=2WAY,"
            "AS=UMA,OS=RDY,OC=OK,PS=UPR,AL=CL"
        )
    ]
    assert device.truth() == {}


def test_published_command_without_ctag_is_answered_under_0(terminal):
    (frame,) = terminal.frames("RTRV-CRS:::::ALL;")
    assert frame["tag"] == "0"


@pytest.mark.parametrize("activation", ["1.1.1-1.1.2,SYSTEM", "1.1.1-1.1.2"])
def test_published_two_way_circuit(device, terminal, activation):
    terminal.ask("ENT-CRS::1.1.1,1.1.2:1::,2WAY;")
    terminal.ask(f"ACT-CRS::1.1.1,1.1.2:1::{activation};")
    assert terminal.states() == {"1.1.1-1.1.2": MOVING}
    assert device.do("truth")["lit"] == []
    device.advance(0.06)
    assert terminal.states() == {"1.1.1-1.1.2": LIT}
    assert device.truth() == {1: SIZE + 2, 2: SIZE + 1}
    assert device.do("truth")["lit"] == [[1, SIZE + 2], [2, SIZE + 1]]


def test_published_deactivation_and_deletion(device, terminal):
    terminal.make("1.1.1", "1.1.2", "2WAY")
    assert terminal.ask("CANC-CRS:::::1.1.1-1.1.2;") == []
    assert device.truth() == {}
    assert terminal.states() == {"1.1.1-1.1.2": PROVISIONED}
    assert terminal.ask("DLT-CRS:::::1.1.1-1.1.2;") == []
    assert terminal.states() == {}


def test_published_long_deletion_and_deletion_of_all(device, terminal):
    terminal.make("1.1.1", "1.1.2", "2WAY")
    terminal.make("1.1.3", "1.1.4")
    terminal.ask("DLT-CRS::1.1.1,1.1.2:1::,SYSTEM,1.1.1-1.1.2;")
    assert device.truth() == {3: SIZE + 4}
    terminal.ask("ENT-CRS::1.1.1,1.1.2:1::,1WAY;")
    terminal.ask("DLT-CRS-ALL:::;")
    assert terminal.states() == {}
    assert device.truth() == {}


def test_published_rows_of_ports(terminal):
    rows = terminal.ask("RTRV-PORT::0;")
    assert len(rows) == SIZE
    assert rows[0] == (
        "1.1.1:WX,NONE,NONE:INAS=OOS-NP,INOS=OOS,INOC=OK,INRS=NPR,OUTAS=OOS-NP,OUTOS=OOS,OUTOC=OK,OUTRS=NPR"
    )
    terminal.make("1.1.1", "1.1.1")
    assert terminal.ask("RTRV-PORT::1.1.1;") == [
        "1.1.1:WX,TRANSIT,TRANSIT:INAS=IS,INOS=IS,INOC=OK,INRS=NPR,OUTAS=IS,OUTOS=IS,OUTOC=OK,OUTRS=NPR"
    ]
    assert terminal.ask("RTRV-PORT::1.1.8;")[0].startswith("1.1.8:")


def test_published_row_of_a_summary(device, terminal):
    terminal.make("1.1.1", "1.1.2")
    device.do("set_fault", fault="dark_input", port=1)
    assert terminal.ask("RTRV-PORT-SUM::1.1.1;") == [
        (
            "1.1.1:ALIAS=NONE,INPWR=NONE,OUTPWR=NONE,CONNNAME1=1.1.1>1.1.2,CONNSTATE1=ACT,"
            "CONNNAME2=NONE,CONNSTATE2=NONE"
        )
    ]
    device.twin.device.labels[2] = "rack 4"
    (row,) = terminal.ask("RTRV-PORT-SUM::1.1.2;")
    assert row.startswith("1.1.2:ALIAS=rack 4,INPWR=-0.3")


def test_published_node(terminal):
    (row,) = terminal.ask("RTRV-NE;")
    assert re.fullmatch(
        r"ocs1:SERIALNUMBER=SIM\d{6},SWPACKAGE=6\.0-3,STATUS=OK,CHASSISTYPE=S\d+,PLATFORM=VERSION2", row
    )


def test_published_duplicate_is_an_invalid_connection(terminal):
    terminal.make("1.1.1", "1.1.2")
    for ends in ("1.1.1,1.1.2", "1.1.1,1.1.3", "1.1.3,1.1.2"):
        assert "Invalid Connection" in terminal.denied(f"ENT-CRS::{ends}:1::SYSTEM,1WAY;")[1]


def test_what_is_provisioned_holds_its_ports(terminal):
    terminal.ask("ENT-CRS::1.1.1,1.1.2:1::SYSTEM,1WAY;")
    assert "Invalid Connection" in terminal.denied("ENT-CRS::1.1.5,1.1.2:1::SYSTEM,1WAY;")[1]
    terminal.ask("ENT-CRS::1.1.2,1.1.1:1::SYSTEM,1WAY;")  # the other fibres of the two ports


@pytest.mark.parametrize(("rows", "blocks"), [("3", 2), ("1", 4), ("4", 1), ("0", 1)])
def test_published_pages(world, rows, blocks):
    terminal = Terminal(world("calient", size=(8, 8), page_rows=rows))
    for port in range(1, 5):
        terminal.make(f"1.1.{port}", f"1.1.{port}")
    assert len(terminal.frames("RTRV-CRS:::7::ALL;")) == blocks
    assert len(terminal.states()) == 4


def test_published_prompt_and_echo_of_the_interactive_port(device):
    terminal = Terminal(device, login=False, frontend="tl1-interactive")
    assert terminal.greeting == "agent> "
    text = terminal.raw("ACT-USER::admin:1::admin;\r\n")
    assert text.startswith("ACT-USER::admin:1::admin;\r\n\r\n   ocs1 ")
    assert text.endswith(";\r\nagent> ")
    assert "RTRV" not in Terminal(device, frontend="tl1").raw("RTRV-HDR:::1;")


def test_an_interactive_port_may_repeat_nothing(world):
    terminal = Terminal(world("calient", size=(8, 8), echo="no"), login=False, frontend="tl1-interactive")
    assert terminal.raw("ACT-USER::admin:1::admin;").startswith("\r\n   ocs1 ")


# -- denials


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("ENT-CRS::1.1.1:4::,1WAY;", "IIAC"),
        ("ENT-CRS::1.1.1,9.9.9:4::,1WAY;", "IIAC"),
        ("ENT-CRS::1.1.1,1.1:4::,1WAY;", "IIAC"),
        ("ENT-CRS::1.1.1,6.8.8:4::,1WAY;", "IIAC"),
        ("ENT-CRS::1.1.1,1.1.1:4::,2WAY;", "IIAC"),
        ("ENT-CRS::1.1.1,1.1.2:4::,3WAY;", "IDNV"),
        ("ACT-CRS::1.1.1,1.1.2:4::1.1.1>1.1.2;", "SNVS"),
        ("ACT-CRS::1.1.1,1.1.2:4;", "IPMS"),
        ("CANC-CRS:::4::1.1.1>1.1.2;", "SNVS"),
        ("DLT-CRS:::4::1.1.1>1.1.2;", "SNVS"),
        ("RTRV-CRS:::4::1.1.1>1.1.2;", "SNVS"),
        ("RTRV-PORT::7.1.1:4;", "IIAC"),
        ("RTRV-COLOUR:::4;", "ICNV"),
    ],
)
def test_denials_change_nothing(device, terminal, command, code):
    terminal.make("1.1.3", "1.1.4")
    before = terminal.states()
    assert terminal.denied(command)[0] == code
    assert terminal.states() == before


@pytest.mark.parametrize(
    ("fault", "states"),
    [
        ("fail_port", "INAS=IS,INOS=OOS,INOC=FAIL"),
        ("disable_port", "INAS=OOS-MA,INOS=OOS,INOC=OK"),
        ("lock_port", "INAS=LCK,INOS=IS,INOC=OK"),
    ],
)
@pytest.mark.parametrize("provisioned", [False, True])
def test_unfit_ports_are_shown_and_denied(device, terminal, fault, states, provisioned):
    if provisioned:
        terminal.ask("ENT-CRS::1.1.1,1.1.2:1::SYSTEM,1WAY;")
    device.do("set_fault", fault=fault, port=1)
    assert states in terminal.ask("RTRV-PORT::1.1.1;")[0]
    command = (
        "ACT-CRS::1.1.1,1.1.2:1::1.1.1>1.1.2;" if provisioned else "ENT-CRS::1.1.1,1.1.2:1::SYSTEM,1WAY;"
    )
    code, text = terminal.denied(command)
    assert code in {"SROF", "SNVS"}
    assert "Invalid Connection" not in text
    assert device.truth() == {}


def test_sessions_expire_and_are_limited(device, terminal):
    device.do("set_fault", fault="max_sessions", count=1)
    for frontend in ("tl1", "tl1-interactive"):
        assert "SROF" in Terminal(device, login=False, frontend=frontend).raw("ACT-USER::admin:1::admin;")
    device.do("clear_fault", fault="max_sessions")
    device.do("set_fault", fault="expire_session")
    assert terminal.denied("RTRV-HDR:::1;") == ("PLNA", "Login Not Active")
    assert terminal.ask("ACT-USER::admin:1::admin;")[0] == "admin:admin,2"
    assert Terminal(device, login=False).denied("ACT-USER::admin:1::wrong;")[0] == "PICC"


# -- several clients, reports


def test_changes_by_anybody_are_reported_to_who_wants_to_know(device, terminal):
    stranger, silent, other = Terminal(device, login=False), Terminal(device), Terminal(device)
    assert silent.ask("INH-MSG-ALL:::1;") == []
    other.make("1.1.1", "1.1.2")
    device.do("operator", disconnect=[1])
    for client, count in ((terminal, 2), (silent, 0)):
        assert client.ask("RTRV-HDR:::1;") == []
        assert [event for event, _ in client.reports] == ["REPT DBCHG"] * count
    assert terminal.reports[0][1].endswith(':ENT-CRS:1.1.1>1.1.2"')
    assert stranger.denied("RTRV-HDR:::1;")[0] == "PLNA"
    silent.ask("ALW-MSG-ALL:::1;")
    device.do("operator", connect=[[1, SIZE + 1]])
    silent.ask("RTRV-HDR:::1;")
    assert len(silent.reports) == 1


@pytest.mark.parametrize(
    ("option", "events"), [({"reports": "no"}, []), ({"change_word": "DBGH"}, ["REPT DBGH"])]
)
def test_reports_may_be_spelt_otherwise_or_not_come(world, option, events):
    terminal = Terminal(world("calient", size=(8, 8), **option))
    terminal.make("1.1.1", "1.1.1")
    assert [event for event, _ in terminal.reports] == events


def test_another_operators_circuits_are_one_way_and_those_he_ends_are_gone(device, terminal):
    terminal.make("1.1.1", "1.1.2", "2WAY")
    device.do("operator", connect=[[3, SIZE + 4]], disconnect=[2])
    device.advance(0.1)
    assert terminal.states() == {"1.1.1>1.1.2": LIT, "1.1.3>1.1.4": LIT}


def test_what_is_provisioned_where_another_operator_connects_is_gone(device, terminal):
    terminal.ask("ENT-CRS::1.1.1,1.1.2:1::SYSTEM,1WAY;")
    terminal.ask("ENT-CRS::1.1.5,1.1.6:1::SYSTEM,1WAY;")
    device.do("operator", connect=[[1, SIZE + 2]])
    device.advance(0.1)
    assert terminal.states() == {"1.1.1>1.1.2": LIT, "1.1.5>1.1.6": PROVISIONED}


# -- faults and power


def test_ignored_commands_are_completed_all_the_same(device, terminal):
    device.do("set_fault", fault="drop_command")
    assert terminal.ask("ENT-CRS::1.1.1,1.1.2:1::SYSTEM,1WAY;") == []
    assert terminal.states() == {}


def test_a_skipped_activation_is_completed_all_the_same(device, terminal):
    device.do("set_fault", fault="skip_activate")
    terminal.make("1.1.1", "1.1.2")
    device.advance(10)
    assert terminal.states() == {"1.1.1>1.1.2": PROVISIONED}
    terminal.ask("ACT-CRS::1.1.1,1.1.2:1::1.1.1>1.1.2;")
    assert device.truth() == {1: SIZE + 2}


def test_a_circuit_with_a_stuck_mirror_stays_provisioned_as_a_whole(device, terminal):
    device.do("set_fault", fault="stuck", pair=[2, SIZE + 1])
    terminal.make("1.1.1", "1.1.2", "2WAY")
    assert terminal.states() == {"1.1.1-1.1.2": PROVISIONED}
    assert device.truth() == {}


@pytest.mark.parametrize("first", [True, False])
def test_a_circuit_that_finds_no_light_is_dark(device, terminal, first):
    if first:
        device.do("set_fault", fault="oc_fail", pair=[1, SIZE + 2])
    terminal.make("1.1.1", "1.1.2")
    terminal.make("1.1.3", "1.1.4")
    device.advance(0.1)
    if not first:
        assert set(terminal.states().values()) == {LIT}
        device.do("set_fault", fault="oc_fail", pair=[1, SIZE + 2])
    assert terminal.states() == {"1.1.1>1.1.2": DARK, "1.1.3>1.1.4": LIT}
    assert ",OUTPWR=NONE," in terminal.ask("RTRV-PORT-SUM::1.1.2;")[0]
    assert device.do("truth")["fired"]["oc_fail"] == 1
    device.do("clear_fault", fault="oc_fail")
    assert set(terminal.states().values()) == {LIT}


def test_a_dark_input_makes_a_dark_circuit(device, terminal):
    terminal.make("1.1.1", "1.1.2")
    device.advance(0.1)
    device.do("set_fault", fault="dark_input", port=1)
    assert terminal.states() == {"1.1.1>1.1.2": DARK}


def test_a_circuit_may_look_provisioned_until_its_mirrors_have_arrived(world):
    device = world("calient", size=(8, 8), moving="UMA")
    terminal = Terminal(device)
    terminal.make("1.1.1", "1.1.2")
    assert terminal.states() == {"1.1.1>1.1.2": PROVISIONED}
    device.advance(0.1)
    assert terminal.states() == {"1.1.1>1.1.2": LIT}


def test_reports_between_command_and_answer(device, terminal):
    device.do("set_fault", fault="report_noise", count=1)
    text = terminal.raw("RTRV-HDR:::7;")
    assert text.index("REPT ALM") < text.index("M  7 COMPLD")
    assert "threshold; crossed" in text
    assert "REPT" not in terminal.raw("RTRV-HDR:::8;")


def test_pages_as_a_fault(device, terminal):
    device.do("set_fault", fault="page_rows", count=10)
    assert len(terminal.frames("RTRV-PORT::0:7;")) == 5
    device.do("clear_fault", fault="page_rows")
    assert len(terminal.frames("RTRV-PORT::0:7;")) == 1
    assert device.do("truth")["fired"]["page_rows"] == 1


@pytest.mark.parametrize(
    ("mode", "left"), [("DARK", {}), ("RESTORE", {}), ("AUTOSAVE", {"1.1.1-1.1.2": LIT, "1.1.3>1.1.4": LIT})]
)
def test_power_cycle(world, mode, left):
    device = world("calient", size=(8, 8), settings={"boot_mode": mode})
    terminal = Terminal(device)
    terminal.make("1.1.1", "1.1.2", "2WAY")
    terminal.make("1.1.3", "1.1.4")
    terminal.ask("ENT-CRS::1.1.5,1.1.6:1::SYSTEM,1WAY;")
    device.do("power_cycle")
    assert terminal.closed
    device.advance(0.1)
    assert Terminal(device).states() == left


# -- sizes and names


@pytest.mark.parametrize(("size", "options"), [((8, 16), {}), ((321, 321), {}), ((8, 8), {"colour": "red"})])
def test_settings_it_cannot_have(size, options):
    plant = Plant({"switches": [{"name": "ocs1"}], "hosts": []})
    with pytest.raises(SettingError):
        make_twin("calient", TwinSettings("ocs1", *size, plant, VirtualClock(), options=options))


def test_names_and_numbers_are_one_to_one():
    met: Counter[bool] = Counter()

    @settings(max_examples=100)
    @given(st.sampled_from([8, 64, 320]), st.lists(st.integers(1, 9), min_size=3, max_size=3))
    def check(ports: int, parts: list[int]) -> None:
        names, name = PortNames(ports), ".".join(map(str, parts))
        try:
            number = names.parse_name(name)
        except MatrixRefusal:
            met[False] += 1
        else:
            met[True] += 1
            assert 1 <= number <= ports
            assert names.format_name(number) == name

    check()
    assert len({PortNames(320).format_name(number) for number in range(1, 321)}) == 320
    assert min(met[True], met[False]) >= 10


# -- any order of commands


class BookMachine(RuleBasedStateMachine):
    """Clients provision, activate, deactivate, delete; an operator edits: circuits and mirrors always agree."""

    make: Any
    ports = st.sampled_from(["1.1.1", "1.1.2", "1.1.3"])
    ways = st.sampled_from(["1WAY", "2WAY"])

    @initialize()
    def begin(self) -> None:
        self.device = self.make()
        self.terminal = Terminal(self.device)

    @rule(ends=st.tuples(ports, ports), way=ways, verb=st.sampled_from(["ENT", "ACT", "ACT", "CANC", "DLT"]))
    def command(self, ends: tuple[str, str], way: str, verb: str) -> None:
        source, target = ends
        name = f"{source}{'-' if way == '2WAY' else '>'}{target}"
        rest = f"{source},{target}:1::SYSTEM,{way}" if verb == "ENT" else f":1::{name}"
        assert "M  1 " in self.terminal.raw(f"{verb}-CRS::{rest};")

    @rule(pair=st.tuples(st.integers(1, 4), st.integers(5, 8)))
    def operator(self, pair: tuple[int, int]) -> None:
        self.device.do("operator", connect=[list(pair)])

    @rule(seconds=st.sampled_from([0.01, 0.1]))
    def wait(self, seconds: float) -> None:
        self.device.advance(seconds)

    @invariant()
    def circuits_are_what_the_mirrors_make(self) -> None:
        if not hasattr(self, "device"):
            return
        active, ports = set(), []
        for name, states in self.terminal.states().items():
            source, target = (int(end[-1]) for end in re.split("[->]", name))
            pairs = {(source, 4 + target)} | ({(target, 4 + source)} if "-" in name else set())
            ports += [port for pair in pairs for port in pair]
            if states.startswith("AS=IS"):
                active |= pairs
        assert active == set(self.device.truth().items())
        assert len(ports) == len(set(ports))  # nothing is held twice


@pytest.mark.slow
def test_circuits_and_mirrors_agree_whatever_is_commanded(world):
    machine = type("Machine", (BookMachine,), {"make": lambda self: world("calient", size=(4, 4))})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25, stateful_step_count=30, derandomize=True, deadline=None, database=None
        ),
    )


# -- over a real socket


def test_somebody_elses_client_over_tcp(shared_twin):
    twin = shared_twin("calient", "--size=8x8", "--user=me", "--password=secret")
    host, port = twin.urls["tl1"].removeprefix("calient+tl1://").split(":")
    with socket.create_connection((host, int(port)), 10) as client, client.makefile("rwb") as stream:
        for command in (
            "ACT-USER::me:1::secret;",
            "ENT-CRS::1.1.1,1.1.7:1::,2WAY;",
            "ACT-CRS::1.1.1,1.1.7:1::1.1.1-1.1.7;",
        ):
            stream.write(command.encode() + b"\n")
            stream.flush()
            while not stream.readline().startswith(b";"):
                pass
    assert twin.truth() == {1: 8 + 7, 7: 8 + 1}
