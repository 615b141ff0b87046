"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SourceFile = Annotated[Path, typer.Argument(metavar="FILE", help="Text of a datapath, e.g. streamer.ca.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-P", metavar="NAME=VALUE", help="Value of a parameter (repeatable)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def parse_parameters(texts: list[str] | None) -> dict[str, int]:
    """Return the values in a list such as `["num_DACs=4"]`. Raise `CountActionError` if one is not valid."""
    from fpga.count_action.diagnostics import CountActionError, Diagnostic, quote

    values: dict[str, int] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        try:
            if not equals or not name.isidentifier() or len(value) > 20:
                raise ValueError(text)
            values[name] = int(value, 0)
        except ValueError:
            message = f"{quote(text)} is not a valid value of a parameter"
            hint = "Write -P NAME=NUMBER, for example -P num_DACs=4."
            raise CountActionError([Diagnostic("<command line>", 1, 1, message, hint)]) from None
    return values
