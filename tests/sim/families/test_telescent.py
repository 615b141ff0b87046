"""The simulated Telescent, typed at by hand: what is published of it, its one arm, and its faults."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.models.clock import VirtualClock
from sim.twins.families import make_twin
from sim.twins.plant import Plant
from sim.twins.switch.settings import SettingError, TwinSettings

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PROMPT = re.compile(r"[0-9a-zA-Z@]+>")  # published
ROW = re.compile(r"R(\d+)#[a-zA-Z]((?:\s+[a-zA-Z]+\d+){12})")  # published
CELL = re.compile(r"([a-zA-Z]+)(\d+)")


class Typist:
    """Somebody at the command line, in memory."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.client = world.attach("cli")
        world.settle()
        self.raw = ""
        self.greeting = self._screen()

    def _screen(self) -> list[str]:
        self.raw = self.client.receive().decode()
        return COLOURS.sub("", self.raw).split("\r\n")

    def ask(self, command: str) -> list[str]:
        """Return what is printed between the command as it is repeated and the next prompt."""
        self.client.send(command.encode() + b"\r")
        self.world.settle()
        echo, *lines, prompt = self._screen()
        assert echo == command
        assert PROMPT.fullmatch(prompt.rstrip())
        return lines

    def table(self) -> dict[int, tuple[str, int]]:
        """Output -> letters and number, counted as published: row * 12 + column."""
        cells: dict[int, tuple[str, int]] = {}
        for line in self.ask("switchstate"):
            if match := ROW.fullmatch(line.rstrip()):
                for column, (letters, number) in enumerate(CELL.findall(match[2])):
                    cells[int(match[1]) * 12 + column] = letters, int(number)
        return cells

    def circuits(self) -> dict[int, int]:
        """Input -> output, of the outputs that are allocated."""
        return {number: output for output, (letters, number) in self.table().items() if letters[0] == "A"}

    def connect(self, source: int, output: int) -> list[str]:
        """Return the published sequence for one direction."""
        self.ask(f"unlock --force -in {source}")
        self.ask(f"unlock --force -out {output}")
        return self.ask(f"connect --force -in {source} -out {output}")

    def disconnect(self, source: int, output: int) -> list[str]:
        """Return the published sequence: both directions of both ports are unlocked."""
        for port in (source, output):
            self.ask(f"unlock --force {port}")
        return [
            *self.ask(f"unallocate --force -in {source}"),
            *self.ask(f"unallocate --force -out {output}"),
        ]


@pytest.fixture
def frame(world) -> Callable[..., Any]:
    """Make frames with 24 ports in memory, which have patience with idle sessions unless told otherwise."""
    return lambda **options: world("telescent", size=(24, 24), **{"idle_s": "1e6", **options})


@pytest.fixture
def typist(frame) -> Typist:
    return Typist(frame())


# -- what is published


def test_prompt_is_as_published(typist):
    assert PROMPT.fullmatch(typist.greeting[-1].rstrip())


def test_prompt_and_table_are_coloured_unless_told_otherwise(typist, frame):
    typist.ask("switchstate")
    assert len(COLOURS.findall(typist.raw)) > 24
    plain = Typist(frame(colour="no"))
    plain.ask("switchstate")
    assert "\x1b" not in plain.raw


def test_table_has_rows_of_twelve_and_a_label_c12(typist):
    heading, *rows = typist.ask("switchstate")
    assert heading.split()[-1] == "C12"
    assert [ROW.fullmatch(row.rstrip())[1] for row in rows] == ["0", "1"]
    assert {letters[0] for letters, _ in typist.table().values()} == {"U"}
    assert set(typist.table()) == set(range(24))


def test_a_connected_input_is_allocated_and_locked(typist):
    typist.connect(12, 3)
    typist.world.advance(60)
    lines = typist.ask("switchstate input 12")
    assert "STATE = ALLOCATED_AND_LOCKED" in lines
    assert "OUTPUT = 3 " in lines
    assert typist.table()[3] == ("AL", 12)


