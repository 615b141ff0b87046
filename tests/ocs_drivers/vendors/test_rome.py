"""The ROME and AFM driver: what it says and understands, and robot minutes on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ocs_drivers import CrossConnects, OcsError, Status
from ocs_drivers.address import parse_address
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    AddressError,
    Conflict,
    ConnectError,
    DeviceError,
    LoginFailed,
    PartialApply,
    PortDisabled,
    PortError,
    PortLocked,
    ProtocolDesync,
    RobotFault,
    Timeout,
    VerifyMismatch,
)
from ocs_drivers.model import Identity, PendingMove, PortState, Side
from ocs_drivers.protocols.cli_session import Login
from ocs_drivers.transports.telnet import TelnetTransport
from ocs_drivers.vendors.rome import (
    AFM,
    ROME,
    RomeCli,
    Timeouts,
    afm_telnet,
    read_timeouts,
    rome_ssh,
    rome_telnet,
)
from ocs_drivers.vendors.rome.codec import (
    RECOVERED_PATTERN,
    UNSOLICITED_PATTERN,
    Board,
    Request,
    check_accepted,
    decode_board,
    decode_queue,
    find_failure,
    format_connect,
    format_disconnect,
)
from ocs_drivers.vendors.rome.port_table import Motion, decode_ports
from ocs_drivers.vendors.rome.ports import Layout

ADDRESS = "rome+cli://memory"

# -- what is said and understood: published lines


def test_published_commands():
    assert format_connect("E3", "W4") == "connection create E3 to W4"
    assert format_disconnect("E3", "W4") == "connection disconnect E3 from W4"


ROME_BOARD = """\
CURR SW VERSION  creationDate(Feb 21 2019, 19:51:00)
ROME STATUS      adminStatus(enabled) operStatus(enabled) alarmState(Cleared)
ROME NAME        ROME
ACTIVE UNITS     1
ROME TYPE        ROME500
BOARD            ver(LCU-100) rev(3) S/N(9727-4733-2222)
MATRIX SIZE:
                 Matrix A: Male/West 1..132, Female/East 1..130
                 Matrix B: Male/West 1..132, Female/East 1..130
ACTIVE SW BANK   1
ACTIVE SW VER    1.10.2.10
STANDBY SW VER   1.10.2.11
CONNECTIONS      connection execution is enabled
OPERATION COUNT  7766
AUTHENTICATION   local
CONNECTION TYPE  ssh and telnet""".splitlines()

AFM_BOARD = """\
AFM STATUS       adminStatus(enabled) operStatus(enable) alarmState(Major)
AFM NAME         s53
AFM TYPE         2
BOARD            ver(LCU-100) rev(1) S/N(9727-4733-2222)
MATRIX SIZE:
                 MIN_PORT_EAST 1  MAX_PORT_EAST 180
                 MIN_PORT_WEST 1  MAX_PORT_WEST 180
