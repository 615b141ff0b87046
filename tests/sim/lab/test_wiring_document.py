"""The wiring document: what is refused, and that the complaint names the place."""

from __future__ import annotations

import json

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.lab.document import parse_document
from sim.lab.model import LabError


def refused(wrong, change):
    change(wrong)
    with pytest.raises(LabError) as caught:
        parse_document(json.dumps(wrong))
    assert caught.value.code == "document"
    return caught.value.what.removeprefix("wiring document: ")


def test_a_good_document_has_its_defaults(labs):
    raw = labs.document()
    del raw["control"]
    parsed = parse_document(json.dumps(raw))
    assert (str(parsed.control_address), str(parsed.root_address)) == ("10.97.0.1:7000", "10.97.0.1")
    assert (parsed.link.burst_kb, parsed.link.latency_ms, parsed.switches[0].user) == (128, 50.0, None)
    assert [str(address) for address in parsed.twin_addresses] == ["10.97.0.2"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d["hosts"][1].update(colour="red"), "hosts[1]: Additional properties are not allowed"),
        (lambda d: d["link"].update(mtu=100), "link.mtu: 100 is less than the minimum of 576"),
        (lambda d: d.pop("hosts"), "(top): 'hosts' is a required property"),
        (
            lambda d: d.update(management="10.97.0.7/24"),
            "management: '10.97.0.7/24': 10.97.0.7/24 has host bits",
        ),
        (lambda d: d.update(management="10.97.0.0/30"), "management: 10.97.0.0/30 is too small for a lab"),
        (
            lambda d: d["switches"][0].update(scpi="10.97.0.2"),
            "switches[0].scpi: '10.97.0.2' is not an address",
        ),
        (lambda d: d["hosts"][0].update(management="x"), "hosts[0].management: 'x' is not an IPv4 address"),
        (lambda d: d["hosts"][2].update(management="10.98.0.1"), "hosts[2].management: 10.98.0.1 is outside"),
        (
            lambda d: d["hosts"][2].update(management="10.97.0.11"),
            "hosts[2].management: address 10.97.0.11 is already used at hosts[0].management",
        ),
        (
            lambda d: d["hosts"][2].update(management="10.97.0.2"),
            "hosts[2].management: address 10.97.0.2 is already used at switches[0].control",
        ),
        (
            lambda d: d["hosts"][0].update(name="fab"),
            "hosts[0].name: the lab itself uses the name fab",
        ),
        (lambda d: d["hosts"][1].update(name="a"), "hosts[1].name: host a is already used at hosts[0].name"),
        (
            lambda d: d["hosts"][0]["nics"][1].update(name="nic1"),
            "hosts[0].nics[1].name: NIC nic1 is already used at hosts[0].nics[0].name",
        ),
        (
            lambda d: d["hosts"][0]["nics"][0]["transmit"].update(switch="ocs9"),
            "hosts[0].nics[0].transmit.switch: there is no switch ocs9",
        ),
        (
            lambda d: d["hosts"][0]["nics"][0]["transmit"].update(port=7),
            "hosts[0].nics[0].transmit.port: port 7 of ocs1 is not for transmit fibres",
        ),
        (
            lambda d: d["hosts"][0]["nics"][0]["receive"].update(port=13),
            "hosts[0].nics[0].receive.port: port 13 of ocs1 is not for receive fibres",
        ),
        (
            lambda d: d["hosts"][1]["nics"][0]["transmit"].update(port=1),
            "hosts[1].nics[0].transmit: port ocs1:1 is already used at hosts[0].nics[0].transmit",
        ),
        (
            lambda d: d["hosts"][1]["nics"][0].update(name="lo"),
            "hosts[1].nics[0].name: the lab itself uses the name lo",
        ),
        (
            lambda d: d["hosts"][1]["nics"][0].update(name="mgmt"),
            "hosts[1].nics[0].name: the lab itself uses the name mgmt",
        ),
        (
            lambda d: d["switches"][0].update(name="plant"),
            "switches[0].name: the lab itself uses the name plant",
        ),
        (
            lambda d: d["switches"][0].update(tl1="10.97.0.2:5025"),
            "switches[0].tl1: address 10.97.0.2:5025 is already used at switches[0].scpi",
        ),
        (
            lambda d: d["hosts"][0].update(management="10.97.0.255"),
            "hosts[0].management: 10.97.0.255 is the network or broadcast address of 10.97.0.0/24",
        ),
        (lambda d: d["hosts"][0].update(ssh_port=0), "hosts[0].ssh_port: 0 is less than the minimum of 1"),
        (
            lambda d: d["link"].update(burst_kb=8),
            "link.burst_kb: 8 KiB do not hold a frame of 9014 bytes",
        ),
    ],
)
def test_a_wrong_document_is_refused_with_the_path_of_what_is_wrong(labs, change, complaint):
    assert refused(labs.document(), change).startswith(complaint)


def test_what_is_not_json_is_refused():
    with pytest.raises(LabError, match="not JSON"):
        parse_document("hosts: []\n")
