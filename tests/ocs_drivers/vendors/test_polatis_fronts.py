"""One Polatis, four languages: what one changes the others read; and other people's clients on the same twin."""

from __future__ import annotations

import base64
import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from libraries import skip_without
from needs import needs

skip_without("h11")
skip_without("pyvisa_py")
skip_without("serial")

from ocs_drivers import CrossConnects, open_switch
from ocs_drivers.errors import PortDisabled, PortFailed
from ocs_drivers.model import PortState

FRONTS = ("scpi", "serial", "tl1", "rest")


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    return shared_twin("polatis", "--size=8x8", "--switch-time-ms=1", "--option=baud=921600")


@pytest.mark.parametrize("writer", FRONTS)
def test_what_one_sets_the_three_others_read(twin, writer):
    target = CrossConnects({1: 16, 2: 9, 5: 12})
    with open_switch(twin.urls[writer], timeout_s=5) as switch:
        switch.apply(target)
        switch.shutter([3], is_open=False)
        wrote = {port: info.state for port, info in switch.ports().items()}
    assert wrote[3] is PortState.DISABLED
    for reader in set(FRONTS) - {writer}:
        with open_switch(twin.urls[reader], timeout_s=5) as switch:
            assert switch.read().connections == target
            assert {port: info.state for port, info in switch.ports().items()} == wrote
    with open_switch(twin.urls[writer], timeout_s=5) as switch:
        switch.shutter([3], is_open=True)


def test_all_four_name_the_same_device(twin):
    found = set()
    for front in FRONTS:
        with open_switch(twin.urls[front], timeout_s=5) as switch:
            identity = switch.identity()
            found.add((identity.model, identity.serial, identity.firmware))
    assert len(found) == 1


def test_power_is_the_same_in_all_four(twin):
    readings = []
    for front in FRONTS:
        with open_switch(twin.urls[front], timeout_s=5) as switch:
            readings.append(switch.power(range(1, 17)))
    assert readings[1:] == readings[:-1]


# -- the first bar: a whole configuration in three round trips


@pytest.mark.parametrize(
    ("scheme", "front", "trips"),
    [("polatis+scpi", "scpi", 3), ("polatis+serial", "serial", 3), ("polatis+rest", "rest", 3)],
)
def test_48_pairs_take_three_round_trips(world, open_in_memory, scheme, front, trips):
    made = world("polatis", size=(48, 48))
    switch = open_in_memory(made, scheme, front)
    made.do("transcript", clear=True)
    report = switch.apply(CrossConnects({i: 97 - i for i in range(1, 49)}))
    entries = made.do("transcript")["entries"]
    assert len([entry for entry in entries if entry["direction"] == "in" and entry["data"]]) == 3
    assert len([entry for entry in entries if entry["direction"] == "out"]) == 3
    assert len(report.pairs) == 48
    assert made.truth() == {i: 97 - i for i in range(1, 49)}


@pytest.mark.parametrize(("fault", "error"), [("disable_port", PortDisabled), ("fail_port", PortFailed)])
def test_scpi_finds_an_unfit_port_before_a_byte_of_the_write(world, open_in_memory, fault, error):
    made = world("polatis", size=(8, 8))
    switch = open_in_memory(made, "polatis+scpi", "scpi")
    made.do("set_fault", fault=fault, port=9)
    made.do("transcript", clear=True)
    with pytest.raises(error) as caught:
        switch.apply(CrossConnects({1: 9}))
    assert caught.value.ports == (9,)
    received = [entry["data"] for entry in made.do("transcript")["entries"] if entry["direction"] == "in"]
    assert received == [":oxc:swit:conn:stat?;:oxc:swit:port:stat?\n"]


@pytest.mark.parametrize("mode", ["DARK", "RESTORE", "AUTOSAVE"])
def test_scpi_tells_the_boot_mode(world, open_in_memory, mode):
    made = world("polatis", size=(8, 8), settings={"boot_mode": mode})
    assert open_in_memory(made, "polatis+scpi", "scpi").capabilities.boot_mode == mode


