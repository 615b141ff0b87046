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
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Shots = Annotated[int, typer.Option(min=1, max=65535, help="Number of readings to average.")]

Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the numbers to this file.")]
TWIN = "sim://kit"
"""Default device."""
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
        "--output", metavar="NAME", help="Tensor that the network returns instead of its outputs; repeatable."
    ),
]


def _check_plot_file(file: Path | None) -> Path | None:
    """Check the file before the work starts, because a late failure would lose the result."""
    if file is None:
        return None
    from lightning.canvas import check_file

    return check_file(file)


Png = Annotated[
    Path | None,
    typer.Option(
        "--png", metavar="FILE", callback=_check_plot_file, help="Draw a plot (.png, .svg or .pdf)."
    ),
]
