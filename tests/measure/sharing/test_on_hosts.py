"""Jobs on hosts that are real to the kernel: measured, kept, and nothing left behind, whatever happens."""

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

from testbed.design.sharing.jobs import Burst, SharedJob
from testbed.errors import CollectiveError, UnderMaintenance, WorkloadError
from testbed.lab.inventory import fix_link_rate, load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.leases.store import LeaseStore
from testbed.measure.results.store import RunStore
from testbed.measure.sharing import agents
from testbed.measure.sharing.host_run import SHARED_JOBS_PHASE, read_measured_bursts, to_json
from testbed.measure.sharing.measurement import measure_jobs
from testbed.measure.sharing.policies import Conditions, Schedule
from testbed.operate.design import build_design
from testbed.operate.journal import Journal
from testbed.operate.session import open_lab

LAB = Path(__file__).resolve().parents[3] / "labs" / "testbed12.yaml"
NAMES, HOSTS = ("x", "y"), ("a", "b")
PERIOD_MS = 100.0
SHIFTED = Schedule({"x": 0.0, "y": 50.0}, dict.fromkeys(NAMES, PERIOD_MS))


class Shared:
    """Two hosts of one NIC each, with a topology in force."""

    def __init__(self, session, design, journal) -> None:
        self.session, self.design, self.journal = session, design, journal
        gbps = session.lab.link.represents_gbps
        burst = (Burst(70.0, 30.0, gbps),)
        self.jobs = [SharedJob(name, PERIOD_MS, burst, HOSTS, 2) for name in NAMES]

    def measure(self, *policies, **further):
        conditions = Conditions(**{"iterations": 4} | further)
        placement = dict.fromkeys(NAMES, HOSTS)
        where = (self.session, self.journal, self.design, self.jobs, placement, SHIFTED)
        return measure_jobs(*where, policies, conditions)

    def settings(self):
        """Return queues, segments and kernel settings of all hosts."""
        names = ["slow_start_after_idle", "no_metrics_save", "rto_min_us"]
        files = " ".join(f"/proc/sys/net/ipv4/tcp_{name}" for name in names)
        command = f"tc qdisc show; ip -d link show nic1 | grep -o 'gso_max_segs [0-9]*'; cat {files} 2>&1"
        done = self.session.fleet.run({host.name: command for host in self.session.lab.hosts})
        return {
            name: one.stdout.replace("refcnt 3 ", "").replace("refcnt 2 ", "") for name, one in done.items()
        }


@pytest.fixture(scope="module")
@needs("kernel")
def shared(tmp_path_factory):
    whole, python = load_lab(LAB), str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:1], python=python) for host in whole.hosts[:2])
    lab = fix_link_rate(replace(whole, name=f"sharing-{os.getpid()}", hosts=hosts), 20.0)
    with (
        start_lab(lab, hosts="kernel", may_move=True) as up,
        Journal(tmp_path_factory.mktemp("journal") / "journal.sqlite") as journal,
        open_lab(up.lab, journal, keep_intent=False) as session,
    ):
        design = build_design(up.lab)
        assert session.bring_up(design).verify_report.ok
        yield Shared(session, design, journal)


@pytest.mark.long
def test_every_policy_is_measured_beside_its_prediction_and_nothing_stays_set(shared, tmp_path):
    before = shared.settings()

    rows = shared.measure("fair", "weights", "shifts", "mltcp")

    assert [(row.job, row.policy) for row in rows] == [
        (name, policy) for policy in ("fair", "weights", "shifts", "mltcp") for name in NAMES
    ]
    for row in rows:
        assert 1 <= len(row.iterations_ms) <= 4
        assert row.mean_ms >= 0.95 * PERIOD_MS
        assert row.computed_ms == pytest.approx(70.0)
        assert row.predicted_ms >= PERIOD_MS
    assert shared.settings() == before
    store = RunStore(tmp_path)
    with store.begin_run(shared.session.lab, True, "kernel", seeds={}) as run:
        run.add_phase(SHARED_JOBS_PHASE, to_json(rows, 25.0))
    period_ms, (burst,) = read_measured_bursts(store, run.run_id, "x")
    assert period_ms == min(time for row in rows if row.job == "x" for time in row.iterations_ms)
    assert (burst.start_ms, burst.gbps) == (pytest.approx(70.0), 25.0)
    with pytest.raises(WorkloadError, match="measured no job 'z': name a run of"):
        read_measured_bursts(store, run.run_id, "z")


def test_nothing_stays_set_when_agents_fail(shared, monkeypatch):
    before = shared.settings()
    monkeypatch.setattr(agents, "TIMEOUT_S", 0.001)
    monkeypatch.setattr(agents, "_compute_deadline_s", lambda *_given: 120.0)

    with pytest.raises(CollectiveError, match=r"job [xy]: a burst did not end in time"):
        shared.measure("fair")

    assert shared.settings() == before


def test_nothing_stays_set_when_somebody_interrupts(shared, monkeypatch):
    before = shared.settings()
    seen = []

    def interrupted(*_given):
        seen.append(shared.settings())
        raise KeyboardInterrupt

    monkeypatch.setattr("testbed.measure.sharing.measurement.run_agents", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shared.measure("weights")

    assert "htb" in seen[0]["a"]
    assert shared.settings() == before


def test_under_maintenance_nothing_is_set(shared, monkeypatch):
    before = shared.settings()
    leases = LeaseStore(shared.journal.database, shared.session.lab.name)
    leases.set_maintenance("hands in the rack")
    try:
        with pytest.raises(UnderMaintenance):
            shared.measure("fair")
    finally:
        leases.clear_maintenance()

    assert shared.settings() == before