def test_pages_of_a_long_tl1_reply_are_joined(world, open_in_memory):
    made = world("polatis", size=(16, 16), page_rows="5")
    switch = open_in_memory(made, "polatis+tl1", "tl1")
    target = CrossConnects({i: 16 + i for i in range(1, 17)})
    switch.apply(target)
    assert switch.read().connections == target
    assert len(switch.ports()) == 32


# -- somebody else's clients


def test_a_stranger_reads_scpi_with_pyvisa(twin):
    pyvisa = pytest.importorskip("pyvisa")
    address = twin.urls["scpi"].removeprefix("polatis+scpi://")
    host, port = address.split(":")
    manager = pyvisa.ResourceManager("@py")
    resource = manager.open_resource(
        f"TCPIP0::{host}::{port}::SOCKET", read_termination="\r\n", write_termination="\n"
    )
    try:
        assert resource.query("*IDN?").startswith("Polatis,I-OST-8x8-")
        resource.write(":oxc:swit:conn:add (@1,2),(@9,10)")
        assert resource.query(":oxc:swit:conn:stat?") == "(@1,2),(@9,10)"
    finally:
        resource.close()
    assert twin.truth() == {1: 9, 2: 10}


def test_a_stranger_speaks_tl1_on_a_bare_socket(twin):
    host, port = twin.urls["tl1"].removeprefix("polatis+tl1://").split(":")
    with socket.create_connection((host, int(port)), 5) as connection, connection.makefile("rb") as received:

        def ask(command: str) -> str:
            connection.sendall(command.encode() + b"\r\n")
            reply = b""
            while not reply.endswith(b";"):
                reply += received.read(1)
            return reply.decode()

        assert "M  1 COMPLD" in ask("ACT-USER::admin:1::root;")
        assert "M  3 COMPLD" in ask("ENT-PATCH::1,16:3:;")  # one `;` a command, as public clients read
        assert '   "1,16"\r\n;' in ask("RTRV-PATCH:::4:;")
        assert "M  6 COMPLD" in ask("DLT-PATCH::1:6:;")


class Stranger:
    """A REST client made of the standard library."""

    def __init__(self, url: str) -> None:
        self._root = url.replace("polatis+rest", "http") + "/api/data/"
        token = base64.b64encode(b"admin:root").decode()
        self._headers = {"Authorization": f"Basic {token}", "Content-Type": "application/yang-data+json"}

    def ask(self, method: str, node: str, document: Any = None, **headers: str) -> tuple[int, Any, Any]:
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(self._root + node, body, {**self._headers, **headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                text = reply.read()
                return reply.status, json.loads(text) if text else None, reply.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers


def test_a_stranger_uses_rest_with_the_standard_library(twin):
    stranger = Stranger(twin.urls["rest"])
    pairs = "optical-switch:cross-connects"
    body = {"optical-switch:cross-connects": {"pair": [{"ingress": 1, "egress": 13}]}}
    assert stranger.ask("PUT", pairs, body)[0] == 204
    status, document, headers = stranger.ask("GET", pairs)
    assert (status, document) == (200, body)
    assert headers["Content-Type"] == "application/yang-data+json"
    assert (
        stranger.ask("PUT", f"{pairs}/pair=2", {"optical-switch:pair": [{"ingress": 2, "egress": 9}]})[0]
        == 201
    )
    assert stranger.ask("PUT", pairs, body, **{"If-Match": headers["ETag"]})[0] == 412
    assert twin.truth() == {1: 13, 2: 9}
    assert stranger.ask("DELETE", f"{pairs}/pair=2,9")[0] == 204
    with open_switch(twin.urls["scpi"]) as switch:
        assert switch.read().connections == CrossConnects({1: 13})