def test_a_free_input_is_unallocated(typist):
    (state,) = [line for line in typist.ask("switchstate input 23") if line.startswith("STATE")]
    assert state.startswith("STATE = UNALLOCATED_AND_")


def test_input_and_output_of_a_port_go_their_own_ways(typist):
    for source, output in ((5, 7), (9, 5), (11, 11)):
        typist.connect(source, output)
    typist.world.advance(180)
    assert typist.circuits() == {5: 7, 9: 5, 11: 11}
    assert typist.world.truth() == {6: 32, 10: 30, 12: 36}


def test_duplex_connects_both_ways_one_after_the_other(typist):
    for command in ("unlock --force 1", "unlock --force 2", "connect --force 1 2"):
        assert typist.ask(command) == ["OK"]
    typist.world.advance(119)
    assert typist.circuits() == {1: 2}
    typist.world.advance(1)
    assert typist.circuits() == {1: 2, 2: 1}


def test_duplex_disconnect(typist):
    typist.connect(1, 2)
    typist.connect(2, 1)
    typist.world.advance(120)
    for command in ("unlock --force 1", "unlock --force 2", "unallocate --force 1", "unallocate --force 2"):
        assert typist.ask(command) == ["OK"]
    typist.world.advance(120)
    assert typist.world.truth() == {}


def test_a_command_returns_before_the_arm_has_moved(typist):
    assert typist.connect(0, 0) == ["OK"]
    typist.world.advance(59.9)
    assert typist.circuits() == {}
    typist.world.advance(0.1)
    assert typist.circuits() == {0: 0}
    assert typist.disconnect(0, 0) == ["OK", "OK"]
    typist.world.advance(59.9)
    assert typist.world.truth() == {1: 25}
    assert typist.world.do("truth")["lit"] == []
    typist.world.advance(0.1)
    assert typist.world.truth() == {}
    assert typist.table()[0] == ("UU", 0)


@pytest.mark.parametrize(
    "command",
    ["switchstate input 24", "unlock --force 99", "connect --force -in 24 -out 0", "reboot", "connect"],
)
def test_refusals_are_framed(typist, command):
    first, *text, last = typist.ask(command)
    assert first == "==== ERROR ===="
    assert last == "===="
    assert text


def test_refusals_may_be_exceptions(frame):
    (line,) = Typist(frame(errors="exception")).ask("switchstate input 24")
    assert "Exception" in line


# -- locks


def test_a_circuit_is_not_taken_down_while_it_is_locked(typist):
    typist.connect(4, 6)
    typist.world.advance(60)
    assert "ERROR" in typist.ask("unallocate --force -in 4")[0]
    assert "ERROR" in typist.ask("connect --force -in 4 -out 7")[0]
    typist.world.advance(60)
    assert typist.world.truth() == {5: 31}


def test_unallocate_fails_on_a_port_that_was_unlocked_in_one_direction(typist, frame):
    lenient = Typist(frame(simplex_unlock="works"))
    for somebody, answer in ((typist, "==== ERROR ===="), (lenient, "OK")):
        somebody.connect(4, 6)
        somebody.world.advance(60)
        somebody.ask("unlock --force -in 4")
        assert somebody.ask("unallocate --force -in 4")[0] == answer


def test_unlocking_a_port_leaves_its_circuit_but_not_its_lock(typist):
    typist.connect(4, 6)
    typist.world.advance(60)
    typist.ask("unlock --force 4")
    assert "STATE = ALLOCATED_AND_UNLOCKED" in typist.ask("switchstate input 4")
    typist.ask("unlock --force 6")
    assert typist.table()[6] == ("AU", 4)
    assert typist.world.truth() == {5: 31}


