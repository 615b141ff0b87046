"""Public clients of Calient switches over TL1, against the twin: the bytes they send, and the words they look for.

Bytes and patterns are facts read from those programs; none of their code is here. Which repository each is from, and
what the twin does not do, stands in `docs/reference/evidence.md`. Clients of REST are in `test_calient_rest.py`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

SIZE = 16
QUALI_ERRORS = ("[Ii]nvalid", "[Ll]ogin [Nn]ot [Aa]ctive", "[Ff]ailed")
"""Words in an answer that the L1 driver of QualiSystems takes for an error."""


@pytest.fixture
def device(world):
    return world("calient", size=(SIZE, SIZE))


class Wire:
    """A client in memory on one TL1 port of the twin."""

    def __init__(self, device: Any, frontend: str) -> None:
        self._device = device
        self._client = device.attach(frontend)
        device.settle()
        self.greeting = self._client.receive().decode()

    def __call__(self, command: str) -> str:
        """Send a command as it stands, and return what comes within a second."""
        self._client.send(command.encode())
        self._device.advance(1.0)
        return self._client.receive().decode()


# -- QualiSystems, cloudshell-L1-calient: interactive TL1


class Quali:
    """The exchanges of the L1 driver: a command, then everything up to the prompt, and no word of an error in it."""

    def __init__(self, device: Any) -> None:
        self._wire = Wire(device, "tl1-interactive")
        assert self._wire.greeting == "agent> "

    def __call__(self, command: str) -> str:
        answer = self._wire(command + "\n")
        assert answer.rstrip().endswith("agent>")
        assert not [word for word in QUALI_ERRORS if re.search(word, answer)], answer
        return answer


@pytest.fixture
def quali(device):
    send = Quali(device)
    assert re.search(r"\s+(?P<host>\S+)\s.+M", send("ACT-USER::admin:1::admin;"), re.DOTALL)["host"] == "ocs1"
    return send


def connections(answer: str) -> list[tuple[str, ...]]:
    """Return what the L1 driver reads of the circuits."""
    fields = [r"SRCPORT=(\S+)", r"DSTPORT=(\S+)", r"GRPNAME=(\S+)", r"CONNNAME=(\S+)", r"CONNTYPE=(\w+)"]
    return re.findall(",".join(fields), answer)


def test_the_l1_driver_logs_in_and_out(quali):
    assert "COMPLD" in quali("CANC-USER::admin:1;")


def test_the_l1_driver_loads_the_inventory(quali):
    found = re.search(
        r'SERIALNUMBER=(\S+),SWPACKAGE=(\S+),STATUS=.+,CHASSISTYPE=([\w\.-]+).*"',
        quali("RTRV-NE;"),
        re.DOTALL,
    )
    assert found is not None
    assert found[1].startswith("SIM")
    assert found.groups()[1:] == ("6.0-3", f"S{SIZE}")
    ports = re.findall(r'"([\w\.-]+):([\w\.-]+),', quali("RTRV-PORT::0;"))
    assert [name for name, _ in ports][:9:8] == ["1.1.1", "1.2.1"]
    assert len(ports) == SIZE
    assert connections(quali("RTRV-CRS:::::ALL;")) == []


@pytest.mark.parametrize(
    ("way", "mark", "target", "truth"),
    [
        ("2WAY", "-", "1.1.2", {1: SIZE + 2, 2: SIZE + 1}),
        ("1WAY", ">", "1.1.2", {1: SIZE + 2}),
        ("1WAY", ">", "1.1.1", {1: SIZE + 1}),  # a loop, which the driver makes one-way
    ],
)
def test_the_l1_driver_maps_and_clears(device, quali, way, mark, target, truth):
    name = f"1.1.1{mark}{target}"
    quali(f"ENT-CRS::1.1.1,{target}:1::Quali,{way};")
    quali(f"ACT-CRS::1.1.1,{target}:1::{name},Quali;")
    assert device.truth() == truth
    assert connections(quali("RTRV-CRS:::::ALL;")) == [("1.1.1", target, "Quali", name, way)]
    summary = re.search(r"CONNNAME1=(\S+),CONNSTATE1=(\w+)", quali("RTRV-PORT-SUM::1.1.1;"))
    assert summary is not None
    assert summary.groups() == (name, "ACT")
    quali(f"CANC-CRS:::::{name};")
    quali(f"DLT-CRS:::::{name};")
    assert device.truth() == {}
    assert "CONNNAME1=NONE,CONNSTATE1=NONE" in quali("RTRV-PORT-SUM::1.1.1;")


# -- other clients of TL1


@pytest.fixture
def raw(device):
    send = Wire(device, "tl1")
    assert "COMPLD" in send("ACT-USER::admin:1::admin;")
    assert "COMPLD" in send("INH-MSG-ALL:::2;")
    return send


def test_the_plugin_of_a_control_plane_makes_proves_and_removes_a_circuit(device, raw):
    """PSNC, phosphorus-g2mpls: every step is proven by reading, and an absent circuit is "Invalid Connection"."""

    def states() -> list[str]:
        return re.findall(r"AS=\w+,OS=\w+,OC=\w+", raw("RTRV-CRS::1.1.1,1.1.2:5::1.1.1-1.1.2;"))

    assert re.findall(r'"([\d.]+):WX', raw("RTRV-PORT::1.2:2::,;")) == [f"1.2.{n}" for n in range(1, 9)]
    assert "COMPLD" in raw("RTRV-CRS::,:3;")
    assert "COMPLD" in raw("ENT-CRS::1.1.1,1.1.2:4::,2way;")
    assert states() == ["AS=UMA,OS=RDY,OC=OK"]
    assert "COMPLD" in raw("ACT-CRS::1.1.1,1.1.2:6::1.1.1-1.1.2;")
    assert states() == ["AS=IS,OS=IS,OC=OK"]
    assert device.truth() == {1: SIZE + 2, 2: SIZE + 1}
    assert "Invalid Connection" in raw("ENT-CRS::1.1.1,1.1.2:7::,2way;")
    assert "COMPLD" in raw("CANC-CRS::1.1.1,1.1.2:8::1.1.1-1.1.2;")
    assert states() == ["AS=UMA,OS=RDY,OC=OK"]
    assert "COMPLD" in raw("DLT-CRS::1.1.1,1.1.2:9::,SYSTEM,1.1.1-1.1.2;")
    assert "Invalid Connection" in raw("RTRV-CRS::1.1.1,1.1.2:10::1.1.1-1.1.2;")


def test_the_agent_of_a_monitor_asks_for_one_circuit_behind_an_empty_group(device, raw):
    """MonALISA, CalientTelnet: COMPLD to this question means that the circuit is there."""
    assert "COMPLD" in raw("ent-crs::1.1.3,1.1.4:2::,2way;")
    assert "COMPLD" in raw("rtrv-crs:::3::,1.1.3-1.1.4;")
    assert "COMPLD" not in raw("rtrv-crs:::3::,1.1.5-1.1.6;")
    assert "COMPLD" in raw("dlt-crs:::4::1.1.3-1.1.4;")
    assert "COMPLD" not in raw("rtrv-crs:::3::,1.1.3-1.1.4;")
    assert device.truth() == {}


def test_the_fallback_of_an_inventory_replaces_all_circuits(device):
    """A lab inventory, by SSH and telnet on the switch: no tags; lines end as telnet ends them."""
    send = Wire(device, "tl1-interactive")
    for command in ("ACT-USER::admin:::admin;", "DLT-CRS-ALL:::;", "ENT-CRS::1.1.1,1.1.2:::,2WAY;"):
        assert "COMPLD" in send(command + "\r\n")
    assert "COMPLD" in send("CANC-USER:::;\r\n")
