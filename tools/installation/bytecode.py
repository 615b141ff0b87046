"""Bytecode of installed packages, where Python would not write it by itself.

pip compiles what it installs and uv does not. Python then compiles a module when it is first imported, and keeps that,
unless PYTHONDONTWRITEBYTECODE is set: then every process would compile all that it imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.installation.processes import Done, run

_TESTS = r"/tests/"
"""Tests that packages bring: a fifth of all, and hardly ever imported."""


def is_written_by_python() -> bool:
    """Return whether Python keeps the bytecode of what it imports."""
    return not sys.dont_write_bytecode


def compile_packages(environment: Path, tick: Callable[[], None]) -> None:
    """Compile the installed packages that are not compiled."""
    (packages,) = environment.glob("lib/python*/site-packages")
    compile_folders(environment, [packages], tick)


def compile_folders(environment: Path, folders: Sequence[Path], tick: Callable[[], None]) -> None:
    """Compile what is not compiled. What cannot be (for another Python) is left to whoever imports it."""
    python = environment / "bin" / "python"
    run([python, "-m", "compileall", "-q", "-j", "0", "-x", _TESTS, *folders], tick=tick)


def import_once(environment: Path, modules: str, tick: Callable[[], None]) -> Done:
    """Import modules, so that many processes that start at once find their bytecode."""
    writing: Mapping[str, str] = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return run([environment / "bin" / "python", "-c", f"import {modules}"], environment=writing, tick=tick)
