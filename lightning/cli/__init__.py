"""`lightning`: the command line for computing with the photonic kit or its twin.

Every command has a module with a function `register(app)`. The module is imported only when the command is used. Exit
codes are 0 for success, 1 for an error (also of usage) and 130 for an interruption; `run` returns the exit code of the
script. `--json` prints one document, for an error too: `{"ok": false, "error": {"code", "message", "device", "hint"}}`.
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
    "scope": ("scope", "Plot the detector signal, and decode it if the device is calibrated."),
    "calibrate": (
        "calibrate",
        "Set up a kit step by step, measure its modulators, and save the calibration.",
    ),
    "sweep": ("sweep", "Sweep the gain word of a modulator, and fit its transfer curve."),
    "run": ("run", "Run a QICK script with a device as its QickSoc; the exit code is the script's."),
    "doctor": (
        "doctor",
        "Check this environment, and a device if --device is given; exit code 1 if a check fails.",
    ),
    "compile": (
        "compile",
        "Quantise a trained network, tile it over lanes, wavelengths and cores, and report on every layer.",
    ),
    "explain": (
        "explain",
        "Report which layers run on light and why, with cycles, memory, and the origin of the model.",
    ),
    "infer": ("infer", "Classify an image with a model."),
    "evaluate": ("evaluate", "Measure the accuracy of a model on a data set."),
    "sensitivity": (
        "sensitivity",
        "Measure the accuracy lost to noise in each layer, and the sigma or averaging that limits the loss.",
    ),
    "energy": (
        "energy",
        "Estimate time and energy of an image, with and without converters, compared with digital hardware.",
    ),
    "reproduce": (
        "reproduce",
        "Compute the figures of a paper again, and write them beside the published numbers.",
    ),
    "packets": (
        "packets",
        "Print request packets for a model with the exact answers, a JSON line each.",
    ),
    "trace": (
        "trace",
        "Trace a request through the simulated smartNIC, and plot every cycle with the counts of its modules.",
    ),
    "serve": (
        "serve",
        "Serve models over the network until SIGINT or SIGTERM: Open Inference Protocol over HTTP, and UDP.",
    ),
    "load": (
        "load",
        "Send requests to a server at random times (Poisson); latency counts from the scheduled time.",
    ),
}
"""Commands, with their modules in this package and their lines in `--help`."""

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_INTERRUPTED = 130


def build_app() -> CommandGroup:
    """Return the application. Commands are imported at their first use. Raise `ImportError` without typer."""
    from lightbed.command_group import CommandGroup

    return CommandGroup(
        name="lightning",
        help="Compute with light: with the Lightning kit, or with its twin (sim://kit), which needs no hardware.",
        package="lightning.cli",
        table=COMMANDS,
    )


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line, print errors, and return the exit code."""
    import typer
    from typer.exceptions import TyperException

    # After `run SCRIPT`, `--json` may be an argument of the script.
    as_json = "--json" in arguments and arguments[0] != "run"
    try:
        result = build_app()(list(arguments), prog_name="lightning", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except LightningError as error:
        return report_error(error, as_json=as_json)
    except TyperException as error:
        return report_error(LightningError(error.format_message()), as_json=as_json)
    except RuntimeError as error:  # QICK raises it if a device or its firmware lacks an ability
        return report_error(_translate_error(error), as_json=as_json)
    return result if isinstance(result, int) else EXIT_OK


def _translate_error(error: RuntimeError) -> LightningError:
    message = " ".join(str(error).split()) or type(error).__name__
    return ProgramError(
        message.rstrip("."), hint="Request less, or use another device; `lightning doctor` shows what it has"
    )


def report_error(error: LightningError, *, as_json: bool) -> int:
    """Print an error and return the exit code. With `as_json`, print a document on standard output."""
    if as_json:
        from lightning.cli.output import describe_error, print_document

        print_document(None, {"error": describe_error(error)}, is_ok=False)
    else:
        print(f"error: {error}", file=sys.stderr)
    return EXIT_ERROR


def main() -> None:
    """Run the command line."""
    run_program("lightning", "kit", run_app)
