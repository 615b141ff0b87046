"""Operations of the L1 drivers of QualiSystems over TL1, through the sessions of their cloudshell-cli.

Each test is one operation of a driver: its commands in its order, and the patterns by which it reads the answers.
Repositories: QualiSystems/cloudshell-L1-polatis, cloudshell-L1-calient, cloudshell-L1-glimmerglass, and the
forks of ericrqs.
"""

from __future__ import annotations

import re

import pytest

AGENT = r"agent>"
END = r";\s*<"


def pairs(pattern: str, output: str) -> list[tuple[str, ...]]:
    return re.findall(pattern, output)


# -- Polatis: QualiSystems/cloudshell-L1-polatis, 8x8 with 16 ports


@pytest.fixture
def polatis(shared_twin, cloudshell):
    twin = shared_twin("polatis", "--size=8x8")
    return twin, cloudshell("tl1", twin.urls["tl1"], password="root")


def test_polatis_login_finds_the_serial_number(polatis):
    _, client = polatis
    assert re.search(r"SN=(\w+)", client.ask('RTRV-INV:"{name}":OCS:{counter}:;'))[1].startswith("SIM")
    client.ask("RTRV-HDR:::{counter}:;")


@pytest.mark.long
def test_polatis_autoload(polatis):
    twin, client = polatis
    twin.do("operator", connect=[[1, 12]])
    size = client.ask('RTRV-EQPT:"{name}":SYSTEM:{counter}:::PARAMETER=SIZE;')
    assert re.search(r"SYSTEM:SIZE=(\d+)x(\d+)", size).groups() == ("8", "8")
    kind = client.ask('RTRV-NETYPE:"{name}"::{counter}:;')
    assert len(re.search(r'"(.*),(.*),(.*),(.*)"', kind).groups()) == 4
    assert pairs(r'"(\d+),(\d+)"', client.ask('RTRV-PATCH:"{name}"::{counter}:;')) == [("1", "12")]
    for verb, form in (
        ("PORT-SHUTTER", r'"(\d+):(\S+)"'),
        ("PORT-POWER", r'"(\d+):(\S+)"'),
        ("PORT-PMON", r'"(\d+):(\S+?),.*"'),
    ):
        rows = dict(pairs(form, client.ask(f'RTRV-{verb}:"{{name}}":1&&16:{{counter}}:;')))
        assert list(rows) == [str(port) for port in range(1, 17)], verb


def test_polatis_maps_one_way_and_both_ways(polatis):
    twin, client = polatis
    client.ask('ENT-PATCH:"{name}":1,10:{counter}:;')
    for port, other in ((3, 4), (4, 3)):
        client.ask(f'ENT-PATCH:"{{name}}":{port},{other + 8}:{{counter}}:;')
    assert twin.truth() == {1: 10, 3: 12, 4: 11}


def test_polatis_clears_a_port_and_a_pair(polatis):
    twin, client = polatis
    twin.do("operator", connect=[[1, 10], [3, 12], [4, 11]])
    client.ask('DLT-PATCH:"{name}":1:{counter}:;')
    assert twin.truth() == {3: 12, 4: 11}
    client.ask('DLT-PATCH:"{name}":3&11:{counter}:;')  # the input and the output of one logical port
    assert twin.truth() == {}


def test_polatis_names_a_refusal(polatis):
    _, client = polatis
    assert 'Status "DENY"' in client.refused('ENT-PATCH:"{name}":1,99:{counter}:;')


def test_an_older_version_sends_the_name_without_quotes(polatis):
    twin, client = polatis
    client.ask("ENT-PATCH:{name}:2,9:{counter}:;")
    assert twin.truth() == {2: 9}


# -- Calient: QualiSystems/cloudshell-L1-calient, port 3083 and its prompt


@pytest.fixture
def calient(shared_twin, cloudshell):
    twin = shared_twin("calient", "--size=8x8")
    client = cloudshell("tcp", twin.urls["tl1-interactive"], AGENT)
    assert "COMPLD" in client.ask("ACT-USER::admin:1::admin;")
    return twin, client


