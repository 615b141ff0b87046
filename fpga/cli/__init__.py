"""`countaction`: the command line of those who write count-action modules.

Every command lives in a module of its own with a function `register(app)`, which is imported only when the command
is asked for. Exit codes: 0 done, 1 error (usage errors too), 130 interrupted. `--json` prints one document, of an
error too: `{"ok": false, "errors": [{"file", "line", "column", "message", "hint"}]}`, file "" and line 0 where it is
in no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fpga.cli.errors import of_the_system, tell, tell_message
from lightbed.program import run_program

if TYPE_CHECKING:
    from fpga.count_action.diagnostics import CountActionError
    from lightbed.command_group import CommandGroup

COMMANDS = {
    "check": ("check", "Say what is wrong with a datapath, or that nothing is."),
    "explain": (
        "explain",
        "Draw a datapath: counts, targets, actions, who triggers whom, latency in cycles.",
    ),
    "sim": ("sim", "Simulate a datapath. Exit code 1 when an expectation of the stimulus is not met."),
    "build": ("build", "Make everything that hardware and driver need of a datapath."),
    "regs": ("regs", "Print the register map: a table, or one of the other forms."),
    "prove": (
        "prove",
        "Prove that the RTL of FILE does what the language says, for all inputs and all times.",
    ),
    "verify": (
        "verify",
        "Hold the files in DIR against the text there: the datapath is proven, its tops are simulated.",
    ),
    "test": (
        "cosim",
        "Run the RTL of FILE and the simulator on the same stimulus, and compare every port in every cycle.",
    ),
}
"""Commands, the modules of this package that hold them, and their lines in `--help`."""

DONE = 0
INTERRUPTED = 130


def build_app() -> CommandGroup:
    """Return the application, none of whose commands is imported yet. Raises `ImportError` without typer."""
    from lightbed.command_group import CommandGroup

    return CommandGroup(
        name="countaction",
        help="Write a module that counts and acts once: check, simulate, prove and build it.",
        package="fpga.cli",
        table=COMMANDS,
    )


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line and turn every ending into an exit code."""
    import typer
    from typer.exceptions import TyperException

    as_json = "--json" in arguments
    try:
        result = build_app()(list(arguments), prog_name="countaction", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        return tell([of_the_system(error)], as_json=as_json)
    except (TyperException, ImportError) as error:
        message = str(error) if isinstance(error, ImportError) else error.format_message()
        return tell_message(message, as_json=as_json)
    except _text_error() as error:
        return tell(error.errors, as_json=as_json)
    return result if isinstance(result, int) else DONE


def _text_error() -> type[CountActionError]:
    """Return the error of a text, imported when there is an error."""
    from fpga.count_action.diagnostics import CountActionError

    return CountActionError


def main() -> None:
    """Run the command line."""
    run_program("countaction", "fpga", run_app)