ACTIVE SW VER    1.6.2.1
AUTHENTICATION   local""".splitlines()


def test_published_boards():
    rome, afm = decode_board(ROME_BOARD, ROME), decode_board(AFM_BOARD, AFM)
    assert rome.identity == Identity("Wave2Wave", "ROME500", "9727-4733-2222", "1.10.2.10")
    assert (rome.east_count, rome.west_count) == (
        260,
        264,
    )  # as many rows as the captures of that device have
    assert afm.identity == Identity("FiberZone", "AFM type 2", "9727-4733-2222", "1.6.2.1")
    assert (afm.east_count, afm.west_count) == (180, 180)


@pytest.mark.parametrize("lines", [AFM_BOARD, ROME_BOARD[:6], ROME_BOARD[:9], []])
def test_the_board_of_something_else_or_a_part_of_it(lines):
    with pytest.raises(ProtocolDesync, match="the reply does not describe the whole board of a ROME device"):
        decode_board(lines, ROME)


def board(east: int, west: int) -> Board:
    return Board(Identity("", "", "", ""), east, west)


PUBLISHED_ROWS = """\
================ ============ =========== ============= ======= ============== ========
Port             Admin Status Oper Status Port Status   Counter ConnectedTo    Logical
================ ============ =========== ============= ======= ============== ========
E12[1AE12]       Unlocked     Enabled     Connected     17      W60[1AW60]     A12
E60[1AE60]       Unlocked     Disabled    Disconnected  0                      A60
1AE129           Unlocked     Enabled     Disconnected  0
E253[1BE125]     Unlocked     Enabled     In process    13                     B253
W12[1AW12]       Locked       Enabled     Disconnected  2                      A12
W60[1AW60]       Unlocked     Enabled     Connected     19      E12[1AE12]     A60""".splitlines()

PUBLISHED_ROWS_BY_PLACE = """\
1AE12            Unlocked     Enabled     Connected     17      W60[1AW60]     E12,A12
1AE60            Unlocked     Disabled    Disconnected  0                      E60,A60
1AE129           Unlocked     Enabled     Disconnected  0
1BE125           Unlocked     Enabled     In process    13                     E253,B253
1AW12            Locked       Enabled     Disconnected  2                      W12,A12
1AW60            Unlocked     Enabled     Connected     19      E12[1AE12]     W60,A60""".splitlines()


@pytest.mark.parametrize("lines", [PUBLISHED_ROWS, PUBLISHED_ROWS_BY_PLACE], ids=["by port", "by place"])
def test_published_rows_of_a_rome(lines):
    table = decode_ports(lines, ROME, board(4, 2))
    assert table.layout.east_ports == ("E12", "E60", "E253")
    assert table.layout.west_ports == ("W12", "W60")
    assert table.layout.matrix_by_port == {"E12": "A", "E60": "A", "E253": "B", "W12": "A", "W60": "A"}
    assert table.layout.ports_by_logical_name["A12"] == ("E12", "W12")
    assert table.find_connections(()) == CrossConnects({1: 5})
    assert table.find_unfit_ports() == {2: PortState.DISABLED, 4: PortState.LOCKED}
    assert [row.move_count for row in table.ports] == [17, 0, 13, 2, 19]
    assert table.ports[2].motion is Motion.IN_PROCESS


PUBLISHED_AFM_ROWS = """\
Admin Lock state: 1-unlocked     2-locked
Oper state:       1-disconnected 2-connected 6-attached
OMB: Out of matrix bound
================================================================================
Port  Admin  Oper   HW Adm  Paired  Connected-port  Port  Connection  Port
ID    Lock   state  state   Port     ID   Name      role  counter     Name
================================================================================
E5      1      2      1      w5      W6               1      765
E6      1      1      2      w6                       1      172
E27     2      1      1      w27                      1      198
E28     1      1      1      w28                      3      7
W5      1      1      1      e5                       1      0
W6      1      2      1      e6      E5               1      895""".splitlines()


def test_published_rows_of_an_afm():
    table = decode_ports(PUBLISHED_AFM_ROWS, AFM, board(4, 2))
    assert table.layout == Layout(("E5", "E6", "E27", "E28"), ("W5", "W6"))
    assert table.find_connections(()) == CrossConnects({1: 6})
    assert table.find_unfit_ports() == {2: PortState.DISABLED, 3: PortState.LOCKED, 4: PortState.DISABLED}
    assert [row.move_count for row in table.ports] == [765, 172, 198, 7, 0, 895]


def test_published_broken_table():
    """Two rows on one line, and a row broken over two."""
    text = (
        "E45[1AE45]       Unlocked     Enabled     Disconnected  0                      Q23     "
        "E46[1AE46]       Unlocked     Enabled     \n"
        "Disconnected  0                      Q23     \n"
        "1AE129           Unlocked     Enabled     Disconnected  0   E129[1BE1]       Unlocked     Enabled\n"
        "     Connected     5       W132[1BW4]     Q1      \n"
        "W132[1BW4]       Unlocked     Enabled     Connected     3       E129[1BE1]     Q2      "
    )
    table = decode_ports(text.splitlines(), ROME, board(4, 1))
    assert table.layout.east_ports == ("E45", "E46", "E129")
    assert table.find_connections(()) == CrossConnects({3: 4})


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (PUBLISHED_ROWS[:-1], "4 east and 1 west rows, but the board has 4 and 2 ports"),
        (PUBLISHED_ROWS[:3], "0 east"),
        (
            [*PUBLISHED_ROWS[:-1], "W60[1AW60]  Unlocked  Enabled  Connected 19"],
            "W60 is connected, but not to which port",
        ),
        ([*PUBLISHED_ROWS[:-1], PUBLISHED_ROWS[-2]], "twice"),
    ],
)
def test_a_table_that_is_not_whole_is_no_table(lines, what):
    with pytest.raises(ProtocolDesync, match=what):
        decode_ports(lines, ROME, board(4, 2))


@pytest.mark.parametrize(
    "last",
    [
        "W60[1AW60]       Unlocked     Enabled     Disconnected  19                     A60",
        "W60[1AW60]       Unlocked     Enabled     Connected     19      E60[1AE60]     A60",
        "W60[1AW60]       Unlocked     Enabled     Connected     19      E13[1AE13]     A60",
    ],
)
def test_ends_that_do_not_say_the_same_cannot_be(last):
    table = decode_ports([*PUBLISHED_ROWS[:-1], last], ROME, board(4, 2))
    with pytest.raises(ProtocolDesync):
        table.find_connections(())


def test_a_port_in_process_keeps_its_circuit_unless_it_is_being_made():
    lines = [
        "E1[1AE1]       Unlocked     Enabled     In process    13      W1[1AW1]       A1",
        "W1[1AW1]       Unlocked     Enabled     In process    13      E1[1AE1]       A1",
    ]
    table = decode_ports(lines, ROME, board(1, 1))
    assert table.find_connections(()) == CrossConnects({1: 2})
    assert table.find_connections({(1, 2)}) == CrossConnects()


NOTHING_PENDING = """\
Connection execution status: enabled
no request in process
======= ========= ========= ================== ======= ===================
Request Port1     Port2     Command            Source  User
======= ========= ========= ================== ======= ===================""".splitlines()

PENDING = """\
Connection execution status: delayed due to command in process
                             Perform "homing run"
