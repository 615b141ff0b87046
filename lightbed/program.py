"""The beginning of our programs: without the extra that they need, they say which, and still tell their version."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from lightbed.wording import install_extra


def run_program(name: str, extra: str, run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program with the words of the command line, and end with its exit code."""
    words = sys.argv[1:]
    try:
        code = run(words)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("typer", "rich"):  # what it lacks later it tells by itself
            raise
        if words != ["--version"]:
            sys.exit(f"error: {name} needs {missing}. Hint: {install_extra(extra)}")
        from importlib.metadata import version  # it takes ten milliseconds

        sys.stdout.write(f"{name} {version('lightbed')}\n")
        code = 0
    sys.exit(code)
