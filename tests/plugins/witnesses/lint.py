"""Linters over SystemVerilog.

Verilator and slang check what a text means, Verible how it is written, Icarus whether it takes it at all.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
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


SLANG_WARNINGS = ("-Weverything", "-Wno-empty-output-connection")
"""All of slang, except that a port that is connected to nothing says that nobody reads it."""

_SLANG = """
import sys
from pyslang import driver
for line in sys.stdin.read().splitlines():
    slang = driver.Driver()
    slang.addStandardArgs()
    assert slang.parseCommandLine(line) and slang.processOptions() and slang.parseAllSources(), line
    compilation = slang.createCompilation()
    slang.reportCompilation(compilation, True)
    slang.runAnalysis(compilation)
    slang.reportDiagnostics(True)
"""


def lint_with_slang(
    sources_by_top: Mapping[str, tuple[tuple[str, str], ...]], *, timeout_s: float = 120
) -> tuple[str, ...]:
    """Return what slang and Verible find in the sources of each top. Without a name every uninstantiated module is one.

    A process of its own, as slang writes to the standard streams.
    """
    with tempfile.TemporaryDirectory(prefix="slang-") as name:
        commands = []
        files: dict[str, Path] = {}
        for place, (top, sources) in enumerate(sources_by_top.items()):
            folder = Path(name) / str(place)
            folder.mkdir()
            for file, text in sources:
                (folder / file).write_text(text, encoding="ascii")
                files[text] = folder / file
            paths = " ".join(str(folder / file) for file, _ in sources)
            commands.append(f"slang {' '.join(SLANG_WARNINGS)} {f'--top {top}' if top else ''} {paths}")
        process = subprocess.run(
            [sys.executable, "-c", _SLANG],
            input="\n".join(commands),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
        found = [line for line in (process.stdout + process.stderr).splitlines() if ": " in line]
        rules = f"--rules={','.join(VERIBLE_RULES)}"
        found += _findings("verible-verilog-lint", [rules, *files.values()], timeout_s)
        return tuple(line.partition(f"{name}/")[2] or line for line in found)


def _findings(tool: str, arguments: list[str | Path], timeout_s: float) -> list[str]:
    """Return the lines a linter prints about the sources: its own report of a clean run is left out."""
    try:
        printed = find_tool(tool).run(arguments, timeout_s=timeout_s)
    except ToolFailed as error:
        printed = str(error)
    return [line for line in printed.splitlines() if line.strip() and not line.startswith("- ")]
