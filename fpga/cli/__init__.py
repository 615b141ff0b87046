"""`countaction`: the command line of those who write count-action modules.

Every command lives in a module of its own with a function `register(app)`, which is imported only when the command
is asked for. Exit codes: 0 done, 1 error (usage errors too), 130 interrupted. `--json` prints one document, of an
error too: `{"ok": false, "errors": [{"file", "line", "column", "message", "hint"}]}`, file "" and line 0 where it is
in no file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fpga.cli.errors import ERROR, of_the_system, tell, tell_message
from fpga.count_action.diagnostics import CountActionError

COMMANDS = {
    "check": "check",
    "explain": "explain",
    "sim": "sim",
    "build": "build",
    "regs": "regs",
    "prove": "prove",
    "test": "cosim",
}
"""Commands and the modules of this package that hold them."""

DONE = 0
INTERRUPTED = 130


def build_app(arguments: Sequence[str]) -> Any:
    """The application for these arguments: one command when the first word names it, else all of them."""
    import typer

    app = typer.Typer(
        name="countaction",
        help="Write a module that counts and acts once: check, simulate, prove and build it.",
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    # With a single command typer would leave out its name.
    app.callback()(lambda: None)
    named = arguments[0] if arguments else ""
    for module in [COMMANDS[named]] if named in COMMANDS else dict.fromkeys(COMMANDS.values()):
        if find_spec(f"fpga.cli.{module}") is not None:
            import_module(f"fpga.cli.{module}").register(app)
    return app


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line and turn every ending into an exit code."""
    try:
        import typer
        from typer.exceptions import TyperException
    except ImportError:
        print("countaction needs typer and rich. Run: pip install 'lightbed[fpga]'", file=sys.stderr)
        return ERROR
    as_json = "--json" in arguments
    try:
        command = typer.main.get_command(build_app(arguments))
        result = command(list(arguments), prog_name="countaction", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except CountActionError as error:
        return tell(error.errors, as_json=as_json)
    except OSError as error:
        return tell([of_the_system(error)], as_json=as_json)
    except (TyperException, ImportError) as error:
        message = str(error) if isinstance(error, ImportError) else error.format_message()
        return tell_message(message, as_json=as_json)
    return result if isinstance(result, int) else DONE


def main() -> None:
    """Entry point."""
    sys.exit(run_app(sys.argv[1:]))
