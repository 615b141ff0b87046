"""Intervals of time on the command line: `30s`, `5m`, `1h`, `2d`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_interval(text: str) -> float:
    """Return seconds of an interval such as `30s`, `5m`, `1h`, `2d`.

    >>> parse_interval("5m")
    300.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not found or not float(found.group(1)):
        raise typer.BadParameter(f"{text!r} is not an interval: write for example 30s, 5m or 1h")
    return float(found.group(1)) * _SECONDS[found.group(2)]


ConfirmWithin = Annotated[
    float | None,
    typer.Option(
        "--confirm-within",
        metavar="TIME",
        parser=parse_interval,
        help="Go back to the verified epoch before unless `testbed confirm` is given in this time, e.g. 10m.",
    ),
]
