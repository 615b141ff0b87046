"""Operations of the L1 drivers of QualiSystems on command lines, through the sessions of their cloudshell-cli.

Each test is one operation of a driver: its commands in its order, and the patterns by which it reads the answers.
Repositories: QualiSystems/cloudshell-L1-w2w-rome, cloudshell-L1-fiberzone_afm, cloudshell-L1-Telescent.
"""

from __future__ import annotations

import re

import pytest

# -- ROME: QualiSystems/cloudshell-L1-w2w-rome, its prompt and its pattern of a port

ROME_PROMPT = (
    r"(?i)\w+\[\w+\]#\s*(\d{1,2}-\d{1,2}-\d{2,4}\s\d{1,2}:\d{1,2}\s(((dis)?connecting\.{3}\n?)|"
    r"((connection operation \w+:\w+\[\w+\]<->\w+\[\w+\]\sop:\w+\n?)+|(connection .+ completed .+\n))*))*$"
)
ROME_PORT = re.compile(
    r"([EW])(\d+)\[(\w+?)]\s+(locked|unlocked)\s+(enabled|disabled)\s+((?:dis)?connected|in process)\s+"
    r"\d+\s+(?:([EW])(\d+)\[\w+])?\s+([ABQPXY]\d+)",
    re.IGNORECASE,
)


@pytest.fixture(params=["ssh", "telnet"])
def rome(request, shared_twin, cloudshell):
    twin = shared_twin("rome", "--size=8x8", "--speed=1000", "--option=idle_s=1e9")
    url = twin.urls["cli" if request.param == "ssh" else "telnet"]
    return twin, cloudshell(request.param, url, ROME_PROMPT)


def ports_of_rome(client) -> dict[str, tuple[str, str]]:
    """Return what each place is connected to, and its logical port."""
    rows = ROME_PORT.findall(client.ask("port show"))
    return {f"{row[0]}{row[1]}": (f"{row[6]}{row[7]}", row[8]) for row in rows}


def wait_for_rome(client, first: str, second: str) -> None:
    """Ask for the queue until a pair of ports is not in it."""
    for _ in range(100):
        queue = client.ask("connection show pending")
        if not (
            re.search(rf"ports:\s+{first}-{second}\D", queue, re.IGNORECASE)
            or re.search(rf"\w+\s+{first}\s+{second}\s+\w+", queue, re.IGNORECASE)
        ):
            return
    raise AssertionError(queue)


@pytest.mark.long
def test_rome_autoload(rome):
    twin, client = rome
    twin.do("operator", connect=[[1, 8 + 2]])
    board = client.ask("show board")
    assert re.search(r"BOARD\s+.*S/N\((.+?)\)", board, re.DOTALL)[1].startswith("SIM")
    assert re.search(r"^rome\s+type\s+(.+?)\s*$", board, re.MULTILINE | re.IGNORECASE)[1] == "ROME500"
    assert re.search(r"ACTIVE\s+SW\s+VER\s+(\d+\.\d+\.\d+\.\d+)", board, re.DOTALL)
    ports = ports_of_rome(client)
    assert len(ports) == 16
    assert ports["E1"] == ("W2", "A1")
    assert ports["W2"] == ("E1", "A2")


@pytest.mark.long
def test_rome_maps_one_way_and_clears(rome):
    twin, client = rome
    client.ask("connection create E3 to W4")
    wait_for_rome(client, "E3", "W4")
    assert ports_of_rome(client)["E3"][0] == "W4"
    assert twin.truth() == {3: 8 + 4}
    client.ask("connection disconnect E3 from W4")
    wait_for_rome(client, "E3", "W4")
    assert ports_of_rome(client)["E3"][0] == ""


def test_rome_maps_both_ways_by_logical_ports(rome):
    twin, client = rome
    client.ask("connection create A5 to A6")
    wait_for_rome(client, "A5", "A6")
    assert twin.truth() == {5: 8 + 6, 6: 8 + 5}
    client.ask("connection disconnect A5 from A6")
    wait_for_rome(client, "A5", "A6")
    assert twin.truth() == {}


