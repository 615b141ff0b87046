"""An apply that was killed among its hosts is resumed on kernels: the hosts that hold their routes are left alone."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

import sqlite3

from testbed.cli.app import run_app
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.lab.control import send_request
from testbed.lab.hosts.reachability import ping_all
from testbed.lab.inventory import render_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate import apply
from testbed.operate.design import Design, build_intent_design
from testbed.operate.journal import open_journal
from testbed.operate.recovery.records import load_operations
from testbed.operate.recovery.resume import find_unfinished, resume
from testbed.operate.repair import carry_out, observe_design, plan_lab_repair
from testbed.operate.session import open_lab
from testbed.operate.unfinished import find_unfinished_operations

pytestmark = pytest.mark.kernel


class Killed(BaseException):
    """The process is gone: nothing after it is done."""


def four_hosts(lab):
    python = str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:2], python=python) for host in lab.hosts[:4])
    return replace(lab, name=f"resumed-{os.getpid()}", hosts=hosts)


def ring(*, simplex=False):
    topology = find_topology(4, 2, simplex=simplex)
    wiring = make_wiring(topology)
    return Design("ring", topology, wiring, find_routes(wiring))


@contextmanager
def killed_after_two_hosts(monkeypatch):
    """Be killed inside when two of four hosts have their routes."""
    really = apply.install

    def some(fleet, parts):
        really(fleet, dict(list(parts.items())[:2]))
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(apply, "install", some)
        with pytest.raises(Killed):
            yield


@pytest.mark.long
def test_hosts_that_hold_their_routes_are_left_alone(testbed12, tmp_path, monkeypatch):
    with (
        start_lab(four_hosts(testbed12), hosts="kernel", may_move=True) as up,
        open_journal(tmp_path) as journal,
        open_lab(up.lab, journal) as session,
    ):
        lab = session.lab
        assert session.bring_up(ring()).verify_report.ok
        with killed_after_two_hosts(monkeypatch):
            session.bring_up(ring(simplex=True))
        with sqlite3.connect(journal.path) as connection:
            connection.execute("update intents set owner = '1 gone/0' where epoch = 2")
        connection.close()
        left = find_unfinished(tmp_path, lab, None)
        here, design = build_intent_design(lab, left.intent)
        resumed = resume(session, left, design)
        assert (resumed.state, resumed.reason) == ("verified", "finished and verified")
        assert ping_all(session.fleet).missing_pairs == ()
    *_, record = load_operations(tmp_path, lab.name)
    hosts = {host.name: [step.state.value for step in record.list_steps(host.name)] for host in here.hosts}
    assert hosts == {
        "a": ["verified"],
        "b": ["verified"],
        "c": ["failed", "verified"],
        "d": ["failed", "verified"],
    }


def lost(session, design, deadline_s=20.0):
    """Return what is lost, when a NIC has noticed it."""
    end = time.monotonic() + deadline_s
    while not (observation := observe_design(session, design)).losses:
        assert time.monotonic() < end, "no NIC has noticed the cut"
    return plan_lab_repair(session.lab, design, observation)


def test_a_repair_of_routes_alone_is_finished_from_what_is_lost_now(testbed12, tmp_path, monkeypatch, capsys):
    with start_lab(four_hosts(testbed12), hosts="kernel", may_move=True) as up:
        lab_file = tmp_path / "lab.yaml"
        lab_file.write_text(render_lab(up.lab))
        with open_journal(tmp_path) as journal, open_lab(up.lab, journal) as session:
            assert session.bring_up(ring()).verify_report.ok
            send_request(up.control_addresses["plant"], {"do": "cut", "fibre": "a/nic1:transmit"})
            planned = lost(session, ring())
            assert planned.repatched_design is None, "no circuit can help where every NIC is in use"
            with killed_after_two_hosts(monkeypatch):
                carry_out(session, planned)
        (left,) = find_unfinished_operations(tmp_path, up.lab)
        assert left.detail.startswith("a repair that was interrupted, begun ")
        capsys.readouterr()
        assert run_app(["resume", str(lab_file), "--runs-dir", str(tmp_path), "--json"]) == 0
        resumed = json.loads(capsys.readouterr().out)
        assert (resumed["operation"], resumed["state"]) == (left.operation, "verified")
        assert resumed["unfinished"] == []
        with open_lab(up.lab, None) as session:
            assert ping_all(session.fleet).missing_pairs == ()
    *_, record = load_operations(tmp_path, up.lab.name)
    hosts = {name: [step.state.value for step in record.list_steps(name)] for name in "abcd"}
    assert hosts == {
        "a": ["verified"],
        "b": ["verified"],
        "c": ["failed", "verified"],
        "d": ["failed", "verified"],
    }
