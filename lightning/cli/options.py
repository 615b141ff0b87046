"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Device = Annotated[
    str,
    typer.Option(
        "--device",
        "-d",
        metavar="ADDRESS",
        envvar="LIGHTBED_DEVICE",
        help="sim://kit, qick://HOST, qick://local, replay://FILE.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Shots = Annotated[int, typer.Option(min=1, max=65535, help="Readings that are averaged.")]


def _drawable(file: Path | None) -> Path | None:
    """Check the file before the work, whose result would be lost with it."""
    if file is None:
        return None
    from lightning.canvas import check_file

    return check_file(file)


Png = Annotated[
    Path | None,
    typer.Option("--png", metavar="FILE", callback=_drawable, help="Draw a plot (.png, .svg or .pdf)."),
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the numbers.")]

TWIN = "sim://kit"
"""What a command takes when no device is named."""
