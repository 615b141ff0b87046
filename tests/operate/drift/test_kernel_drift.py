"""Drift on hosts that are real to the kernel: dirt on a fibre, read by `ethtool -m` on the host behind it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers import open_switch
from ocs_drivers.model import CrossConnects
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.lab.control import send_request
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.hosts.receivers import read_receivers
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.drift.history import LossHistory
from testbed.operate.drift.report import read_drift
from testbed.operate.plan import list_circuits
from testbed.operate.session import LabSession

pytestmark = pytest.mark.kernel

RATES_GBPS = {25: 1, 100: 4, 400: 4}
WIRING = make_wiring(find_topology(3, 2))


def three_hosts(lab, rate_gbps):
    python = str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:2], python=python) for host in lab.hosts[:3])
    link = replace(lab.link, represents_gbps=float(rate_gbps))
    return replace(lab, name=f"drift{rate_gbps}-{os.getpid()}", hosts=hosts, link=link)


class Bench:
    """A patched lab with everything open, read an hour later each time."""

    def __init__(self, up, fleet, switch, history, lanes):
        self.lab, self.fleet, self.history, self.lanes = up.lab, fleet, history, lanes
        self.plant, self.now_s = up.control_addresses["plant"], 1_800_000_000.0
        self.session = LabSession(up.lab, {"ocs1": switch}, fleet, None)
        self.circuits = list_circuits(up.lab, WIRING)
        switch.apply(CrossConnects({each.input_port: each.output_port for each in self.circuits}))

    def read(self):
        self.now_s += 3600
        return read_drift(self.session, self.circuits, self.history, self.now_s)

    def dirt(self, fibre, loss_db):
        send_request(self.plant, {"do": "loss", "fibre": fibre, "loss_db": loss_db})


@pytest.fixture(scope="module", params=RATES_GBPS)
@needs("process", "socket")
def bench(request, testbed12, tmp_path_factory):
    with (
        start_lab(three_hosts(testbed12, request.param), hosts="kernel", may_move=True) as up,
        SshFleet(up.lab) as fleet,
        open_switch(up.lab.switches[0].address) as switch,
        LossHistory(tmp_path_factory.mktemp("history") / "losses.sqlite") as history,
    ):
        yield Bench(up, fleet, switch, history, RATES_GBPS[request.param])


def test_every_module_of_the_lab_reads_its_light(bench):
    found = read_receivers(bench.fleet, bench.lab)
    assert len(found) == 6
    for reading in found.values():
        assert len(reading.received_lanes_dbm) == bench.lanes
        assert (reading.power_dbm, reading.sent_power_dbm) == (
            pytest.approx(-1.8, abs=0.02),
            pytest.approx(0, abs=0.02),
        )
        assert (
            reading.thresholds.low_alarm_dbm
            < min(reading.received_lanes_dbm)
            < reading.thresholds.high_alarm_dbm
        )


def test_1_db_of_dirt_behind_the_switch_is_found_at_once_and_nothing_else(bench):
    for _ in range(12):
        assert bench.read().findings == ()
    bench.dirt("b/nic1:receive", 1.0)
    (finding,) = bench.read().findings
    bench.dirt("b/nic1:receive", 0.0)
    assert (finding.kind, finding.detail[:29]) == ("sudden_loss", "b/nic1:receive loses 1.0 dB m")
    assert bench.read().findings == ()


def test_18_db_of_dirt_are_outside_the_window_of_the_module(bench):
    bench.dirt("c/nic2:receive", 18.0)
    kinds = {finding.kind for finding in bench.read().findings}
    bench.dirt("c/nic2:receive", 0.0)
    assert "power_out_of_window" in kinds
    assert kinds <= {"power_out_of_window", "sudden_loss", "excess_loss"}


@pytest.mark.parametrize("bench", [25], indirect=True)
def test_dirt_that_grows_from_day_to_day_is_a_slow_loss(bench):
    found = []
    for quarter in range(28):
        bench.now_s += 5 * 3600
        bench.dirt("a/nic2:receive", 0.05 * quarter)
        found = [(finding.kind, finding.subject.split(" -> ")[1]) for finding in bench.read().findings]
    bench.dirt("a/nic2:receive", 0.0)
    assert ("slow_loss", "a/nic2") in found
