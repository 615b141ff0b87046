"""Execution of processes, and the error that ends an installation."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK_INTERVAL_S = 1.0
_END_TIMEOUT_S = 10.0
_LAST_LINE_COUNT = 25


class InstallError(Exception):
    """An installation failed; the message says what, why, and what to do."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """Exit status of a process, and its output on both streams."""

    status: int
    output: str

    @property
    def last_lines(self) -> str:
        """The last lines of the output, which usually hold the reason of a failure."""
        return "\n".join(self.output.strip().splitlines()[-_LAST_LINE_COUNT:])


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> ProcessResult:
    """Run a command, and return its result. `tick` is called about once a second.

    If waiting is interrupted, the process is ended. It inherits the lock of the installation (see `__main__`), so that
    a process that outlives this one still blocks other installations.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(argument) for argument in command],
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
        return ProcessResult(status, output.read().decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it after `_END_TIMEOUT_S`.

    A process under sudo runs as root and cannot be signalled, but it received the same interrupt as this process.
    """
    for send_signal in (process.terminate, process.kill):
        with suppress(PermissionError):
            send_signal()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_TIMEOUT_S)
            return


def _wait(process: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
    while True:
        try:
            return process.wait(_TICK_INTERVAL_S)
        except subprocess.TimeoutExpired:
            tick()
