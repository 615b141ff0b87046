"""`lightning`: the command line of those who compute with the kit, or with its twin.

Every command lives in a module of its own with a function `register(app)`, which is imported only when the command
is asked for. Exit codes: 0 done, 1 error (usage errors too), 130 interrupted; `run` gives the script's own. `--json`
prints one document, of an error too: `{"ok": false, "error": {"code", "message", "device", "hint"}}`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lightbed.program import run_program
from lightning.errors import LightningError, ProgramError

if TYPE_CHECKING:
    from lightbed.command_group import CommandGroup

COMMANDS = {
    "multiply": ("multiply", "Multiply two numbers by light: A times B over 255, rounded."),
    "dot": (
        "dot",
        "Add up products of two vectors by light, many in one acquisition: sum of weights times inputs over 255.",
    ),
    "scope": ("scope", "Draw what the detector sees, and decode it where there is a calibration."),
    "calibrate": (
        "calibrate",
        "Set up a kit step by step, measure its modulators, and keep the calibration.",
    ),
    "sweep": ("sweep", "Sweep the gain word of a modulator, and fit its transfer curve."),
    "run": ("run", "Run a QICK script with a device as its QickSoc; the exit code is the script's."),
    "doctor": (
        "doctor",
        "Look at this environment, and at a device if one is named; exit code 1 when something is bad.",
    ),
    "compile": (
        "compile",
        "Quantise a trained network, tile it over lanes, wavelengths and cores, and say what became of every layer.",
    ),
    "explain": (
        "explain",
        "Say layer by layer what light computes and what not, and why; cycles, memory, and where the model comes from.",
    ),
    "infer": ("infer", "Ask a model what an image shows."),
    "evaluate": ("evaluate", "Count right answers of a model on data."),
    "sensitivity": (
        "sensitivity",
        "Say what noise in each layer costs, and which sigma or averaging keeps the loss small.",
    ),
    "energy": (
        "energy",
        "Say what an image costs: time, energy with and without converters, and digital hardware for comparison.",
    ),
    "serve": (
        "serve",
        "Answer questions over the network until SIGINT or SIGTERM: Open Inference Protocol over HTTP, and UDP.",
    ),
    "load": (
        "load",
        "Ask a server at random times (Poisson), whether it answers or not; latency counts from the scheduled time.",
    ),
}
"""Commands, the modules of this package that hold them, and their lines in `--help`."""

DONE = 0
ERROR = 1
INTERRUPTED = 130


def build_app() -> CommandGroup:
    """Return the application, none of whose commands is imported yet. Raises `ImportError` without typer."""
    from lightbed.command_group import CommandGroup

    return CommandGroup(
        name="lightning",
        help="Compute with light: with the Lightning kit, or with its twin (sim://kit), which needs no hardware.",
        package="lightning.cli",
        table=COMMANDS,
    )


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line and turn every ending into an exit code."""
    import typer
    from typer.exceptions import TyperException

    # After `run SCRIPT` the words may be the script's.
    as_json = "--json" in arguments and arguments[0] != "run"
    try:
        result = build_app()(list(arguments), prog_name="lightning", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except LightningError as error:
        return tell(error, as_json=as_json)
    except TyperException as error:
        return tell(LightningError(error.format_message()), as_json=as_json)
    except RuntimeError as error:  # QICK's own word for what a device or its firmware cannot do
        return tell(_translate_error(error), as_json=as_json)
    return result if isinstance(result, int) else DONE


def _translate_error(error: RuntimeError) -> LightningError:
    message = " ".join(str(error).split()) or type(error).__name__
    return ProgramError(
        message.rstrip("."), hint="Request less, or use another device; `lightning doctor` shows what it has"
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
    """Run the command line."""
    run_program("lightning", "kit", run_app)
