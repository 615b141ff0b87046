"""The pytest plugin against a real service: a test leases its lab, moves it, and leaves it as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

from testbed.client import connect

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

def test_a_ring(testbed_lab):
    assert len(testbed_lab.hosts) == 12
    assert testbed_lab.apply(simplex=True).verified
    assert testbed_lab.verify().ok

@pytest.mark.testbed_hosts(99)
def test_more_than_there_is(testbed_lab):
    raise AssertionError("it has no such lab")
"""


@pytest.fixture
def run_pytest(running, tmp_path):
    """Return a function that runs the tests of somebody else against the service, with this token."""
    (tmp_path / "test_ring.py").write_text(TESTS)

    def run(token):
        words = ["-m", "pytest", "-ra", "-p", "no:cacheprovider", "--lab-server", running.url]
        known = {"PYTHONPATH": str(ROOT), "LIGHTBED_TOKEN": token, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            [sys.executable, *words, "--lab-hosts", "model", "test_ring.py"],
            cwd=tmp_path,
            env=os.environ | known | {"PYTEST_PLUGINS": "testbed.pytest_plugin"},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.long
def test_a_test_has_the_lab_of_a_service_and_puts_it_back(running, run_pytest):
    with connect(running.url, running.token("operator")) as client:
        (about,) = client.list_labs()
        lab = client.lab(about["name"])
        assert lab.run("apply", method="geometric", hosts="model").exit_code == 0
        before, circuits = lab.read("topology"), lab.read("switches")["switches"][0]["circuits"]

        code, said = run_pytest(running.token("operator"))

        assert code == 0, said
        assert "1 passed, 1 skipped" in said
        assert "and 99 are needed" in said
        after = lab.read("topology")
        assert after["links"] == before["links"]
        assert lab.read("switches")["switches"][0]["circuits"] == circuits
        assert lab.read("leases")["leases"] == []
        commands = [run.command for run in client.list_runs(limit=8) if run.command != "history"]
        assert commands[:5] == ["lease release", "rollback", "verify", "apply", "lease request"]


@pytest.mark.long
def test_somebody_who_may_not_lease_is_told_so(running, run_pytest):
    code, said = run_pytest(running.token("viewer"))

    assert code == 1
    assert "this needs the role operator" in said
