"""`lightning`: the command line of those who compute with the kit, or with its twin.

Every command lives in a module of its own with a function `register(app)`, which is imported only when the command
is asked for. Exit codes: 0 done, 1 error (usage errors too), 130 interrupted; `run` gives the script's own. `--json`
prints one document, of an error too: `{"ok": false, "error": {"code", "message", "device", "cure"}}`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lightning.errors import LightningError, ProgramError

COMMANDS = {
    "multiply": "multiply",
    "dot": "dot",
    "scope": "scope",
    "calibrate": "calibrate",
    "sweep": "sweep",
    "run": "run",
    "doctor": "doctor",
    "compile": "compile",
    "explain": "explain",
    "infer": "infer",
    "evaluate": "evaluate",
    "sensitivity": "sensitivity",
    "energy": "energy",
    "serve": "serve",
    "load": "load",
}
"""Commands and the modules of this package that hold them."""

DONE = 0
ERROR = 1
INTERRUPTED = 130


def build_app(arguments: Sequence[str]) -> Any:
    """The application for these arguments: one command when the first word names it, else all of them."""
    import typer

    app = typer.Typer(
        name="lightning",
        help="Compute with light: with the Lightning kit, or with its twin (sim://kit), which needs no hardware.",
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    # With a single command typer would leave out its name.
    app.callback()(lambda: None)
    named = arguments[0] if arguments else ""
    for module in [COMMANDS[named]] if named in COMMANDS else dict.fromkeys(COMMANDS.values()):
        if find_spec(f"lightning.cli.{module}") is not None:
            import_module(f"lightning.cli.{module}").register(app)
    return app


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line and turn every ending into an exit code."""
    try:
        import typer
        from typer.exceptions import TyperException
    except ImportError:
        sys.stderr.write("lightning needs typer and rich. Run: pip install 'lightbed[kit]'\n")
        return ERROR
    # After `run SCRIPT` the words may be the script's.
    as_json = "--json" in arguments and arguments[0] != "run"
    try:
        command = typer.main.get_command(build_app(arguments))
        result = command(list(arguments), prog_name="lightning", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except LightningError as error:
        return tell(error, as_json=as_json)
    except TyperException as error:
        return tell(LightningError(error.format_message()), as_json=as_json)
    except RuntimeError as error:  # QICK's own word for what a device or its firmware cannot do
        return tell(_told_by_qick(error), as_json=as_json)
    return result if isinstance(result, int) else DONE


def _told_by_qick(error: RuntimeError) -> LightningError:
    told = " ".join(str(error).split()) or type(error).__name__
    return ProgramError(
        told.rstrip("."), cure="Ask for less, or for another device; `lightning doctor` shows what it has"
    )


def tell(error: LightningError, *, as_json: bool) -> int:
    """Print an error, and the exit code. Programs get it on standard output, where they look for a document."""
    if as_json:
        from lightning.cli.output import document_of_error, print_document

        print_document(None, {"error": document_of_error(error)}, ok=False)
    else:
        print(f"error: {error}", file=sys.stderr)
    return ERROR


def main() -> None:
    """Entry point."""
    sys.exit(run_app(sys.argv[1:]))
