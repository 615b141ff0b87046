"""A board attached to a host that is real to the kernel: circuits, route, answers, and what a proof says of it."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from sim.twins.hosts import netns
from testbed.design.model import Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.lab.inventory import load_lab
from testbed.lab.simulated import wiring_document
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.attach import Attachment, attach
from testbed.operate.design import Design
from testbed.operate.journal import Journal
from testbed.operate.session import open_lab

pytestmark = pytest.mark.kernel

HERE = Path(__file__).parent
TOPOLOGY = find_topology(3, 2)
RING = Design("ring", TOPOLOGY, make_wiring(TOPOLOGY), find_routes(make_wiring(TOPOLOGY)))
ASK = (
    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20);"
    " s.sendto(b'hello board', ('10.100.20.1', 8500)); print(s.recv(2000).decode())"
)


def stand_in(_board, port):
    return [sys.executable, str(HERE / "board_stand_in.py"), port.name, str(port.address), port.mac]


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench(tmp_path_factory):
    """Provide three hosts, whose first two NICs are joined to a ring, and a board."""
    whole = load_lab(HERE.parents[1] / "labs" / "testbed12-board.yaml")
    python = str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:3], python=python) for host in whole.hosts[:3])
    boards = tuple(replace(board, program=(HERE / "board_stand_in.py",)) for board in whole.boards)
    lab = replace(whole, name=f"boards-{os.getpid()}", hosts=hosts, boards=boards)
    journal_file = tmp_path_factory.mktemp("journal") / "journal.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring_document, "make_board_command", stand_in)
        with (
            start_lab(lab, hosts="kernel", may_move=True) as up,
            Journal(journal_file) as journal,
            open_lab(up.lab, journal) as opened,
        ):
            assert up.boards == {"board1": {"port1": {"interface": "port1"}}}
            assert opened.bring_up(RING).verify_report.ok
            yield opened, up


def run(opened, command):
    done = opened.fleet.run({"a": command})["a"]
    return done.exit_status, done.stdout.strip()


def ask(opened):
    return run(opened, f'{sys.executable} -c "{ASK}"')


def findings(opened):
    return [(one.kind, one.subject) for one in opened.prove(RING).findings]


def test_a_free_nic_reaches_the_board_and_keeps_it(bench):
    opened, _ = bench
    report = attach(opened, Attachment("a", "nic3", "board1", "port1"))
    assert [(one.input_port, one.output_port) for one in report.circuits] == [(3, 99), (49, 53)]
    assert report.replaced_labels == ()
    assert 0 < report.apply_result.total_s <= report.dark_duration_s
    assert run(opened, "ping -c 1 -W 5 10.100.20.1 >/dev/null") == (0, "")
    assert ask(opened) == (0, "draob olleh")
    assert findings(opened) == []
    assert opened.plan(RING).has_changes is False
    assert opened.bring_up(RING).verify_report.ok  # circuits and route stay
    assert ask(opened) == (0, "draob olleh")


def test_a_nic_of_a_topology_is_lent_and_taken_back(bench):
    opened, _ = bench
    notes = []
    report = attach(opened, Attachment("a", "nic2", "board1", "port1"), notes.append)
    ring = {opened.lab.link_label(link) for link in RING.wiring.links if Nic(0, 1) in link}
    assert len(ring) == 2
    assert set(report.replaced_labels) == {*ring, "a/nic3 -> board1/port1", "board1/port1 -> a/nic3"}
    assert notes[0] == "attach a/nic2 -> board1/port1: 4 circuits to remove"
    assert ask(opened) == (0, "draob olleh")
    kinds = [kind for kind, _ in findings(opened)]
    assert (kinds.count("missing_circuit"), kinds.count("extra_circuit")) == (2, 2)
    assert not {"board_dark", "board_silent", "extra_route"} & set(kinds)
    assert opened.bring_up(RING).verify_report.ok
    assert ask(opened)[0] != 0


def test_a_proof_names_a_board_that_is_silent_or_dark(bench):
    opened, up = bench
    attach(opened, Attachment("a", "nic3", "board1", "port1"))
    (pid,) = netns.list_processes([f"{up.lab_id}-board1"])
    os.kill(pid, signal.SIGSTOP)
    run(opened, "ip neigh flush dev nic3")
    assert findings(opened) == [("board_silent", "board1/port1")]
    os.kill(pid, signal.SIGKILL)
    for _ in range(100):
        if (found := findings(opened)) != [("board_silent", "board1/port1")]:
            break
    assert found == [("board_dark", "board1/port1")]
