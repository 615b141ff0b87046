"""The Telescent driver: what it says and understands, robot minutes on a virtual clock, and faults over real SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import needs

from ocs_drivers import CrossConnects, OcsError, Status, open_switch
from ocs_drivers.address import parse_address
from ocs_drivers.errors import (
    AddressError,
    Conflict,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    PartialApply,
    PortBusy,
    PortFailed,
    PortLocked,
    ProtocolDesync,
    RobotFault,
    Timeout,
    VerifyMismatch,
)
from ocs_drivers.model import PendingMove, PortState, Side
from ocs_drivers.testing import SwitchContract
from ocs_drivers.vendors.telescent import (
    CommandSet,
    Options,
    TelescentCli,
    cli_switch,
    read_commands,
    read_options,
)
from ocs_drivers.vendors.telescent.codec import Cell, check_accepted, decode_cells, decode_input

ADDRESS = "telescent+cli://memory"
COMMANDS = CommandSet()
PROMPT = b"\x1b[1;34mquali@ntm>\x1b[0m "

# -- what is said (published sequences)


def test_published_sequence_of_a_connection():
    assert [command for command, _ in COMMANDS.make_connect_commands(123, 321)] == [
        "unlock --force -in 123",
        "unlock --force -out 321",
        "connect --force -in 123 -out 321",
    ]


def test_published_sequence_of_a_disconnection():
    assert [command for command, _ in COMMANDS.make_disconnect_commands(123, 321)] == [
        "unlock --force 123",
        "unlock --force 321",
        "unallocate --force -in 123",
        "unallocate --force -out 321",
    ]


# -- what is understood


def row(number: int, *cells: str) -> str:
    return f"R{number}#a  " + "   ".join(cells)


FREE = [f"U{number}" for number in range(24)]


def test_published_row_gives_outputs_by_row_times_twelve():
    cells = decode_cells([row(0, *FREE[:12]), row(1, "A7", *FREE[13:])], COMMANDS)
    assert [number for number, cell in enumerate(cells) if cell.is_allocated] == [12]
    assert cells[12] == Cell("A", 7)
    assert sum(cell.is_free for cell in cells) == 23


def test_heading_and_log_lines_are_no_rows():
    lines = ["        C1 C2 C12", row(0, *FREE[:12]), "%% LOG: door is open", row(1, *FREE[12:])]
    assert len(decode_cells(lines, COMMANDS)) == 24


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["nothing of the kind"],
        [row(1, *FREE[:12])],
        [row(0, *FREE[:12]), row(2, *FREE[:12])],
        [row(0, *FREE[:12]), row(0, *FREE[:12])],
        [row(0, *FREE[:5]), row(1, *FREE[:12])],
        [row(0, *FREE[:13])],
        [row(0, *FREE[:11], "12:30 LOG")],
        [row(0)],
    ],
    ids=["nothing", "no rows", "no first", "gap", "twice", "short", "long", "log within", "empty"],
)
def test_a_table_that_is_not_whole_is_no_table(lines):
    with pytest.raises(ProtocolDesync):
        decode_cells(lines, COMMANDS)


def test_published_state_of_an_input():
    locked = decode_input(["INPUT 123", "STATE = ALLOCATED_AND_LOCKED", "OUTPUT = 321 "], COMMANDS)
    assert (locked.is_allocated, locked.is_reserved, locked.output) == (True, False, 321)
    free = decode_input(["STATE = UNALLOCATED_AND_UNLOCKED"], COMMANDS)
    assert (free.is_allocated, free.is_reserved, free.output) == (False, False, None)
    assert decode_input(["STATE = UNALLOCATED_AND_LOCKED"], COMMANDS).is_reserved


@pytest.mark.parametrize("lines", [[], ["STATE = "], ["STATE = ASLEEP"], ["STATE = ALLOCATED_AND_LOCKED"]])
def test_an_input_whose_state_is_not_reported(lines):
    with pytest.raises(ProtocolDesync):
        decode_input(lines, COMMANDS)


@pytest.mark.parametrize(
    ("lines", "error", "what"),
    [
        (["==== ERROR ====", "port 9 is locked", "===="], DeviceError, "port 9 is locked"),
        (["java.lang.Exception: no such port"], DeviceError, "java.lang.Exception: no such port"),
        (["ERROR"], DeviceError, "ERROR"),
        (["==== ERROR ====", "===="], DeviceError, "the device says ERROR and no more"),
        (["==== ERROR ====", "Robot stopped: homing required", "===="], RobotFault, "Robot stopped"),
    ],
)
def test_refusals(lines, error, what):
    with pytest.raises(error, match=what):
        check_accepted(lines, COMMANDS)


def test_anything_else_is_no_refusal():
    assert check_accepted(["OK", "==", "no errors"], COMMANDS) is None


letters = st.sampled_from(["A", "AL", "AU", "U", "UL", "UU", "C", "D", "F"])
noise = st.sampled_from(["", "%% LOG: fan", "08-05-2019 robot parked", "R", "  C1  C12"])


@given(st.lists(st.tuples(letters, st.integers(0, 1055)), min_size=1, max_size=60), st.data())
def test_a_table_is_read_as_printed_and_a_part_of_it_never_as_more(table, data):
    rows = [table[first : first + 12] for first in range(0, len(table), 12)]
    lines = [row(number, *(f"{s}{n}" for s, n in cells)) for number, cells in enumerate(rows)]
    mixed = [line for each in lines for line in (data.draw(noise), each)]
    expected = tuple(Cell(status, number) for status, number in table)
    assert decode_cells(mixed, COMMANDS) == expected
    text = "\n".join(lines)
    cut = text[: data.draw(st.integers(0, text.rindex(" ")))]
    try:
        part = decode_cells(cut.splitlines(), COMMANDS)
    except ProtocolDesync:
        part = ()
    assert len(part) < len(expected)


@given(st.lists(st.text(max_size=40), max_size=6))
def test_any_lines_give_a_reading_or_an_error_of_ours(lines):
    for decode in (decode_cells, decode_input):
        try:
            decode(lines, COMMANDS)
        except OcsError:
            continue


# -- addresses


def test_everything_can_be_set_in_an_address():
    address = parse_address(
        "telescent+cli://h:22?table=show+all&prompt=NTM%23&force=1&move_s=45&longest_s=600&poll_s=2&idle_s=60"
    )
    assert read_commands(address) == CommandSet(table="show all", prompt="NTM#")
    assert read_options(address) == Options((45.0, 600.0), poll_s=2.0, idle_limit_s=60.0, allow_locked=True)


def test_what_is_not_set_is_as_published():
    pytest.importorskip("asyncssh")
    address = parse_address("telescent+cli://h")
    assert (read_commands(address), read_options(address)) == (CommandSet(), Options())
    assert cli_switch(address).address == "telescent+cli://h:9871"
    assert (Options().poll_s, Options().idle_limit_s, Options().move_time_s[1]) == (5.0, 180.0, 1800.0)


@pytest.mark.parametrize(
    "option",
    ["colour=1", "force=yes", "poll_s=soon", "poll_s=0", "move_s=-1", "idle_s=nan", "prompt=(", "making="],
)
def test_options_without_sense(option):
    with pytest.raises(AddressError, match=option.partition("=")[0].replace("prompt", "regular expression")):
        cli_switch(parse_address(f"telescent+cli://h?{option}"))


# -- against a script


class Script:
    """A transport whose device answers from a mapping; an unknown command is an error of the test."""

    def __init__(self, answers: Mapping[str, str | Callable[[], str]]) -> None:
        self.answers = answers
        self.typed: list[str] = []
        self.is_open = False
        self._waiting = b""

    def open(self, timeout_s: float) -> None:
        self.is_open = True
        self._waiting = b"Welcome\r\n" + PROMPT

    def close(self) -> None:
        self.is_open = False

    def has_input(self) -> bool:
        return bool(self._waiting)

    def send(self, data: bytes, deadline: Any) -> None:
        command = data.decode().rstrip("\r")
        self.typed.append(command)
        answer = self.answers[command]
        text = answer if isinstance(answer, str) else answer()
        self._waiting += f"{command}\r\n{text}\r\n".encode() + PROMPT

    def receive(self, deadline: Any) -> bytes:
        data, self._waiting = self._waiting, b""
        assert data, "the driver waits for what never comes"
        return data


def two_rows(*first: str) -> str:
    return "\r\n".join([row(0, *first, *FREE[len(first) : 12]), row(1, *FREE[12:])])


NO_PORT_24 = {"switchstate input 24": "==== ERROR ====\r\nno port 24\r\n===="}


def scripted(answers: Mapping[str, str | Callable[[], str]], **more: Any) -> tuple[TelescentCli, Script]:
    script = Script({**NO_PORT_24, **answers})
    switch = TelescentCli(ADDRESS, script, timeout_s=5, **more)
    switch.open()
    return switch, script


def test_size_comes_from_the_table():
    switch, script = scripted({"switchstate": two_rows("AL3")})
    capabilities = switch.capabilities
    assert (capabilities.inputs, capabilities.outputs) == (24, 24)
    assert capabilities.serial_robot
    assert not capabilities.bulk_add
    assert capabilities.session_timeout_s == 180
    assert switch.read().connections == CrossConnects({4: 25})
    assert script.typed == ["switchstate", "switchstate input 24", "switchstate"]


def test_a_table_that_ends_before_the_ports_do_is_refused_at_once():
    with pytest.raises(ProtocolDesync, match="ends before port 24"):
        scripted({"switchstate": two_rows(), "switchstate input 24": "STATE = UNALLOCATED_AND_LOCKED"})


def test_every_write_is_guarded_and_the_order_is_as_published():
    moved: list[str] = []
    switch, script = scripted(
        {
            "switchstate": lambda: two_rows("AL1") if moved else two_rows(),
            "switchstate input 1": "STATE = UNALLOCATED_AND_UNLOCKED",
            "unlock --force -in 1": "",
            "unlock --force -out 0": "",
            "connect --force -in 1 -out 0": lambda: moved.append("it") or "",
        }
    )
    guards: list[str] = []
    switch.apply(CrossConnects({2: 25}), guard=lambda: guards.append(script.typed[-1]))
    assert guards == ["switchstate input 1", "unlock --force -in 1", "unlock --force -out 0"]
    assert script.typed[-2:] == ["connect --force -in 1 -out 0", "switchstate"]


def test_a_refusal_of_the_second_half_does_not_hide_that_the_first_has_begun():
    shown = [two_rows("AL1")]
    switch, _ = scripted(
        {
            "switchstate": lambda: shown[0],
            "switchstate input 1": "STATE = ALLOCATED_AND_LOCKED\r\nOUTPUT = 0 ",
            "unlock --force 1": "",
            "unlock --force 0": "",
            "unallocate --force -in 1": lambda: shown.__setitem__(0, two_rows()) or "",
            "unallocate --force -out 0": "==== ERROR ====\r\nnot allocated\r\n====",
        }
    )
    report = switch.disconnect([2])
    assert report.pairs == {(2, 25): Status.DONE}
    assert report.outcomes[0].error is None


def test_no_guard_is_asked_between_the_halves_of_one_write(frame):
    switch, made = frame()
    switch.connect({1: 26})
    guards: list[int] = []
    switch.apply(CrossConnects(), guard=lambda: guards.append(1))
    assert len(guards) == 3
    assert made.truth() == {}


def test_other_commands():
    commands = CommandSet(table="show", input_state="show in", prompt=r"quali@ntm>")
    switch, script = scripted({"show": two_rows("A0"), "show in 24": "ERROR"}, commands=commands)
    assert switch.read().connections == CrossConnects({1: 25})
    assert set(script.typed) == {"show", "show in 24"}


def test_letters_that_are_not_known_make_a_port_unfit():
    switch, _ = scripted({"switchstate": two_rows("X0", "UL1")})
    seen = switch.read()
    assert seen.unfit == {25: PortState.FAILED, 26: PortState.LOCKED}
    with pytest.raises(PortFailed):
        switch.plan(CrossConnects({1: 25}), seen)
    with pytest.raises(PortLocked):
        switch.plan(CrossConnects({1: 26}), seen)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [("A3", "A3"), ("A24",)], ids=["one input twice", "no such input"])
def test_a_table_that_cannot_be_right(cells):
    shown = [two_rows()]
    switch, _ = scripted({"switchstate": lambda: shown[0]})
    shown[0] = two_rows(*cells)
    with pytest.raises(ProtocolDesync, match="the table is inconsistent"):
        switch.read()


# -- robot minutes on a virtual clock


@pytest.fixture
def frame(world) -> Iterator[Callable[..., tuple[TelescentCli, Any]]]:
    """Make open switches of 24 ports with their world; `driver_options` and the twin's options by keyword."""
    opened: list[TelescentCli] = []

    def make(
        *, driver_options: Options | None = None, size: int = 24, **options: str
    ) -> tuple[TelescentCli, Any]:
        made = world("telescent", size=(size, size), **options)
        switch = TelescentCli(
            ADDRESS, made.transport("cli"), timeout_s=5, clock=made.clock, options=driver_options
        )
        switch.open()
        opened.append(switch)
        return switch, made

    yield make
    for switch in opened:
        switch.close()


