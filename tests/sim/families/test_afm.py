"""The simulated AFM as captures and the public client have it: every exchange of QualiSystems' driver, as bytes.

The captures are in the test data of QualiSystems/cloudshell-L1-fiberzone_afm: two units, s53 and s75, of 180 x 180
ports with software 1.6.2.1. In both, every circuit is one of a pair: E1-W2 with E2-W1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

PROMPT = "ocs1[OPER]# "


class Client:
    """A client that sends a command with CR and reads until the prompt."""

    def __init__(self, world: Any, front: str = "telnet") -> None:
        self.world = world
        self._client = world.attach(front)
        self._client.send(b"")

    def heard(self) -> str:
        self.world.settle()
        raw = re.sub(rb"\xff[\xfb-\xfe].", b"", self._client.receive(), flags=re.DOTALL)
        return raw.decode()

    def type(self, text: str) -> str:
        self._client.send(text.encode() + b"\r")
        return self.heard()

    def ask(self, command: str) -> list[str]:
        self.heard()
        printed, prompt, _ = self.type(command).partition(PROMPT)  # what is said unasked comes behind it
        assert prompt
        echo, *lines = printed.splitlines()
        assert echo == command
        return lines

    def ports(self) -> dict[str, list[str]]:
        """Return the columns of `port show` by port, as the client splits them."""
        rows = [re.match(r"^([EW]\d+)\s+\d+\s+\d+\s+\d+\s+\D\d+.*$", line) for line in self.ask("port show")]
        return {row[1]: row[0].split() for row in rows if row}

    def peer(self, number: int) -> str | None:
        """Return the number that both fibres of a port are connected to; None for a port that has none."""
        ports = self.ports()
        rows = [ports[f"E{number}"], ports[f"W{number}"]]
        peers = {re.sub(r"\D", "", row[5]) if row[2] == "2" else None for row in rows}
        assert len(peers) == 1, rows
        return peers.pop()


@pytest.fixture
def client(world) -> Callable[..., Client]:
    def make(**options: str) -> Client:
        client = Client(world("afm", size=(8, 8), **{"idle_s": "1e6", **options}))
        client.heard()
        client.type("admin")
        client.type("admin")
        return client

    return make


def test_a_login_as_captured(world):
    client = Client(world("afm", size=(8, 8)))
    assert client.heard() == "Login:"
    assert client.type("FiberZone") == "FiberZone\r\nPassword: "
    assert client.type("wrong") == "\r\nusername or password invalid\r\nLogin:"
    client.type("admin")
    assert client.type("admin") == (
        "\r\n\r\n\r\nWelcome to FiberZone AFM CLI (SIMULATED)\r\n\r\n\r\nocs1[OPER]# "
    )


def test_the_board_says_what_the_client_reads(client):
    board = "\n".join(client().ask("show board"))
    assert re.search(r"BOARD\s+.*S/N\((.+?)\)", board, re.DOTALL)[1] == "SIM0-0000-0000"
    assert (
        re.search(r"MAX_PORT_EAST\s+(\d+)", board)[1] == re.search(r"MAX_PORT_WEST\s+(\d+)", board)[1] == "8"
    )
    assert re.search(r"ACTIVE\s+SW\s+VER\s+(\d+\.\d+\.\d+\.\d+)", board)[1] == "1.6.2.1"
    assert "PAIRED PORT      Enabled" in board


def test_the_table_of_logical_ports_as_captured(client):
    lines = client().ask("port show logic table")
    assert lines[:4] == [
        "Customer        Logical             Side         TX     RX",
        "Name              Name                           Port   Port",
        "=" * 65,
        "customer        1               1_4             e1     w1",
    ]
    rows = [re.fullmatch(r"\w+\s+(\d+)\s+(\w+)\s+e(\d+)\s+w(\d+)", line) for line in lines[3:]]
    assert [row.groups() for row in rows] == [
        (str(number), "1_4" if number <= 4 else "5_8", str(number), str(number)) for number in range(1, 9)
    ]


def test_the_state_of_logical_ports_as_captured(client):
    afm = client()
    afm.world.do("operator", connect=[[2, 12], [4, 10]])
    afm.world.do("set_fault", fault="lock_port", port=3)
    lines = afm.ask("port show logic")
    assert [(len(line), line.split()) for line in lines[3:7]] == [
        (128, ["1", "1", "Enabled", "Unlocked"]),
        (128, ["2", "4", "2", "4", "Enabled", "Unlocked"]),
        (126, ["3", "3", "Enabled", "Locked"]),
        (128, ["4", "2", "4", "2", "Enabled", "Unlocked"]),
    ]
    assert [lines[4].index(word) for word in ("4", "Enabled", "Unlocked")] == [30, 100, 120]


def test_the_client_connects_and_disconnects_two_ports(client):
    afm = client()
    assert afm.peer(1) is None
    assert afm.peer(2) is None
    assert afm.ask("connection create 1 to 2") == ["OK - request added to pending queue (1-2)"]
    afm.world.advance(120)
    assert (afm.peer(1), afm.peer(2)) == ("2", "1")
    assert afm.world.truth() == {1: 8 + 2, 2: 8 + 1}
    assert afm.ask("connection disconnect 1 from 2") == ["OK - request added to pending queue (1-2)"]
    afm.world.advance(120)
    assert (afm.peer(1), afm.peer(2)) == (None, None)
    assert afm.world.truth() == {}


def test_the_client_takes_no_port_for_connected_while_the_arm_is_at_it(client):
    afm = client()
    afm.ask("connection create 1 to 2")
    afm.world.advance(5)
    assert afm.ports()["E1"][2] == "6"
    afm.world.advance(120)
    assert afm.ports()["E1"][:6] == ["E1", "1", "2", "1", "w1", "W2"]


@pytest.mark.parametrize(("fault", "column"), [("lock_port", 1), ("disable_port", 3)])
def test_the_client_sees_locked_and_disabled_ports(client, fault, column):
    afm = client()
    afm.world.do("set_fault", fault=fault, port=8 + 1)
    ports = afm.ports()
    assert (ports["E1"][column], ports["W1"][column]) == ("1", "2")


@pytest.mark.parametrize(
    "command",
    [
        "connection create 1 to 9",
        "connection create 0 to 1",
        "connection create A1 to A2",
        "connection create 1 to W2",
        f"connection create 1 to {'9' * 5000}",
    ],
)
def test_what_is_no_port_is_an_error(client, command):
    afm = client()
    (line,) = afm.ask(command)
    assert re.match("[Ee]rror:", line)
    assert afm.world.truth() == {}


def test_circuits_as_captured(client):
    afm = client()
    afm.world.do("operator", connect=[[2, 12], [4, 10]])
    heading, rule, first, second = afm.ask("connection show connected")
    assert heading == "Port East                    Port West                      Paired       TimeStamp"
    assert rule == "=========                    =========                      ======       =========="
    assert re.fullmatch(
        r"E2                            W4                              w2        \d\d-\d\d-\d{4} \d\d:\d\d",
        first,
    )
    assert second.startswith("E4")
