"""Processes that are waited for, and the error that ends an installation."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1.0
_END_S = 10.0
_LAST_LINES = 25


class InstallError(Exception):
    """An installation that cannot go on: what, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Done:
    """A process that ended, and what it printed, both streams together."""

    status: int
    output: str

    @property
    def last_lines(self) -> str:
        """The end of the output, where the reason is."""
        return "\n".join(self.output.strip().splitlines()[-_LAST_LINES:])


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Done:
    """Return how `command` ended. `tick` is called about once a second; the process ends when we do.

    It inherits the lock of the installation (see `__main__`), so that one that outlives us keeps others waiting.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=os.environ if environment is None else environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            close_fds=False,
        )
        try:
            status = _wait(process, tick)
        except BaseException:
            _end(process)
            raise
        output.seek(0)
        return Done(status, output.read().decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, with time to tidy up. One that runs as root, by sudo, got the same interrupt as we did."""
    for signal_it in (process.terminate, process.kill):
        with suppress(PermissionError):
            signal_it()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return


def _wait(process: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
    while True:
        try:
            return process.wait(_TICK_S)
        except subprocess.TimeoutExpired:
            tick()
