"""The lanes can be trusted: markers come through fixtures, and a test that does more than it says fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from needs import needs

pytestmark = pytest.mark.process

ALONE = os.environ | {
    "PYTHONPATH": str(Path(__file__).parent),
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # loading those of others takes longer than the test
}

GUARDED = """
import multiprocessing, os, socket, subprocess, sys, threading
import pytest
from needs import needs

def run():
    return subprocess.run([sys.executable, "-c", ""], check=True).returncode

@pytest.fixture
@needs("process")
def started():
    return run()

@pytest.fixture(scope="module")
@needs("hdl")
def built():
    return run()

def exits():
    pass

def test_process():
    run()

def test_process_whose_error_is_swallowed():
    try:
        run()
    except Exception:
        pass

def test_process_in_a_thread():
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

def test_fork():
    if os.fork() == 0:
        os._exit(0)

def test_spawn():
    process = multiprocessing.get_context("spawn").Process(target=exits)
    process.start()
    process.join()

def test_internet_socket():
    socket.socket().close()

def test_named_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))

def test_hdl_program():
    subprocess.Popen(["iverilog", "-V"])

def test_pair_in_memory_is_free():
    for end in socket.socketpair():
        end.close()

def test_a_fixture_says_it(started):
    assert started == 0

def test_one_need_implies_another(built):
    assert run() == built

@pytest.mark.process
def test_a_marker_says_it():
    run()

@pytest.mark.process
def test_another_need_is_not_covered():
    socket.socket().close()
"""

ALLOWED = {
    "test_pair_in_memory_is_free",
    "test_a_fixture_says_it",
    "test_one_need_implies_another",
    "test_a_marker_says_it",
}

LONG = """
import pytest

@pytest.mark.long
def test_long():
    pass

@pytest.mark.kernel
def test_kernel():
    pass

def test_plain():
    pass
"""


@pytest.fixture
@needs("process")
def outcomes(tmp_path):
    """Return a function: the outcome of every test of a file, run with the plugin alone."""

    def run(text: str, *arguments: str) -> dict[str, str]:
        (tmp_path / "test_inner.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-rA", "-p", "lanes", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            env=ALONE | {"COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.findall(r"^(PASSED|FAILED|ERROR) test_inner\.py::(\w+)", done.stdout, re.MULTILINE)
        assert found, done.stdout + done.stderr
        return {name: outcome for outcome, name in found}

    return run


@pytest.mark.long
def test_a_test_does_what_it_says_or_fails(outcomes):
    found = outcomes(GUARDED)

    assert {name for name, outcome in found.items() if outcome == "PASSED"} == ALLOWED
    assert len(found) == GUARDED.count("def test_")


@pytest.mark.long
def test_expressions_see_what_fixtures_need(outcomes):
    assert set(outcomes(GUARDED, "-m", "not (process or hdl)")) == {
        name
        for name in re.findall(r"def (test_\w+)", GUARDED)
        if name not in ALLOWED - {"test_pair_in_memory_is_free"} | {"test_another_need_is_not_covered"}
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "run"),
    [
        ((), {"test_kernel", "test_plain"}),
        (("-m", "not kernel"), {"test_plain"}),
        (("-m", "long"), {"test_long"}),
        (("test_inner.py::test_long",), {"test_long"}),
        (("./test_inner.py::test_long", "test_inner.py::test_plain"), {"test_long", "test_plain"}),
    ],
)
def test_long_tests_run_only_when_they_are_asked_for(outcomes, arguments, run):
    assert set(outcomes(LONG, *arguments)) == run


def test_a_fixture_needs_only_what_there_is():
    with pytest.raises(ValueError, match="unknown markers: procces"):
        needs("procces")


@pytest.mark.long
def test_files_are_shuffled_whole_and_alike_for_a_seed(tmp_path):
    for number in range(12):
        (tmp_path / f"test_{number}.py").write_text("def test_a(): pass\ndef test_b(): pass\n")

    def order(seed):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "lanes", "-p", "no:cacheprovider", "--collect-only", "-q",
             "--shuffle-files", str(seed)],
            cwd=tmp_path, env=ALONE, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return re.findall(r"(test_\d+)\.py::(test_[ab])", done.stdout)

    first = order(1)
    assert [name for name, _ in first[::2]] == [name for name, _ in first[1::2]]
    assert first != sorted(first)
    assert order(1) == first != order(2)


@pytest.mark.long
def test_a_module_that_imports_a_slow_library_is_not_collected(tmp_path):
    (tmp_path / "test_inner.py").write_text("import numba\n\ndef test_plain(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "lanes", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=ALONE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "numba is imported while tests are collected" in done.stdout
    assert done.returncode == pytest.ExitCode.INTERRUPTED
