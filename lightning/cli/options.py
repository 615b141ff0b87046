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

Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the numbers.")]
TWIN = "sim://kit"
"""What a command takes when no device is named."""
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=1x3x224x224", help="Shape of an input, batch axis first; repeatable."
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Make an input constant; repeatable."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output", metavar="NAME", help="A tensor that the network gives, in place of its outputs."
    ),
]


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