def test_connecting_a_circuit_that_is_there_locks_it_again(typist):
    """The public driver unlocks, connects and waits for ALLOCATED_AND_LOCKED, whatever was there before."""
    for _ in range(2):
        assert typist.connect(4, 6) == ["OK"]
        typist.world.advance(60)
        assert "STATE = ALLOCATED_AND_LOCKED" in typist.ask("switchstate input 4")
        assert typist.table()[6] == ("AL", 4)
    assert typist.world.do("truth")["wear"] == {"5": 1, "31": 1}


def test_a_circuit_that_was_unlocked_stays_so_until_its_connect_has_its_turn(typist):
    typist.connect(4, 6)
    typist.world.advance(60)
    typist.world.do("queue_job", kind="connect", pair=[1, 25])
    typist.connect(4, 6)
    typist.world.advance(59)
    assert "STATE = ALLOCATED_AND_UNLOCKED" in typist.ask("switchstate input 4")
    typist.world.advance(1)
    assert "STATE = ALLOCATED_AND_LOCKED" in typist.ask("switchstate input 4")


@pytest.mark.parametrize("waited_s", [0, 30], ids=["queued", "in hand"])
def test_unallocate_is_refused_while_the_connect_is_to_be_made(typist, waited_s):
    typist.world.do("queue_job", kind="connect", pair=[1, 25])
    typist.world.advance(60 if waited_s else 0)
    typist.connect(4, 6)
    typist.world.advance(waited_s)
    first, said, _ = typist.disconnect(4, 6)[:3]
    assert (first, said) == ("==== ERROR ====", "port 4 has a connect in the queue of the robot")
    typist.world.advance(120)
    assert typist.circuits() == {0: 0, 4: 6}
    assert typist.disconnect(4, 6) == ["OK", "OK"]
    typist.world.advance(60)
    assert typist.circuits() == {0: 0}


def test_unallocate_may_be_done_after_the_queued_connect(frame):
    typist = Typist(frame(unallocate_queued="after"))
    typist.connect(4, 6)
    assert typist.disconnect(4, 6) == ["OK", "OK"]
    typist.world.advance(60)
    assert typist.circuits() == {4: 6}
    typist.world.advance(60)
    assert typist.circuits() == {}


def test_a_reserved_port_is_locked_until_it_is_unlocked(typist):
    typist.world.do("set_fault", fault="lock_port", port=1)
    typist.world.do("set_fault", fault="lock_port", port=27)
    assert "STATE = UNALLOCATED_AND_LOCKED" in typist.ask("switchstate input 0")
    assert typist.table()[2][0] == "UL"
    assert "ERROR" in typist.ask("connect --force -in 0 -out 2")[0]
    assert typist.connect(0, 2) == ["OK"]


@pytest.mark.parametrize(("when_occupied", "held"), [("reject", {1: 26}), ("replace", {1: 27})])
def test_a_port_in_use_is_refused_or_replaced(frame, when_occupied, held):
    typist = Typist(frame(when_occupied=when_occupied))
    typist.connect(0, 1)
    typist.world.advance(60)
    assert (typist.connect(0, 2) == ["OK"]) == (when_occupied == "replace")
    typist.world.advance(60)
    assert typist.world.truth() == held


# -- sessions


def test_an_idle_session_dies_after_three_minutes(world):
    typist = Typist(world("telescent", size=(24, 24)))
    typist.world.advance(179)
    assert typist.ask("switchstate input 0")
    typist.world.advance(179.9)
    assert not typist.client.is_closed
    typist.world.advance(0.2)
    assert typist.client.is_closed


def test_no_more_sessions_than_there_may_be(typist):
    typist.world.do("set_fault", fault="max_sessions", count=1)
    second = Typist.__new__(Typist)
    second.client = typist.world.attach("cli")
    typist.world.settle()
    assert second.client.is_closed
    assert typist.ask("switchstate input 0")


def test_sessions_expire(typist):
    typist.world.do("set_fault", fault="expire_session")
    assert typist.client.is_closed


