"""Choices for an import: shapes of inputs, values of inputs, and output tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError, OutOfRange
from lightning.networks.network import Port
from lightning.optional import require

SEED = 7
"""Seed of the example inputs of a trace."""

Array = npt.NDArray[Any]


def read_ports(graph: Any, constants: Mapping[str, Array]) -> tuple[Port, ...]:
    """Return the inputs that are not constant. Raise `NetworkError` for an open shape or an unsupported type."""
    return tuple(
        Port(entry.name, read_fixed_shape(entry), read_data_type(entry))
        for entry in graph.input
        if entry.name not in constants
    )


def read_data_type(value_info: Any) -> str:
    """Return the data type of an input. Raise `NetworkError` unless it is a tensor of numbers or booleans."""
    helper = require("onnx.helper", "to read ONNX files")
    if not value_info.type.HasField("tensor_type"):
        raise NetworkError(
            f"input {value_info.name!r} is not a tensor", hint="Export the network with tensors"
        )
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(value_info.type.tensor_type.elem_type))
    if dtype.kind not in "fiub":
        raise NetworkError(
            f"input {value_info.name!r} takes {dtype}, not numbers",
            hint="Encode text as numbers before the network, and cut the network after the encoding",
        )
    return str(dtype.name)


def read_fixed_shape(graph_input: Any) -> tuple[int, ...]:
    """Return the shape of an input. Raise `NetworkError` with a hint if it is open."""
    if has_open_shape(graph_input):
        raise NetworkError(
            f"input {graph_input.name!r} has the shape {format_shape(graph_input)}, which is not fixed",
            hint=f"Fix it: {format_shape_option(graph_input)}",
        )
    return tuple(int(dim.dim_value) for dim in graph_input.type.tensor_type.shape.dim)


def has_open_shape(graph_input: Any) -> bool:
    """Return whether the shape of an input is unknown or has an open length."""
    tensor_type = graph_input.type.tensor_type
    return not tensor_type.HasField("shape") or any(dim.dim_value < 1 for dim in tensor_type.shape.dim)


def format_shape(graph_input: Any) -> str:
    """Return the shape as text, with the names of open lengths."""
    dims = graph_input.type.tensor_type.shape.dim
    return "(" + ", ".join(str(dim.dim_value or dim.dim_param or "?") for dim in dims) + ")"


def format_shape_option(graph_input: Any, default_length: int = 0) -> str:
    """Return the option that fixes the shape of an input, with default lengths."""
    return (
        f"--shape {graph_input.name}={'x'.join(map(str, choose_default_shape(graph_input, default_length)))}"
    )


def choose_default_shape(graph_input: Any, default_length: int = 0) -> tuple[int, ...]:
    """Return the shape with open lengths filled: 1 for the batch, 3 for image channels, else `default_length`."""
    dims = [int(dim.dim_value) for dim in graph_input.type.tensor_type.shape.dim]
    fill_length = default_length or (224 if len(dims) == 4 else 64)
    return tuple(
        length or (1 if axis == 0 else 3 if axis == 1 and len(dims) == 4 else fill_length)
        for axis, length in enumerate(dims)
    )


def make_example_input(port: Port) -> Array:
    """Return an example input: normal random numbers for floats, else ones."""
    rng = np.random.default_rng(SEED)
    dtype = np.dtype(port.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(port.shape).astype(dtype)
    return np.ones(port.shape, dtype)


@dataclass(frozen=True)
class Choices:
    """The user's choices for a file that leaves shapes, inputs or outputs open."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs, with the batch axis, by name."""
    values: Mapping[str, Array] = field(default_factory=dict)
    """Values of inputs that become constants, by name."""
    outputs: tuple[str, ...] = ()
    """Names of the output tensors; empty for the file's own outputs."""

    def __bool__(self) -> bool:
        """Return whether anything is chosen."""
        return bool(self.shapes or self.values or self.outputs)


def parse_choices(
    shapes: Sequence[str] = (), values: Sequence[str] = (), outputs: Sequence[str] = ()
) -> Choices:
    """Return the choices of the command line options. Raise `OutOfRange` for an invalid option.

    >>> parse_choices(["x=1x3x224x224"], ["rate=16000"]).shapes
    {'x': (1, 3, 224, 224)}
    """
    return Choices(
        {name: _parse_shape(name, text) for name, text in map(_split_choice, shapes)},
        {name: _parse_value(name, text) for name, text in map(_split_choice, values)},
        tuple(outputs),
    )


