"""`lightning dot WEIGHTS INPUTS`: a dot product, or a product of matrix and vector, computed by light."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lightning.cli.options import TWIN, AsJson, Device
from lightning.cli.output import EXIT_OK, mark_simulated, print_document
from lightning.errors import OutOfRange

_OPERAND_HELP = "Whole numbers of -255 to 255 with commas, or a file (.npy, or text with commas and lines)."
Weights = Annotated[
    str, typer.Argument(metavar="WEIGHTS", help=f"{_OPERAND_HELP} Lines are rows of a matrix.")
]
Inputs = Annotated[
    str, typer.Argument(metavar="INPUTS", help=f"{_OPERAND_HELP} Give as many as a row of weights has.")
]
Plays = Annotated[
    int, typer.Option("--shots", min=1, max=65535, help="Repetitions of the acquisition, which are averaged.")
]


def register(app: typer.Typer) -> None:
    """Add the command. A number may begin with a minus."""
    app.command("dot", context_settings={"ignore_unknown_options": True})(dot)


def dot(
    weights: Weights, inputs: Inputs, device: Device = TWIN, shots: Plays = 1, *, as_json: AsJson = False
) -> int:
    """Add up products of two vectors by light, many in one acquisition: sum of weights times inputs over 255.

    For example: lightning dot 10,20,30,40 255,128,64,0
    """
    import numpy as np

    from lightning.kit.connection import connect
    from lightning.kit.devices.identity import read_identity

    weight_matrix, input_vector = read_numbers(weights), read_numbers(inputs)
    soc = connect(device)
    device_identity = read_identity(soc)
    from lightning.kit.dot import VectorCore

    result = np.asarray(VectorCore(soc).dot(weight_matrix, input_vector, shots=shots))
    exact_result = np.round((weight_matrix * input_vector).sum(axis=-1) / 255, 4)
    if as_json:
        print_document(
            device_identity, {"result": result.tolist(), "exact": exact_result.tolist(), "shots": shots}
        )
    else:
        print(mark_simulated(f"{_list_values(result)}", device_identity))
        print(f"exact: {_list_values(exact_result)}")
    return EXIT_OK


def read_numbers(text: str) -> Any:
    """Return the array in a comma-separated list or a file. Raise `OutOfRange` if `text` is neither.

    Whole numbers become int64. Other numbers stay floats, and `VectorCore.dot` refuses them.
    """
    import numpy as np

    try:
        values = _read_values(text)
    except (OSError, ValueError) as error:
        raise OutOfRange(
            f"{text!r} is not a valid list of numbers ({error})",
            hint="Write 1,2,3, or name a .npy or text file",
        ) from error
    return values.astype(np.int64) if np.array_equal(values, np.rint(values)) else values


def _read_values(text: str) -> Any:
    import numpy as np

    if Path(text).suffix == ".npy":
        return np.load(text, allow_pickle=False)
    if Path(text).is_file():
        return np.loadtxt(text, delimiter=",")
    return np.array([float(number) for number in text.split(",")])


def _list_values(values: Any) -> str:
    import numpy as np

    return ", ".join(f"{value:g}" for value in np.atleast_1d(values).ravel())
