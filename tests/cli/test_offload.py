"""`testbed offload`: profiles of scripts with workers in this process, explanations, settings."""

from __future__ import annotations

import json

import pytest
from libraries import skip_without

skip_without("typer")
skip_without("yaml")

from testbed.cli.app import run_app
from testbed.errors import OffloadError
from testbed.offload.configuration import Configuration, read_configuration

PROFILE = {
    "gthp": 100.0,
    "lthp": 50.0,
    "pcycle": 1.0,
    "candidates": {"p2": {"rthp": 70.0, "ocycle": 0.2}},
    "measured_workers": 1,
    "choice": "p2",
    "ratio": 0.7,
    "workers": 1,
    "reasons": ["a reason"],
    "stall_before": 0.5,
    "stall_after": 0.1,
    "rate_after": 95.0,
    "profiling_s": 3.0,
    "profiling_share": 0.01,
    "key": "k",
    "jobs": [],
}

SCRIPT = """
dataset = list(range(64))
transform = float
batch_size = 8
simulated = True
def step(batch):
    assert len(batch) == 8
"""


@pytest.fixture
def profile_file(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE))
    return path


def test_explain_gives_every_reason(profile_file, capsys):
    assert run_app(["offload", "explain", str(profile_file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run p2 at ratio 0.70"
    assert (
        lines[2].strip().startswith("p2 (read and transform elsewhere, batch here): 70 from workers at 20%")
    )


def test_explain_decides_again_with_another_threshold(profile_file, capsys):
    assert run_app(["offload", "explain", str(profile_file), "--threshold", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["choice"], found["ratio"], found["workers"]) == (None, 0.0, 0)
    assert found["reasons"] == [
        "no offload: the model alone is 2 times as fast as with its pipeline, below 3"
    ]


@pytest.mark.parametrize("text", ["{}", "[", '{"gthp": 1}', "[]"])
def test_what_is_not_a_profile_is_refused(tmp_path, capsys, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    assert run_app(["offload", "explain", str(path)]) == 1
    assert "is not a profile" in capsys.readouterr().err


@pytest.mark.torch
def test_a_script_is_profiled_and_reported(tmp_path, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    script, settings = tmp_path / "train.py", tmp_path / "offload.yaml"
    script.write_text(SCRIPT)
    settings.write_text("batches: 6\nrounds: 2\nwarm_up: 1\n")
    out = tmp_path / "out"
    options = ["--in-process", "--config", str(settings), "--out", str(out), "--json"]
    assert run_app(["offload", "profile", str(script), *options]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    keys = "gthp lthp pcycle candidates choice ratio profiling_share stall_before stall_after"
    assert set(keys.split()) < set(found)
    assert found["simulated"] is True
    assert "measured: p3" in captured.err
    page = (out / "report.html").read_text()
    assert "SIMULATED" in page
    assert (out / "rates.png").read_bytes().startswith(b"\x89PNG")
    assert run_app(["offload", "explain", str(out / "profile.json")]) == 0


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no script"),
        ("step = print", "does not define `dataset`: a script defines `dataset` and `step(batch)`"),
        ("dataset = [1]", "does not define `step`: a script defines `dataset` and `step(batch)`"),
        ("dataset = 5\nstep = print", "the dataset of"),
    ],
)
def test_scripts_that_cannot_be_profiled(tmp_path, capsys, text, message):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    if text is not None:
        script.write_text(text)
    assert run_app(["offload", "profile", str(script), "--in-process"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--in-process", "--scheduler", "tcp://h:1"], ["--scheduler", "tcp://h:1", "--workers", "2"]]
)
def test_workers_come_from_one_place(capsys, options):
    assert run_app(["offload", "profile", "digits", *options]) == 1
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batchs: 5", "unknown key 'batchs'; known"),
        ("batches: five", "batches is 'five': give int"),
        ("ordered: 1", "ordered is 1: give bool"),
        ("batches: true", "batches is True: give int"),
        ("tls: {ca: a}", "unknown key 'ca'"),
        ("- batches", "is not a mapping"),
        ("{", "cannot be read"),
    ],
)
def test_settings_are_strict(tmp_path, text, message):
    path = tmp_path / "offload.yaml"
    path.write_text(text)
    with pytest.raises(OffloadError, match=message):
        read_configuration(path).read_certificates()


def test_settings_of_a_file(tmp_path):
    path = tmp_path / "offload.yaml"
    path.write_text("threshold: 2\nweights: {b: 2}\nstore: profiles\n")
    found = read_configuration(path)
    assert found == Configuration(threshold=2, weights={"b": 2}, store="profiles")
    assert read_configuration(None) == Configuration()
