"""Entry point of our programs. A program whose extra is missing names the extra; its `--version` still works."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from lightbed.wording import describe_extra


def run_program(name: str, extra: str, run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program with the arguments of the command line, and exit with its code."""
    arguments = sys.argv[1:]
    try:
        code = run(arguments)
    except ModuleNotFoundError as error:
        missing_library = (error.name or "").partition(".")[0]
        if missing_library not in ("typer", "rich"):  # the program itself reports other missing libraries
            raise
        if arguments != ["--version"]:
            sys.exit(f"error: {name} needs {missing_library}. Hint: {describe_extra(extra)}")
        from importlib.metadata import version  # imported here, because the import takes ten milliseconds

        sys.stdout.write(f"{name} {version('lightbed')}\n")
        code = 0
    sys.exit(code)
