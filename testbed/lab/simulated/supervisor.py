"""The supervisor of a simulated lab as a child process: start it, hear that it is ready, end it.

It ends, and everything it made with it, when its standard input closes: also when we are killed.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from lightbed.children import child_environment, module_command
from testbed.errors import LabStartError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class StartRefused(LabStartError):
    """The supervisor said no; `reason` is its own code (`subnet_taken`, `not_root`, ...)."""

    def __init__(self, reason: str, what: str, hint: str) -> None:
        self.reason, self.what, self.hint = reason, what, hint
        super().__init__(f"the simulated lab did not start: {_sentence(what, hint)}")


@dataclass(frozen=True, slots=True)
class Supervisor:
    """A supervisor that is up: its process and what its ready line said."""

    process: subprocess.Popen[str]
    ready: Mapping[str, Any]
    detached: bool

    def stop(self) -> None:
        """End the lab and wait until it is gone. Safe to call again."""
        if self.detached and self.process.poll() is None:
            self.process.terminate()  # its input means nothing to it
        _stop(self.process)


def start(document: Mapping[str, Any], *, detached: bool, timeout_s: float) -> Supervisor:
    """Start a supervisor on a wiring document; returns when the lab is ready.

    Raises `StartRefused` with the supervisor's reason, `LabStartError` when it ends or stays silent.
    """
    arguments = ["--detached"] if detached else []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        process = subprocess.Popen(
            module_command("sim.lab", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env=child_environment(),
            # A Ctrl-C at the terminal goes to us alone; the lab must outlive it until we have tidied up.
            start_new_session=True,
        )
        try:
            assert process.stdin is not None  # opened as a pipe
            with suppress(BrokenPipeError):  # when it has ended already, what it printed says why
                process.stdin.write(json.dumps(document) + "\n")
                process.stdin.flush()
            ready = _ready_line(process, complaints, timeout_s)
        except BaseException:
            _stop(process)
            raise
    if detached:
        # A detached supervisor runs on: close our ends of its pipes.
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    return Supervisor(process, ready, detached)


def _ready_line(process: subprocess.Popen[str], complaints: IO[str], timeout_s: float) -> Any:
    line = _read_line(process, timeout_s)
    try:
        ready = json.loads(line)
    except json.JSONDecodeError:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)  # its output ends a moment before it does
        complaints.seek(0)
        last = (complaints.read().strip().splitlines() or [line.strip() or "it said nothing"])[-1]
        status = process.poll()
        what = f"was not ready within {timeout_s:g} s" if status is None else f"ended with status {status}"
        raise LabStartError(f"the simulated lab {what}: {last}; run `testbed doctor`") from None
    if not ready.get("ready"):
        raise StartRefused(
            ready.get("code", ""), ready.get("error", "no reason given"), ready.get("hint", "")
        )
    return ready


def _read_line(process: subprocess.Popen[str], timeout_s: float) -> str:
    """Return the first line of output, or what there is of it by the deadline."""
    assert process.stdout is not None  # opened as a pipe
    descriptor, received = process.stdout.fileno(), b""
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not received.endswith(b"\n") and selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(descriptor, 65536)
            if not piece:
                break
            received += piece
    return received.decode(errors="replace")


def _stop(process: subprocess.Popen[str]) -> None:
    """Close the input, wait, and end by pid what has not ended: first gently."""
    if process.stdin is not None and not process.stdin.closed:
        with suppress(BrokenPipeError):
            process.stdin.close()
    for end in (process.terminate, process.kill):
        try:
            process.wait(STOP_TIMEOUT_S)
            break
        except subprocess.TimeoutExpired:
            end()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def ask(arguments: list[str]) -> Any:
    """Return the JSON answer to `--status` or `--down`. Raises `LabStartError` with the supervisor's error and hint."""
    done = subprocess.run(
        module_command("sim.lab", *arguments),
        capture_output=True,
        text=True,
        env=child_environment(),
        timeout=START_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise LabStartError(_refusal(done.stdout) or _failure(arguments, done))
    return json.loads(done.stdout)


def _refusal(answer: str) -> str:
    """Return the supervisor's own error and hint; empty when it printed none."""
    try:
        said = json.loads(answer)
    except json.JSONDecodeError:
        return ""
    return _sentence(said["error"], said["hint"])


def _sentence(what: str, hint: str) -> str:
    return f"{what}; {hint or 'run `testbed doctor`'}"


def _failure(arguments: list[str], done: subprocess.CompletedProcess[str]) -> str:
    last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
    return f"`sim.lab {' '.join(arguments)}` failed: {last}; run `testbed doctor`"
