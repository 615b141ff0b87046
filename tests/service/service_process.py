"""`testbed serve` as a process of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Process:
    """`testbed serve` as a process, on a port of its own that it keeps when it is started again."""

    lab_file: Path
    runs: Path
    url: str = ""
    lives: list[subprocess.Popen[str]] = field(default_factory=list)
    options: tuple[str, ...] = ()
    more: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start it, and wait for its ready line."""
        port = self.url.rpartition(":")[2] or "0"
        words = [
            sys.executable,
            "-m",
            "testbed.cli",
            "serve",
            "--lab",
            str(self.lab_file),
            "--port",
            port,
            "--json",
        ]
        words += ["--runs-dir", str(self.runs), *self.options]
        with (self.runs.parent / "service.log").open("a") as log:
            life = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment()
            )
        assert life.stdout
        ready = json.loads(life.stdout.readline())
        assert ready["pid"] == life.pid
        self.url = ready["url"]
        self.lives.append(life)

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        return {**os.environ, "PYTHONPATH": path, **self.more}

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.lives[-1].send_signal(signal.SIGKILL)
        self.lives[-1].wait(timeout=30)

    def end(self) -> int:
        """End it as a service manager does; return its exit code."""
        for life in self.lives:
            if life.poll() is None:
                life.terminate()
            code = life.wait(timeout=60)
            if life.stdout:
                life.stdout.close()
        return code

    def token(self, role: str, **limits: Any) -> str:
        """Make a token."""
        from testbed.storage.address import get_database_address
        from testbed.storage.database import Database
        from testbed.storage.tokens import TokenStore

        database = Database(get_database_address(self.runs))
        _, text = TokenStore(database).create(role, role, lifetime=timedelta(hours=1), **limits)
        database.close()
        return text
