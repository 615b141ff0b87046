"""In a repository with a `testbed/` of its own, pytest runs, and says which folder stands before ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed" / "__init__.py").write_text("OF = 'theirs'\n")
    (tmp_path / "test_it.py").write_text(
        "import testbed\n\ndef test_it():\n    assert testbed.OF == 'theirs'\n"
    )
    return tmp_path


def run(folder, *words):
    known = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "lightbed.pytest_entry",
        "PYTHONPATH": str(ROOT),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *words]
    return subprocess.run(
        command, cwd=folder, env=environment | known, capture_output=True, text=True, timeout=120, check=False
    )


def test_their_tests_run_and_the_folder_is_named(repository):
    done = run(repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{repository}/testbed is imported as `testbed` instead of" in " ".join(done.stdout.split())


def test_an_option_of_the_lab_is_refused_with_the_reason(repository):
    done = run(repository, "--lab-hosts", "model")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{repository}/testbed is imported as `testbed` instead of" in done.stderr


def test_without_such_a_folder_the_plugin_is_there(tmp_path):
    done = run(tmp_path, "--help")
    assert "--lab-hosts" in done.stdout
    assert "is imported as" not in done.stdout
