"""Boards in lab files: what they become, what is refused, and the wiring document of their twins."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without

skip_without("pydantic")
skip_without("yaml")
jsonschema = pytest.importorskip("jsonschema")

from testbed.errors import LabFileError, TopologyError
from testbed.lab.checkup import check_lab
from testbed.lab.inventory import load_lab, parse_lab, render_lab
from testbed.lab.model import FibreEnd, LabBoard, LabBoardPort
from testbed.lab.simulated.wiring_document import make_wiring_document
from testbed.leases.model import find_parts

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "sim" / "lab" / "wiring.schema.json").read_text())
BOARDS = """boards:
  - name: board1
    program: [models/one.lng, two.lng]
    ports:
      - {name: port1, address: 10.100.20.1, transmit: 'ocs1:7', receive: 'ocs1:15'}
      - {name: port2, mac: '02:00:00:00:00:07', address: 10.100.20.2, port: 9000,
         transmit: 'ocs1:8', receive: 'ocs1:16'}
"""
"""Of the small lab, whose switch gets 8x8 ports; line 30 is `boards`."""


@pytest.fixture
def text(small_lab_text):
    text = small_lab_text()
    for host in range(6):  # receivers move up by two: the switch is larger
        text = text.replace(f"'ocs1:{12 - host}'}}", f"'ocs1:{14 - host}'}}")
    return text.replace("inputs: 6", "inputs: 8").replace("outputs: 6", "outputs: 8") + BOARDS


def test_a_board_has_its_program_and_its_ports(text):
    (board,) = parse_lab(text, "/labs/x.yaml").boards
    assert board == LabBoard(
        "board1",
        "",
        (Path("/labs/models/one.lng"), Path("/labs/two.lng")),
        None,
        (
            LabBoardPort(
                "port1",
                IPv4Address("10.100.20.1"),
                "02:00:0a:64:14:01",
                8500,
                FibreEnd("ocs1", 7, 0.3),
                FibreEnd("ocs1", 15, 0.3),
            ),
            LabBoardPort(
                "port2",
                IPv4Address("10.100.20.2"),
                "02:00:00:00:00:07",
                9000,
                FibreEnd("ocs1", 8, 0.3),
                FibreEnd("ocs1", 16, 0.3),
            ),
        ),
    )


def test_a_real_board_has_an_address(text):
    text = text.replace("simulated: true", "simulated: false").replace(
        "program: [models/one.lng, two.lng]",
        "address: pynq://0xA0000000\n    program: one.lng\n    bitstream: nic.bit",
    )
    (board,) = parse_lab(text, "/labs/x.yaml").boards
    assert (board.address, board.program, board.bitstream) == (
        "pynq://0xA0000000",
        (Path("/labs/one.lng"),),
        Path("/labs/nic.bit"),
    )
    assert parse_lab(render_lab(parse_lab(text, "/labs/x.yaml")), "/labs/x.yaml").boards == (board,)


def test_a_rendered_lab_reads_back_as_the_same(text):
    lab = parse_lab(text, "/labs/x.yaml")
    assert parse_lab(render_lab(lab), "/labs/x.yaml") == lab
    assert parse_lab(render_lab(replace(lab, boards=())), "/labs/x.yaml").boards == ()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("  - name: board1", "  - name: b", "31: name 'b' appears twice (already used on line 18)"),
        ("name: port2", "name: port1", "35: port of board 'board1' 'port1' appears twice"),
        ("name: port2", "name: Port2", "35: port 'Port2' of board 'board1' cannot be simulated"),
        ("name: port2", "name: lo", "35: port 'lo' of board 'board1' has a name that the simulation itself uses"),
        ("  - name: ocs1", "  - name: plant", "6: switch 'plant' has a name that the simulation itself uses"),
        ("  - name: board1", "  - name: fab", "31: board 'fab' has a name that the simulation itself uses"),
        ("10.100.20.2", "10.100.20.255", "35: board1/port2 has 10.100.20.255, but a simulated board has a /24 network"),
        ("10.100.20.2", "10.100.20.0", "35: board1/port2 has 10.100.20.0, but a simulated board has a /24 network"),
        ("10.100.20.2", "10.100.1.2", "35: board1/port2 has the address 10.100.1.2 of a/nic2, line 1"),
        ("10.100.20.2", "10.99.0.50", "35: board1/port2 has 10.99.0.50, inside the management network"),
        ("transmit: 'ocs1:8'", "transmit: 'ocs1:1'", "36: port 1 of switch 'ocs1' is used twice: by a/nic1"),
        ("transmit: 'ocs1:8'", "transmit: 'ocs1:16'", "36: the transmit fibre of board1/port2 ends in output 16"),
        ("receive: 'ocs1:16'", "receive: 'ocs2:16'", "36: the receive fibre of board1/port2 ends at switch 'ocs2'"),
        ("transmit: 'ocs1:8', ", "", "35: 'transmit' is missing in 'boards[0].ports[1]'"),
        ("02:00:00:00:00:07", "02:00:0a:64:14:01", "35: MAC address '02:00:0a:64:14:01' appears twice"),
        ("02:00:00:00:00:07", "01:00:00:00:00:07", "35: 'boards[0].ports[1].mac': '01:00:00:00:00:07' is a"),
        ("port: 9000", "port: 0", "35: 'boards[0].ports[1].port': input should be greater than or equal to 1"),
        ("    program: [models/one.lng, two.lng]", "    program: []", "32: 'boards[0].program': the list is empty"),
        ("    program:", "    programm:", "32: unknown key 'programm', did you mean 'program'?"),
        ("    ports:", "    address: pynq://0xA0000000\n    ports:", "33: board 'board1' has 'address', but"),
        ("    ports:", "    bitstream: nic.bit\n    ports:", "33: board 'board1' has 'bitstream', but the lab is"),
        ("simulated: true", "simulated: false", "31: 'address' is missing in 'boards[0]'; add the address"),
    ],
)  # fmt: skip
def test_a_wrong_board_is_refused_with_its_line(text, before, after, message):
    assert before in text
    with pytest.raises(LabFileError) as caught:
        parse_lab(text.replace(before, after), "labs/x.yaml")
    assert str(caught.value).startswith(f"labs/x.yaml:{message}")


def test_unknown_ports_are_refused_with_those_that_exist(text):
    lab = parse_lab(text, "labs/x.yaml")
    assert lab.find_board_port("board1", "port2").port == 9000
    with pytest.raises(TopologyError, match="ports of boards are board1/port1, board1/port2"):
        lab.find_board_port("board1", "port3")
    with pytest.raises(TopologyError, match="the lab file has no boards"):
        replace(lab, boards=()).find_board_port("board1", "port1")


def test_the_lease_of_a_board_holds_its_ports(text):
    lab = parse_lab(text, "labs/x.yaml")
    ports = {f"port:ocs1/{port}" for port in (7, 8, 15, 16)}
    assert find_parts(lab, ["board:board1"]) == {"board:board1", *ports}


def test_the_wiring_document_has_a_command_for_each_port_with_a_program(text):
    lab = parse_lab(text, "/labs/x.yaml")
    document = make_wiring_document(lab, public_key="ssh-ed25519 AAAA lightbed")
    jsonschema.validate(document, SCHEMA)
    (board,) = document["boards"]
    port = board["ports"][1]
    assert (board["name"], port["name"]) == ("board1", "port2")
    assert port["transmit"] == {"switch": "ocs1", "port": 8, "loss_db": 0.3}
    assert port["command"][1:] == [
        "-P",
        "-m",
        "lightning.cli",
        "serve",
        "/labs/models/one.lng",
        "/labs/two.lng",
        "--nic",
        "verilator://port2?address=10.100.20.2/24&mac=02:00:00:00:00:07&port=9000",
        "--namespace",
        "{namespace}",
        "--json",
    ]


def test_a_board_without_program_is_dark(text):
    lab = parse_lab(text.replace("    program: [models/one.lng, two.lng]\n", ""), "/labs/x.yaml")
    document = make_wiring_document(lab)
    assert [set(port) for port in document["boards"][0]["ports"]] == [{"name", "transmit", "receive"}] * 2
    assert "boards" not in make_wiring_document(replace(lab, boards=()))


def test_the_included_lab_is_testbed12_with_a_board():
    lab, twelve = (load_lab(ROOT / "labs" / f"{name}.yaml") for name in ("testbed12-board", "testbed12"))
    assert [(host.name, host.address, len(host.nics)) for host in lab.hosts] == [
        (host.name, host.address, len(host.nics)) for host in twelve.hosts
    ]
    assert [nic.transmit for host in lab.hosts for nic in host.nics] == [
        nic.transmit for host in twelve.hosts for nic in host.nics
    ]
    assert [nic.receive.port for host in lab.hosts for nic in host.nics] == list(range(51, 99))
    assert [(board.name, board.program, len(board.ports)) for board in lab.boards] == [("board1", (), 1)]


def test_doctor_names_the_program_that_is_missing(text, tmp_path):
    lab = parse_lab(text, tmp_path / "x.yaml")
    check = next(check_lab(lab))
    assert (check.name, check.ok) == ("board board1", False)
    assert check.found == f"{tmp_path / 'models' / 'one.lng'} does not exist"
    (dark,) = (replace(board, program=()) for board in lab.boards)
    check = next(check_lab(replace(lab, boards=(dark,))))
    assert (check.ok, check.found) == (True, "no program: its ports are dark")


@pytest.mark.process
@pytest.mark.hdl
def test_doctor_loads_the_program_of_a_simulated_board(text, tmp_path):
    skip_without("verilator", "lark")
    models = [tmp_path / "models" / "one.lng", tmp_path / "two.npz"]
    models[0].parent.mkdir()
    models[0].write_bytes(b"not a model")
    np.savez(models[1], w1=np.ones((4, 8)))
    lab = parse_lab(text, tmp_path / "x.yaml")
    for program, ok, found in (
        (models, False, f"{models[0]}"),
        (models[1:], True, "simulated, with two.npz"),
    ):
        (board,) = (replace(board, program=tuple(program)) for board in lab.boards)
        check = next(check_lab(replace(lab, boards=(board,))))
        assert check.ok is ok
        assert found in check.found
        assert ok or "lightning compile" in check.hint


@pytest.mark.process
def test_doctor_opens_the_bus_of_a_real_board(text):
    lab = replace(parse_lab(text, "x.yaml"), simulated=False)
    (board,) = lab.boards
    (check,) = check_lab(replace(lab, boards=(replace(board, address="nothing://there"),)))
    assert (check.name, check.ok) == ("board board1", False)
    assert "nothing://there" in check.found
    assert "`address` of board 'board1'" in check.hint