@pytest.mark.long
def test_rome_says_what_the_driver_takes_for_an_error(rome):
    _, client = rome
    assert re.search(r"[Ee]rror|ERROR", client.ask("connection create E1 to W99"))
    assert client.ask("port show E1")


@pytest.mark.long
def test_rome_recovers_from_a_stuck_robot(start_twin, cloudshell):
    twin = start_twin("rome", "--size=8x8", "--speed=1000", "--option=idle_s=1e9", "--fault", "jam=0")
    client = cloudshell("telnet", twin.urls["telnet"], ROME_PROMPT)
    client.ask(["connection create E1 to W2", "(?i)Multiple Cross Connect Severe Failure"])
    client.ask(["homing run", "(?i)RECOVERY FINISHED SUCCESSFULLY"])
    client.ask(["connection set command-execution enable", "connection execution is enabled"])
    twin.do("clear_fault", fault="all")
    client.ask("connection create E1 to W2")
    wait_for_rome(client, "E1", "W2")
    assert twin.truth() == {1: 8 + 2}


# -- AFM: QualiSystems/cloudshell-L1-fiberzone_afm


@pytest.fixture
def afm(shared_twin, cloudshell):
    twin = shared_twin("afm", "--size=8x8", "--speed=1000", "--option=idle_s=1e9")
    return twin, cloudshell("telnet", twin.urls["telnet"], r".+\[OPER\]#")


def rows_of_afm(output: str, pattern: str) -> list[list[str]]:
    found = (re.search(pattern, line.strip(), re.IGNORECASE) for line in output.strip().split("\n"))
    return [re.split(r"\s+", row[0]) for row in found if row]


def connected_afm(client, port: str) -> tuple[str | None, ...]:
    """Return what the east and the west side of a port are connected to, as the driver finds it."""
    rows = rows_of_afm(client.ask("port show"), rf"^\D{port}\s+\d+\s+\d+\s+\d+\s+\D{port}.*$")
    assert [row[0] for row in rows] == [f"E{port}", f"W{port}"]
    assert all((row[1], row[3]) == ("1", "1") for row in rows)  # not locked, not disabled
    return tuple(re.sub(r"\D", "", row[5]) if row[2] == "2" else None for row in rows)


def wait_for_afm(client, port: str, peer: str | None) -> None:
    for _ in range(100):
        if connected_afm(client, port) == (peer, peer):
            return
    raise AssertionError(connected_afm(client, port))


@pytest.mark.long
def test_afm_login_and_board(afm):
    _, client = afm
    board = client.ask("show board")
    assert re.search(r"BOARD\s+.*S/N\((.+?)\)", board, re.DOTALL)[1].startswith("SIM")
    assert (
        re.search(r"MAX_PORT_EAST\s+(\d+)", board)[1] == re.search(r"MAX_PORT_WEST\s+(\d+)", board)[1] == "8"
    )
    assert re.search(r"ACTIVE\s+SW\s+VER\s+(\d+\.\d+\.\d+\.\d+)", board, re.DOTALL)


def test_afm_autoload(afm):
    twin, client = afm
    twin.do("operator", connect=[[1, 8 + 2], [2, 8 + 1]])
    logical = rows_of_afm(client.ask("port show logic table"), r"^\w+\s+\d+\s+\w+\s+e\d+\s+w\d+$")
    assert [row[1] for row in logical] == [str(port) for port in range(1, 9)]
    ports = rows_of_afm(client.ask("port show"), r"^e\d+\s+\d+\s+\d+\s+\d+\s+w\d+\s+.*$")
    assert [re.sub(r"\D", "", row[5]) for row in ports[:2]] == ["2", "1"]