Command in process:
connect, ports: E3-W4, status: in process with payload
======= ========= ========= ================== ======= ===================
Request Port1     Port2     Command            Source  User
======= ========= ========= ================== ======= ===================
772     A1        A2        connect            CLI     admin
773     E1        W2        disconnect         GUI     the other one""".splitlines()

FOUR_BY_FOUR = Layout(
    tuple(f"E{n}" for n in range(1, 5)),
    tuple(f"W{n}" for n in range(1, 5)),
    ports_by_logical_name={f"A{n}": (f"E{n}", f"W{n}") for n in range(1, 5)},
)


def test_published_queues():
    assert not decode_queue(NOTHING_PENDING).list_moves(FOUR_BY_FOUR)
    queue = decode_queue(PENDING)
    assert (queue.needs_homing, queue.is_disabled) == (True, False)
    assert queue.running_request == Request("connect", "E3", "W4")
    assert queue.list_moves(FOUR_BY_FOUR) == (
        PendingMove("connect", (3, 8)),
        PendingMove("connect", (1, 6), "admin", "CLI", "772"),
        PendingMove("connect", (2, 5), "admin", "CLI", "772"),
        PendingMove("disconnect", (1, 6), "the other one", "GUI", "773"),
    )


def test_a_request_for_ports_that_cannot_be_known_is_a_move_all_the_same():
    assert Request("connect", "Q1", "Q2").list_moves(FOUR_BY_FOUR) == (PendingMove("connect", None),)


@pytest.mark.parametrize("kept", range(7))
def test_a_queue_that_is_not_whole_is_no_queue(kept):
    with pytest.raises(ProtocolDesync):
        decode_queue(PENDING[:kept])


def test_a_row_of_the_queue_that_is_cut():
    with pytest.raises(ProtocolDesync, match="row"):
        decode_queue([*PENDING[:-1], "773     E1"])


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("08-05-2019 09:20 CONNECTING...", "CONNECTING"),
        ("08-05-2019 12:19 DISCONNECTING...", "DISCONNECTING"),
        (
            "08-05-2019 09:20 CONNECTION OPERATION SUCCEEDED:E3[1AE3]<->W4[1AW4] OP:connect",
            "CONNECTION OPERATION SUCCEEDED",
        ),
        (
            "08-06-2019 09:01 CONNECTION OPERATION SKIPPED(already done):E1[1AE1]<->W2[1AW2] OP:connect",
            "CONNECTION OPERATION SKIPPED",
        ),
        ("08-06-2019 09:01 Connection A1<->A2 completed successfully", "Connection"),
        (
            "08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect",
            "OPERATION VALIDATION FAILED",
        ),
        ("Multiple Cross Connect Severe Failure", "Multiple Cross Connect Severe Failure"),
        ("RECOVERY FINISHED SUCCESSFULLY", "RECOVERY FINISHED SUCCESSFULLY"),
        ("08-05-2019 09:32", None),
        ("Ports details:", "Ports details"),
        ("[E6[1AE6]] [W4[1AW4]]", None),
    ],
)
def test_published_lines_that_come_unsolicited(line, kind):
    match = UNSOLICITED_PATTERN.match(line)
    assert match is not None
    assert match["kind"] == kind


@pytest.mark.parametrize("line", [*PUBLISHED_ROWS, *PUBLISHED_AFM_ROWS, *ROME_BOARD, *AFM_BOARD, *PENDING])
def test_what_belongs_to_a_reply_is_not_taken_for_unsolicited(line):
    assert UNSOLICITED_PATTERN.match(line) is None
    assert RECOVERED_PATTERN.search(line) is None


def test_refusals():
    assert check_accepted(["OK - request added to pending queue (E3-W4)"]) is None
    with pytest.raises(PortError, match="same matrix"):
        check_accepted(["Ports are not of the same matrix"])
    with pytest.raises(DeviceError):
        check_accepted(["Error: no such port"])
    with pytest.raises(RobotFault, match="homing_run"):
        check_accepted(["Multiple Cross Connect Severe Failure"])


def test_a_failure_is_of_the_request_that_it_names():
    lines = [
        "08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect",
        "08-06-2019 09:01 CONNECTION OPERATION FAILED:E4[1AE2]<->W3[1AW3] OP:connect",
    ]
    assert find_failure(lines, [("E6", "W4")], "connect") == lines[0]
    assert find_failure(lines, [("E4", "W3")], "connect") == lines[1]
    assert find_failure(lines, [("E4", "W3")], "disconnect") is None
    assert find_failure(lines, [("E6", "W3")], "connect") is None


# -- tables by chance


@st.composite
def panels(draw: Any) -> tuple[int, dict[int, int], set[int], list[int]]:
    """Size, circuits, locked ports, counters."""
    size = draw(st.integers(1, 12))
    outputs = draw(st.permutations(range(1, size + 1)))
    inputs = draw(st.sets(st.integers(1, size)))
    locked = draw(st.sets(st.integers(1, 2 * size)))
    counters = draw(st.lists(st.integers(0, 9999), min_size=2 * size, max_size=2 * size))
    return size, {source: outputs[source - 1] for source in inputs}, locked, counters


def printed(panel: tuple[int, dict[int, int], set[int], list[int]], dialect: Any) -> list[str]:
    """Print the rows of a panel in the columns of the captures."""
    size, circuits, locked, counters = panel
    peers = {f"E{s}": f"W{o}" for s, o in circuits.items()} | {f"W{o}": f"E{s}" for s, o in circuits.items()}
    rows = []
    for number, name in enumerate([f"{side}{n}" for side in "EW" for n in range(1, size + 1)]):
        peer, is_locked, counter = peers.get(name, ""), number + 1 in locked, counters[number]
        if dialect is AFM:
            rows.append(
                f"{name:<8}{1 + is_locked}      {1 + bool(peer)}      1      x{name[1:]}   ".replace("x", "w")
            )
            rows[-1] += f"{peer:<17}1      {counter}"
        else:
            rows.append(
                f"{name + '[1A' + name + ']':<17}{'Locked' if is_locked else 'Unlocked':<13}Enabled     "
            )
            rows[-1] += f"{'Connected' if peer else 'Disconnected':<14}{counter:<8}"
            rows[-1] += f"{peer + '[1A' + peer + ']' if peer else '':<15}A{name[1:]}"
    return rows


noise = st.sampled_from(["", "%% LOG: fan", "temperature 31 C", "========", "Port ID"])


@pytest.mark.long
@pytest.mark.parametrize("dialect", [ROME, AFM], ids=["rome", "afm"])
def test_a_table_is_read_as_printed_and_a_part_of_it_never_as_another(dialect):
    counted = {"cut": 0, "circuits": 0}

    @settings(max_examples=100)
    @given(panels(), st.data())
    def check(panel, data):
        size, circuits, locked, counters = panel
        rows = printed(panel, dialect)
        whole = board(size, size)
        mixed = [line for row in rows for line in (data.draw(noise), row)]
        table = decode_ports(mixed, dialect, whole)
        expected = CrossConnects({source: size + output for source, output in circuits.items()})
        assert table.find_connections(()) == expected
        assert table.find_unfit_ports() == dict.fromkeys(sorted(locked), PortState.LOCKED)
        assert [row.move_count for row in table.ports] == counters
        counted["circuits"] += len(circuits)
        text = "\n".join(rows)
        cut = text[: data.draw(st.integers(0, len(text) - 1))]
        try:
            part = decode_ports(cut.splitlines(), dialect, whole)
            assert part.find_connections(()) == expected
        except ProtocolDesync:
            counted["cut"] += 1

    check()
    assert counted["cut"] >= 50
    assert counted["circuits"] >= 100


@pytest.mark.slow
@given(st.lists(st.text(max_size=60) | st.sampled_from([*PUBLISHED_ROWS, *PENDING, *AFM_BOARD]), max_size=12))
def test_any_lines_give_a_reading_or_an_error_of_ours(lines):
    decoders: list[Callable[[], object]] = [
        lambda: decode_ports(lines, ROME, board(1, 1)).find_connections(()),
        lambda: decode_ports(lines, AFM, board(0, 0)),
        lambda: decode_queue(lines).list_moves(FOUR_BY_FOUR),
        lambda: decode_board(lines, ROME),
        lambda: check_accepted(lines),
    ]
    for decode in decoders:
        try:
            decode()
        except OcsError:
            continue


@pytest.mark.slow
@given(st.sets(st.integers(1, 400), min_size=1), st.sets(st.integers(1, 400), min_size=1), st.data())
def test_numbers_and_names_go_both_ways(east, west, data):
    layout = Layout(tuple(f"E{n}" for n in sorted(east)), tuple(f"W{n}" for n in sorted(west)))
    port = data.draw(st.integers(1, len(east) + len(west)))
    assert layout.get_number(layout.get_name(port)) == port
    source = data.draw(st.integers(1, len(east)))
    output = data.draw(st.integers(len(east) + 1, len(east) + len(west)))
    assert layout.get_pairs(*layout.get_names((source, output))) == ((source, output),)
    assume(len(east) > 1)
    assert layout.get_pairs("E1", "E2") == ()


# -- addresses


def test_everything_can_be_set_in_an_address():
    pytest.importorskip("asyncssh")
    address = parse_address(
        "rome+cli://h:2222?move_s=45&longest_s=90&poll_s=2&idle_s=60&homing_s=300&grace_s=30"
    )
    assert read_timeouts(address) == Timeouts((45.0, 90.0), 2.0, 60.0, 300.0, 30.0)
    assert rome_ssh(address).address.startswith("rome+cli://h:2222")


def test_what_is_not_set_is_as_published_or_assumed():
    pytest.importorskip("asyncssh")
    assert read_timeouts(parse_address("afm+telnet://h")) == Timeouts()
    assert (Timeouts().poll_s, Timeouts().move_time_s[1]) == (3.0, 120.0)
    assert rome_ssh(parse_address("rome+cli://h")).address == "rome+cli://h:22"
    assert rome_telnet(parse_address("rome+telnet://h")).address == "rome+telnet://h:23"


@pytest.mark.parametrize(
    "option", ["colour=1", "poll_s=soon", "poll_s=0", "move_s=-1", "idle_s=nan", "key=/x"]
)
def test_options_without_sense(option):
    with pytest.raises(AddressError, match=option.partition("=")[0]):
        afm_telnet(parse_address(f"afm+telnet://h?{option}"))


# -- against a script


class Script:
    """A transport whose device answers from a mapping; an unknown command is an error of the test."""

    def __init__(self, answers: Mapping[str, str | Callable[[], str]]) -> None:
        self.answers = answers
        self.typed: list[str] = []
        self.is_open = False
        self.waiting = b""

    def open(self, timeout_s: float) -> None:
        self.is_open = True
        self.waiting = b"ROME[OPER]# "

    def close(self) -> None:
        self.is_open = False

    def has_input(self) -> bool:
        return bool(self.waiting)

    def send(self, data: bytes, deadline: Any) -> None:
        command = data.decode().rstrip("\r")
        self.typed.append(command)
        answer = self.answers[command]
        text = answer if isinstance(answer, str) else answer()
        self.waiting += f"{command}\r\n{text}\r\n".encode() + b"ROME[OPER]# "

    def receive(self, deadline: Any) -> bytes:
        data, self.waiting = self.waiting, b""
        assert data, "the driver waits for what never comes"
        return data


class Stopwatch:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


SMALL_BOARD = "\r\n".join(
    [*ROME_BOARD[:7], "Matrix A: Male/West 1..4, Female/East 1..4", *ROME_BOARD[9:]],
)


def small_table(*circuits: tuple[int, int]) -> str:
    return "\r\n".join(printed((4, dict(circuits), set(), [0] * 8), ROME))


def scripted(answers: Mapping[str, str | Callable[[], str]], **more: Any) -> tuple[RomeCli, Script]:
    script = Script(
        {
            "show board": SMALL_BOARD,
            "port show": small_table(),
            "connection show pending": "\r\n".join(NOTHING_PENDING),
            **answers,
        }
    )
    switch = RomeCli(ADDRESS, script, timeout_s=5, clock=Stopwatch(), **more)
    switch.open()
    script.typed.clear()
    return switch, script


def test_what_is_asked_and_in_which_order_for_one_circuit():
    made: list[str] = []
    switch, script = scripted(
        {
            "port show": lambda: small_table((3, 4)) if made else small_table(),
            "connection create E3 to W4": lambda: (
                made.append("it") or "OK - request added to pending queue (E3-W4)"
            ),
        }
    )
    guards: list[int] = []
    switch.apply(CrossConnects({3: 8}), guard=lambda: guards.append(len(script.typed)))
    look = ["connection show pending", "port show"]
    assert script.typed == [*look, *look, "connection create E3 to W4", *look]
    assert guards == [4]


def test_published_exchange_with_unsolicited_lines_in_the_middle():
    """A line that came unsolicited stands before the command as the device repeats it."""
    made: list[str] = []

    def create() -> str:
        made.append("it")
        return (
            "OK - request added to pending queue (E3-W4)\r\nROME[OPER]# 08-05-2019 09:20 CONNECTING...\r\n"
            "08-05-2019 09:20 CONNECTION OPERATION SUCCEEDED:E3[1AE3]<->W4[1AW4] OP:connect\r\n"
        )

    switch, _ = scripted(
        {
            "port show": lambda: small_table((3, 4)) if made else small_table(),
            "connection create E3 to W4": create,
        }
    )
    assert switch.connect({3: 8}).complete
    kinds = [event.kind for event in switch.events()]
    assert kinds == ["CONNECTING", "CONNECTION OPERATION SUCCEEDED"]


def test_what_the_device_says_succeeded_is_believed_only_when_it_is_so():
    reply = "OK\r\nROME[OPER]# 08-05-2019 09:20 CONNECTION OPERATION SUCCEEDED:E3[1AE3]<->W4[1AW4] OP:connect"
    switch, _ = scripted({"connection create E3 to W4": reply})
    with pytest.raises(VerifyMismatch) as caught:
        switch.connect({3: 8})
    assert caught.value.missing == {3: 8}


def test_published_validation_failure_ends_the_wait():
    reply = (
        "08-05-2019 09:32 \r\nPorts details:\r\n[E3[1AE3]] [W4[1AW4]]\r\n"
        "08-05-2019 09:32 OPERATION VALIDATION FAILED:E3-W4 requestType=connect"
    )
    switch, _ = scripted({"connection create E3 to W4": reply})
    with pytest.raises(DeviceError) as caught:
        switch.connect({3: 8})
    assert "OPERATION VALIDATION FAILED:E3-W4" in caught.value.received
    assert caught.value.ports == (3, 8)


def test_a_request_between_the_queue_and_the_arm_is_not_given_up():
    looks: list[int] = []

    def table() -> str:
        looks.append(1)
        return small_table((3, 4)) if len(looks) > 7 else small_table()

    switch, _ = scripted({"port show": table, "connection create E3 to W4": "OK"})
    assert switch.connect({3: 8}).complete


def test_a_robot_that_executes_nothing_is_not_given_more():
    disabled = "\r\n".join(["Connection execution status: disabled", *NOTHING_PENDING[1:]])
    switch, script = scripted({"connection show pending": disabled})
    with pytest.raises(RobotFault, match="disabled"):
        switch.connect({3: 8})
    assert not any("create" in text for text in script.typed)


def test_other_ports_than_when_it_was_opened():
    shown = [small_table()]
    switch, _ = scripted({"port show": lambda: shown[0]})
    shown[0] = small_table().replace("E4[1AE4]", "E5[1AE4]")
    with pytest.raises(ProtocolDesync, match="other ports"):
        switch.read()


# -- robot minutes on a virtual clock


@pytest.fixture
def panel(world) -> Iterator[Callable[..., tuple[RomeCli, Any]]]:
    """Make open switches of 8x8 with their world; `timeouts` and the twin's options by keyword."""
    opened: list[RomeCli] = []

    def make(
        *,
        family: str = "rome",
        front: str = "cli",
        size: int = 8,
        timeouts: Timeouts | None = None,
        **options: str,
    ) -> tuple[RomeCli, Any]:
        made = world(family, size=(size, size), **options)
        over_telnet = front == "telnet"
        line = made.transport(front)
        switch = RomeCli(
            f"{family}+{front}://memory",
            TelnetTransport(line) if over_telnet else line,
            timeout_s=5,
            dialect=AFM if family == "afm" else ROME,
            clock=made.clock,
            login=Login(Credentials("admin", "admin")) if over_telnet else None,
            timeouts=timeouts,
        )
        switch.open()
        opened.append(switch)
        return switch, made

    yield make
    for switch in opened:
        switch.close()


