"""Public clients of a ROME, as bytes, against the twin: each operation as they perform it, and what they wait for.

Wave2Wave's own driver for CloudShell (Wave2WaveSolution/cloudshell-L1-ROME, 1.1.4, verified by its authors with a
ROME500 1.9.4.1) types short forms over telnet and waits for unsolicited lines. QualiSystems' (cloudshell-L1-w2w-rome)
types whole commands, watches the queue, and proves with the table of ports; its captures are of a ROME500 1.10.2.10.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

MOVE_S = 40


class Client:
    """Somebody at the command line, in memory, who sees bytes."""

    def __init__(self, world: Any, frontend: str = "cli") -> None:
        self.world = world
        self.line = world.attach(frontend)
        self.seen()

    def seen(self) -> str:
        """Return what has come since the last look, without telnet's own bytes."""
        self.world.settle()
        raw = self.line.receive()
        return re.sub(rb"\xff[\xfb-\xfe].", b"", raw).decode()

    def types(self, text: str, *, wait_s: float = 0) -> str:
        """Type something, and return all that came in that time."""
        self.line.send(text.encode())
        said = self.seen()
        self.world.advance(wait_s)
        return said + self.seen()


@pytest.fixture
def rome(world):
    return lambda **options: world("rome", **{"idle_s": "1e6", **options})


class TestWave2Wave:
    """The vendor's client: telnet, short forms in small letters, unsolicited lines."""

    @pytest.fixture
    def client(self, rome):
        client = Client(rome(), "telnet")
        client.types("admin\nadmin\n")
        return client

    @pytest.fixture
    def other(self, rome):
        """Return a client of a ROME whose requests are found invalid when their turn comes."""
        client = Client(rome(validation="in_turn"), "telnet")
        client.types("admin\nadmin\n")
        return client

    def circuits(self, client) -> dict[str, str]:
        """Return the circuits of an autoload, by output: `cc` with something typed ahead, the rows from line 4 on."""
        said = client.types("cc\n!@#$").partition("cc")[2]
        client.types("\b" * 7)
        lines = said.split("\r\n")
        rows = [re.match(r"^E(\d+)?.*?W(\d+)?.*", line) for line in lines[4:-2]]
        return {row[2]: row[1] for row in rows}

    def operate(self, client, verb: str, joint: str, source: int, output: int, ending: str = "\n") -> str:
        """Perform one operation, and return how it ended for the client; empty when it would wait in vain."""
        command = f"con {verb} e{source} {joint} w{output}"
        operation = {"cr": "connect", "di": "disconnect"}[verb]
        said = client.types(command + ending, wait_s=MOVE_S).partition(command)[2]
        end = re.search(
            rf"CONNECTION OPERATION (SUCCEEDED|SKIPPED\(already done\)):E{source}\[.+?W{output}\[.+OP:{operation}"
            rf"|FAILED:e{source}-w{output}.+={operation}",
            said,
        )
        return (end[1] or "FAILED") if end else ""

    def test_auto_load(self, client):
        assert self.circuits(client) == {}
        client.world.do("operator", connect=[[1, 10], [8, 16]])
        assert self.circuits(client) == {"2": "1", "8": "8"}
        assert self.circuits(client) == {"2": "1", "8": "8"}  # what was typed ahead is gone

    def test_map_uni(self, client):
        assert self.operate(client, "cr", "t", 1, 2) == "SUCCEEDED"
        assert client.world.truth() == {1: 10}

    def test_map_bidi(self, client):
        assert self.operate(client, "cr", "t", 3, 4, " \n") == "SUCCEEDED"
        assert self.operate(client, "cr", "t", 4, 3, " \n") == "SUCCEEDED"
        assert client.world.truth() == {3: 12, 4: 11}

    def test_map_bidi_that_stands_already(self, client):
        client.world.do("operator", connect=[[3, 12], [4, 11]])
        client.world.do("queue_job", kind="connect", pair=[1, 9])  # or the request is judged at once
        assert self.operate(client, "cr", "t", 3, 4, " \n") == "SKIPPED(already done)"

    def test_map_clear_to(self, client):
        client.world.do("operator", connect=[[1, 10]])
        assert self.operate(client, "di", "from", 1, 2) == "SUCCEEDED"
        assert client.world.truth() == {}

    def test_map_clear_clears_both_ways_whatever_there_is(self, client):
        client.world.do("operator", connect=[[1, 10]])
        ends = [self.operate(client, "di", "from", *ports) for ports in ((1, 2), (2, 1))]
        assert ends == ["SUCCEEDED", "SKIPPED(already done)"]
        assert client.world.truth() == {}

    @pytest.mark.parametrize("who", ["client", "other"])
    def test_a_request_that_is_not_valid_is_named_as_it_was_typed(self, request, who):
        client = request.getfixturevalue(who)
        client.world.do("operator", connect=[[1, 10]])
        assert self.operate(client, "cr", "t", 1, 3) == "FAILED"
        assert client.world.truth() == {1: 10}

    def test_a_disconnection_of_another_circuit_is_not_valid(self, client):
        client.world.do("operator", connect=[[1, 10]])
        assert self.operate(client, "di", "from", 1, 3) == "FAILED"


