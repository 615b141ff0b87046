"""The commands of `testbed` and the modules that hold them.

A module is imported only when its command is asked for: `testbed topology` need not wait for SSH and databases.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import typer

COMMANDS = {
    "demo": "demo",
    "topology": "topology",
    "plan": "circuits",
    "apply": "circuits",
    "verify": "circuits",
    "path": "circuits",
    "repair": "repair",
    "nccl": "nccl",
    "optimise": "optimise",
    "simulate": "simulate",
    "compare": "compare",
    "reproduce": "reproduce",
    "runs": "results",
    "report": "results",
    "doctor": "doctor",
    "switch": "switch",
    "sim": "simulated",
}


GROUPS = frozenset({"sim", "switch"})
"""Commands that have commands of their own."""


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: one command when the first word names it, else all of them."""
    named = arguments[0] if arguments else ""
    app = typer.Typer(
        name="testbed",
        help="Patch an optical direct-connect testbed and measure collectives on it, on hardware and on none.",
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    # With a single command typer would leave out its name.
    app.callback()(lambda: None)
    for command in [named] if named in COMMANDS else COMMANDS:
        module = import_module(f"testbed.cli.{COMMANDS[command]}")
        if command in GROUPS:
            app.add_typer(module.app, name=command)
        else:
            app.command(command)(getattr(module, command))
    return app
