"""A run records what its tests cost, and fails when it leaves something behind."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import leftovers
import pytest

from tools import test_times
from tools.test_times import format_all

pytestmark = pytest.mark.process

TESTS = """
import subprocess, sys, time
import pytest

@pytest.fixture(scope="module")
def lab():
    process = subprocess.Popen([sys.executable, "-c", "sum(range(10**9))"])
    yield
    process.kill()
    process.wait()

def test_lab(lab):
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    time.sleep(0.3)

def test_leaves_a_process():
    subprocess.Popen(["sleep", "1000"])
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs one test of the file above, and returns its exit code, output and record."""
    (tmp_path / "conftest.py").write_text("import leftovers\nleftovers.PATIENCE_S = 0.0\n")
    (tmp_path / "test_inner.py").write_text(TESTS)

    environment = {name: value for name, value in os.environ.items() if name != leftovers.TOKEN}

    def run(name):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "times", "-p", "leftovers", "-p", "no:cacheprovider",
             "--lane", "inner", "--times", "times.json", f"test_inner.py::{name}"],
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        return done, json.loads((tmp_path / "times.json").read_text())

    return run


@pytest.mark.long
def test_processor_time_counts_the_lab_of_a_test(run):
    done, lanes = run("test_lab")
    assert done.returncode == 0, done.stdout + done.stderr
    assert lanes["inner"]["tests"] == 1
    _, processor_s = lanes["inner"]["each"]["test_inner.py::test_lab"]
    assert processor_s >= 0.4  # 0.3 of its own, and the lab's beside it
    assert any("test_inner.py::test_lab" in line for line in format_all(lanes))


@pytest.mark.long
def test_a_run_that_leaves_a_process_fails_and_names_it(run):
    done, _ = run("test_leaves_a_process")
    try:
        assert done.returncode == leftovers.LEFT_BEHIND
        (line,) = [line for line in done.stdout.splitlines() if "sleep 1000" in line]
    finally:
        for line in done.stdout.splitlines():
            if line.strip().startswith("process "):
                os.kill(int(line.split()[1].rstrip(":")), 9)
    assert "1 passed" in done.stdout


def test_an_inventory_sees_new_files_and_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "_FOLDERS", (tmp_path,))
    before = leftovers.take_inventory()
    (tmp_path / "left").touch()
    assert f"file {tmp_path / 'left'}" in leftovers.take_inventory() - before


def test_a_file_in_memory_is_left_behind_only_once_no_process_maps_it():
    path = Path("/dev/shm") / f"test-{os.getpid()}"
    path.write_bytes(bytes(4096))
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
            assert f"file {path}" not in leftovers.take_inventory()
        assert f"file {path}" in leftovers.take_inventory()
    finally:
        path.unlink()


@pytest.mark.long
@pytest.mark.parametrize(("outcomes", "code"), [("10", 0), ("11", 1)], ids=["flaky", "broken"])
def test_what_fails_among_others_and_passes_alone_is_named(tmp_path, monkeypatch, outcomes, code):
    """The inner test fails where its digit is 1: the first is for its first try, the second for the next."""
    times = tmp_path / "times.json"
    (tmp_path / "outcomes").write_text(outcomes)
    (tmp_path / "test_inner.py").write_text(
        "from pathlib import Path\n"
        "def test_one():\n"
        "    digits = Path('outcomes').read_text()\n"
        "    Path('outcomes').write_text(digits[1:])\n"
        "    assert digits[0] == '0'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(test_times, "TIMES", times)
    options = ["-q", "-p", "times", "-p", "no:cacheprovider", "--times", str(times)]
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(options))
    assert test_times.run_tests("inner", []) == code
    named = [line for line in test_times.format_lanes(test_times.read_lanes(times)) if "FLAKY" in line]
    assert named == ["FLAKY: test_inner.py::test_one"] * (code == 0)


def test_lanes_side_by_side_take_the_time_of_both_together():
    beside = {
        "static": {"tests": 0, "wall_s": 40.0, "ended_s": 1040.0, "processor_s": 30.0},
        "board": {"tests": 7, "wall_s": 50.0, "ended_s": 1050.0, "processor_s": 60.0},
    }
    assert test_times.format_lanes(beside)[-1].split() == ["all", "7", "50", "s", "90", "s"]