def typed(made: Any) -> list[tuple[float, str]]:
    """Return when which command was typed."""
    entries = made.do("transcript")["entries"]
    return [(entry["seconds"], entry["data"].strip()) for entry in entries if entry["direction"] == "in"]


@pytest.mark.slow
def test_24_circuits_take_24_robot_minutes(frame):
    switch, made = frame()
    wanted = CrossConnects({number: 25 + number * 5 % 24 for number in range(1, 25)})
    report = switch.apply(wanted)
    assert report.complete
    assert made.truth() == dict(wanted)
    assert made.clock.now() == 24 * 60
    assert [outcome.device_s for outcome in report.outcomes] == [60.0] * 24
    assert sum(step.estimated_s for step in report.steps) == 24 * 60


def test_a_move_is_a_removal_and_an_addition(frame):
    switch, made = frame()
    switch.connect({1: 25, 2: 26})
    report = switch.apply(CrossConnects({1: 26, 2: 25}))
    assert [step.kind for step in report.steps] == ["remove", "remove", "add", "add"]
    assert made.truth() == {1: 26, 2: 25}
    assert made.clock.now() == 6 * 60


def test_the_table_is_looked_at_every_five_seconds(frame):
    switch, made = frame()
    switch.connect({1: 25})
    looks = [moment for moment, text in typed(made) if text == "switchstate"][-13:]
    assert looks == [5.0 * n for n in range(13)]