def test_two_clients_share_one_arm(typist):
    other = Typist(typist.world)
    typist.connect(0, 0)
    other.connect(1, 1)
    typist.world.advance(60)
    assert other.circuits() == {0: 0}
    typist.world.advance(60)
    assert typist.circuits() == other.circuits() == {0: 0, 1: 1}


# -- the arm


def test_the_moves_of_somebody_else_come_first(typist):
    for number in (1, 2):
        typist.world.do("queue_job", kind="connect", pair=[number, 24 + number], user="gui")
    typist.connect(5, 5)
    typist.world.advance(179)
    assert typist.circuits() == {0: 0, 1: 1}
    typist.world.advance(1)
    assert typist.circuits() == {0: 0, 1: 1, 5: 5}


def test_what_the_arm_has_to_do_is_shown_where_it_is(frame, typist):
    open_handed = Typist(frame(motion="shown"))
    for somebody, letters in ((open_handed, "CU"), (typist, "UU")):
        somebody.connect(3, 4)
        assert somebody.table()[4][0] == letters
    open_handed.world.advance(60)
    open_handed.disconnect(3, 4)
    assert open_handed.table()[4] == ("DU", 3)


def test_a_jammed_arm_moves_nothing_until_it_was_homed_and_enabled(typist):
    typist.world.do("set_fault", fault="jam", count=1)
    typist.connect(0, 0)
    typist.connect(1, 1)
    typist.world.advance(3600)
    assert typist.circuits() == {0: 0}
    assert typist.connect(2, 2)[1] == "robot fault: homing required before the next move"
    typist.world.do("home_robot")
    typist.world.advance(60)
    assert "ERROR" in typist.connect(2, 2)[0]
    typist.world.do("enable_robot")
    assert typist.connect(2, 2) == ["OK"]
    typist.world.advance(60)
    assert typist.circuits() == {0: 0, 2: 2}


def test_a_power_cut_takes_the_queue_and_leaves_the_circuits(typist):
    typist.connect(0, 0)
    typist.world.advance(60)
    typist.connect(1, 1)
    typist.world.advance(30)
    typist.world.do("power_cycle")
    assert typist.client.is_closed
    again = Typist(typist.world)
    typist.world.advance(600)
    assert again.circuits() == {0: 0}
    assert typist.world.do("truth")["lit"] == [[1, 25]]


def test_wear_is_counted_per_port(typist):
    typist.connect(0, 1)
    typist.world.advance(60)
    typist.disconnect(0, 1)
    typist.world.advance(60)
    assert typist.world.do("truth")["wear"] == {"1": 2, "26": 2}


# -- faults


def test_a_dropped_command_is_ignored_without_a_word(typist):
    typist.world.do("set_fault", fault="drop_command")
    assert typist.ask("connect --force -in 0 -out 0") == []
    typist.world.advance(60)
    assert typist.circuits() == {}


def test_a_failed_port_is_shown_and_refused(typist):
    typist.world.do("set_fault", fault="fail_port", port=25)
    assert typist.table()[0][0] == "FU"
    assert "ERROR" in typist.connect(0, 0)[0]


def test_a_truncated_table_lacks_its_end(typist):
    typist.world.do("set_fault", fault="truncate_table")
    assert set(typist.table()) < set(range(24))
    assert set(typist.table()) == set(range(24))


def test_noise_comes_between_the_rows(typist):
    usual = typist.ask("switchstate")
    typist.world.do("set_fault", fault="noise")
    noisy = typist.ask("switchstate")
    assert len(noisy) == len(usual) + 1
    assert set(usual) < set(noisy)


# -- settings


@pytest.mark.parametrize(
    ("outputs", "options", "known"),
    [(8, {"hue": "blue"}, "motion"), (8, {"motion": "perhaps"}, "hidden, shown"), (16, {}, "8x8")],
)
def test_settings_that_it_cannot_have_are_refused(outputs, options, known):
    plant = Plant({"switches": [{"name": "ocs1"}], "hosts": []})
    asked = TwinSettings("ocs1", 8, outputs, plant=plant, clock=VirtualClock(), options=options)
    with pytest.raises(SettingError, match=known):
        make_twin("telescent", asked)