FRONTS = [("rome", "cli"), ("rome", "telnet"), ("afm", "cli"), ("afm", "telnet")]
every_front = pytest.mark.parametrize(("family", "front"), FRONTS, ids=["+".join(front) for front in FRONTS])


def typed(made: Any) -> list[tuple[float, str]]:
    """Return when which command was typed."""
    entries = made.do("transcript")["entries"]
    return [(entry["seconds"], entry["data"].strip()) for entry in entries if entry["direction"] == "in"]


@every_front
def test_eight_circuits_take_robot_minutes(panel, family, front):
    switch, made = panel(family=family, front=front)
    wanted = CrossConnects({number: 9 + number * 3 % 8 for number in range(1, 9)})
    report = switch.apply(wanted)
    assert made.truth() == dict(wanted)
    assert report.complete
    assert 8 * 40 <= made.clock.now() <= 8 * (40 + 3.1)
    assert all(40 <= outcome.device_s <= 43.1 for outcome in report.outcomes)


@every_front
def test_who_it_is_and_what_it_can_do(panel, family, front):
    switch, _ = panel(family=family, front=front)
    identity, capabilities = switch.identity(), switch.capabilities
    assert identity.vendor == {"rome": "Wave2Wave", "afm": "FiberZone"}[family]
    assert (capabilities.inputs, capabilities.outputs) == (8, 8)
    assert capabilities.serial_robot
    assert capabilities.wear_counter
    assert capabilities.async_events
    assert capabilities.switch_time_s == (60.0, 120.0)


