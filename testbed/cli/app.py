"""The command line of `testbed`, made from the table of commands.

The module of a command is imported only when the command is used. Such a module imports at its top only what `--help`
needs; its functions import the rest. So `--help` and completion stay fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.exceptions import TyperException

from lightbed.command_group import CommandGroup, register_module
from lightbed.errors import LightbedError
from testbed.cli.output import report_error
from testbed.commands.documents import EXIT_DONE, EXIT_ERROR, EXIT_INTERRUPTED
from testbed.commands.table import COMMANDS
from testbed.errors import Interrupted


def _register(app: typer.Typer, name: str, module: str) -> None:
    if COMMANDS[name][0] and ":" not in COMMANDS[name][0]:
        register_module(app, name, module)
        return
    from testbed.cli.parameters import add_command

    add_command(app, name)


def build_app() -> CommandGroup:
    """Return the application; each command is imported when it is used."""
    return CommandGroup(
        name="testbed",
        help="Patch an optical direct-connect testbed, real or simulated, and measure collectives on it.",
        package="testbed.cli",
        table={name: entry for name, entry in COMMANDS.items() if " " not in name},
        register=_register,
    )


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line, report errors, and return the exit code."""
    as_json = "--json" in arguments
    try:
        if os.environ.get("LIGHTBED_LOG"):
            from testbed.observe.json_log import log_from_environment

            log_from_environment()
        if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        ):
            from testbed.observe.traces import trace_if_configured

            trace_if_configured()
        result: Any = build_app()(list(arguments), prog_name="testbed", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        result = EXIT_INTERRUPTED
    except Interrupted as error:
        report_error(error, as_json=as_json)
        return EXIT_INTERRUPTED
    except (TyperException, LightbedError, OSError) as error:
        report_error(error, as_json=as_json)
        return error.exit_code if isinstance(error, LightbedError) else EXIT_ERROR
    if result == EXIT_INTERRUPTED:  # typer's own answer to Ctrl-C inside a command
        print("interrupted: temporary processes are stopped, results so far are kept", file=sys.stderr)
    return result if isinstance(result, int) else EXIT_DONE
