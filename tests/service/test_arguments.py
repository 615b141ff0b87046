"""Arguments of the command that a request becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("pydantic")

from testbed.service.requests import parse_request

FILES = {"lab": Path("/labs/lab.yaml"), "other": Path("/labs/other.yaml")}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"command": "maintenance", "lab": "lab", "to": "on", "wait": 0}, "maintenance --wait=0.0 RUNS -- on LAB"),
        (
            {"command": "discover", "lab": "lab", "settle_s": 0},
            "discover --output=RUN/lab.yaml --settle=0.0 RUNS -- LAB",
        ),
        ({"command": "verify --narrow", "lab": "lab"}, "verify --narrow --hosts=auto RUNS -- LAB"),
        ({"command": "plan", "lab": "lab", "out": True}, "plan --out=RUN/change.json RUNS -- LAB"),
        ({"command": "runs"}, "runs RUNS --"),
        ({"command": "runs compare", "a": "last", "b": "-x", "as_csv": True}, "runs compare --csv RUNS -- last -x"),
        ({"command": "runs trend", "lab": "lab"}, "runs trend --lab=lab --rate=0.05 RUNS --"),
        ({"command": "metrics", "labs": ["lab", "other"]}, "metrics RUNS -- LAB /labs/other.yaml"),
        ({"command": "doctor", "lab": "lab"}, "doctor -- LAB"),
        ({"command": "doctor"}, "doctor --"),
    ],
    ids=lambda one: one["command"] if isinstance(one, dict) else "",
)  # fmt: skip
def test_a_request_is_a_command_line(body, words, tmp_path):
    arguments = parse_request(json.dumps(body | {"text": True})).arguments(FILES, Path("/runs"), tmp_path)

    told = " ".join(arguments).replace(str(tmp_path), "RUN").replace("--runs-dir=/runs", "RUNS")
    assert told.replace("/labs/lab.yaml", "LAB") == words