def test_a_move_is_a_removal_and_an_addition(panel):
    switch, made = panel()
    switch.connect({1: 9, 2: 10})
    report = switch.apply(CrossConnects({1: 10, 2: 9}))
    assert [step.kind for step in report.steps] == ["remove", "remove", "add", "add"]
    assert made.truth() == {1: 10, 2: 9}


@pytest.mark.parametrize("family", ["rome", "afm"])
def test_ports_tell_names_states_and_wear(panel, family):
    switch, made = panel(family=family)
    switch.connect({1: 9})
    switch.disconnect([1])
    made.do("set_fault", fault="lock_port", port=2)
    made.do("set_fault", fault="disable_port", port=16)
    ports = switch.ports()
    assert [ports[port].name for port in (1, 8, 9, 16)] == ["E1", "E8", "W1", "W8"]
    assert (ports[8].side, ports[9].side) == (Side.IN, Side.OUT)
    assert (ports[1].moves, ports[9].moves, ports[2].moves) == (2, 2, 0)
    assert (ports[2].state, ports[16].state) == (PortState.LOCKED, PortState.DISABLED)


@pytest.mark.parametrize("options", [{}, {"rows": "place"}, {"spares": "yes", "matrices": "2"}])
def test_all_manners_of_a_table(panel, options):
    switch, made = panel(**options)
    made.do("operator", connect=[[1, 12], [8, 16]])
    assert switch.read().connections == CrossConnects({1: 12, 8: 16})


