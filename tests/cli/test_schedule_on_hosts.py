"""`testbed schedule --run` on kernel hosts: a lab that is down is started, and its run is a source of jobs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("typer")
skip_without("asyncssh")
skip_without("sqlalchemy")

LAB = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"
JOBS = """\
jobs:
  - {name: x, period_ms: 120, bursts: [{start_ms: 80, length_ms: 40, gbps: 25}], hosts: [a, b]}
  - {name: y, period_ms: 120, bursts: [{start_ms: 80, length_ms: 40, gbps: 12.5}], hosts: [a, b]}
"""
KEYS = {"job", "policy", "mean_ms", "p99_ms", "alignments", "retransmits", "predicted_ms", "difference"}


@pytest.mark.kernel
@pytest.mark.slow
def test_jobs_run_on_a_lab_that_is_started_and_their_run_describes_jobs(testbed, tmp_path):
    lab, jobs, runs = tmp_path / "lab.yaml", tmp_path / "jobs.yaml", tmp_path / "runs"
    text = LAB.read_text().replace("name: testbed12", f"name: schedule-{os.getpid()}", 1)
    lab.write_text(text.replace("../.venv-host/bin/python", str(Path(sys.executable).resolve())))
    jobs.write_text(JOBS)

    ran = testbed("schedule", jobs, "--lab", lab, "--run", "--iterations", 3, "--runs-dir", runs, "--json")

    assert ran.code == 0, ran.err
    measured = ran.json["measured"]
    assert [(row["job"], row["policy"]) for row in measured] == [
        (job, policy) for policy in ("fair", "shifts") for job in "xy"
    ]
    assert set(measured[0]) >= KEYS
    assert all(row["mean_ms"] > 100 for row in measured)
    jobs.write_text(f"jobs:\n  - {{name: x, run: {ran.json['run_id']}, hosts: [a, b]}}\n")
    again = testbed("schedule", jobs, "--lab", lab, "--runs-dir", runs, "--json")
    assert again.json["predicted"][0]["solo_ms"] == pytest.approx(
        min(time for row in measured if row["job"] == "x" for time in row["iterations_ms"]), rel=1e-6
    )