@pytest.mark.long
def test_afm_maps_both_ways_and_clears(afm):
    twin, client = afm
    client.ask("connection create 3 to 4")
    wait_for_afm(client, "3", "4")
    wait_for_afm(client, "4", "3")
    assert twin.truth() == {3: 8 + 4, 4: 8 + 3}
    client.ask("connection disconnect 3 from 4")
    wait_for_afm(client, "3", None)
    assert twin.truth() == {}


# -- Telescent: QualiSystems/cloudshell-L1-Telescent


@pytest.fixture
def telescent(shared_twin, cloudshell):
    twin = shared_twin("telescent", "--size=96x96", "--speed=1000", "--option=idle_s=1e9")
    return twin, cloudshell("ssh", twin.urls["cli"], r"[0-9a-zA-Z@]+>")


def tell(client, *commands: str) -> None:
    for command in commands:
        answer = client.ask(command)
        assert "Exception" not in answer, answer
        assert "ERROR" not in answer, answer


def wait_for_telescent(client, port: int, *words: str) -> None:
    for _ in range(100):
        state = client.ask(f"switchstate input {port}")
        if all(word in state for word in words):
            return
    raise AssertionError(state)


@pytest.mark.long
def test_telescent_autoload(telescent):
    twin, client = telescent
    twin.do("operator", connect=[[0 + 1, 96 + 1 + 13]])
    state = re.sub(r".\[\d+m", "", client.ask("switchstate"))
    rows = [
        re.search(r"R(\d+)#([a-zA-Z])" + r"\s+([a-zA-Z]+)(\d+)" * 12, line.strip())
        for line in state.split("\n")
    ]
    rows = [row for row in rows if row]
    assert [int(row[1]) for row in rows] == list(range(8))
    peers = {
        int(row[1]) * 12 + column: int(row[4 + 2 * column])
        for row in rows
        for column in range(12)
        if row[3 + 2 * column].startswith("A")
    }
    assert peers == {13: 0}


@pytest.mark.long
def test_telescent_maps_one_way_and_clears(telescent):
    twin, client = telescent
    tell(client, "unlock --force -in 5", "unlock --force -out 21", "connect --force -in 5 -out 21")
    wait_for_telescent(client, 5, "STATE = ALLOCATED_AND_LOCKED", "OUTPUT = 21 ")
    tell(
        client,
        "unlock --force 5",
        "unlock --force 21",
        "unallocate --force -in 5",
        "unallocate --force -out 21",
    )
    wait_for_telescent(client, 5, "STATE = UNALLOCATED_AND_")
    assert twin.truth() == {}


@pytest.mark.long
def test_telescent_maps_both_ways_and_clears(telescent):
    twin, client = telescent
    tell(client, "unlock --force 7", "unlock --force 31", "connect --force 7 31")
    wait_for_telescent(client, 7, "STATE = ALLOCATED_AND_LOCKED", "OUTPUT = 31 ")
    wait_for_telescent(client, 31, "STATE = ALLOCATED_AND_LOCKED", "OUTPUT = 7 ")
    assert len(twin.truth()) == 2
    tell(client, "unlock --force 7", "unlock --force 31", "unallocate --force 7", "unallocate --force 31")
    wait_for_telescent(client, 7, "STATE = UNALLOCATED_AND_")
    wait_for_telescent(client, 31, "STATE = UNALLOCATED_AND_")


@pytest.mark.long
def test_telescent_maps_again_what_is_mapped(telescent):
    """The driver unlocks first, and waits until the circuit is locked again."""
    twin, client = telescent
    for _ in range(2):
        tell(client, "unlock --force -in 9", "unlock --force -out 40", "connect --force -in 9 -out 40")
        wait_for_telescent(client, 9, "STATE = ALLOCATED_AND_LOCKED", "OUTPUT = 40 ")
        assert twin.truth()[10] == 96 + 41  # the device counts from 0


def test_telescent_frames_an_error(telescent):
    _, client = telescent
    answer = client.ask("connect --force -in 9999 -out 1")
    assert re.match(r".*=+\s*error\s*=+(.+?)=+", answer, re.IGNORECASE | re.DOTALL)
