"""Options for what an ONNX file leaves open: shapes and values of inputs, and its outputs."""

from __future__ import annotations

from typing import Annotated

import typer

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