def test_neighbours_stay_lit_and_loopback_is_allowed(frame):
    switch, made = frame()
    switch.connect({1: 25, 2: 26})
    lit: list[Any] = []
    switch.apply(CrossConnects({3: 27}), scope={3}, guard=lambda: lit.append(made.do("truth")["lit"]))
    assert lit == [[[1, 25], [2, 26]]] * 3
    assert made.do("truth")["wear"]["1"] == 1


def test_an_idle_connection_is_replaced_before_a_write(frame):
    switch, made = frame()
    made.advance(1000)
    report = switch.apply(CrossConnects({1: 25}))
    assert report.complete
    made.advance(179.5)
    assert switch.disconnect([1]).complete


def test_a_read_of_a_connection_that_died(frame):
    switch, made = frame()
    made.do("operator", connect=[[3, 30]])
    made.advance(181)
    assert switch.read().connections == CrossConnects({3: 30})


def test_names_are_the_devices_own_numbers(frame):
    switch, _ = frame()
    ports = switch.ports()
    assert (ports[1].name, ports[24].name, ports[25].name, ports[48].name) == ("0", "23", "0", "23")
    assert (ports[24].side, ports[25].side) == (Side.IN, Side.OUT)


# -- locks


def test_a_port_that_somebody_reserved_is_refused(frame):
    switch, made = frame()
    made.do("set_fault", fault="lock_port", port=25)
    made.do("set_fault", fault="lock_port", port=2)
    with pytest.raises(PortLocked) as output:
        switch.apply(CrossConnects({1: 25}))
    with pytest.raises(PortLocked) as source:
        switch.apply(CrossConnects({2: 26}))
    assert (output.value.ports, source.value.ports) == ((25,), (2,))
    assert not any(text.startswith(("unlock", "connect")) for _, text in typed(made))
    ports = switch.ports()
    assert {port for port, info in ports.items() if info.state is PortState.LOCKED} == {2, 25}