def test_two_matrices_have_no_way_between_them(panel):
    switch, made = panel(matrices="2")
    with pytest.raises(PortError, match="and W5 belong to different matrices") as caught:
        switch.connect({4: 13})
    assert caught.value.ports == (4, 13)
    assert not any("create" in text for _, text in typed(made))
    assert switch.connect({5: 16, 4: 12}).complete


@pytest.mark.parametrize("family", ["rome", "afm"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [("lock_port", PortLocked), ("disable_port", PortDisabled)],
    ids=["locked", "disabled"],
)
def test_a_port_that_is_unfit_is_refused_before_anything_is_sent(panel, family, fault, error):
    switch, made = panel(family=family)
    made.do("set_fault", fault=fault, port=12)
    with pytest.raises(error) as caught:
        switch.connect({1: 12})
    assert caught.value.ports == (12,)
    assert not any("create" in text for _, text in typed(made))


def test_a_port_that_is_locked_meanwhile(panel):
    """The device finds the request invalid; the driver says which port it is about."""
    switch, made = panel()
    with pytest.raises(PortLocked) as caught:
        switch.apply(CrossConnects({1: 12}), guard=lambda: made.do("set_fault", fault="lock_port", port=12))
    assert caught.value.ports == (12,)
    assert "VALIDATION FAILED" in caught.value.received


@pytest.mark.parametrize("validation", ["at_once", "in_turn"])
def test_a_request_that_is_not_valid_is_not_waited_for(panel, validation):
    switch, made = panel(validation=validation)
    made.do("set_fault", fault="fail_port", port=12)
    with pytest.raises(DeviceError) as caught:
        switch.connect({1: 12})
    assert caught.value.ports == (1, 12)
    assert made.clock.now() < 10


@pytest.mark.parametrize("options", [{"homing_hint": "always"}, {"colour": "yes"}, {"mode": "TECH"}])
def test_manners_that_make_no_difference(panel, options):
    switch, _ = panel(**options)
    assert switch.apply(CrossConnects({1: 12, 2: 9})).complete


def test_a_device_that_does_not_show_its_queue(panel):
    switch, made = panel(family="afm", pending="unknown")
    assert switch.connect({1: 12, 2: 9}).complete
    made.do("set_fault", fault="jam", count=0)
    with pytest.raises(RobotFault):
        switch.disconnect([1])
    assert made.truth() == {1: 12, 2: 9}


def test_a_large_panel(panel):
    switch, made = panel(size=256, matrices="2", spares="yes")
    made.do("operator", connect=[[1, 257], [256, 512]])
    assert switch.capabilities.outputs == 256
    assert switch.read().connections == CrossConnects({1: 257, 256: 512})


# -- other people


def test_the_requests_of_others_are_reported_and_waited_for(panel):
    switch, made = panel()
    for number in (5, 6, 7):
        made.do("queue_job", kind="connect", pair=[number, 8 + number], user="gui", source="WEB")
    seen = switch.read()
    assert seen.pending == (
        PendingMove("connect", (5, 13)),
        PendingMove("connect", (6, 14), "gui", "WEB", "2"),
        PendingMove("connect", (7, 15), "gui", "WEB", "3"),
    )
    assert switch.connect({1: 9}).complete
    assert 160 <= made.clock.now() <= 163.1  # more than one move is given


def test_a_robot_that_is_slower_than_any_is_stuck(panel):
    switch, made = panel(jam="silent", timeouts=Timeouts((10.0, 30.0), homing_grace_s=1000.0))
    with pytest.raises(RobotFault, match="within 30 s"):
        switch.connect({1: 9})
    assert 30 <= made.clock.now() <= 40


def test_a_request_of_somebody_else_for_the_same_ports_is_a_conflict(panel):
    switch, made = panel()
    with pytest.raises(Conflict, match=r"connect E1-W8 by gui \(WEB\) waits") as caught:
        made.do("queue_job", kind="connect", pair=[2, 10], user="gui", source="WEB")
        made.do("queue_job", kind="connect", pair=[1, 16], user="gui", source="WEB")
        switch.connect({1: 9})
    assert caught.value.ports == (1,)
    assert not any("create" in text for _, text in typed(made))


def test_a_change_of_somebody_else_is_a_conflict_before_anything_is_sent(panel):
    switch, made = panel()
    (step,) = switch.plan(CrossConnects({1: 9}), switch.read())
    made.do("operator", connect=[[1, 14]])
    with pytest.raises(Conflict) as caught:
        switch.execute(step)
    assert caught.value.actual == {1: 14}
    assert not any("create" in text for _, text in typed(made))


def test_a_change_of_somebody_else_while_we_wait_stops_the_apply(panel):
    switch, made = panel()
    calls: list[int] = []

    def guard() -> None:
        calls.append(1)
        if len(calls) == 1:
            made.do("operator", connect=[[2, 16]])

    with pytest.raises(Conflict) as caught:
        switch.apply(CrossConnects({1: 9, 2: 10}), guard=guard)
    done, failed = Status.DONE, Status.FAILED
    assert caught.value.report.pairs == {(1, 9): done, (2, 10): failed, (2, 16): failed}
    assert made.truth() == {1: 9, 2: 16}


def test_what_others_do_is_an_event(panel):
    switch, made = panel()
    made.do("queue_job", kind="connect", pair=[2, 10], user="gui", source="WEB")
    made.advance(40)
    kinds = [event.kind for event in switch.events()]
    assert kinds[-2:] == ["CONNECTING", "CONNECTION OPERATION SUCCEEDED"]
    last = switch.events()[-1].number
    assert switch.events(since=last) == ()


# -- the robot fails


@pytest.mark.parametrize("jam", ["announced", "silent"])
@pytest.mark.parametrize("family", ["rome", "afm"])
def test_a_jammed_robot_is_a_fault_and_is_never_homed(panel, family, jam):
    switch, made = panel(family=family, jam=jam)
    made.do("set_fault", fault="jam", count=1)
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects({1: 9, 2: 10, 3: 11}))
    report = caught.value.report
    assert report.pairs == {(1, 9): Status.DONE, (2, 10): Status.FAILED, (3, 11): Status.FAILED}
    assert isinstance(report.outcomes[-1].error, RobotFault)
    assert made.truth() == {1: 9}
    assert not any("homing" in text or "enable" in text for _, text in typed(made))