def _split_choice(text: str) -> tuple[str, str]:
    name, sign, value = text.rpartition("=")
    if not sign or not name:
        raise OutOfRange(f"{text!r} names no input", hint="Write NAME=1x3x224x224, or NAME=VALUE")
    return name, value


def _parse_shape(name: str, text: str) -> tuple[int, ...]:
    try:
        lengths = tuple(int(length) for length in text.split("x")) if text else ()
    except ValueError:
        lengths = (0,)
    if min(lengths, default=1) < 1:
        raise OutOfRange(f"--shape {name}={text} is not a valid shape", hint="Write NAME=1x3x224x224")
    return lengths


def _parse_value(name: str, text: str) -> Array:
    digit_by_word = {"true": "1", "false": "0"}
    try:
        numbers = [float(digit_by_word.get(number.lower(), number)) for number in text.split(",")]
    except ValueError:
        raise OutOfRange(
            f"--set {name}={text} is not a valid number", hint="Write NAME=16000, or NAME=1,2,3"
        ) from None
    return np.array(numbers[0] if len(numbers) == 1 else numbers)


def apply_choices(model: Any, name: str, choices: Choices) -> Any:
    """Return a copy of the model with the choices applied, or the model itself without choices.

    Raise `NetworkError` for an unknown name, or a shape with the wrong number of axes.
    """
    if not choices:
        return model
    model_copy = require("onnx", "to read ONNX files").ModelProto()
    model_copy.CopyFrom(model)
    graph = model_copy.graph
    constant_names = {initialiser.name for initialiser in graph.initializer}
    input_by_name = {entry.name: entry for entry in graph.input if entry.name not in constant_names}
    for input_name in (*choices.shapes, *choices.values):
        if input_name not in input_by_name:
            raise NetworkError(
                f"{name}.onnx has no input {input_name!r}", hint=f"Name one of: {', '.join(input_by_name)}"
            )
    for input_name, shape in choices.shapes.items():
        _fix_shape(input_by_name[input_name], shape)
    for input_name, value in choices.values.items():
        _make_constant(graph, input_by_name[input_name], value)
    if choices.outputs:
        _set_outputs(graph, name, choices.outputs)
    return model_copy


def _fix_shape(graph_input: Any, shape: tuple[int, ...]) -> None:
    tensor_type = graph_input.type.tensor_type
    if tensor_type.HasField("shape") and len(tensor_type.shape.dim) != len(shape):
        raise NetworkError(
            f"input {graph_input.name!r} has {len(tensor_type.shape.dim)} axes, but --shape gives {len(shape)}",
            hint=f"Write {format_shape_option(graph_input)}",
        )
    del tensor_type.shape.dim[:]
    tensor_type.shape.SetInParent()
    for length in shape:
        tensor_type.shape.dim.add().dim_value = length


def _make_constant(graph: Any, graph_input: Any, value: Array) -> None:
    """Turn an input into a constant of its data type, broadcast to its shape if the sizes allow it."""
    tensor_type = graph_input.type.tensor_type
    array = value.astype(read_data_type(graph_input))
    if tensor_type.HasField("shape"):
        shape = [int(dim.dim_value) or 1 for dim in tensor_type.shape.dim]
        if array.size in {1, int(np.prod(shape))}:
            array = np.resize(array, shape)
    helper = require("onnx.numpy_helper", "to read ONNX files")
    graph.initializer.append(helper.from_array(array, graph_input.name))
    graph.input.remove(graph_input)


def _set_outputs(graph: Any, name: str, outputs: tuple[str, ...]) -> None:
    produced_tensors = {output for node in graph.node for output in node.output if output}
    output_names = ", ".join(output.name for output in graph.output)
    for output in outputs:
        if output not in produced_tensors:
            raise NetworkError(f"{name}.onnx has no tensor {output!r}", hint=f"Choose one of: {output_names}")
    info_by_name = {info.name: info for info in (*graph.value_info, *graph.output)}
    helper = require("onnx.helper", "to read ONNX files")
    infos = [info_by_name.get(output) or helper.make_empty_tensor_value_info(output) for output in outputs]
    del graph.output[:]
    graph.output.extend(infos)