def test_force_uses_what_somebody_reserved(frame):
    switch, made = frame(driver_options=Options(allow_locked=True))
    made.do("set_fault", fault="lock_port", port=25)
    made.do("set_fault", fault="lock_port", port=2)
    assert switch.apply(CrossConnects({2: 25})).complete
    assert made.truth() == {2: 25}


def test_the_lock_of_a_circuit_is_nobodys_reservation(frame):
    switch, _ = frame()
    switch.connect({1: 25})
    assert switch.read().unfit == {}
    assert switch.disconnect([1]).complete


def test_taking_one_circuit_down_leaves_the_others_of_its_ports(frame):
    switch, made = frame()
    switch.connect({1: 26, 2: 25})  # ports 0 and 1, both ways
    switch.disconnect([1])
    assert made.truth() == {2: 25}
    assert switch.disconnect([2]).complete


# -- other people


def test_the_moves_of_somebody_else_are_waited_for(frame):
    switch, made = frame()
    for number in (10, 11, 12):
        made.do("queue_job", kind="connect", pair=[number, 24 + number], user="gui")
    report = switch.connect({1: 25})
    assert report.complete
    assert made.clock.now() == 240


def test_the_queue_is_reported_where_the_device_reports_it(frame):
    switch, made = frame(motion="shown", driver_options=Options((60.0, 100.0)))
    made.do("operator", connect=[[3, 27]])
    for number in (10, 11, 12):
        made.do("queue_job", kind="connect", pair=[number, 24 + number], user="gui")
    made.do("queue_job", kind="disconnect", pair=[3, 27], user="gui")
    seen = switch.read()
    assert seen.pending == (
        *(PendingMove("connect", (n, 24 + n)) for n in (10, 11, 12)),
        PendingMove("disconnect", (3, 27)),
    )
    assert seen.connections == CrossConnects({3: 27})  # not yet gone
    assert switch.connect({1: 25}).complete  # after 300 s, for each move of others adds to its time
    assert made.clock.now() == 300


