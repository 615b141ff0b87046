"""`countaction`: the command line for count-action modules.

Every command is in a separate module with a function `register(app)`, which is imported only when the command runs.
Exit codes: 0 success, 1 error (including usage errors), 130 interrupted. `--json` prints one document, for errors as
well: `{"ok": false, "errors": [{"file", "line", "column", "message", "hint"}]}`, with file "" and line 0 for errors
outside files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fpga.cli.errors import diagnose_os_error, print_errors, print_message
from lightbed.program import run_program

if TYPE_CHECKING:
    from fpga.count_action.diagnostics import CountActionError
    from lightbed.command_group import CommandGroup

COMMANDS = {
    "check": ("check", "Report errors and warnings of a datapath."),
    "explain": (
        "explain",
        "Draw a datapath: counts, targets, actions, what triggers what, latency in cycles.",
    ),
    "sim": ("sim", "Simulate a datapath. Exit code 1 if an expectation or a property is not met."),
    "build": ("build", "Generate all files that hardware and driver need."),
    "regs": ("regs", "Print the register map as a table, or in another format."),
    "prove": (
        "prove",
        "Prove that the RTL of FILE implements it, for all inputs at all times.",
    ),
    "verify": (
        "verify",
        "Verify the files in DIR against the source text in it: prove the datapath, simulate its tops.",
    ),
    "test": (
        "cosim",
        "Run the RTL of FILE and the simulator on the same stimulus, and compare every port in every cycle.",
    ),
}
"""Commands, their modules in this package, and their lines in `--help`."""

SUCCESS_CODE = 0
INTERRUPTED_CODE = 130


def build_app() -> CommandGroup:
    """Return the application, whose commands are imported on use. Raise `ImportError` without typer."""
    from lightbed.command_group import CommandGroup

    return CommandGroup(
        name="countaction",
        help="Check, simulate, prove and build count-action modules.",
        package="fpga.cli",
        table=COMMANDS,
    )


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line, and return the exit code. Print errors."""
    import typer
    from typer.exceptions import TyperException

    as_json = "--json" in arguments
    try:
        result = build_app()(list(arguments), prog_name="countaction", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED_CODE
    except OSError as error:
        return print_errors([diagnose_os_error(error)], as_json=as_json)
    except (TyperException, ImportError) as error:
        message = str(error) if isinstance(error, ImportError) else error.format_message()
        return print_message(message, as_json=as_json)
    except _import_error_class() as error:
        return print_errors(error.errors, as_json=as_json)
    return result if isinstance(result, int) else SUCCESS_CODE


def _import_error_class() -> type[CountActionError]:
    """Return the class `CountActionError`, imported only if an exception has to be matched."""
    from fpga.count_action.diagnostics import CountActionError

    return CountActionError


def main() -> None:
    """Run the command line."""
    run_program("countaction", "fpga", run_app)
