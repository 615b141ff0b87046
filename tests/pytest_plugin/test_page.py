"""The page on testing against a lab: its test and its workflow, executed in a repository of somebody else's."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from libraries import library, skip_without
from needs import needs

skip_without("asyncssh")
skip_without("sqlalchemy")
skip_without("xdist")
yaml = library("yaml")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "test-against-a-lab.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))

TOGETHER = """
import os, time
from pathlib import Path
import pytest
from testbed.lab.inventory import load_lab

@pytest.fixture(autouse=True)
def both_have_a_lab(testbed_lab, request):
    network = load_lab(testbed_lab.lab_file).management
    folder, mine = Path(os.environ["MEETING"]), str(network).replace("/", "_")
    (folder / f"{mine}.lab").touch()
    deadline = time.monotonic() + 200
    while len(list(folder.glob("*.lab"))) < 2:
        assert time.monotonic() < deadline, "the other test has no lab of its own"
        time.sleep(0.05)
"""
"""Each of two tests waits for the other with its lab in hand; labs are told apart by their networks."""


@pytest.fixture
@needs("process", "socket")
def repository(tmp_path):
    """Provide a repository with the test of the page, and a function that runs a line of shell in it."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_ring.py").write_text(BLOCKS["python"])
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -ra\n")

    def run(line):
        words = shlex.split(line)
        assert words[0] == "pytest"
        options = {"PYTHONPATH": str(ROOT), "MEETING": str(tmp_path), "LIGHTBED_RUNS": str(tmp_path / "runs")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words[1:]],
            cwd=tmp_path,
            env=os.environ
            | options
            | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "testbed.pytest_plugin,xdist.plugin"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.long
def test_the_workflow_runs_as_it_stands_and_parallel_tests_get_labs_of_their_own(repository, tmp_path):
    jobs = yaml.safe_load(BLOCKS["yml"])["jobs"]
    (tmp_path / "tests" / "conftest.py").write_text(TOGETHER)
    lines = [step["run"] for step in jobs["simulated"]["steps"] if "run" in step]
    (line,) = [line for line in lines if line.startswith("pytest")]
    assert line == "pytest -n 2 --lab-hosts model tests"

    code, said = repository(line)

    assert code == 0, said
    assert "2 passed" in said
    assert len(list(tmp_path.glob("*.lab"))) == 2


def test_the_page_installs_extras_that_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(re.findall(r"[\w-]+", " ".join(re.findall(r"lightbed\[([\w,-]+)\]", PAGE))))

    assert extras == {"testbed", "sim"}
    assert extras <= project["optional-dependencies"].keys()
    assert project["entry-points"]["pytest11"] == {"testbed": "lightbed.pytest_entry"}


def test_the_page_tells_every_option_and_marker():
    from testbed.pytest_plugin import MARKERS, pytest_addoption

    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    (group,) = [group for group in parser._groups if group.name == "testbed"]
    named = {option.names()[0] for option in group.options} | {marker.partition("(")[0] for marker in MARKERS}

    assert [name for name in sorted(named) if name not in PAGE] == []