def test_a_change_of_somebody_else_is_a_conflict_before_anything_is_sent(frame):
    switch, made = frame()
    (step,) = switch.plan(CrossConnects({1: 25}), switch.read())
    made.do("operator", connect=[[1, 30]])
    with pytest.raises(Conflict) as caught:
        switch.execute(step)
    assert caught.value.actual == {1: 30}
    assert not any(text.startswith("unlock") for _, text in typed(made))


def test_a_change_during_the_minutes_of_an_apply_stops_it(frame):
    switch, made = frame()
    calls: list[int] = []

    def guard() -> None:
        calls.append(1)
        if len(calls) == 1:
            made.do("operator", connect=[[2, 40]])

    with pytest.raises(Conflict) as caught:
        switch.apply(CrossConnects({1: 25, 2: 26}), guard=guard)
    done, failed = Status.DONE, Status.FAILED
    assert caught.value.report.pairs == {(1, 25): done, (2, 26): failed, (2, 40): failed}
    assert made.truth() == {1: 25, 2: 40}


def test_a_busy_output_outside_the_scope(frame):
    switch, made = frame()
    made.do("operator", connect=[[5, 25]])
    with pytest.raises(PortBusy):
        switch.connect({1: 25})


class Refusal(Exception):
    pass


def test_a_guard_that_changes_its_mind_stops_before_the_robot_is_commanded(frame):
    switch, made = frame()
    asked: list[int] = []

    def guard() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise Refusal

    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects({1: 25}), guard=guard)
    assert isinstance(caught.value.__cause__.__cause__, Refusal)
    assert caught.value.report.pairs == {(1, 25): Status.FAILED}
    made.advance(600)
    assert made.truth() == {}