@pytest.mark.long
def test_calient_autoload(calient):
    _, client = calient
    node = client.ask("RTRV-NE;")
    found = re.search(
        r'SERIALNUMBER=(\S+),SWPACKAGE=(\S+),STATUS=.+,CHASSISTYPE=([\w\.-]+).*"',
        node,
        re.IGNORECASE | re.DOTALL,
    )
    assert found[1].startswith("SIM")
    ports = [name for name, _ in pairs(r'"([\w\.-]+):([\w\.-]+),', client.ask("RTRV-PORT::0;"))]
    assert ports == [f"1.1.{port}" for port in range(1, 9)]
    client.ask("ENT-CRS::1.1.1,1.1.2:1::Quali,1WAY;")
    rows = pairs(
        r"SRCPORT=(\S+),DSTPORT=(\S+),GRPNAME=(\S+),CONNNAME=(\S+),CONNTYPE=(\w+)",
        client.ask("RTRV-CRS:::::ALL;"),
    )
    assert rows == [("1.1.1", "1.1.2", "Quali", "1.1.1>1.1.2", "1WAY")]
    client.ask("DLT-CRS:::::1.1.1>1.1.2;")


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "between", "circuits"), [("1WAY", ">", {3: 12}), ("2WAY", "-", {3: 12, 4: 11})]
)
def test_calient_maps_and_clears(calient, kind, between, circuits):
    twin, client = calient
    name = f"1.1.3{between}1.1.4"
    client.ask(f"ENT-CRS::1.1.3,1.1.4:1::Quali,{kind};")
    client.ask(f"ACT-CRS::1.1.3,1.1.4:1::{name},Quali;")
    assert twin.truth() == circuits
    state = client.ask("RTRV-PORT-SUM::1.1.3;")
    assert re.search(r"CONNNAME1=(\S+),CONNSTATE1=(\w+)", state, re.IGNORECASE).groups() == (name, "ACT")
    for verb in ("CANC", "DLT"):
        answer = client.ask(f"{verb}-CRS:::::{name};")
        assert not re.search(r"[Ii]nvalid|[Ff]ailed", answer), answer
    assert twin.truth() == {}


def test_calient_logs_out(calient):
    _, client = calient
    assert "COMPLD" in client.ask("CANC-USER::admin:1;")


def test_calient_refuses_in_words_that_the_driver_knows(calient):
    _, client = calient
    client.ask("ENT-CRS::1.1.5,1.1.6:1::Quali,1WAY;")
    assert re.search(r"[Ii]nvalid", client.ask("ENT-CRS::1.1.5,1.1.7:1::Quali,1WAY;"))
    client.ask("DLT-CRS:::::1.1.5>1.1.6;")


# -- Glimmerglass: QualiSystems/cloudshell-L1-glimmerglass, and the fork of ericrqs


@pytest.fixture
def glimmerglass(shared_twin, cloudshell):
    twin = shared_twin("glimmerglass", "--size=8x8")
    client = cloudshell("tcp", twin.urls["tl1"], END)
    login = client.ask("ACT-USER::admin:1::admin;")
    assert re.search(r"COMPLD", login)
    return twin, client


def test_glimmerglass_system(glimmerglass):
    _, client = glimmerglass
    info = client.ask("rtrv-system-info:::2;")
    assert re.search(r"LicensedPortMatrix=(\d+)x(\d+)", info, re.DOTALL).groups() == ("8", "8")
    found = re.search(
        r'SerialNumber=(\S+)".*SystemType=(\S+)".*"(\S+):ChassisType=(\S+)".*SoftwareActiveVersion=(\S+)"',
        info,
        re.DOTALL,
    )
    assert found is not None, info


def test_glimmerglass_ports(glimmerglass):
    _, client = glimmerglass
    rows = pairs(
        r"PORTID=(\d+).*PORTNAME=((?:IN|OUT)\d+).*PORTHEALTH=(good|bad)",
        client.ask("RTRV-CFG-FIBER::all:3;"),
    )
    assert [row[1] for row in rows] == [f"{side}{port}" for side in ("IN", "OUT") for port in range(1, 9)]


def test_glimmerglass_circuits_are_read(glimmerglass):
    twin, client = glimmerglass
    twin.do("operator", connect=[[2, 8 + 5]])
    rows = [
        re.search(r"IPORTID=(\d+).*IPORTNAME=(\S+),.*OPORTID=(\d+).*OPORTNAME=(\S*),.*", line)
        for line in client.ask("rtrv-crs-fiber::all:4;").splitlines()
    ]
    circuits = {(row[1], row[3]) for row in rows if row and int(row[1]) > 0 and int(row[3]) > 0}
    assert circuits == {("10002", "20005")}


@pytest.mark.long
def test_glimmerglass_maps_and_clears(glimmerglass):
    twin, client = glimmerglass
    client.ask("ent-crs-fiber::10001,20002:5;")
    assert twin.truth() == {1: 8 + 2}
    client.ask("dlt-crs-fiber::10001:6;")
    client.ask("ent-crs-fiber::10003&10004,20004&20003:7;")
    assert twin.truth() == {3: 8 + 4, 4: 8 + 3}
    client.ask("dlt-crs-fiber::10003&10004:8;")
    assert twin.truth() == {}
