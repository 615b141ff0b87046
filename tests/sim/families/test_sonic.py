"""The simulated SONiC switch, typed at by hand: published tables and modes, configuration and hardware, its faults."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.twins.families.sonic.configuration import InvalidPairs, parse_pairs

PROMPT = "admin@sonic:~$ "
SUDO = "sudo config ocs cross-connect "


class Typist:
    """Somebody at the shell, in memory."""

    def __init__(self, world) -> None:
        self.world = world
        self.client = world.attach("cli")
        world.settle()
        self.greeting = self.client.receive().decode()

    def ask(self, command: str) -> list[str]:
        """Return what is printed between the command as it is repeated and the next prompt."""
        self.client.send(command.encode() + b"\r")
        self.world.settle()
        echo, *lines, prompt = self.client.receive().decode().split("\r\n")
        assert echo == command
        assert prompt == PROMPT
        return lines

    def ids(self, table: str) -> list[str]:
        """Return the cross-connects of a table: `config` or `status`."""
        return [row.split()[0] for row in self.ask(f"show ocs cross-connect {table}")[2:]]

    def succeeds(self, command: str) -> None:
        """Make a change that succeeds, with a moment for the hardware."""
        assert "cross-connect succeeded" in self.ask(SUDO + command)[0]
        self.world.advance(1.0)

    def fails(self, command: str) -> str:
        """Return what is said of a change that does not succeed."""
        said = " ".join(self.ask(SUDO + command))
        assert "succeeded" not in said
        return said


@pytest.fixture
def ocs(world):
    return world("sonic", size=(64, 64))


@pytest.fixture
def typist(ocs):
    return Typist(ocs)


def test_the_prompt_and_the_greeting(typist):
    assert typist.greeting == f"Linux sonic (SIMULATED)\r\n{PROMPT}"


def test_published_tables(ocs, typist):
    typist.succeeds("add 1A-1B,2A-5B,12A-32B")
    assert typist.ask("show ocs cross-connect config") == [
        "id       a_side    b_side",
        "-------  --------  --------",
        "1A-1B    1A        1B",
        "2A-5B    2A        5B",
        "12A-32B  12A       32B",
    ]
    assert typist.ask("show ocs cross-connect status") == [
        "id       a_side    b_side    a_side_status    b_side_status",
        "-------  --------  --------  ---------------  ---------------",
        "1A-1B    1A        1B        tuned            tuned",
        "2A-5B    2A        5B        tuned            tuned",
        "12A-32B  12A       32B       tuned            tuned",
    ]
    assert ocs.truth() == {1: 65, 2: 69, 12: 96}


def test_published_port_tables(typist):
    typist.ask("sudo config ocs port label 1A  Label_1A")
    typist.ask("sudo config ocs port state 2A force_blocked")
    typist.succeeds("add 3A-1B")
    config = typist.ask("show ocs port config")
    assert config[:5] == [
        "id    label     state",
        "----  --------  -------------",
        "1A    Label_1A  normal",
        "1B              normal",
        "2A              force_blocked",
    ]
    assert len(config) == 2 + 128
    status = typist.ask("show ocs port status")
    assert status[:5] == [
        "id    connector_type    connector_pin    target_simplex_port_id    status",
        "----  ----------------  ---------------  ------------------------  --------",
        "1A    LC UPC            2                                          blocked",
        "1B    LC UPC            1                3A                        tuned",
        "2A    LC UPC            2                                          blocked",
    ]


def test_a_published_batch(ocs, typist):
    typist.succeeds("add 10A-11B,12A..14A-12B..14B safe")
    assert typist.ids("config") == ["10A-11B", "12A-12B", "13A-13B", "14A-14B"]
    typist.succeeds("delete 12A..13A-12B..13B,10A-11B")
    assert typist.ids("config") == ["14A-14B"]
    assert ocs.truth() == {14: 78}


def test_tuning_takes_its_time(world):
    typist = Typist(world("sonic", settings={"switch_time_s": 5.0}))
    typist.ask(SUDO + "add 1A-2B")
    assert typist.ask("show ocs cross-connect status")[2].endswith("tuning           tuning")
    typist.world.advance(5.0)
    assert typist.ask("show ocs cross-connect status")[2].endswith("tuned            tuned")


@pytest.mark.parametrize(
    ("mode", "config"),
    [("safe", None), ("update", ["1A-5B", "3A-3B"]), ("", ["1A-5B", "3A-3B"]), ("overwrite", ["1A-5B"])],
)
def test_published_modes(typist, mode, config):
    typist.succeeds("add 1A-2B,3A-3B")
    if config is None:
        assert "1A-2B" in typist.fails(f"add 1A-5B {mode}")
        config = ["1A-2B", "3A-3B"]
    else:
        typist.succeeds(f"add 1A-5B {mode}".strip())
    assert typist.ids("config") == typist.ids("status") == config


@pytest.mark.parametrize(
    "pairs", ["1b-1a", "1-1", "1-10001", "1-b1", "a1-1b", "1a+1b", "1c-1b", "1A-2A", "1A..2A-1B"]
)
def test_published_invalid_pairs(typist, pairs):
    assert "Invalid" in typist.fails(f"add {pairs} update")
    assert typist.ids("config") == []


@pytest.mark.parametrize("pairs", ["0a-1b", "1a-0b", "1a-65b", "65a-1b", "1a 1b"])
def test_published_errors(typist, pairs):
    assert "Error" in typist.fails(f"add {pairs} update")


def test_the_shell_keeps_the_exit_status_of_the_last_command(typist):
    assert typist.ask("echo $?") == ["0"]
    typist.fails("delete 1A-2B")
    assert typist.ask("echo $?") == ["1"]
    typist.ask("reboot")
    typist.ask("")
    assert typist.ask("echo status=$?") == ["status=127"]
    assert typist.ask(f"{SUDO}add 1A-2B && echo made; echo $?") == [
        "add cross-connect succeeded",
        "made",
        "0",
    ]


@pytest.mark.parametrize("line", ["exit", "exit 3", "echo last; exit", "logout"])
def test_exit_ends_the_shell(typist, line):
    typist.client.send(line.encode() + b"\r")
    typist.world.settle()
    _, *printed = typist.client.receive().decode().split("\r\n")
    assert printed == (["last", ""] if "echo" in line else [""])
    assert typist.client.is_closed


def test_show_works_with_sudo_too(typist):
    typist.succeeds("add 1A-2B")
    assert typist.ask("sudo show ocs cross-connect config") == typist.ask("show ocs cross-connect config")


def test_a_line_with_a_pipe_does_nothing(ocs, typist):
    assert typist.ask(f"{SUDO}add 1A-2B | tee log")[0].startswith("simulated: no pipes")
    assert ocs.truth() == {}


def test_each_shell_has_its_own_exit_status(ocs, typist):
    other = Typist(ocs)
    typist.ask("false")
    assert other.ask("echo $?") == ["0"]
    assert typist.ask("echo $?") == ["1"]


def test_small_letters_are_taken(ocs, typist):
    typist.succeeds("add 1a-2b")
    assert ocs.truth() == {1: 66}


def test_a_list_is_done_whole_or_not_at_all(ocs, typist):
    typist.succeeds("add 1A-2B")
    typist.fails("add 5A-5B,1A-3B safe")
    typist.fails("delete 1A-2B,7A-7B")
    typist.fails("add 5A-5B,5A-6B")
    assert ocs.truth() == {1: 66}


def test_only_root_may_change(world):
    typist = Typist(world("sonic"))
    assert typist.ask("config ocs cross-connect add 1A-2B") == [
        "Root privileges are required for this operation"
    ]


def test_other_commands_are_unknown(typist):
    assert typist.ask("reboot") == ["-bash: reboot: command not found"]


class TestGhosts:
    def test_are_in_status_and_not_in_config(self, ocs, typist):
        ocs.do("set_fault", fault="ghost_entry", pair=[3, 70])
        assert (typist.ids("config"), typist.ids("status")) == ([], ["3A-6B"])

    def test_cannot_be_deleted_but_after_an_add(self, ocs, typist):
        ocs.do("set_fault", fault="ghost_entry", pair=[3, 70])
        assert "does not exist" in typist.fails("delete 3A-6B")
        typist.succeeds("add 3A-6B safe")
        typist.succeeds("delete 3A-6B")
        assert (typist.ids("config"), typist.ids("status"), ocs.truth()) == ([], [], {})

    @pytest.mark.parametrize("mode", ["safe", "update", "overwrite"])
    def test_block_their_ports(self, ocs, typist, mode):
        ocs.do("set_fault", fault="ghost_entry", pair=[3, 70])
        assert "3A-6B" in typist.fails(f"add 3A-7B {mode}")
        assert ocs.truth() == {3: 70}

    def test_come_of_circuits_that_lose_their_configuration(self, ocs, typist):
        typist.succeeds("add 3A-6B,4A-7B")
        ocs.do("set_fault", fault="ghost_entry", port=70)
        assert (typist.ids("config"), typist.ids("status")) == (["4A-7B"], ["3A-6B", "4A-7B"])
        ocs.do("clear_fault", fault="ghost_entry")
        assert typist.ids("config") == ["3A-6B", "4A-7B"]

    def test_do_not_survive_the_power(self, ocs, typist):
        typist.succeeds("add 4A-7B")
        ocs.do("set_fault", fault="ghost_entry", pair=[3, 70])
        ocs.do("power_cycle", off_s=0)
        ocs.advance(5)
        again = Typist(ocs)
        assert again.ids("config") == again.ids("status") == ["4A-7B"]


class TestFaults:
    def test_a_stuck_mirror_is_configured_and_not_in_the_hardware(self, ocs, typist):
        ocs.do("set_fault", fault="stuck", pair=[1, 66])
        typist.succeeds("add 1A-2B")
        assert (typist.ids("config"), typist.ids("status"), ocs.truth()) == (["1A-2B"], [], {})

    def test_a_dropped_command_is_told_as_done(self, ocs, typist):
        ocs.do("set_fault", fault="drop_command", count=1)
        typist.succeeds("add 1A-2B")
        assert (typist.ids("config"), ocs.truth()) == ([], {})

    @pytest.mark.parametrize(
        ("fault", "state"), [("fail_port", "failed"), ("disable_port", "blocked"), ("lock_port", "blocked")]
    )
    def test_unfit_ports_are_told_and_refused(self, ocs, typist, fault, state):
        typist.succeeds("add 1A-2B")
        ocs.do("set_fault", fault=fault, port=1)
        assert typist.ask("show ocs cross-connect status")[2].split()[3:] == [state, "tuned"]
        ocs.do("set_fault", fault=fault, port=5)
        assert "Error" in typist.fails("add 5A-6B")

    def test_a_locked_circuit_stays(self, ocs, typist):
        typist.succeeds("add 1A-2B")
        ocs.do("set_fault", fault="lock_port", port=66)
        for command in ("delete 1A-2B", "add 1A-3B update", "add 3A-3B overwrite"):
            assert "locked" in typist.fails(command)
        assert ocs.truth() == {1: 66}

    def test_two_clients_see_one_switch(self, ocs, typist):
        typist.succeeds("add 1A-2B")
        assert Typist(ocs).ids("config") == ["1A-2B"]

    def test_an_operator_changes_configuration_and_hardware(self, ocs, typist):
        ocs.do("operator", connect=[[1, 66]])
        assert typist.ids("config") == typist.ids("status") == ["1A-2B"]


@given(st.text(st.sampled_from("0123456789AB.-,a "), max_size=30))
def test_any_text_is_pairs_in_range_or_invalid(text):
    try:
        pairs = parse_pairs(text, 8, 8)
    except InvalidPairs:
        return
    assert all(1 <= source <= 8 < output <= 16 for source, output in pairs)
    assert len(dict(pairs)) == len({output for _, output in pairs}) == len(pairs) > 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "delete"]), st.integers(1, 3), st.integers(1, 3)), max_size=8)
)
def test_after_any_commands_configuration_and_hardware_agree_and_are_the_truth(world, commands):
    typist = Typist(world("sonic", size=(3, 3)))
    for verb, source, sink in commands:
        typist.ask(f"{SUDO}{verb} {source}A-{sink}B" + (" update" if verb == "add" else ""))
    typist.world.advance(1)
    truth = [f"{source}A-{output - 3}B" for source, output in sorted(typist.world.truth().items())]
    assert typist.ids("config") == typist.ids("status") == truth
