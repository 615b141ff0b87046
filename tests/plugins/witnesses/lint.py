"""Linters over SystemVerilog.

Verilator checks what a text means, Verible how it is written, Icarus whether it takes it at all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from fpga.hdl.design import Design
from fpga.hdl.tools import ToolFailed, find_tool

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