class TestQualiSystems:
    """The other client: whole commands, the queue every 3 s, the table of ports before and after."""

    def ask(self, client: Client, command: str) -> str:
        return client.types(command + "\n")

    def ports(self, client: Client) -> dict[str, tuple[str, str, str]]:
        """Return state, peer and logical name of each port, where a row is as the captures have it."""
        rows = re.finditer(
            r"([EW]\d+)\[\w+?]\s+unlocked\s+enabled\s+((?:dis)?connected|in process)\s+\d+\s+"
            r"(?:([EW]\d+)\[\w+])?\s+([ABQPXY]\d+)",
            self.ask(client, "port show"),
            re.IGNORECASE,
        )
        return {row[1]: (row[2], row[3] or "", row[4]) for row in rows}

    def waits_for(self, client: Client, one: str, other: str) -> int:
        """Return how many looks at the queue found the request, which goes by the names that were typed."""
        for looks in range(1000):
            client.world.advance(3)
            queue = self.ask(client, "connection show pending")
            if not re.search(rf"ports:\s+{one}-{other}\D|\w+\s+{one}\s+{other}\s+\w+", queue, re.IGNORECASE):
                return looks
        raise AssertionError("it never ends")

    def request(self, client: Client, verb: str, one: str, other: str, moves: int) -> str:
        """Make a request, wait until it has left the queue, and return what was said of it meanwhile."""
        joint = {"create": "to", "disconnect": "from"}[verb]
        said = self.ask(client, f"connection {verb} {one} {joint} {other}")
        assert f"OK - request added to pending queue ({one}-{other})" in said
        looks = self.waits_for(client, one, other)
        assert moves * MOVE_S / 3 - 1 <= looks <= moves * MOVE_S / 3 + 1
        return said

    def test_login_and_auto_load(self, rome):
        client = Client(rome())
        assert re.search(r"(?i)\w+\[\w+\]#\s*$", self.ask(client, ""))
        board = self.ask(client, "show board")
        assert re.search(r"BOARD\s+.*S/N\((.+?)\)", board)[1].startswith("SIM")
        assert re.search(r"^rome\s+type\s+(.+?)\s*$", board, re.MULTILINE | re.IGNORECASE)[1] == "ROME500"
        assert re.search(r"ACTIVE\s+SW\s+VER\s+(\d+\.\d+\.\d+\.\d+)", board)
        assert len(self.ports(client)) == 16

    def test_map_uni_and_clear(self, rome):
        client = Client(rome())
        self.request(client, "create", "E3", "W4", 1)
        assert self.ports(client)["E3"] == ("Connected", "W4", "A3")
        assert self.ports(client)["W4"] == ("Connected", "E3", "A4")
        self.request(client, "disconnect", "E3", "W4", 1)
        assert {state for state, _, _ in self.ports(client).values()} == {"Disconnected"}

    @pytest.mark.parametrize(
        ("logical", "names", "circuits"),
        [
            ("AB", ("A3", "A4"), {"E3": "W4", "E4": "W3"}),
            (
                "Q",
                ("Q3", "Q4"),
                {
                    "E5": "W8",
                    "E6": "W7",
                    "E133": "W136",
                    "E134": "W135",
                    "E7": "W6",
                    "E8": "W5",
                    "E135": "W134",
                    "E136": "W133",
                },
            ),
            ("P", ("P3", "P4"), {"E3": "W4", "E131": "W132", "E4": "W3", "E132": "W131"}),
            ("XY", ("Y13", "X14"), {"E13": "W14", "E142": "W141"}),
        ],
    )
    def test_map_bidi_by_logical_names(self, world, logical, names, circuits):
        """The circuits are those of the captures. One request is one row of the queue, under the names typed."""
        client = Client(world("rome", size=(256, 256), logical=logical, matrices="2", idle_s="1e6"))
        self.request(client, "create", *names, len(circuits))
        ports = self.ports(client)
        assert {name: peer for name, (_, peer, _) in ports.items() if peer and name[0] == "E"} == circuits
        assert {ports[name][2] for pair in circuits.items() for name in pair} == set(names)
        self.request(client, "disconnect", *names, len(circuits))
        assert client.world.truth() == {}

    def test_what_is_said_of_a_request_by_logical_names(self, rome):
        """Begun once, one line for each circuit, and one at the end."""
        client = Client(rome())
        client.world.do("operator", connect=[[1, 10]])
        said = client.types("connection create A1 to A2\n", wait_s=2 * MOVE_S)
        dated = re.findall(r"\d\d-\d\d-\d{4} \d\d:\d\d (.+?)\r\n", said)
        assert dated == [
            "CONNECTING...",
            "CONNECTION OPERATION SKIPPED(already done):E1[1AE1]<->W2[1AW2] OP:connect",
            "CONNECTION OPERATION SUCCEEDED:E2[1AE2]<->W1[1AW1] OP:connect",
            "Connection A1<->A2 completed successfully",
        ]

    def test_a_request_that_fails_half_way_is_not_completed(self, rome):
        client = Client(rome(validation="in_turn"))
        client.world.do("set_fault", fault="lock_port", port=2)
        said = client.types("connection create A1 to A2\n", wait_s=2 * MOVE_S)
        assert "SUCCEEDED:E1[1AE1]<->W2[1AW2] OP:connect" in said
        assert "FAILED:E2-W1 requestType=connect" in said
        assert "completed" not in said
        self.request(client, "disconnect", "A1", "A2", 1)
        assert client.world.truth() == {}

    def test_a_waiting_request_is_one_row_with_its_logical_names(self, rome):
        client = Client(rome())
        for command in ("A1 to A2", "A3 to A4", "E5 to W5"):
            self.ask(client, f"connection create {command}")
        client.world.advance(MOVE_S)  # the second move of the first request
        queue = self.ask(client, "connection show pending")
        assert "connect, ports: A1-A2, status: in process with payload" in queue
        rows = [line.split() for line in queue.split("\r\n") if re.match(r"\d+ ", line)]
        assert [row[1:] for row in rows] == [
            ["A3", "A4", "connect", "CLI", "admin"],
            ["E5", "W5", "connect", "CLI", "admin"],
        ]

    @pytest.mark.parametrize(("logical", "names"), [("AB", ("A1", "B5")), ("XY", ("X1", "X2"))])
    def test_logical_ports_without_a_matrix_in_common(self, rome, logical, names):
        client = Client(rome(logical=logical, matrices="2"))
        said = self.ask(client, "connection create {} to {}".format(*names))
        assert re.search(r"[Pp]orts\s+are\s+not\s+of\s+the\s+same\s+matrix", said)

    def test_a_severe_failure_is_homed_and_enabled(self, rome):
        client = Client(rome())
        client.world.do("set_fault", fault="jam", count=0)
        said = client.types("connection create E1 to W1\n", wait_s=MOVE_S)
        assert "Multiple Cross Connect Severe Failure" in said
        assert "RECOVERY FINISHED SUCCESSFULLY" in client.types("homing run\n", wait_s=60)
        said = self.ask(client, "connection set command-execution enable")
        assert "connection execution is enabled" in said
