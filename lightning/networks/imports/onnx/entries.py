"""Inputs of a file whose shapes are fixed, by the file or by its user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError
from lightning.networks.network import Port
from lightning.optional import needed

Array = npt.NDArray[Any]

SEED = 7
"""Of the example that shapes are found with."""


def ports_of(graph: Any, known: Mapping[str, Array]) -> tuple[Port, ...]:
    """Return the inputs. Raises `NetworkError` for one whose shape is open, or that takes no numbers."""
    return tuple(
        Port(entry.name, shape_of_entry(entry), kind_of(entry))
        for entry in graph.input
        if entry.name not in known
    )


def kind_of(entry: Any) -> str:
    """Return the data type of an input. Raises `NetworkError` for texts and for what is no tensor."""
    helper = needed("onnx.helper", "to read ONNX files")
    if not entry.type.HasField("tensor_type"):
        raise NetworkError(f"input {entry.name!r} is not a tensor", hint="Export the network with tensors")
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type))
    if kind.kind not in "fiub":
        raise NetworkError(
            f"input {entry.name!r} takes {kind}, and light takes numbers",
            hint="Encode texts as numbers before the network, and cut it behind their encoding",
        )
    return str(kind.name)


def shape_of_entry(entry: Any) -> tuple[int, ...]:
    """Return the shape of an input. Raises `NetworkError`, which says how to fix it, for one that is open."""
    if is_open(entry):
        raise NetworkError(
            f"input {entry.name!r} has the open shape {open_shape(entry)}",
            hint=f"Fix it: {advised_shape(entry)}",
        )
    return tuple(int(dim.dim_value) for dim in entry.type.tensor_type.shape.dim)


def is_open(entry: Any) -> bool:
    """Return whether a length of an input is not fixed."""
    kind = entry.type.tensor_type
    return not kind.HasField("shape") or any(dim.dim_value < 1 for dim in kind.shape.dim)


def open_shape(entry: Any) -> str:
    """Return the shape in words, with the names of open lengths."""
    dims = entry.type.tensor_type.shape.dim
    return "(" + ", ".join(str(dim.dim_value or dim.dim_param or "?") for dim in dims) + ")"


def advised_shape(entry: Any, usual: int = 0) -> str:
    """Return the option that fixes the shape of an input, with lengths that are usual."""
    return f"--shape {entry.name}={'x'.join(map(str, usual_shape(entry, usual)))}"


def usual_shape(entry: Any, usual: int = 0) -> tuple[int, ...]:
    """Return the shape with every open length filled: 1 for the batch axis, else `usual`."""
    dims = [int(dim.dim_value) for dim in entry.type.tensor_type.shape.dim]
    chosen = usual or (224 if len(dims) == 4 else 64)
    return tuple(
        length or (1 if place == 0 else 3 if place == 1 and len(dims) == 4 else chosen)
        for place, length in enumerate(dims)
    )


def example_of(port: Port) -> Array:
    """Return an example: normal numbers, or ones where the input takes whole numbers."""
    random = np.random.default_rng(SEED)
    kind = np.dtype(port.kind)
    if kind.kind == "f":
        return random.standard_normal(port.shape).astype(kind)
    return np.ones(port.shape, kind)
