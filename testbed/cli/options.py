"""Options of commands that are not declared, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
RunsDirectory = Annotated[
    Path, typer.Option("--runs-dir", metavar="DIR", help="Where results are kept.", envvar="LIGHTBED_RUNS")
]
DEFAULT_RUNS = Path("runs")
