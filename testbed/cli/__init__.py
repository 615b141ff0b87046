"""`testbed`: the operator's command line. It parses options, runs commands, and prints their documents.

Exit codes of every command: 0 done or no change, 1 error (also a usage error), 2 changes or findings (`plan`,
`verify`), 130 interrupted. `run` returns the exit code of its program, or 3 if it gets no lease or no circuits with
light. With `--json`, every command prints one document.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType

from lightbed.program import run_program


def _raise_interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line. SIGTERM ends a command as Ctrl-C does, so that it cleans up."""
    signal.signal(signal.SIGTERM, _raise_interrupt)
    run_program("testbed", "testbed", _run)


def _run(arguments: Sequence[str]) -> int:
    from testbed.cli.app import run_app  # imported here, so that `run_program` can report a missing typer

    return run_app(arguments)
