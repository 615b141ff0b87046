"""The supervisor of a simulated lab as a child process: start it, wait until it is ready, end it.

Unless it is detached, the supervisor ends when its standard input closes, even if this process is killed. It then
removes everything that it created.
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

from lightbed.children import make_child_environment, make_module_command
from testbed.errors import LabStartError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class StartRefused(LabStartError):
    """A start that the supervisor refused; `reason` is its code (`subnet_taken`, `not_root`, ...)."""

    def __init__(self, reason: str, problem: str, hint: str) -> None:
        self.reason, self.what, self.hint = reason, problem, hint
        super().__init__(f"the simulated lab did not start: {_append_hint(problem, hint)}")


@dataclass(frozen=True, slots=True)
class Supervisor:
    """A running supervisor: its process and the content of its ready line."""

    process: subprocess.Popen[str]
    ready_message: Mapping[str, Any]
    is_detached: bool

    def stop(self) -> None:
        """End the lab and wait until it is removed. May be called again."""
        if self.is_detached and self.process.poll() is None:
            self.process.terminate()  # a detached supervisor ignores its input
        _stop_process(self.process)


def start_supervisor(document: Mapping[str, Any], *, is_detached: bool, timeout_s: float) -> Supervisor:
    """Start a supervisor on a wiring document and return when the lab is ready.

    Raises `StartRefused` with the supervisor's reason, and `LabStartError` if it ends or is not ready in `timeout_s`.
    """
    arguments = ["--detached"] if is_detached else []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            make_module_command("sim.lab", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=make_child_environment(),
            # Ctrl-C at the terminal must reach this process only: the lab has to live until the clean-up is done.
            start_new_session=True,
        )
        try:
            assert process.stdin is not None  # opened as a pipe
            with suppress(BrokenPipeError):  # if it has ended already, its output says why
                process.stdin.write(json.dumps(document) + "\n")
                process.stdin.flush()
            ready_message = _read_ready_line(process, stderr, timeout_s)
        except BaseException:
            _stop_process(process)
            raise
    if is_detached:
        # A detached supervisor keeps running: close this process's ends of the pipes.
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    return Supervisor(process, ready_message, is_detached)


def _read_ready_line(process: subprocess.Popen[str], stderr: IO[str], timeout_s: float) -> Any:
    output_line = _read_line(process, timeout_s)
    try:
        ready_message = json.loads(output_line)
    except json.JSONDecodeError:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)  # the output of the process ends slightly before the process itself
        stderr.seek(0)
        last_line = (stderr.read().strip().splitlines() or [output_line.strip() or "no output"])[-1]
        status = process.poll()
        problem = f"was not ready within {timeout_s:g} s" if status is None else f"ended with status {status}"
        raise LabStartError(f"the simulated lab {problem}: {last_line}; run `testbed doctor`") from None
    if not ready_message.get("ready"):
        raise StartRefused(
            ready_message.get("code", ""),
            ready_message.get("error", "no reason given"),
            ready_message.get("hint", ""),
        )
    return ready_message


def _read_line(process: subprocess.Popen[str], timeout_s: float) -> str:
    """Return the first line of output, or the part of it that arrives by the deadline."""
    assert process.stdout is not None  # opened as a pipe
    descriptor, received_bytes = process.stdout.fileno(), b""
    deadline_s = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not received_bytes.endswith(b"\n") and selector.select(max(0.0, deadline_s - time.monotonic())):
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            received_bytes += chunk
    return received_bytes.decode(errors="replace")


def _stop_process(process: subprocess.Popen[str]) -> None:
    """Close the input and wait. If the process does not end, send SIGTERM, then SIGKILL."""
    if process.stdin is not None and not process.stdin.closed:
        with suppress(BrokenPipeError):
            process.stdin.close()
    for send_signal in (process.terminate, process.kill):
        try:
            process.wait(STOP_TIMEOUT_S)
            break
        except subprocess.TimeoutExpired:
            send_signal()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def run_sim_lab_query(arguments: list[str]) -> Any:
    """Run `sim.lab` with `--status` or `--down`, and return its JSON answer.

    Raises `LabStartError` with the error and hint of `sim.lab`.
    """
    process = subprocess.run(
        make_module_command("sim.lab", *arguments),
        capture_output=True,
        text=True,
        env=make_child_environment(),
        timeout=START_TIMEOUT_S,
        check=False,
    )
    if process.returncode:
        raise LabStartError(_parse_refusal(process.stdout) or _describe_failure(arguments, process))
    return json.loads(process.stdout)


def _parse_refusal(answer: str) -> str:
    """Return the error and hint of an answer of `sim.lab`, or "" if it is not JSON."""
    try:
        refusal = json.loads(answer)
    except json.JSONDecodeError:
        return ""
    return _append_hint(refusal["error"], refusal["hint"])


def _append_hint(problem: str, hint: str) -> str:
    return f"{problem}; {hint or 'run `testbed doctor`'}"


def _describe_failure(arguments: list[str], process: subprocess.CompletedProcess[str]) -> str:
    last_line = (process.stderr.strip() or process.stdout.strip() or "no message").splitlines()[-1]
    return f"`sim.lab {' '.join(arguments)}` failed: {last_line}; run `testbed doctor`"
