"""Dark fibres narrowed on hosts that are real to the kernel, at a switch whose monitors nobody asks."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.lab.control import send_request
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.design import Design
from testbed.operate.journal import Journal
from testbed.operate.narrow import narrow
from testbed.operate.session import LabSession, open_lab

pytestmark = pytest.mark.kernel

TOPOLOGY = find_topology(4, 2)
RING = Design("ring", TOPOLOGY, make_wiring(TOPOLOGY), find_routes(make_wiring(TOPOLOGY)))


class Unmonitored:
    """A switch that says it measures no power."""

    def __init__(self, switch):
        self._switch = switch
        self.capabilities = replace(switch.capabilities, power_monitor=False)

    def __getattr__(self, name):
        return getattr(self._switch, name)


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench(testbed12, tmp_path_factory):
    """Provide four hosts joined to a ring, whose fibres a test cuts."""
    python = str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:3], python=python) for host in testbed12.hosts[:4])
    lab = replace(testbed12, name=f"narrow-{os.getpid()}", hosts=hosts)
    journal_file = tmp_path_factory.mktemp("journal") / "journal.sqlite"
    with (
        start_lab(lab, hosts="kernel", may_move=True) as up,
        Journal(journal_file) as journal,
        open_lab(up.lab, journal) as opened,
    ):
        assert opened.bring_up(RING).verify_report.ok
        switches = {"ocs1": Unmonitored(opened.switches["ocs1"])}
        session = LabSession(opened.lab, switches, opened.fleet, journal)
        yield SimpleNamespace(
            session=session, plant=lambda **do: send_request(up.control_addresses["plant"], do)
        )


@pytest.mark.parametrize(
    ("cut", "kind", "said"),
    [
        (("a/nic1:transmit",), "no_carrier", "the transmit fibre at ocs1:1 (a/nic1), or its laser, is out"),
        pytest.param(
            ("b/nic1:receive",),
            "no_carrier",
            "the receive fibre at ocs1:53 (b/nic1) is out",
            marks=pytest.mark.long,
        ),
        (("b/nic1:transmit", "b/nic1:receive"), "dark_cable", "the cable of b/nic1 is out"),
    ],
)
def test_a_cut_fibre_is_named_and_all_circuits_are_put_back(bench, cut, kind, said):
    for fibre in cut:
        bench.plant(do="cut", fibre=fibre)
    try:
        report = bench.session.prove(RING)
        before = bench.session.switches["ocs1"].read().connections
        (finding,) = narrow(bench.session, RING, report).findings
        assert (finding.kind, finding.detail.startswith(said)) == (kind, True), finding
        assert bench.session.switches["ocs1"].read().connections == before
    finally:
        for fibre in cut:
            bench.plant(do="uncut", fibre=fibre)
