"""`lightning run SCRIPT`: execution of an unmodified QICK script on any device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script that uses QickSoc.")]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="ADDRESS",
        envvar="LIGHTBED_DEVICE",
        help="Device, e.g. sim://kit, sim://loopback, qick://HOST.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command. Unknown options and everything after `--` are passed to the script."""
    app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run)


def run(context: typer.Context, script: Script, device: Device = "sim://kit") -> int:
    """Run a QICK script with a device as its QickSoc; the exit code is the script's.

    For example: lightning run talk.py --device sim://kit
    """
    from lightning.run_script import run_script

    return run_script(script, device, context.args)
