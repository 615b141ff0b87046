"""Compilation of installed packages to bytecode, if Python does not write bytecode itself.

pip compiles the packages that it installs, uv does not. Python then compiles a module at its first import and stores
the bytecode, unless PYTHONDONTWRITEBYTECODE is set; then every process would compile all modules that it imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.installation.processes import ProcessResult, run

_TESTS = r"/tests/"
"""Tests in packages: a fifth of all modules, and hardly ever imported."""


def is_written_by_python() -> bool:
    """Return whether Python stores the bytecode of imported modules."""
    return not sys.dont_write_bytecode


def compile_packages(environment: Path, tick: Callable[[], None]) -> None:
    """Compile the installed packages that are not compiled yet."""
    (packages,) = environment.glob("lib/python*/site-packages")
    compile_folders(environment, [packages], tick)


def compile_folders(environment: Path, folders: Sequence[Path], tick: Callable[[], None]) -> None:
    """Compile the modules in folders that are not compiled yet. Modules that fail (for another Python) are skipped."""
    python = environment / "bin" / "python"
    run([python, "-m", "compileall", "-q", "-j", "0", "-x", _TESTS, *folders], tick=tick)


def import_once(environment: Path, modules: str, tick: Callable[[], None]) -> ProcessResult:
    """Import modules once, so that processes that start in parallel find their bytecode."""
    environ: Mapping[str, str] = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return run([environment / "bin" / "python", "-c", f"import {modules}"], environment=environ, tick=tick)
