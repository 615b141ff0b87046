"""The simulated ROME and AFM, typed at by hand: what is published of them, their one arm, and their faults."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sim.models.clock import VirtualClock
from sim.twins.families import make_twin
from sim.twins.plant import Plant
from sim.twins.switch.settings import SettingError, TwinSettings

PROMPT = re.compile(r"(?i)\w+\[\w+\]#\s*")  # published
DATED = re.compile(r"\d{1,2}-\d{1,2}-\d{2,4}\s\d{1,2}:\d{1,2}\s?")  # published
ROME_ROW = re.compile(  # published
    r"^(?P<port>[EW]\d+)\[(?P<place>\w+?)\]\s+(?P<lock>locked|unlocked)\s+(?P<admin>enabled|disabled)\s+"
    r"(?P<state>(?:dis)?connected|in process)\s+(?P<counter>\d+)\s+(?:(?P<peer>[EW]\d+)\[\w+\])?\s+"
    r"(?P<logical>[ABQ]\d+)\s*$",
    re.IGNORECASE,
)
AFM_ROW = re.compile(  # published
    r"^(?P<port>[EW]\d+)\s+(?P<lock>\d)\s+(?P<state>\d)\s+(?P<admin>\d)\s+(?P<paired>[ew]\d+)\s+(?:(?P<peer>[EW]\d+)\s+)?"
    r"(?P<role>\d)\s+(?P<counter>\d+)\s*$"
)
NOTHING_PENDING = """\
Connection execution status: enabled

no request in process

