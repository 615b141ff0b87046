"""Linters over SystemVerilog.

Verilator checks what a text means, Verible how it is written, Icarus and yosys whether they take it at all.
Every function returns the findings as lines of text; none means clean.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from fpga.hdl.design import Design
from fpga.hdl.tools import ToolFailed, ToolMissing, find_tool

VERIBLE_RULES = ("line-length=length:160", "-module-filename")
"""Differences from Verible's defaults: names of a datapath may be long, and tops are linted from copies."""


def lint(design: Design, *, timeout_s: float = 120) -> tuple[str, ...]:
    """Return what Verilator with all warnings, Verible and Icarus find in a design. Raises ToolMissing."""
    with tempfile.TemporaryDirectory(prefix="lint-") as name:
        folder = Path(name)
        files = design.write(folder)
        found = (
            *_findings(
                "verilator",
                ["--lint-only", "-Wall", "--no-timing", "--top-module", design.top, *files],
                timeout_s,
            ),
            *_findings("verible-verilog-lint", [f"--rules={','.join(VERIBLE_RULES)}", *files], timeout_s),
            *_findings("iverilog", ["-g2012", "-Wall", "-t", "null", "-s", design.top, *files], timeout_s),
        )
        return tuple(line.replace(f"{name}/", "") for line in found)


def _findings(tool: str, arguments: list[str | Path], timeout_s: float) -> list[str]:
    """Return the lines a linter prints about the sources: its own report of a clean run is left out."""
    try:
        printed = find_tool(tool).run(arguments, timeout_s=timeout_s)
    except ToolFailed as error:
        printed = str(error)
    return [line for line in printed.splitlines() if line.strip() and not line.startswith("- ")]


def yosys_accepts(design: Design, *, timeout_s: float = 120) -> tuple[str, ...]:
    """Return what yosys finds when it reads and elaborates a design, and checks for loops and double drivers.

    Runs in a process of its own: yosys ends the process on errors. Raises ToolMissing.
    """
    from importlib.util import find_spec

    if find_spec("pyosys") is None:
        raise ToolMissing("pyosys is not installed. Hint: pip install 'lightbed[hdl]'.")
    with tempfile.TemporaryDirectory(prefix="yosys-") as name:
        files = " ".join(str(path) for path in design.write(Path(name)))
        passes = (
            f"read_verilog -sv {files}",
            f"hierarchy -check -top {design.top}",
            "proc",
            "flatten",
            "check -assert",
        )
        script = "from pyosys import libyosys as ys\ndesign = ys.Design()\n"
        script += "".join(f"ys.run_pass({'tee -q ' + each!r}, design)\n" for each in passes)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        printed = (done.stdout + done.stderr).replace(f"{name}/", "").splitlines()
    return tuple(line for line in printed if line.startswith(("ERROR", "Warning"))) or (
        (f"yosys ended with status {done.returncode}",) if done.returncode else ()
    )
