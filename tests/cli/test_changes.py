"""Changes in files on the command line: planned now, applied later, refused when the lab is not as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.errors import JournalError
from testbed.lab.control import control
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab

TESTBED12 = Path(__file__).parents[2] / "labs" / "testbed12.yaml"


@pytest.fixture(scope="module")
@needs("process", "socket")
def lab_up(tmp_path_factory):
    """Provide a lab of modelled hosts that is up, and its file."""
    with start_lab(load_lab(TESTBED12), hosts="model") as up:
        path = tmp_path_factory.mktemp("lab") / "lab.yaml"
        path.write_text(render_lab(up.lab))
        yield up, path


@pytest.fixture
def lab_file(lab_up):
    """Provide the file of the lab, whose switch is dark."""
    truth(lab_up)
    control(lab_up[0].control["ocs1"], {"do": "operator", "disconnect": list(range(1, 49))})
    return lab_up[1]


def truth(lab_up):
    return control(lab_up[0].control["ocs1"], {"do": "truth"})


def test_a_change_is_planned_read_and_applied(testbed_here, lab_up, lab_file, tmp_path):
    change = tmp_path / "change.json"
    before = truth(lab_up)["changes"]
    planned = testbed_here("plan", lab_file, "--simplex", "--out", change, "--json")
    assert planned.code == 2
    assert truth(lab_up)["changes"] == before, "a plan moves nothing"
    kept = json.loads(change.read_text())
    assert kept["fingerprint"] == planned.json["revision"]
    assert kept["elements"] == planned.json["elements"]
    assert len([one for one in kept["elements"] if one["kind"] == "circuit"]) == 48
    assert kept["observed"]["token"] is None
    applied = testbed_here("apply", lab_file, "--change", change, "--json")
    assert applied.code == 0
    assert (applied.json["changed"], applied.json["circuits"], applied.json["epoch"]) == (True, 48, 1)
    again = testbed_here("apply", lab_file, "--change", change, "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "plan.stale")
    assert "epochs in force" in [one["field"] for one in again.json["error"]["differences"]]


def test_a_stale_change_moves_nothing_and_names_the_port(testbed_here, lab_up, lab_file, tmp_path):
    change = tmp_path / "change.json"
    testbed_here("plan", lab_file, "--simplex", "--out", change)
    control(lab_up[0].control["ocs1"], {"do": "operator", "connect": [[7, 60]]})
    before = truth(lab_up)["changes"]
    refused = testbed_here("apply", lab_file, "--change", change, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "plan.stale")
    assert refused.json["error"]["who"] == "conflict"
    assert refused.json["error"]["differences"] == [{"field": "ocs1 input 7", "planned": None, "found": 60}]
    assert truth(lab_up)["changes"] == before


def test_a_lease_that_was_granted_since_makes_a_change_stale(testbed_here, lab_file, tmp_path):
    change = tmp_path / "change.json"
    testbed_here("plan", lab_file, "--simplex", "--out", change)
    lease = testbed_here("lease", "request", lab_file, "--json").json["leases"][0]
    refused = testbed_here("apply", lab_file, "--change", change, "--lease", lease["id"], "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "plan.stale")
    assert refused.json["error"]["differences"] == [
        {"field": "lease token", "planned": None, "found": lease["token"]}
    ]
    testbed_here("plan", lab_file, "--simplex", "--out", change)
    assert json.loads(change.read_text())["observed"]["token"] == lease["token"]
    assert testbed_here("apply", lab_file, "--change", change, "--lease", lease["id"], "--json").code == 0
    testbed_here("lease", "release", lab_file, lease["id"])


def test_expect_is_the_revision_that_plan_says(testbed_here, lab_up, lab_file):
    revision = testbed_here("plan", lab_file, "--json").json["revision"]
    assert revision in testbed_here("plan", lab_file).out
    refused = testbed_here("apply", lab_file, "--expect", "0" * 16, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "plan.stale")
    assert testbed_here("apply", lab_file, "--expect", revision, "--json").code == 0
    again = testbed_here("apply", lab_file, "--expect", revision, "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "plan.stale")


def test_what_is_meant_is_said_once(testbed_here, lab_file, tmp_path):
    change = tmp_path / "change.json"
    testbed_here("plan", lab_file, "--out", change)
    for options in (["--simplex"], ["--take-over"], ["--epoch", "1"]):
        refused = testbed_here("apply", lab_file, "--change", change, *options, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (1, "plan.file")


def test_seconds_are_learned_from_the_journal(testbed_here, lab_file):
    first = testbed_here("plan", lab_file, "--simplex", "--json").json
    assert first["expected"]["total"]["samples"] == 0
    for topology in (["--simplex"], ["--method", "geometric"], ["--simplex"]):
        testbed_here("apply", lab_file, *topology)
    learned = testbed_here("plan", lab_file, "--method", "geometric")
    assert "learned from 3 steps" in learned.out
    expected = testbed_here("plan", lab_file, "--method", "geometric", "--json").json["expected"]
    (step,) = expected["switches"]["ocs1"]["steps"]
    assert step == expected["total"] == expected["switches"]["ocs1"]["total"]
    assert 0.02 <= step["median_s"] <= step["p95_s"] < 5.0


def test_a_session_without_a_journal_has_no_switch_that_writes(lab_up):
    """No write handle exists in a dry run."""
    from testbed.operate.session import design_for, open_lab

    lab = lab_up[0].lab
    with open_lab(lab, None, model_hosts=True) as session:
        for switch in session.switches.values():
            assert not any(
                hasattr(switch, name) for name in ("execute", "apply", "connect", "disconnect", "shutter")
            )
        plan = session.plan(design_for(lab, simplex=True))
        with pytest.raises(JournalError, match="only looks"):
            session.apply(plan)