======= ========= ========= ================== ======= ===================
Request Port1     Port2     Command            Source  User
======= ========= ========= ================== ======= ==================="""


class Typist:
    """Somebody at the command line, in memory."""

    def __init__(self, world: Any, frontend: str = "cli") -> None:
        self.world = world
        self.client = world.attach(frontend)
        world.settle()
        self.greeting = self.heard()

    def heard(self) -> list[str]:
        """Return what has come since the last look, in lines without trailing blanks.

        What comes unasked stands right behind the prompt (captures of QualiSystems/cloudshell-L1-w2w-rome); here it
        gets a line of its own.
        """
        self.world.settle()
        raw = self.client.receive().decode("utf-8", "replace")
        return [line.rstrip() for line in re.sub(r"# (?=\d\d-\d\d-)", "#\r\n", raw).split("\r\n")]

    def ask(self, command: str) -> list[str]:
        """Return what is printed between the command as it is repeated and the next prompt."""
        self.heard()
        self.client.send(command.encode() + b"\r")
        lines = self.heard()
        assert lines[0] == command
        prompts = [number for number, line in enumerate(lines) if PROMPT.fullmatch(line)]
        assert len(prompts) == 1, lines
        return lines[1 : prompts[0]]

    def ports(self) -> dict[str, dict[str, str]]:
        """Return the table of ports, by name."""
        matches = [re.match(ROME_ROW, line) or re.match(AFM_ROW, line) for line in self.ask("port show")]
        return {match["port"]: match.groupdict() for match in matches if match}

    def circuits(self) -> dict[str, str]:
        """E port -> W port, of the ports that are connected."""
        return {
            name: row["peer"]
            for name, row in self.ports().items()
            if name[0] == "E" and row["peer"] is not None
        }

    def wait(self, seconds: float) -> list[str]:
        """Return lines that come unasked in this time, without their dates."""
        self.heard()
        self.world.advance(seconds)
        return [DATED.sub("", line) for line in self.heard() if line]


@pytest.fixture
def rome(world) -> Callable[..., Typist]:
    """Somebody at a ROME of 8x8; options of the twin by keyword."""
    return lambda frontend="cli", **options: Typist(world("rome", **{"idle_s": "1e6", **options}), frontend)


@pytest.fixture
def afm(world) -> Callable[..., Typist]:
    return lambda **options: Typist(world("afm", **{"idle_s": "1e6", **options}))


# -- what is published


@pytest.mark.parametrize("mode", ["OPER", "TECH"])
def test_prompt_is_as_published(rome, mode):
    assert rome(mode=mode).greeting[-1] == f"ocs1[{mode}]#"


def test_a_request_is_queued_and_the_prompt_comes_back_at_once(rome):
    typist = rome()
    assert typist.ask("connection create E3 to W4") == [
        "OK - request added to pending queue (E3-W4)",
    ]
    assert typist.world.virtual.now() == 0


def test_what_is_said_unasked_of_a_circuit(rome):
    typist = rome()
    typist.client.send(b"connection create E3 to W4\r")
    lines = [DATED.sub("", line) for line in typist.heard() if line]
    assert lines[-1] == "CONNECTING..."
    assert typist.wait(40) == ["CONNECTION OPERATION SUCCEEDED:E3[1AE3]<->W4[1AW4] OP:connect"]
    assert typist.circuits() == {"E3": "W4"}
    typist.ask("connection create E3 to W4")
    typist.world.do("queue_job", kind="connect", pair=[3, 12])
    assert "CONNECTION OPERATION SKIPPED(already done):E3[1AE3]<->W4[1AW4] OP:connect" in [
        DATED.sub("", line) for line in typist.heard()
    ]


def test_what_is_said_unasked_of_a_disconnection(rome):
    typist = rome()
    typist.world.do("operator", connect=[[3, 12]])
    assert typist.ask("connection disconnect E3 from W4") == ["OK - request added to pending queue (E3-W4)"]
    assert typist.wait(40)[-1] == "CONNECTION OPERATION SUCCEEDED:E3[1AE3]<->W4[1AW4] OP:disconnect"
    assert typist.world.truth() == {}


def test_unasked_lines_are_dated_and_come_to_every_session_of_both_fronts(rome):
    typist = rome()
    others = [Typist(typist.world), typist_over_telnet(typist.world)]
    typist.ask("connection create E1 to W1")
    for other in others:
        (line,) = [line for line in other.heard() if line]
        assert DATED.match(line)
        assert line.endswith(" CONNECTING...")


def test_a_request_that_is_not_valid(rome):
    """Published: no answer, and three lines unasked."""
    typist = rome()
    typist.world.do("set_fault", fault="lock_port", port=12)
    lines = [DATED.sub("", line) for line in typist.ask("connection create E6 to W4") if line]
    assert [line for line in lines if line] == [
        "Ports details:",
        "[E6[1AE6]] [W4[1AW4]]",
        "OPERATION VALIDATION FAILED:E6-W4 requestType=connect",
    ]
    assert typist.wait(600) == []
    assert typist.world.truth() == {}


def test_a_request_may_be_found_invalid_when_its_turn_comes(rome):
    typist = rome(validation="in_turn")
    typist.world.do("set_fault", fault="lock_port", port=12)
    typist.ask("connection create E1 to W1")
    assert typist.ask("connection create E6 to W4")[0].startswith("OK - request added")
    assert "OPERATION VALIDATION FAILED:E6-W4 requestType=connect" in typist.wait(40)


def test_logical_ports_are_connected_both_ways(rome):
    typist = rome()
    assert typist.ask("connection create A1 to A2")[0] == "OK - request added to pending queue (A1-A2)"
    typist.wait(80)
    assert typist.circuits() == {"E1": "W2", "E2": "W1"}


def test_an_empty_queue_is_printed_as_published(rome):
    lines = rome().ask("connection show pending")
    assert "\n".join(lines).rstrip() == NOTHING_PENDING


def test_the_queue_shows_what_is_in_process_and_who_waits(rome):
    typist = rome()
    typist.ask("connection create E1 to W1")
    typist.world.do("queue_job", kind="disconnect", pair=[7, 15], user="gui", source="WEB")
    typist.ask("connection create E3 to W3")
    lines = typist.ask("connection show pending")
    assert "Command in process:" in lines
    assert "connect, ports: E1-W1, status: in process with payload" in lines
    assert [line.split() for line in lines[-2:]] == [
        ["2", "E7", "W7", "disconnect", "WEB", "gui"],
        ["3", "E3", "W3", "connect", "CLI", "admin"],
    ]


def test_the_table_of_a_rome(rome):
    typist = rome()
    rule, heading, again, *rows, _ = ["", *typist.ask("port show"), ""][1:]
    assert (
        rule
        == again
        == "================ ============ =========== ============= ======= ============== ========"
    )
    assert heading == "Port             Admin Status Oper Status Port Status   Counter ConnectedTo    Logical"
    assert rows[0] == "E1[1AE1]         Unlocked     Enabled     Disconnected  0                      A1"
    assert [row.split("[")[0] for row in rows] == [f"{side}{n}" for side in "EW" for n in range(1, 9)]
    typist.world.do("operator", connect=[[3, 12]])
    assert (
        typist.ask("port show")[5]
        == "E3[1AE3]         Unlocked     Enabled     Connected     1       W4[1AW4]       A3"
    )


def test_the_table_of_a_rome_by_place(rome):
    typist = rome(rows="place")
    typist.world.do("operator", connect=[[3, 12]])
    assert (
        typist.ask("port show")[5]
        == "1AE3             Unlocked     Enabled     Connected     1       W4[1AW4]       E3,A3"
    )


def test_spare_places_have_no_name_and_count_in_the_size(rome):
    typist = rome(spares="yes", matrices="2")
    rows = typist.ask("port show")[3:]
    assert [row.split()[0] for row in rows[:8]] == [
        *(f"E{n}[1AE{n}]" for n in range(1, 5)),
        "1AE5",
        "1AE6",
        "E5[1BE1]",
        "E6[1BE2]",
    ]
    board = "\n".join(typist.ask("show board"))
    assert "Matrix A: Male/West 1..8, Female/East 1..6" in board
    assert "Matrix B: Male/West 1..8, Female/East 1..6" in board
    assert len(rows) == 28


def test_the_table_of_an_afm(afm):
    typist = afm()
    typist.world.do("operator", connect=[[5, 14]])
    lines = typist.ask("port show")
    assert lines[1] == "Oper state:       1-disconnected 2-connected 6-attached"
    assert lines[6] == "Port  Admin  Oper   HW Adm  Paired  Connected-port  Port  Connection  Port"
    assert lines[9] == "E1      1      1      1      w1                       1      0"
    assert lines[13] == "E5      1      2      1      w5      W6               1      1"
    assert len(typist.ports()) == 16


def test_the_circuits_of_an_afm(afm):
    typist = afm()
    typist.ask("connection create E2 to W8")
    typist.wait(100)
    heading, rule, row = typist.ask("connection show connected")
    assert heading.split() == ["Port", "East", "Port", "West", "Paired", "TimeStamp"]
    assert set(rule) == {"=", " "}
    assert re.fullmatch(r"E2\s+W8\s+w2\s+\d\d-\d\d-\d{4} \d\d:\d\d", row)


def test_boards(rome, afm):
    assert {"ROME TYPE        ROME500", "ROME NAME        ocs1"} <= set(rome().ask("show board"))
    lines = afm().ask("show board")
    assert {"AFM TYPE         2", "AUTHENTICATION   local"} <= set(lines)
    assert [line.split() for line in lines if "MAX_PORT" in line] == [
        ["MIN_PORT_EAST", "1", "MAX_PORT_EAST", "8"],
        ["MIN_PORT_WEST", "1", "MAX_PORT_WEST", "8"],
    ]


@pytest.mark.parametrize("family", ["rome", "afm"])
def test_locked_and_disabled_ports_are_shown(world, family):
    typist = Typist(world(family))
    typist.world.do("set_fault", fault="lock_port", port=2)
    typist.world.do("set_fault", fault="disable_port", port=11)
    ports = typist.ports()
    words = {"rome": ("Locked", "Disabled", "Unlocked", "Enabled"), "afm": ("2", "2", "1", "1")}[family]
    assert (ports["E2"]["lock"], ports["W3"]["admin"]) == words[:2]
    assert (ports["E1"]["lock"], ports["E1"]["admin"]) == words[2:]


@pytest.mark.parametrize(("family", "word"), [("rome", "In process"), ("afm", "6")])
def test_ports_at_which_the_arm_is_at_work(world, family, word):
    typist = Typist(world(family, idle_s="1e6"))
    typist.ask("connection create E2 to W8")
    ports = typist.ports()
    assert {name for name, row in ports.items() if row["state"] == word} == {"E2", "W8"}
    assert {row["peer"] for row in ports.values()} == {None}


@pytest.mark.parametrize("family", ["rome", "afm"])
def test_counters_count_every_move_of_a_port(world, family):
    typist = Typist(world(family, idle_s="1e6"))
    for command in ("create E1 to W1", "disconnect E1 from W1", "create E1 to W2"):
        typist.ask(f"connection {command}")
        typist.wait(60)
    counters = {name: int(row["counter"]) for name, row in typist.ports().items()}
    assert Counter(counters) == Counter({"E1": 3, "W1": 2, "W2": 1})


# -- refusals


def test_ports_of_two_matrices(rome):
    typist = rome(matrices="2")
    assert typist.ask("connection create E1 to W5") == ["Ports are not of the same matrix"]
    assert typist.ask("connection create E5 to W8") == ["OK - request added to pending queue (E5-W8)"]
    assert typist.ask("port show")[7].startswith("E5[1BE1]")


@pytest.mark.parametrize(
    "command",
    ["connection create E9 to W1", "connection create E1 to E2", "connection create E0 to W1", "reboot"],
)
def test_what_is_not_understood_is_an_error(rome, command):
    (line,) = rome().ask(command)
    assert line.startswith("Error: ")


def test_a_device_without_a_command_for_its_queue(afm):
    assert afm(pending="unknown").ask("connection show pending") == ["Error: unknown command"]


@pytest.mark.parametrize("options", [{"matrices": "3"}, {"rows": "no"}, {"tea": "yes"}])
def test_options_without_sense(options):
    given = TwinSettings("ocs1", 8, 8, Plant({"switches": [], "hosts": []}), VirtualClock(), options=options)
    with pytest.raises(SettingError):
        make_twin("rome", given)


# -- the arm


def test_requests_are_made_in_turn(rome):
    typist = rome()
    typist.world.do("queue_job", kind="connect", pair=[1, 9], user="gui")
    typist.ask("connection create E2 to W2")
    typist.world.advance(79)
    assert typist.circuits() == {"E1": "W1"}
    typist.world.advance(1)
    assert typist.circuits() == {"E1": "W1", "E2": "W2"}


def test_a_circuit_is_dark_while_the_arm_has_its_fibre(rome):
    typist = rome()
    typist.world.do("operator", connect=[[1, 9], [2, 10]])
    typist.ask("connection disconnect E1 from W1")
    truth = typist.world.do("truth")
    assert (truth["connections"], truth["lit"]) == ([[1, 9], [2, 10]], [[2, 10]])


@pytest.mark.parametrize("homing", ["prompt", "holds"])
def test_a_jam_lasts_until_a_homing_run_and_execution_is_enabled(rome, homing):
    typist = rome(homing=homing)
    typist.world.do("set_fault", fault="jam", count=0)
    typist.ask("connection create E1 to W1")
    typist.ask("connection create E2 to W2")
    assert typist.wait(3600) == ["Multiple Cross Connect Severe Failure"]
    lines = typist.ask("connection show pending")
    assert lines[0] == "Connection execution status: delayed due to command in process"
    assert lines[1].strip() == 'Perform "homing run"'
    typist.client.send(b"homing run\r")
    typist.world.advance(60)
    heard = [DATED.sub("", line) for line in typist.heard() if line]
    assert heard[-1 if homing == "prompt" else -2] == "RECOVERY FINISHED SUCCESSFULLY"
    assert "CONNECTION OPERATION FAILED:E1[1AE1]<->W1[1AW1] OP:connect" in heard
    typist.wait(600)
    assert typist.circuits() == {}
    assert typist.ask("connection set command-execution enable")[0] == "connection execution is enabled"
    typist.wait(40)
    assert typist.circuits() == {"E2": "W2"}


def test_a_jam_may_be_told_by_the_queue_alone(rome):
    typist = rome(jam="silent")
    typist.world.do("set_fault", fault="jam", count=0)
    typist.ask("connection create E1 to W1")
    assert typist.wait(600) == []
    assert typist.ask("connection show pending")[1].strip() == 'Perform "homing run"'


def test_a_homing_run_may_be_asked_for_at_every_move(rome):
    typist = rome(homing_hint="always")
    typist.ask("connection create E1 to W1")
    assert typist.ask("connection show pending")[1].strip() == 'Perform "homing run"'
    typist.wait(40)
    assert typist.ask("connection show pending")[0].endswith("enabled")


def test_a_power_cut_takes_the_queue_and_leaves_the_circuits(rome):
    typist = rome()
    typist.ask("connection create E1 to W1")
    typist.ask("connection create E2 to W2")
    typist.wait(50)
    typist.world.do("power_cycle")
    assert typist.client.is_closed
    again = Typist(typist.world)
    assert again.wait(600) == []
    assert again.circuits() == {"E1": "W1"}


# -- sessions and tables


def typist_over_telnet(world: Any) -> Typist:
    """Somebody at the telnet frontend, logged in."""
    typist = Typist(world, "telnet")
    for text in (b"admin\r", b"admin\r"):
        typist.client.send(text)
        typist.heard()
    return typist


def test_telnet_asks_who_it_is(world):
    made = world("rome")
    typist = Typist(made, "telnet")
    screens = []
    for text in (b"admin\r", b"guess\r", b"admin\r", b"admin\r"):
        typist.client.send(text)
        screens.append(typist.heard())
    assert screens[1] == ["", "username or password invalid", "login:"]
    assert PROMPT.fullmatch(screens[3][-1])


def test_an_idle_session_ends(world):
    typist = Typist(world("rome", idle_s="600"))
    typist.world.advance(599)
    assert not typist.client.is_closed
    typist.world.advance(2)
    assert typist.client.is_closed


def test_both_fronts_show_one_state(rome):
    typist = rome()
    other = typist_over_telnet(typist.world)
    other.ask("connection create E1 to W8")
    typist.wait(40)
    assert typist.circuits() == other.circuits() == {"E1": "W8"}


def test_a_broken_table_has_all_words_but_other_lines(rome):
    typist = rome()
    typist.world.do("operator", connect=[[1, 9]])
    whole = typist.ask("port show")
    typist.world.do("set_fault", fault="break_table")
    broken = typist.ask("port show")
    assert broken != whole
    assert " ".join(broken).split() == " ".join(whole).split()
    assert sum(bool(ROME_ROW.match(line)) for line in broken) == 13
    assert typist.ask("port show") == whole
    assert typist.world.do("truth")["fired"]["break_table"] == 1


def test_a_table_may_be_cut_and_have_noise(rome):
    typist = rome()
    typist.world.do("set_fault", fault="truncate_table")
    assert 0 < len(typist.ports()) < 16
    typist.world.do("set_fault", fault="noise")
    assert any("LOG:" in line for line in typist.ask("port show"))
    assert len(typist.ports()) == 16


def test_a_command_may_be_dropped(rome):
    typist = rome()
    typist.world.do("set_fault", fault="drop_command")
    assert typist.ask("connection create E1 to W1") == []
    assert typist.wait(60) == []


# -- whatever is typed

names = st.sampled_from([f"{side}{number}" for side in "EWAB" for number in range(10)])
east, west = st.sampled_from(["E1", "E2", "E3", "E5"]), st.sampled_from(["W1", "W2", "W3", "W5"])
commands = st.one_of(
    st.builds("connection create {} to {}".format, east, west),
    st.builds("connection disconnect {} from {}".format, east, west),
    st.builds("connection create {} to {}".format, names, names),
    st.builds("connection disconnect {} from {}".format, names, names),
    st.sampled_from(
        ["connection show pending", "port show", "homing run", "connection set command-execution enable"]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).filter(
        lambda text: text.strip() not in {"exit", "quit", "logout"}
    ),
)
met: Counter[str] = Counter()


TAKEN = [(f"connection create E{port} to W1", 45.0) for port in (1, 2, 3, 4, 1, 2, 3)]
"""Requests that are not valid when their turn comes: how many are drawn depends on the modules that are loaded."""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(TAKEN)
@given(st.lists(st.tuples(commands, st.sampled_from([0.0, 10.0, 45.0])), min_size=5, max_size=25))
def check_whatever_is_typed(world, script):
    typist = Typist(world("rome", idle_s="1e6", matrices="2"))
    for command, pause_s in script:
        typist.client.send(command.encode() + b"\r")
        typist.world.advance(pause_s)
    typist.world.advance(3000)
    typist.client.send(b"connection set command-execution enable\r")
    typist.world.advance(3000)
    heard = "\n".join(typist.heard())
    truth = typist.world.do("truth")
    met["made"] += heard.count("OPERATION SUCCEEDED")
    met["invalid"] += heard.count("VALIDATION FAILED")
    assert sorted(map(tuple, truth["connections"])) == sorted(map(tuple, truth["lit"]))
    assert all((source <= 4) == (output <= 12) for source, output in truth["connections"])
    assert not typist.world.do("robot")["queue"]
    typist.world.close()


@pytest.mark.slow
def test_whatever_is_typed_the_cabinet_stays_consistent(world):
    check_whatever_is_typed(world)
    assert met["made"] >= 30
    assert met["invalid"] >= 5
