"""The public client of a Telescent, as bytes, against the twin: each operation as it performs it, and its waits.

It is QualiSystems' driver for CloudShell (cloudshell-L1-Telescent, 1.0.2). It types over SSH, takes `Exception` and
`ERROR` anywhere in what is said as a failure, and looks at inputs every 5 s for half an hour.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

PROMPT = re.compile(r"[0-9a-zA-Z@]+>")
COLOUR = re.compile(r".\[\d+m")
ROW = re.compile(r"R(\d+)#([a-zA-Z])" + r"\s+([a-zA-Z]+)(\d+)" * 12)


class Failed(Exception):
    """The device said that it refuses."""


class Waited(Exception):
    """The state that the client waits for was not seen within its time."""


class Client:
    """The operations of the client; ports by their numbers from 0."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.line = world.attach("cli")
        self.world.settle()
        assert PROMPT.search(self.line.receive().decode())

    def say(self, command: str) -> str:
        """Type a command and return what came up to the prompt."""
        self.line.send(f"{command}\n".encode())
        self.world.settle()
        said = self.line.receive().decode()
        assert PROMPT.search(said)
        return said

    def do(self, *commands: str) -> None:
        said = "".join(map(self.say, commands))
        if "Exception" in said or "ERROR" in said:
            raise Failed(said)

    def wait(self, port: int, *patterns: str) -> int:
        """Wait until an input is as it should be; returns how many looks that took."""
        for looks in range(1, 361):
            self.world.advance(5)
            said = self.say(f"switchstate input {port}")
            if all(pattern in said for pattern in patterns):
                return looks
        raise Waited(port)

    def auto_load(self) -> dict[int, int]:
        """Return the circuits that the client finds: output -> input, of twelve columns to a row."""
        table = COLOUR.sub("", self.say("switchstate"))
        rows = filter(None, (ROW.search(line.strip()) for line in table.split("\n")))
        cells = {
            int(row[1]) * 12 + column: (row[3 + 2 * column], int(row[4 + 2 * column]))
            for row in rows
            for column in range(12)
        }
        return {output: number for output, (status, number) in cells.items() if status.startswith("A")}

    def map_uni(self, a: int, b: int) -> int:
        self.do(f"unlock --force -in {a}", f"unlock --force -out {b}", f"connect --force -in {a} -out {b}")
        return self.wait(a, "STATE = ALLOCATED_AND_LOCKED", f"OUTPUT = {b} ")

    def map_bidi(self, a: int, b: int) -> int:
        self.do(f"unlock --force {a}", f"unlock --force {b}", f"connect --force {a} {b}")
        first = self.wait(a, "STATE = ALLOCATED_AND_LOCKED", f"OUTPUT = {b} ")
        return first + self.wait(b, "STATE = ALLOCATED_AND_LOCKED", f"OUTPUT = {a} ")

    def map_clear_to(self, a: int, b: int) -> int:
        self.do(f"unlock --force {a}", f"unlock --force {b}")
        self.do(f"unallocate --force -in {a}", f"unallocate --force -out {b}")
        return self.wait(a, "STATE = UNALLOCATED_AND_")

    def map_clear(self, a: int, b: int) -> int:
        self.do(f"unlock --force {a}", f"unlock --force {b}")
        self.do(f"unallocate --force {a}", f"unallocate --force {b}")
        first = self.wait(a, "STATE = UNALLOCATED_AND_")
        return first + self.wait(b, "STATE = UNALLOCATED_AND_")


@pytest.fixture
def frame(world):
    return lambda **options: world("telescent", size=(96, 96), **{"idle_s": "1e6", **options})


@pytest.fixture
def client(frame) -> Client:
    return Client(frame())


def test_auto_load(client):
    assert client.auto_load() == {}
    client.world.do("operator", connect=[[1, 97], [13, 192]])
    assert client.auto_load() == {0: 0, 95: 12}


def test_map_uni_takes_one_move(client):
    assert client.map_uni(4, 6) == 12
    assert client.auto_load() == {6: 4}


@pytest.mark.parametrize("motion", ["hidden", "shown"])
def test_map_bidi_takes_two(frame, motion):
    client = Client(frame(motion=motion))
    assert client.map_bidi(4, 6) == 24
    assert client.auto_load() == {6: 4, 4: 6}


def test_what_is_mapped_already_is_mapped_at_once(client):
    """The client does not look before: the frame finds the circuit there, and locks it again."""
    client.map_uni(4, 6)
    assert client.map_uni(4, 6) == 1
    client.map_bidi(10, 11)
    assert client.map_bidi(10, 11) == 2
    assert client.auto_load() == {6: 4, 11: 10, 10: 11}


def test_the_other_half_of_a_duplex_circuit(client):
    client.map_uni(4, 6)
    assert client.map_bidi(4, 6) == 12
    assert client.auto_load() == {6: 4, 4: 6}


def test_map_clear_to_takes_one_direction(client):
    client.map_bidi(4, 6)
    assert client.map_clear_to(4, 6) == 12
    assert client.auto_load() == {4: 6}


@pytest.mark.parametrize(("mapped", "looks"), [("map_bidi", 25), ("map_uni", 13)])
def test_map_clear_takes_whatever_there_is(client, mapped, looks):
    """The second port is unallocated while the circuit is on its way out already: no refusal."""
    getattr(client, mapped)(4, 6)
    assert looks - 1 <= client.map_clear(4, 6) <= looks
    assert client.auto_load() == {}


def test_a_port_in_use_is_refused(client):
    client.map_uni(4, 6)
    with pytest.raises(Failed, match=r"(?s)==== ERROR ====.*port 6"):
        client.map_uni(5, 6)
    assert client.auto_load() == {6: 4}


def test_clearing_what_another_session_has_just_asked_for_is_refused(client):
    """With OK the client would see a free input at once, and be done before the robot has begun."""
    other = Client(client.world)
    other.do("unlock --force 4", "unlock --force 6", "connect --force 4 6")
    with pytest.raises(Failed, match="in the queue of the robot"):
        client.map_clear(4, 6)
    client.world.advance(120)
    assert client.auto_load() == {6: 4, 4: 6}


def test_a_jammed_robot_is_a_failure(client):
    client.world.do("set_fault", fault="jam", count=0)
    with pytest.raises(Waited):
        client.map_uni(1, 2)
    with pytest.raises(Failed, match="robot fault"):
        client.map_uni(3, 4)