# -- the robot fails


@pytest.mark.long
@pytest.mark.parametrize("motion", ["hidden", "shown"])
def test_a_jammed_robot_is_a_fault_and_is_never_homed(frame, motion):
    switch, made = frame(motion=motion)
    made.do("set_fault", fault="jam", count=1)
    with pytest.raises(PartialApply) as caught:
        switch.apply(CrossConnects({1: 25, 2: 26, 3: 27}))
    report = caught.value.report
    assert report.pairs == {(1, 25): Status.DONE, (2, 26): Status.FAILED, (3, 27): Status.FAILED}
    assert isinstance(report.outcomes[-1].error, RobotFault)
    assert made.truth() == {1: 25}
    assert not any("hom" in text for _, text in typed(made))
    with pytest.raises(RobotFault, match="homing required"):
        switch.connect({3: 27})


def test_a_robot_that_is_slower_than_any_is_stuck(frame):
    switch, made = frame(driver_options=Options((60.0, 300.0)))
    made.do("set_fault", fault="jam")
    with pytest.raises(RobotFault, match="within 300 s") as caught:
        switch.connect({1: 25})
    assert made.clock.now() == 300
    assert caught.value.report.pairs == {(1, 25): Status.FAILED}


def test_a_move_that_the_device_gave_up_is_not_waited_for(frame):
    switch, made = frame(motion="shown")
    made.do("set_fault", fault="stuck", pair=[1, 25])
    with pytest.raises(VerifyMismatch) as caught:
        switch.connect({1: 25})
    assert caught.value.missing == {1: 25}
    assert made.clock.now() == 60


def test_a_refusal_names_the_ports(frame):
    switch, made = frame()
    made.do("set_fault", fault="fail_port", port=1)
    with pytest.raises(DeviceError) as caught:
        switch.connect({1: 25})
    assert caught.value.ports == (1, 25)
    assert "FAILED" in caught.value.problem


def test_a_failed_output_is_refused_before_anything_is_sent(frame):
    switch, made = frame()
    made.do("set_fault", fault="fail_port", port=25)
    with pytest.raises(PortFailed):
        switch.connect({1: 25})


def test_the_lock_that_a_half_received_sequence_leaves_does_no_harm(frame):
    """`unlock` was dropped: the device refuses, nothing moves, and the next attempt succeeds."""
    switch, made = frame()
    switch.connect({1: 26})
    made.do("set_fault", fault="drop_command")
    with pytest.raises(DeviceError, match="not unlocked"):
        switch.disconnect([1])
    assert made.truth() == {1: 26}
    assert switch.disconnect([1]).complete


# -- the line fails

CUTS = [
    {"fault": "close_connection", "after_commands": number, "executed": executed}
    for number in range(1, 8)
    for executed in (True, False)
]


@pytest.mark.long
@pytest.mark.parametrize("motion", ["hidden", "shown"])
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut['after_commands']}-{cut['executed']}")
def test_a_cut_line_never_makes_a_lie(frame, cut, motion):
    """Wherever the line breaks in the sequence, what is said of each pair is so."""
    switch, made = frame(motion=motion)
    switch.connect({1: 25})
    armed: list[Any] = []

    def guard() -> None:
        if not armed:
            armed.append(made.do("set_fault", **cut))

    try:
        report = switch.apply(CrossConnects({1: 26}), guard=guard)
    except OcsError as error:
        report = error.report
    assert made.do("truth")["fired"]["close_connection"] == 1
    truth = made.truth()
    for pair, status in report.pairs.items():
        if status is Status.UNKNOWN:
            assert not cut["executed"]
        else:
            assert (status is Status.DONE) == ((pair in truth.items()) == (pair == (1, 26)))
    made.advance(3600)
    assert made.truth() == truth  # nothing moves behind our back