def test_waiting_behind_somebody_elses_jam_is_unknown_because_the_request_stays(panel):
    switch, made = panel()
    made.do("set_fault", fault="jam", count=0)
    made.do("queue_job", kind="connect", pair=[5, 13], user="gui", source="WEB")
    with pytest.raises(PartialApply, match="will be executed when the robot goes on") as caught:
        switch.connect({1: 9})
    assert caught.value.report.pairs == {(1, 9): Status.UNKNOWN}
    switch.homing_run()
    made.advance(100)
    assert made.truth() == {1: 9}


def test_nothing_is_asked_of_a_robot_that_stands(panel):
    switch, made = panel()
    made.do("set_fault", fault="jam", count=0)
    with pytest.raises(RobotFault):
        switch.connect({1: 9})
    for pairs in ({1: 10}, {2: 10}):
        with pytest.raises(RobotFault, match="Severe Failure"):
            switch.connect(pairs)
    assert sum("create" in text for _, text in typed(made)) == 1


def test_a_request_that_got_stuck_is_in_the_way_of_others_for_its_ports(panel):
    switch, made = panel(jam="silent")
    made.do("set_fault", fault="jam", count=0)
    with pytest.raises(RobotFault, match="homing run"):
        switch.connect({1: 9})
    with pytest.raises(Conflict):
        switch.connect({1: 10})


@pytest.mark.parametrize("homing", ["prompt", "holds"])
@every_front
def test_a_homing_run_that_an_operator_asks_for(panel, family, front, homing):
    switch, made = panel(family=family, front=front, homing=homing)
    made.do("set_fault", fault="jam", count=0)
    with pytest.raises(RobotFault):
        switch.connect({1: 9})
    guards: list[float] = []
    switch.homing_run(guard=lambda: guards.append(made.clock.now()))
    assert len(guards) == 2
    assert guards[1] - guards[0] >= 60
    assert [text for _, text in typed(made)][-1] == "connection set command-execution enable"
    assert switch.connect({1: 9}).complete


def test_a_homing_run_that_never_ends(panel):
    switch, made = panel(homing_s="1e6", timeouts=Timeouts(homing_s=100.0))
    with pytest.raises(Timeout, match="within 100 s"):
        switch.homing_run()
    assert not any("enable" in text for _, text in typed(made))


def test_a_homing_run_that_fails():
    switch, _ = scripted({"homing run": "RECOVERY FAILED"})
    with pytest.raises(RobotFault, match="did not recover"):
        switch.homing_run()


def test_a_move_that_the_device_only_says_it_made(panel):
    switch, made = panel()
    made.do("set_fault", fault="stuck", pair=[1, 9])
    with pytest.raises(VerifyMismatch) as caught:
        switch.connect({1: 9})
    assert caught.value.missing == {1: 9}
    assert "CONNECTION OPERATION SUCCEEDED" in [event.kind for event in switch.events()]
    assert made.clock.now() < 50


def test_a_request_that_was_not_received(panel):
    switch, made = panel()
    made.do("set_fault", fault="drop_command")
    with pytest.raises(VerifyMismatch):
        switch.connect({1: 9})
    made.advance(600)
    assert made.truth() == {}


def test_a_power_cut_in_the_middle_of_a_move(panel):
    switch, made = panel()

    async def cut() -> None:
        await made.virtual.sleep(60)
        await made.twin.power_cycle(0.0)

    fault = made.loop.create_task(cut())
    with pytest.raises(OcsError) as caught:
        switch.apply(CrossConnects({1: 9, 2: 10}))
    assert fault.done()
    assert caught.value.report.pairs == {(1, 9): Status.DONE, (2, 10): Status.FAILED}
    assert made.truth() == {1: 9}


