"""`lightning multiply A B`: one product, computed by light."""

from __future__ import annotations

from typing import Annotated

import typer

from lightning.cli.options import TWIN, AsJson, Device, Shots
from lightning.cli.output import EXIT_OK, collect_saturation, mark_simulated, print_document

First = Annotated[int, typer.Argument(metavar="A", help="A whole number of -255 to 255.")]
Second = Annotated[int, typer.Argument(metavar="B", help="A whole number of -255 to 255.")]


def register(app: typer.Typer) -> None:
    """Add the command. A number may begin with a minus."""
    app.command("multiply", context_settings={"ignore_unknown_options": True})(multiply)


def multiply(a: First, b: Second, device: Device = TWIN, shots: Shots = 4, *, as_json: AsJson = False) -> int:
    """Multiply two numbers by light: A times B over 255, rounded.

    For example: lightning multiply 100 50 --device sim://kit
    """
    from lightning.kit.compute import LightningCompute
    from lightning.kit.connection import connect
    from lightning.kit.devices.identity import read_identity

    soc = connect(device)
    compute = LightningCompute(soc, shots=shots)
    with collect_saturation() as saturation_warnings:
        analogue = float(compute.analogue_product(a, b))
    result, exact, device_identity = min(max(round(analogue), -255), 255), a * b / 255, read_identity(soc)
    if as_json:
        figures = {"a": a, "b": b, "result": result, "analogue": round(analogue, 4), "exact": round(exact, 4)}
        details = {"saturated": bool(saturation_warnings), "shots": shots}
        print_document(device_identity, {**figures, **details, "calibration": compute.calibration.describe()})
    else:
        print(mark_simulated(f"{a} × {b} / 255 = {result}", device_identity))
        print(f"measured {analogue:.2f}, exact {exact:.2f}; {compute.calibration.describe()}")
    return EXIT_OK
