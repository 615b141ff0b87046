"""`lightning serve`: the how-to page is true, command by command, and the command's own refusals.

A block of code after "as `NAME`:" is a file of that name. A line of code that begins with `$ ` is a command; the lines
below it are what it prints. `...` there stands for anything.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without
from needs import needs

skip_without("typer", reason="needs lightbed[serve]")
skip_without("fastapi", reason="needs lightbed[serve]")
skip_without("httptools", reason="needs lightbed[serve]")
skip_without("orjson", reason="needs lightbed[serve]")
skip_without("prometheus_client", reason="needs lightbed[serve]")
skip_without("uvicorn", reason="needs lightbed[serve]")
skip_without("uvloop", reason="needs lightbed[serve]")
skip_without("tritonclient", reason="the page uses tritonclient[http]")

from lightning.cli import run_app
from lightning.cli.serve import _print_ready as say
from lightning.compiler import load_or_compile, save_model

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "serve-a-model.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "photonic-inference.md"
TIMEOUT_S = 100


def steps_of(page):
    """Yield (command with its `$ `, its output) and (name of a file, its text), in the order of the page."""
    step, lines = None, []
    for line in [*page.splitlines(), "The end."]:
        code = line[4:] if line[:4] == "    " or not line else None
        if code is None or code[:2] == "$ ":
            if step:
                yield step, "\n".join(lines).strip("\n")
            named = re.search(r"as `([\w.]+)`:$", line)
            step, lines = code or (named and named[1]), []
        else:
            lines.append(code)


def agrees(shown, printed):
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.fixture
def folder(tmp_path):
    """With a network of 64 numbers and 10 scores."""
    random = np.random.default_rng(1)
    np.savez(tmp_path / "digits.npz", w1=random.normal(size=(16, 64)), w2=random.normal(size=(10, 16)))
    save_model(load_or_compile(tmp_path / "digits.npz"), tmp_path / "digits.lng")
    return tmp_path


@pytest.fixture
@needs("process")
def tutorial_folder(tmp_path):
    """Return a folder after the tutorial's steps as far as `digits.lng`."""
    for library in ("numba", "sklearn", "PIL"):
        pytest.importorskip(library, reason="the page goes on where the tutorial of lightbed[inference] ends")
    for step, text in steps_of(TUTORIAL.read_text(encoding="utf-8")):
        if step.startswith("$ "):
            output_of(step.removeprefix("$ "), tmp_path)
        else:
            (tmp_path / step).write_text(text, encoding="utf-8")
        if (tmp_path / "digits.lng").exists():
            return tmp_path
    raise AssertionError("the tutorial makes no digits.lng")


class Serving:
    """The server of the page, on ports that are free."""

    def __init__(self, command, folder):
        words = [*shlex.split(command)[1:], "--port", "0", "--udp", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lightning.cli", *words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        self.ports = dict(zip(re.findall(r":(\d+)", line), ("8080", "9000"), strict=True))
        self.line = self.as_shown(line.strip())

    def as_shown(self, text):
        for port, shown in self.ports.items():
            text = text.replace(f":{port}", f":{shown}")
        return text

    def as_here(self, text):
        for port, shown in self.ports.items():
            text = text.replace(f":{shown}", f":{port}")
        return text


def output_of(command, folder):
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", re.sub(r"^lightning ", f"{sys.executable} -m lightning.cli ", command)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PATH": programs},
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.long
def test_the_how_to_page_is_true(tutorial_folder):
    folder = tutorial_folder
    serving, ran = None, 0
    try:
        for step, text in steps_of(PAGE.read_text(encoding="utf-8")):
            command = step.removeprefix("$ ")
            if command == step:
                (folder / step).write_text(text, encoding="utf-8")
            elif command.startswith("lightning serve"):
                serving = Serving(command, folder)
                assert serving.line == text
            elif serving is not None:
                printed = output_of(serving.as_here(command), folder)
                assert agrees(text, serving.as_shown(printed)), (command, printed)
                ran += command.startswith("curl")
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(TIMEOUT_S) == 0
    finally:
        if serving is not None:
            serving.process.kill()
            serving.process.communicate()
    assert ran >= 8


def refused(capsys, *words):
    assert run_app(["serve", *map(str, words), "--json"]) == 1
    return json.loads(capsys.readouterr().out)["error"]


@pytest.mark.socket
def test_what_cannot_be_served_is_refused_by_name(capsys, folder, tmp_path):
    damaged = folder / "damaged.lng"
    damaged.write_bytes((folder / "digits.lng").read_bytes()[:500])
    assert refused(capsys, damaged, "--port", 0)["code"] == "model-file"
    assert refused(capsys, folder / "absent.lng", "--port", 0)["code"] == "model-file"
    model = folder / "digits.lng"
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = refused(capsys, empty, "--port", 0)
    assert (nothing["code"], nothing["message"]) == ("config", f"{str(empty)!r} contains no .lng file")
    model = folder / "digits.lng"
    twice = refused(capsys, folder, model, "--port", 0)
    assert "would both be model 'digits'" in twice["message"]
    assert "damaged.lng" in refused(capsys, folder, "--port", 0)["message"]
    assert refused(capsys, model, "--port", 0, "--fidelity", "fuzzy")["code"] == "config.out-of-range"
    assert refused(capsys, model, "--host", "192.0.2.1", "--port", 0)["code"] == "serving"
    assert refused(capsys, model, "--name", "a/b", "--port", 0)["code"] == "serving"


@pytest.mark.socket
def test_a_port_that_is_taken(capsys, folder):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = refused(capsys, folder / "digits.lng", "--port", taken.getsockname()[1])
    assert found["code"] == "serving"
    assert "cannot listen on 127.0.0.1" in found["message"]


def test_real_time_is_for_packets(capsys, folder):
    found = refused(capsys, folder / "digits.lng", "--port", 0, "--realtime")
    assert (found["code"], found["hint"]) == ("config", "Add --udp PORT")


@pytest.mark.socket
def test_real_time_that_is_not_permitted_is_reported(capsys, folder, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    before = sys.getswitchinterval()
    try:
        found = refused(capsys, folder / "digits.lng", "--port", 0, "--udp", 0, "--realtime")
    finally:
        sys.setswitchinterval(before)
    assert found["code"] == "serving"
    assert "packets cannot be served with real-time priority (Operation not permitted)" in found["message"]


@pytest.mark.socket
@pytest.mark.parametrize(
    ("host", "reported"), [("0.0.0.0", True), ("::", True), ("127.0.0.1", False), ("localhost", False)]
)
def test_a_host_that_others_reach_is_warned_of(capsys, folder, host, reported):
    damaged = folder / "damaged.lng"  # so that it ends
    damaged.write_bytes(b"")
    assert run_app(["serve", str(damaged), "--host", host, "--port", "0"]) == 1
    assert ("no password" in capsys.readouterr().err) is reported


def test_ready_says_numbers_where_packets_need_them(capsys):
    models = [
        {"name": "a", "fidelity": "exact", "number": 1},
        {"name": "b", "fidelity": "exact", "number": 2},
    ]
    say({"models": models, "http": "http://here:1", "udp": "here:2"}, as_json=False)
    say({"models": models, "http": "http://here:1", "udp": None}, as_json=False)
    with_packets, without = capsys.readouterr().out.splitlines()
    assert with_packets == "ready: a (exact, number 1), b (exact, number 2) at http://here:1 and udp://here:2"
    assert without == "ready: a (exact), b (exact) at http://here:1"