# -- the line fails

CUTS = [
    {"fault": "close_connection", "after_commands": number, "executed": executed}
    for number in range(1, 6)
    for executed in (True, False)
]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut['after_commands']}-{cut['executed']}")
def test_a_cut_line_never_makes_a_lie(panel, cut):
    """Wherever the line breaks in the sequence, what is said of each pair is so."""
    switch, made = panel()
    switch.connect({1: 9})
    armed: list[Any] = []
    try:
        report = switch.apply(
            CrossConnects({1: 10}), guard=lambda: armed or armed.append(made.do("set_fault", **cut))
        )
    except OcsError as error:
        report = error.report
    assert made.do("truth")["fired"]["close_connection"] == 1
    truth = made.truth()
    for pair, status in report.pairs.items():
        if status is Status.UNKNOWN:
            assert (cut["after_commands"], cut["executed"]) == (1, False)
        else:
            assert (status is Status.DONE) == ((pair in truth.items()) == (pair == (1, 10)))
    made.advance(3600)
    assert made.truth() == truth  # nothing moves behind our back


def test_a_move_that_was_received_is_waited_for_although_the_line_broke(panel):
    switch, made = panel()
    cut = {"fault": "close_connection", "after_commands": 1, "executed": True}
    assert switch.apply(CrossConnects({1: 9}), guard=lambda: made.do("set_fault", **cut)).complete
    assert made.clock.now() == pytest.approx(41.5, abs=2)


def test_a_move_that_was_perhaps_received_is_unknown_soon(panel):
    switch, made = panel()
    cut = {"fault": "close_connection", "after_commands": 1, "executed": False}
    with pytest.raises(
        PartialApply, match=r"The move may still happen: check the device, then read and plan again\."
    ) as caught:
        switch.apply(CrossConnects({1: 9}), guard=lambda: made.do("set_fault", **cut))
    assert caught.value.report.pairs == {(1, 9): Status.UNKNOWN}
    assert made.clock.now() < 30


def test_an_outage_of_seconds_is_survived(panel):
    switch, made = panel()

    async def outage() -> None:
        await made.virtual.sleep(10)
        made.twin.drop_clients()
        await made.twin.refuse()
        await made.virtual.sleep(7)
        made.twin.accept()

    fault = made.loop.create_task(outage())
    assert switch.connect({1: 9}).complete
    assert fault.done()


def test_a_device_that_went_away_leaves_the_outcome_open(panel):
    switch, made = panel()

    async def outage() -> None:
        await made.virtual.sleep(10)
        made.twin.drop_clients()
        await made.twin.refuse()

    fault = made.loop.create_task(outage())
    with pytest.raises(PartialApply, match="unknown: 1->9") as caught:
        switch.connect({1: 9})
    assert fault.done()
    assert made.clock.now() < 10 + switch.poll_s + 10
    assert caught.value.report.pairs == {(1, 9): Status.UNKNOWN}
    made.run(made._made(made.twin.accept))
    made.clock.sleep(90)
    assert switch.read().connections == CrossConnects({1: 9})


@every_front
@pytest.mark.parametrize("fault", ["noise", "truncate_table", "break_table", "garbage", "expire_session"])
def test_a_read_that_goes_wrong_is_read_again(panel, family, front, fault):
    switch, made = panel(family=family, front=front)
    made.do("operator", connect=[[1, 16], [2, 9]])
    made.do("set_fault", fault=fault)
    assert switch.read().connections == CrossConnects({1: 16, 2: 9})
    assert switch.read().pending == ()
    assert made.do("truth")["fired"][fault] == 1


def test_a_table_that_is_always_cut_is_an_error(panel):
    switch, made = panel()
    made.do("set_fault", fault="truncate_table", count=50)
    with pytest.raises(ProtocolDesync):
        switch.read()


def test_a_table_that_is_cut_while_it_is_opened_is_read_again(world):
    made = world("rome")
    made.do("set_fault", fault="truncate_table", count=2)
    switch = RomeCli(ADDRESS, made.transport("cli"), timeout_s=5, clock=made.clock)
    switch.open()
    assert switch.capabilities.inputs == 8
    switch.close()


def test_a_device_that_has_fallen_silent(panel):
    switch, made = panel()
    made.do("set_fault", fault="half_open")
    with pytest.raises(Timeout):
        switch.read()
    made.do("clear_fault", fault="half_open")
    assert switch.read().connections == CrossConnects()


def test_an_idle_connection_is_replaced_before_a_write(panel):
    switch, made = panel(idle_s="200")
    made.advance(1000)
    assert switch.connect({1: 9}).complete


def test_a_wrong_password_is_refused_over_telnet(world):
    made = world("rome")
    login = Login(Credentials("admin", "guess"))
    switch = RomeCli(
        "rome+telnet://memory",
        TelnetTransport(made.transport("telnet")),
        timeout_s=5,
        clock=made.clock,
        login=login,
    )
    with pytest.raises(LoginFailed):
        switch.open()


def test_an_afm_is_not_taken_for_a_rome(world):
    made = world("afm")
    switch = RomeCli(ADDRESS, made.transport("cli"), timeout_s=5, clock=made.clock)
    with pytest.raises(ProtocolDesync, match="afm"):
        switch.open()


def test_a_device_that_accepts_nobody(panel):
    switch, made = panel()
    made.do("set_fault", fault="refuse")
    made.twin.drop_clients()
    with pytest.raises(ConnectError):
        switch.connect({1: 9})
