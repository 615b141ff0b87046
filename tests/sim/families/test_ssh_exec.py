"""One command without a shell (`ssh HOST COMMAND`) on the twins that are reached over SSH: output, exit status."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from libraries import library

from sim.models.clock import RealClock
from sim.twins.families import make_twin
from sim.twins.plant import Plant
from sim.twins.switch.settings import TwinSettings
from sim.twins.wire.listener import bind_socket

asyncssh = library("asyncssh")
pytestmark = pytest.mark.socket

ACCOUNTS = {
    "sonic": ("admin", "YourPaSsWoRd"),
    "telescent": ("admin", "admin"),
    "rome": ("admin", "admin"),
    "afm": ("admin", "admin"),
}
NOT_SIMULATED = "simulated: no pipes, redirections, background jobs or substitutions"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def talk(
    family: str,
    talking: Callable[[Callable[[], Any]], Awaitable[Any]],
    *,
    options: dict[str, str] | None = None,
    **faults: int,
) -> Any:
    """Return what `talking` returns, given what opens a connection to a twin."""

    async def run() -> Any:
        plant = Plant({"hosts": [], "switches": [{"name": "ocs1"}]})
        settings = TwinSettings("ocs1", 4, 4, plant, RealClock(), switch_time_s=0.001, options=options or {})
        twin = make_twin(family, settings)
        await twin.serve({name: bind_socket("127.0.0.1", 0) for name in ("cli", "control")})
        for fault, count in faults.items():
            setattr(twin.device.faults, fault, count)
        host, _, port = twin.list_addresses()["cli"].rpartition("/")[2].rpartition(":")
        user, password = ACCOUNTS[family]

        def connect() -> Any:
            return asyncssh.connect(
                host,
                int(port),
                username=user,
                password=password,
                known_hosts=None,
                config=None,
                client_keys=None,
            )

        try:
            async with asyncio.timeout(20):
                return await talking(connect)
        finally:
            await twin.close()

    return asyncio.run(run())


def execute(family: str, *commands: str, terminal: bool = False, **faults: int) -> list[Any]:
    """Return what each command printed and its exit status, each over a connection of its own."""

    async def talking(connect: Callable[[], Any]) -> list[Any]:
        done = []
        for command in commands:
            async with connect() as connection:
                result = await connection.run(command, term_type="vt100" if terminal else None)
                done.append((result.stdout, result.exit_status))
        return done

    return talk(family, talking, **faults)


def test_sonic_prints_a_table_and_nothing_else():
    """No greeting, no echo, no prompt, and lines that end with LF, since no terminal was asked for."""
    made, shown = execute(
        "sonic", "sudo config ocs cross-connect add 1A-2B safe", "show ocs cross-connect config"
    )
    assert made == ("add cross-connect succeeded\n", 0)
    assert shown == (
        "id     a_side    b_side\n-----  --------  --------\n1A-2B  1A        2B\n",
        0,
    )


def test_with_a_terminal_lines_end_as_terminals_have_it():
    assert execute("sonic", "echo two words", terminal=True) == [("two words\r\n", 0)]


@pytest.mark.parametrize(
    ("command", "printed", "status"),
    [
        ("config ocs cross-connect add 1A-1B", "Root privileges are required for this operation\n", 1),
        ("sudo config ocs cross-connect delete 1A-1B", "Error: cross-connect 1A-1B does not exist\n", 1),
        ("sudo config ocs cross-connect add 1A-9B", "Error: port out of range 1B..4B\n", 1),
        (
            "sudo config ocs cross-connect join",
            (
                "Usage: config ocs cross-connect [OPTIONS] COMMAND [ARGS]...\n"
                'Try "config ocs cross-connect -h" for help.\n\nError: No such command "join".\n'
            ),
            2,
        ),
        (
            "sudo config ocs cross-connect add",
            (
                "Usage: config ocs cross-connect add [OPTIONS] PAIRS [MODE]\n"
                'Try "config ocs cross-connect add -h" for help.\n\nError: Missing argument "PAIRS".\n'
            ),
            2,
        ),
        (
            "sudo config ocs cross-connect",
            "Usage: config ocs cross-connect [OPTIONS] COMMAND [ARGS]...\n\nCommands:\n  add\n  delete\n",
            0,
        ),
        (
            "show version now",
            (
                'Usage: show version [OPTIONS]\nTry "show version -h" for help.\n\n'
                "Error: Got unexpected extra argument (now)\n"
            ),
            2,
        ),
        (
            "show interfaces",
            (
                'Usage: show [OPTIONS] COMMAND [ARGS]...\nTry "show -h" for help.\n\n'
                'Error: No such command "interfaces".\n'
            ),
            2,
        ),
        ("config nonsense", "Root privileges are required for this operation\n", 1),
        ("sudo nonsense now", "sudo: nonsense: command not found\n", 1),
        ("exit 3", "", 3),
        ("false; exit; echo never", "", 1),
        ("echo one; exit 2; echo two", "one\n", 2),
        ("exit now", "-bash: exit: now: numeric argument required\n", 2),
        ("show version | head -1", f"{NOT_SIMULATED}\n", 2),
        ("show version > file", f"{NOT_SIMULATED}\n", 2),
        ("echo made; echo $(date)", f"{NOT_SIMULATED}\n", 2),
        ("echo 'a | b' \"> c\" && true || false", "a | b > c\n", 0),
        ("reboot now", "-bash: reboot: command not found\n", 127),
        ("false; echo $?", "1\n", 0),
        ("reboot; echo \"was ${?}\" '$?'", "-bash: reboot: command not found\nwas 127 $?\n", 0),
        ("false && echo never || echo 'then; this'", "then; this\n", 0),
        ("true || echo never; false", "", 1),
        ("echo", "\n", 0),
    ],
)
def test_sonic_ends_with_the_status_of_the_last_command(command, printed, status):
    assert execute("sonic", command) == [(printed, status)]


@pytest.mark.parametrize(
    ("family", "commands", "says"),
    [
        (
            "telescent",
            ["unlock --force -in 1", "connect --force -in 1 -out 2", "switchstate input 9", "help"],
            ["OK", "OK", "==== ERROR ====\nport 9 does not exist", "==== ERROR ====\nunknown command"],
        ),
        (
            "rome",
            ["connection create E1 to W2", "connection create E1 to E2", "help"],
            [
                "OK - request added to pending queue (E1-W2)",
                "Error: ports are on the same side",
                "Error: unknown command",
            ],
        ),
        ("afm", ["show board"], ["CURR SW VERSION"]),
    ],
)
def test_the_robots_answer_one_command_and_end_with_0(family, commands, says):
    """A choice: a command line without exit statuses of its own ends with 0, whatever it said."""
    done = execute(family, *commands)
    assert [status for _, status in done] == [0] * len(commands)
    for (printed, _), begins in zip(done, says, strict=True):
        assert COLOURS.sub("", printed).startswith(begins)
        assert "\r" not in printed
        assert "Welcome" not in printed
        assert not re.search(r"[>#] *$", printed)


ROBOTS = ("telescent", "rome", "afm")
TABLE = {
    "sonic": "show ocs port config",
    "telescent": "switchstate input 1",
    "rome": "port show",
    "afm": "port show",
}


async def _twice(connect: Callable[[], Any], command: str) -> list[Any]:
    async with connect() as connection:
        return [await connection.run(command) for _ in range(2)]


@pytest.mark.parametrize("family", sorted(TABLE))
def test_a_connection_takes_several_commands(family):
    """As OpenSSH does (RFC 4254, 6): the client ends the connection, not its first command."""
    first, second = talk(family, lambda connect: _twice(connect, TABLE[family]))
    assert (first.stdout, first.exit_status) == (second.stdout, second.exit_status)
    assert first.stdout
    assert first.exit_status == 0


def test_a_connection_takes_commands_beside_a_shell_and_after_it():
    async def talking(connect: Callable[[], Any]) -> list[Any]:
        async with connect() as connection:
            shell = await connection.create_process(term_type="vt100")
            await shell.stdout.readuntil("$ ")
            beside = await connection.run("echo beside")
            shell.stdin.write("exit\r")
            await shell.wait()
            after = await connection.run("echo after")
        return [beside.stdout, after.stdout]

    assert talk("sonic", talking) == ["beside\n", "after\n"]


@pytest.mark.parametrize("family", ROBOTS)
def test_a_robot_may_end_the_connection_with_its_first_session(family):
    """Unknown of real units, so an option: with `sessions=one` the second command finds no connection."""
    with pytest.raises((asyncssh.ConnectionLost, asyncssh.ChannelOpenError)):
        talk(family, lambda connect: _twice(connect, TABLE[family]), options={"sessions": "one"})


def test_a_session_limit_holds_for_single_commands_too():
    assert execute("sonic", "show version", max_sessions=0) == [("", 255)]


def test_a_line_that_breaks_gives_no_status():
    ((printed, status),) = execute("sonic", "show version", close_after_commands=1)
    assert "Serial" not in printed
    assert status is None
