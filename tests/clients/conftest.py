"""Clients of other people, as processes of `.venv-clients` and on Python 2.7, and what they are told of a twin."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from needs import needs

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
PYTHON2 = ROOT / ".venv-clients-python2" / "bin" / "python"
WITHOUT = {
    PYTHON: "needs the clients of other people: `make install-test` makes .venv-clients",
    PYTHON2: "needs Python 2.7: where it is on the PATH or in pyenv, `make install-test` makes .venv-clients-python2",
}


class Foreign:
    """A client of other people that is told what to do by lines of JSON."""

    def __init__(self, python: Path, script: str, **opening: Any) -> None:
        self._process = subprocess.Popen(
            [python, Path(__file__).parent / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.opened = self._tell(opening)

    def ask(self, command: Any) -> Any:
        """Return what the client makes of a command."""
        answer = self._tell(command)
        assert "error" not in answer, answer
        return answer["output"]

    def refused(self, command: Any) -> str:
        """Return the error that the client raises for a command."""
        return self._tell(command)["error"]

    def _tell(self, what: Any) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()


@pytest.fixture
@needs("process", "socket")
def foreign() -> Iterator[Callable[..., Foreign]]:
    """Start clients: `foreign(PYTHON, "session_of_cloudshell.py", kind="ssh", prompt=">$", **where(url))`."""
    started: list[Foreign] = []

    def start(python: Path, script: str, **opening: Any) -> Foreign:
        if not python.exists():
            pytest.skip(WITHOUT[python])
        started.append(Foreign(python, script, **opening))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(
    params=[pytest.param(PYTHON, id="6.0.0"), pytest.param(PYTHON2, id="3.3.3", marks=pytest.mark.long)]
)
def cloudshell(request: pytest.FixtureRequest, foreign: Callable[..., Foreign]) -> Callable[..., Foreign]:
    """Open a session of cloudshell-cli, current or as the L1 drivers use it, at the address of a twin."""

    def open_session(
        kind: str, url: str, prompt: str = "", user: str = "admin", password: str = "admin"
    ) -> Foreign:
        at = urlsplit(url)
        where = {"host": at.hostname, "port": at.port, "user": user, "password": password}
        client = foreign(request.param, "session_of_cloudshell.py", kind=kind, prompt=prompt, **where)
        assert "error" not in client.opened, client.opened
        return client

    return open_session