@pytest.mark.process
def test_the_process_says_what_it_cannot_be():
    ended = subprocess.run(
        [sys.executable, "-m", "sim.twins", "telescent", "--size=8x16"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode == 2
    assert "size it 8x8" in ended.stderr


# -- anything at all

numbers = st.integers(0, 13)
orders = st.one_of(
    st.tuples(st.just("connect"), numbers, numbers),
    st.tuples(st.just("disconnect"), numbers, numbers),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 60]), st.just(0)),
    st.tuples(st.just("typed"), st.text(st.characters(max_codepoint=0x2FF), max_size=20), st.just(0)),
)


@pytest.mark.slow
def test_the_table_tells_the_truth_whatever_is_typed(world):
    met: Counter[str] = Counter()

    @settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(orders, min_size=4, max_size=24))
    def check(todo: list[tuple[str, Any, int]]) -> None:
        made = world("telescent", size=(12, 12), settings={"switch_time_s": 10.0}, idle_s="1e6")
        typist = Typist(made)
        for order, first, second in todo:
            if order == "wait":
                made.advance(first)
            elif order == "typed":
                typist.client.send(first.encode() + b"\r")
                made.settle()
                typist.client.receive()
                if typist.client.is_closed:  # it was exit
                    typist = Typist(made)
            else:
                answer = getattr(typist, order)(first, second)
                met[f"{order} {'refused' if 'ERROR' in str(answer) else 'taken'}"] += 1
        made.advance(10.0 * len(todo))
        told = {number + 1: 13 + output for number, output in typist.circuits().items()}
        assert told == made.truth()
        met["circuits"] += len(told)
        made.close()

    check()
    assert met["circuits"] >= 40
    assert met["connect taken"] >= 60
    assert met["connect refused"] >= 20
    assert met["disconnect taken"] >= 40


# -- over SSH


def test_over_ssh_with_a_client_of_somebody_else(shared_twin):
    asyncssh = pytest.importorskip("asyncssh")
    twin = shared_twin("telescent", "--size=24x24", "--speed=1000")
    host, _, port = twin.urls["cli"].removeprefix("telescent+cli://").partition(":")

    async def talk() -> list[str]:
        async with (
            asyncssh.connect(
                host, int(port), username="admin", password="admin", known_hosts=None, client_keys=None
            ) as line,
            line.create_process(term_type="xterm", encoding="utf-8") as shell,
        ):
            said = [await shell.stdout.readuntil(PROMPT)]
            commands = ["unlock --force -in 7", "unlock --force -out 9", "connect --force -in 7 -out 9"]
            for command in commands:
                shell.stdin.write(f"{command}\r")
                said.append(await shell.stdout.readuntil(PROMPT))
            while "ALLOCATED_AND_LOCKED" not in said[-1] or "UNALLOCATED" in said[-1]:
                shell.stdin.write("switchstate input 7\r")
                said.append(await shell.stdout.readuntil(PROMPT))
            shell.stdin.write("exit\r")
            await shell.wait_closed()
            return said

    said = asyncio.run(asyncio.wait_for(talk(), 60))
    assert "\x1b[" in said[0]
    assert "OUTPUT = 9 " in said[-1]
    assert twin.truth() == {8: 34}


def test_a_wrong_password_is_not_let_in_over_ssh(shared_twin):
    asyncssh = pytest.importorskip("asyncssh")
    twin = shared_twin("telescent", "--size=12x12", "--password=other")
    host, _, port = twin.urls["cli"].removeprefix("telescent+cli://").partition(":")

    async def knock() -> None:
        options = {"username": "admin", "password": "admin", "known_hosts": None, "client_keys": None}
        async with asyncssh.connect(host, int(port), **options):
            pass

    with pytest.raises(asyncssh.PermissionDenied):
        asyncio.run(asyncio.wait_for(knock(), 60))
