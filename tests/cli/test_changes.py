"""Changes in files on the command line: planned now, applied later, refused when the lab is not as it was."""

from __future__ import annotations

import json

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.errors import JournalError
from testbed.lab.control import send_request


def truth(up):
    return send_request(up[0].control_addresses["ocs1"], {"do": "truth"})


def test_a_change_is_planned_read_and_applied(testbed, up, lab_file, tmp_path):
    change = tmp_path / "change.json"
    before = truth(up)["changes"]
    planned = testbed("plan", lab_file, "--simplex", "--out", change, "--json")
    assert planned.code == 2
    assert truth(up)["changes"] == before, "a plan moves nothing"
    kept = json.loads(change.read_text())
    assert kept["fingerprint"] == planned.json["revision"]
    assert kept["elements"] == planned.json["elements"]
    assert len([one for one in kept["elements"] if one["kind"] == "circuit"]) == 48
    assert kept["observed"]["token"] is None
    applied = testbed("apply", lab_file, "--change", change, "--json")
    assert applied.code == 0
    assert (applied.json["changed"], applied.json["circuits"], applied.json["epoch"]) == (True, 48, 1)
    again = testbed("apply", lab_file, "--change", change, "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "plan.stale")
    assert "epochs in force" in [one["field"] for one in again.json["error"]["differences"]]


def test_a_stale_change_moves_nothing_and_names_the_port(testbed, up, lab_file, tmp_path):
    change = tmp_path / "change.json"
    testbed("plan", lab_file, "--simplex", "--out", change)
    send_request(up[0].control_addresses["ocs1"], {"do": "operator", "connect": [[7, 60]]})
    before = truth(up)["changes"]
    refused = testbed("apply", lab_file, "--change", change, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "plan.stale")
    assert refused.json["error"]["who"] == "conflict"
    assert refused.json["error"]["differences"] == [{"field": "ocs1 input 7", "planned": None, "found": 60}]
    assert truth(up)["changes"] == before


def test_a_lease_that_was_granted_since_makes_a_change_stale(testbed, lab_file, tmp_path):
    change = tmp_path / "change.json"
    testbed("plan", lab_file, "--simplex", "--out", change)
    lease = testbed("lease", "request", lab_file, "--json").json["leases"][0]
    refused = testbed("apply", lab_file, "--change", change, "--lease", lease["id"], "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "plan.stale")
    assert refused.json["error"]["differences"] == [
        {"field": "lease token", "planned": None, "found": lease["token"]}
    ]
    testbed("plan", lab_file, "--simplex", "--out", change)
    assert json.loads(change.read_text())["observed"]["token"] == lease["token"]
    assert testbed("apply", lab_file, "--change", change, "--lease", lease["id"], "--json").code == 0
    testbed("lease", "release", lab_file, lease["id"])


def test_expect_is_the_revision_that_plan_says(testbed, up, lab_file):
    revision = testbed("plan", lab_file, "--json").json["revision"]
    assert revision in testbed("plan", lab_file).out
    refused = testbed("apply", lab_file, "--expect", "0" * 16, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "plan.stale")
    assert testbed("apply", lab_file, "--expect", revision, "--json").code == 0
    again = testbed("apply", lab_file, "--expect", revision, "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "plan.stale")


def test_what_is_meant_is_said_once(testbed, lab_file, tmp_path):
    change = tmp_path / "change.json"
    testbed("plan", lab_file, "--out", change)
    for options in (["--simplex"], ["--take-over"], ["--epoch", "1"]):
        refused = testbed("apply", lab_file, "--change", change, *options, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (1, "plan.file")


@pytest.mark.long
def test_seconds_are_learned_from_the_journal(testbed, lab_file):
    first = testbed("plan", lab_file, "--simplex", "--json").json
    assert first["expected"]["total"]["samples"] == 0
    for topology in (["--simplex"], ["--method", "geometric"], ["--simplex"]):
        testbed("apply", lab_file, *topology)
    learned = testbed("plan", lab_file, "--method", "geometric")
    assert "learned from 3 steps" in learned.out
    expected = testbed("plan", lab_file, "--method", "geometric", "--json").json["expected"]
    (step,) = expected["switches"]["ocs1"]["steps"]
    assert step == expected["total"] == expected["switches"]["ocs1"]["total"]
    assert 0.02 <= step["median_s"] <= step["p95_s"]


def test_a_session_without_a_journal_has_no_switch_that_writes(up):
    """No write handle exists in a dry run."""
    from testbed.operate.design import build_design
    from testbed.operate.session import open_lab

    lab = up[0].lab
    with open_lab(lab, None, model_hosts=True) as session:
        for switch in session.switches.values():
            assert not any(
                hasattr(switch, name) for name in ("execute", "apply", "connect", "disconnect", "shutter")
            )
        plan = session.plan(build_design(lab, simplex=True))
        with pytest.raises(JournalError, match="this session is read-only: pass a journal to `open_lab`"):
            session.apply(plan)
