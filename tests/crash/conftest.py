"""The recorder, compiled, and a warmed process under it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from crash_harness import Server
from needs import needs

SOURCE = Path(__file__).with_name("recorder.c")


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory):
    """Provide keys made in tests stay out of the home of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
@needs("process")
def recorder(tmp_path_factory):
    """Provide the recorder as a library; without a compiler the tests of this folder are skipped."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler for the recorder of kill points: apt-get install gcc libc6-dev")
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *options, "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


@pytest.fixture(scope="session")
@needs("process", "socket")
def server(recorder, tmp_path_factory):
    """Provide the warmed process."""
    with Server(recorder, tmp_path_factory.mktemp("locks")) as server:
        yield server
