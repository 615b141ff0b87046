"""`testbed lease` and `testbed maintenance`: what programs get, and how refusals end."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.cli.app import run_app

LAB = str(Path(__file__).parents[2] / "labs" / "testbed12.yaml")


@pytest.fixture
def ask(tmp_path, capsys):
    """Return a function that runs a command in an empty directory of runs, and returns exit code and document."""

    def run(*words):
        code = run_app([*words, "--runs-dir", str(tmp_path / "runs"), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_looking_at_leases_makes_nothing(ask, tmp_path):
    assert ask("lease", "list", LAB) == (
        0,
        {"lab": "testbed12", "leases": [], "maintenance": None, "unfinished": []},
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_lease_from_the_request_to_its_end(ask):
    code, document = ask("lease", "request", LAB, "host:a", "--ttl", "10m", "--reason", "a ring")
    (lease,) = document["leases"]
    assert (code, lease["state"], lease["token"], lease["resources"]) == (0, "granted", 1, ["host:a"])
    assert abs(lease["expires"] - time.time() - 600) < 60
    code, document = ask("lease", "request", LAB)
    (whole,) = document["leases"]
    assert (code, whole["state"], whole["token"], whole["resources"]) == (0, "queued", None, ["lab"])
    assert whole["waits_for"] == f"lease {lease['id']} of {lease['owner']} holds host:a"
    code, document = ask("lease", "extend", LAB, lease["id"], "--ttl", "2h")
    assert document["leases"][0]["expires"] > lease["expires"] + 3600
    assert ask("lease", "release", LAB, lease["id"])[1]["leases"][0]["state"] == "released"
    code, document = ask("lease", "break", LAB, whole["id"], "--reason", "a fire")
    assert document["leases"][0]["reason"] == f"a fire (by {lease['owner']})"
    assert ask("lease", "list", LAB)[1]["leases"] == []
    assert [one["state"] for one in ask("lease", "list", LAB, "--ended")[1]["leases"]] == [
        "released",
        "broken",
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("request", LAB, "host:zz"), "lease.impossible"),
        (("request", LAB, "host:a", "--at", "2020-01-01"), "lease.denied"),
        (("request", LAB, "--at", "soon"), "usage"),
        (("request", LAB, "--ttl", "5"), "usage"),
        (("extend", LAB, "nobody"), "lease.denied"),
        (("release", LAB, "nobody"), "lease.denied"),
        (("break", LAB, "nobody", "--reason", "x"), "lease.denied"),
    ],
)
def test_a_refusal_ends_with_one_and_its_code(ask, words, error):
    code, document = ask("lease", *words)
    assert (code, document["error"]["code"]) == (1, error)


def test_reservations_are_made_ahead_and_do_not_overlap(ask):
    code, document = ask("lease", "request", LAB, "host:a", "--at", "2099-01-01T09:00", "--ttl", "1h")
    assert (code, document["leases"][0]["state"], document["leases"][0]["starts"]) == (
        0,
        "requested",
        4070941200.0,
    )
    code, document = ask("lease", "request", LAB, "nic:a/nic1", "--at", "2099-01-01T10:59:59+01:00")
    assert (code, document["error"]["code"]) == (1, "lease.denied")
    assert ask("lease", "request", LAB, "nic:a/nic1", "--at", "2099-01-01T10:00")[0] == 0


def test_a_database_that_is_damaged_is_told_with_what_to_do(ask, tmp_path):
    (tmp_path / "runs").mkdir(exist_ok=True)
    (tmp_path / "runs" / "lightbed.sqlite").write_bytes(
        b"something else, and long enough to be looked at\n" * 40
    )
    code, document = ask("lease", "list", LAB)
    assert (code, document["error"]["code"]) == (1, "storage")
    assert "`testbed restore FILE`" in document["error"]["message"]


def test_a_lease_whose_time_is_over_is_told_as_expired(ask, monkeypatch):
    ask("lease", "request", LAB, "host:a", "--ttl", "1h")
    later_s = time.time() + 3700
    monkeypatch.setattr(time, "time", lambda: later_s)
    (lease,) = ask("lease", "list", LAB)[1]["leases"]
    assert (lease["state"], lease["reason"]) == ("expired", "its time is over")


def test_maintenance_is_shown_and_ended(ask):
    assert ask("maintenance", "on", LAB, "--reason", "a fan") == (
        0,
        {"lab": "testbed12", "maintenance": True, "unfinished": []},
    )
    assert ask("lease", "list", LAB)[1]["maintenance"]["reason"] == "a fan"
    assert ask("maintenance", "off", LAB) == (0, {"lab": "testbed12", "maintenance": False, "unfinished": []})
    assert ask("lease", "list", LAB)[1]["maintenance"] is None


def test_maintenance_refuses_an_apply_before_anything_is_recorded(testbed, lab_file):
    assert testbed("maintenance", "on", lab_file, "--reason", "a fan").code == 0
    ran = testbed("apply", lab_file, "--simplex", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (1, "maintenance")
    assert testbed("history", lab_file, "--json").json["epochs"] == []
    assert testbed("maintenance", "off", lab_file, "--json").json["unfinished"] == []


@pytest.mark.slow
def test_a_request_waits_for_its_grant_no_longer_than_it_was_told(ask):
    ask("lease", "request", LAB, "host:a")
    assert ask("lease", "request", LAB, "host:a", "--wait", "0.01")[1]["leases"][0]["state"] == "queued"
