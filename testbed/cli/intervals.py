"""Intervals of time on the command line: `30s`, `5m`, `1h`, `2d`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from time import sleep
from typing import Annotated

import typer

from lightbed.errors import LightbedError
from testbed.cli.output import report_error

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


def at_intervals(every_s: float | None, once: Callable[[], int], *, as_json: bool) -> int:
    """Do something once and return its exit code; or at intervals until interrupted: an error does not end that."""
    if every_s is None:
        return once()
    while True:
        began_s = time.monotonic()
        try:
            once()
        except LightbedError as error:  # a switch, a host or a service that is off for a while
            report_error(error, as_json=as_json)
        sys.stdout.flush()
        sleep(max(0.0, every_s - (time.monotonic() - began_s)))


ConfirmWithin = Annotated[
    float | None,
    typer.Option(
        "--confirm-within",
        metavar="TIME",
        parser=parse_interval,
        help="Go back to the verified epoch before unless `testbed confirm` is given in this time, e.g. 10m.",
    ),
]
