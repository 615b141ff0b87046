"""Arguments of the command that a request becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("fastapi")
skip_without("sqlalchemy")

from testbed.errors import LabStartError
from testbed.service.requests import parse_request

ROOT = Path(__file__).resolve().parents[2]
FILES = {"lab": Path("/labs/lab.yaml"), "other": Path("/labs/other.yaml")}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"command": "maintenance", "lab": "lab", "to": "on", "reason": "", "wait": 0},
            "maintenance --wait=0.0 RUNS -- on LAB",
        ),
        (
            {"command": "discover", "lab": "lab", "settle_s": 0},
            "discover --output=RUN/lab.yaml --settle=0.0 RUNS -- LAB",
        ),
        ({"command": "verify --narrow", "lab": "lab"}, "verify --narrow --hosts=auto RUNS -- LAB"),
        ({"command": "plan", "lab": "lab", "out": True}, "plan --out=RUN/change.json RUNS -- LAB"),
        ({"command": "runs"}, "runs RUNS --"),
        ({"command": "runs compare", "a": "last", "b": "-x", "as_csv": True}, "runs compare --csv RUNS -- last -x"),
        ({"command": "runs explain", "run_id": "last"}, "runs explain RUNS -- last"),
        ({"command": "runs trend", "lab": "lab"}, "runs trend --lab=lab --rate=0.05 RUNS --"),
        ({"command": "metrics", "labs": ["lab", "other"]}, "metrics RUNS -- LAB /labs/other.yaml"),
        ({"command": "doctor", "lab": "lab"}, "doctor -- LAB"),
        ({"command": "doctor"}, "doctor --"),
    ],
    ids=lambda one: one["command"] if isinstance(one, dict) else "",
)  # fmt: skip
def test_a_request_is_a_command_line(body, words, tmp_path):
    arguments = parse_request(json.dumps(body | {"text": True})).make_arguments(
        FILES, Path("/runs"), tmp_path
    )

    told = " ".join(arguments).replace(str(tmp_path), "RUN").replace("--runs-dir=/runs", "RUNS")
    assert told.replace("/labs/lab.yaml", "LAB") == words


def test_a_switch_whose_lab_cannot_be_told_is_an_error_like_others(service, monkeypatch):
    """Its address is that of the lab as it runs, which is looked for before the command begins."""
    from testbed.cli import submitted
    from testbed.lab.simulated import lifecycle
    from testbed.service.access import Identity

    def twice(_lab):
        raise LabStartError("lab 'testbed12' is running 2 times")

    monkeypatch.setattr(lifecycle, "find_running_lab", twice)
    request = json.dumps({"command": "switch read", "lab": "testbed12", "switch": "ocs1"})
    run, _ = service.runs.submit(Identity("ann", "operator"), "testbed12", "switch read", request)

    submitted.main(run.id, service.runs_dir, {"testbed12": ROOT / "labs" / "testbed12.yaml"})

    ended = service.runs.get(run.id)
    assert (ended.state, ended.exit_code) == ("failed", 1)
    assert json.loads(ended.output)["error"] == {
        "code": LabStartError.code,
        "who": LabStartError.who,
        "message": "lab 'testbed12' is running 2 times",
    }


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"command": "fly", "lab": "testbed12"}, "this version has no command 'fly'"),
        ({"command": "path", "lab": "testbed12", "altitude": 1}, "this version has another request 'path'"),
        ({"command": "verify --", "lab": "testbed12"}, "this version has no command 'verify --'"),
    ],
)
def test_a_run_that_another_version_stored_is_told_as_such(service, ask, token_of, body, why):
    from testbed.cli import submitted
    from testbed.service.access import Identity

    run, _ = service.runs.submit(Identity("ann", "operator"), "testbed12", body["command"], json.dumps(body))
    answer = ask("GET", f"/v1/runs/{run.id}", token=token_of("admin"))
    assert answer.status_code == 404
    assert why in answer.text

    submitted.main(run.id, service.runs_dir, {"testbed12": ROOT / "labs" / "testbed12.yaml"})
    ended = service.runs.get(run.id)
    assert (ended.state, ended.exit_code) == ("failed", 1)
    error = json.loads(ended.output)["error"]
    assert (error["code"], why in error["message"]) == ("service.request", True)