def test_a_move_that_was_received_is_waited_for_although_the_line_broke(frame):
    switch, made = frame()
    armed: list[Any] = []
    cut = {"fault": "close_connection", "after_commands": 3, "executed": True}
    report = switch.apply(
        CrossConnects({1: 25}), guard=lambda: armed or armed.append(made.do("set_fault", **cut))
    )
    assert report.complete
    assert made.clock.now() == pytest.approx(60, abs=5)


def test_a_move_that_was_perhaps_received_is_unknown(frame):
    switch, made = frame()
    armed: list[Any] = []
    cut = {"fault": "close_connection", "after_commands": 3, "executed": False}
    with pytest.raises(PartialApply, match="may still happen") as caught:
        switch.apply(CrossConnects({1: 25}), guard=lambda: armed or armed.append(made.do("set_fault", **cut)))
    assert caught.value.report.pairs == {(1, 25): Status.UNKNOWN}
    assert made.clock.now() < 180
    assert made.truth() == {}


def test_an_outage_of_seconds_is_survived(frame):
    switch, made = frame()

    async def outage() -> None:
        await made.virtual.sleep(20)
        made.twin.drop_clients()
        await made.twin.refuse()
        await made.virtual.sleep(3)
        made.twin.accept()

    fault = made.loop.create_task(outage())
    assert switch.apply(CrossConnects({1: 25})).complete
    assert fault.done()


def test_a_device_that_went_away_leaves_the_outcome_open(frame):
    switch, made = frame()

    async def outage() -> None:
        await made.virtual.sleep(20)
        made.twin.drop_clients()
        await made.twin.refuse()

    fault = made.loop.create_task(outage())
    with pytest.raises(PartialApply, match="unknown: 1->25") as caught:
        switch.apply(CrossConnects({1: 25}))
    assert fault.done()
    assert made.clock.now() < 20 + switch.poll_s + 10
    assert caught.value.report.pairs == {(1, 25): Status.UNKNOWN}
    made.run(made._made(made.twin.accept))
    made.clock.sleep(90)
    assert switch.read().connections == CrossConnects({1: 25})


def test_a_twin_says_in_its_banner_that_it_is_one(frame):
    switch, _ = frame()
    assert switch.identity().serial == "SIMULATED"


@pytest.mark.parametrize("fault", ["noise", "truncate_table", "garbage", "expire_session"])
def test_a_read_that_goes_wrong_is_read_again(frame, fault):
    switch, made = frame()
    made.do("operator", connect=[[1, 48], [2, 25]])
    made.do("set_fault", fault=fault)
    assert switch.read().connections == CrossConnects({1: 48, 2: 25})
    assert made.do("truth")["fired"][fault] == 1


def test_a_device_that_has_fallen_silent(frame):
    switch, made = frame()
    made.do("set_fault", fault="half_open")
    with pytest.raises(Timeout):
        switch.read()
    made.do("clear_fault", fault="half_open")
    assert switch.read().connections == CrossConnects()


def test_a_table_that_is_always_cut_is_an_error(frame):
    switch, made = frame()
    made.do("set_fault", fault="truncate_table", count=50)
    with pytest.raises(ProtocolDesync):
        switch.read()


def test_a_power_cut_in_the_middle_of_a_move(frame):
    switch, made = frame(motion="shown")

    async def cut() -> None:
        await made.virtual.sleep(30)
        await made.twin.power_cycle(0.0)

    switch.connect({1: 25})
    fault = made.loop.create_task(cut())
    with pytest.raises(OcsError) as caught:
        switch.connect({2: 26})
    assert fault.done()
    assert caught.value.report.pairs == {(2, 26): Status.FAILED}
    assert made.truth() == {1: 25}


def test_closed_is_closed(frame):
    switch, _ = frame()
    switch.close()
    with pytest.raises(ConnectionLost):
        switch.read()


def test_a_large_frame(frame):
    switch, made = frame(size=1008, idle_s="1e6")
    made.do("operator", connect=[[1, 2016], [1008, 1009]])
    assert switch.capabilities.outputs == 1008
    assert switch.read().connections == CrossConnects({1: 2016, 1008: 1009})


# -- over SSH, with the robot's minutes shortened


FAST = "poll_s=0.01&move_s=0.06&longest_s=0.8&idle_s=60"


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    pytest.importorskip("asyncssh")
    return shared_twin("telescent", "--size=6x6", "--speed=6000", "--option=idle_s=1e9")


@pytest.fixture
@needs("socket")
def switch(twin) -> Iterator[TelescentCli]:
    with open_switch(f"{twin.urls['cli']}?{FAST}") as switch:
        yield switch


class TestContract(SwitchContract):
    """The contract over a real SSH connection to a twin in its own process."""


def test_two_sessions_of_one_process(twin, switch):
    with open_switch(f"{twin.urls['cli']}?{FAST}") as other:
        switch.connect({1: 7})
        assert other.read().connections == CrossConnects({1: 7})
        other.disconnect([1])
        assert switch.read().connections == CrossConnects()


def test_a_wrong_password_is_refused(twin):
    with pytest.raises(LoginFailed):
        open_switch(twin.urls["cli"], credentials=("admin", "guess"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [
        ({"fault": "jam", "count": 0}, RobotFault, Status.FAILED),
        ({"fault": "stuck", "pair": [1, 7]}, RobotFault, Status.FAILED),
        ({"fault": "fail_port", "port": 1}, DeviceError, Status.FAILED),
        ({"fault": "close_connection", "after_commands": 1}, PartialApply, Status.FAILED),
        ({"fault": "close_connection", "after_commands": 3}, None, Status.DONE),
        ({"fault": "close_connection", "after_commands": 3, "executed": False}, PartialApply, Status.UNKNOWN),
        ({"fault": "close_connection", "after_bytes": 9}, PartialApply, Status.FAILED),
        ({"fault": "drop_command"}, RobotFault, Status.FAILED),
        ({"fault": "noise"}, None, Status.DONE),
        ({"fault": "truncate_table"}, None, Status.DONE),
    ],
    ids=lambda value: "-".join(str(part) for part in value.values()) if isinstance(value, dict) else "",
)
def test_faults_over_ssh(twin, switch, fault, error, status):
    armed: list[Any] = []
    guard = lambda: armed or armed.append(twin.do("set_fault", **fault))
    caught = None
    try:
        report = switch.apply(CrossConnects({1: 7}), guard=guard)
    except OcsError as failure:
        caught, report = failure, failure.report
    assert (type(caught) if caught else None) is error
    assert report.pairs == {(1, 7): status}
    assert (twin.truth() == {1: 7}) == (status is Status.DONE)


def test_a_session_that_the_device_ends_over_ssh(twin, switch):
    """The driver may see the end before or after it has sent the first command."""
    armed: list[Any] = []
    guard = lambda: armed or armed.append(twin.do("set_fault", fault="expire_session"))
    try:
        report = switch.apply(CrossConnects({1: 7}), guard=guard)
    except PartialApply as failure:
        report = failure.report
    assert report.pairs == {(1, 7): Status.DONE if twin.truth() else Status.FAILED}
    assert switch.apply(CrossConnects({1: 7})).complete


@pytest.mark.long
@pytest.mark.parametrize("idle_s", [0.1, 60], ids=["known to the driver", "a surprise"])
def test_an_idle_session_dies_over_ssh_and_nobody_notices(start_twin, idle_s):
    pytest.importorskip("asyncssh")
    # At this speed a session dies after 0.9 s: no pause of a busy machine lasts that long.
    twin = start_twin("telescent", "--size=6x6", "--speed=200")
    address = f"{twin.urls['cli']}?poll_s=0.01&move_s=0.3&longest_s=20&idle_s={idle_s}"
    with open_switch(address) as switch:
        opened_s = twin.do("truth")["now_s"]
        while twin.do("truth")["now_s"] < opened_s + 200:  # of its seconds; the session dies after 180
            pass
        assert switch.connect({1: 7}).complete
    sessions = {entry["session"] for entry in twin.do("transcript")["entries"]}
    assert len(sessions) >= 2
