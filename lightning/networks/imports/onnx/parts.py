"""Pieces of an ONNX file, read with `onnx`; what it raises becomes `NetworkError` here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError
from lightning.optional import needed

OPSETS = range(13, 22)
"""Versions of ONNX's own operations that are read without conversion; later ones change none that is read."""
OLDEST = 7


def newest_opset() -> int:
    """Return the newest opset that the installed `onnx` knows."""
    return int(needed("onnx.defs", "to read ONNX files").onnx_opset_version())


def parsed(content: bytes, name: str) -> Any:
    """Return the `ModelProto`, its functions written out. Raises `NetworkError` for bytes that are none."""
    onnx = needed("onnx", "to read ONNX files")
    decode_error = needed("google.protobuf.message", "to read ONNX files").DecodeError
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (decode_error, RuntimeError, ValueError) as error:
        raise NetworkError(
            f"{name}.onnx is no ONNX file, or a damaged one", hint="Export it again"
        ) from error
    if not model.HasField("graph"):
        raise NetworkError(f"{name}.onnx holds no network", hint="Export it again")
    return _without_functions(model, name) if model.functions else model


def _without_functions(model: Any, name: str) -> Any:
    inliner = needed("onnx.inliner", "to read ONNX files")
    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError) as error:
        raise NetworkError(
            f"{name}.onnx: its functions cannot be written out: {error}", hint="Export it again"
        ) from error


def opsets_of(model: Any, name: str) -> dict[str, int]:
    """Return the versions by domain, "" for ONNX's own. Raises `NetworkError` where there is none."""
    versions = [entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}]
    if not versions:
        raise NetworkError(f"{name}.onnx names no opset", hint="Export it with opset_version=17")
    given = {entry.domain: int(entry.version) for entry in model.opset_import}
    return {**given, "": int(versions[0])}


def array_of(tensor: Any, folder: Path) -> npt.NDArray[Any]:
    """Return the array of a `TensorProto`; `folder` is where external data lie. Raises `NetworkError`."""
    onnx = needed("onnx", "to read ONNX files")
    helper = needed("onnx.numpy_helper", "to read ONNX files")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor = _with_data(onnx, tensor, folder)
    try:
        array = np.asarray(helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, AttributeError) as error:
        raise NetworkError(
            f"constant {tensor.name!r} is damaged: {error}", hint="Export the network again"
        ) from error
    if array.dtype.kind == "O":
        raise NetworkError(
            f"constant {tensor.name!r} holds no numbers", hint="Export the network without texts"
        )
    return array


def _with_data(onnx: Any, tensor: Any, folder: Path) -> Any:
    external = needed("onnx.external_data_helper", "to read ONNX files")
    try:
        external.load_external_data_for_tensor(tensor, str(folder))
    except (
        OSError,
        ValueError,
        TypeError,
        RuntimeError,
        OverflowError,
        onnx.checker.ValidationError,
    ) as error:
        raise NetworkError(
            f"the data of constant {tensor.name!r} are missing: {error}",
            hint="Keep the file of data next to the .onnx file",
        ) from error
    return tensor


def attributes_of(node: Any) -> dict[str, Any]:
    """Return the attributes by name; numbers, lists of numbers, strings, tensors. Raises `NetworkError`."""
    helper = needed("onnx.helper", "to read ONNX files")
    given: dict[str, Any] = {}
    for attribute in node.attribute:
        try:
            value = helper.get_attribute_value(attribute)
        except (ValueError, TypeError, KeyError) as error:
            raise NetworkError(
                f"node {node.name} ({node.op_type}) is damaged: {error}", hint="Export again"
            ) from error
        given[attribute.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return given


def shape_of(entry: Any) -> list[int]:
    """Return the input's shape, 0 for a batch axis of any length. Raises `NetworkError` for what cannot be an input."""
    kind = entry.type.tensor_type
    if not entry.type.HasField("tensor_type") or not kind.HasField("shape") or not kind.shape.dim:
        raise NetworkError(
            f"input {entry.name!r} has no shape", hint="Export the network with the shape of its input"
        )
    if kind.elem_type not in {1, 10, 11, 16}:
        raise NetworkError(f"input {entry.name!r} takes no floats", hint="Export a network that takes floats")
    _check_lengths(entry.name, kind.shape.dim[1:])
    batch, *image = [int(dim.dim_value) for dim in kind.shape.dim]
    if batch not in {0, 1}:
        raise NetworkError(
            f"input {entry.name!r} takes {batch} images at a time, or has no batch axis",
            hint="Export it with a batch axis in front, symbolic or of length 1",
        )
    if not image:
        raise NetworkError(
            f"input {entry.name!r} has no axis after the batch axis",
            hint="Export it with the shape of one input",
        )
    return [batch, *image]


def _check_lengths(name: str, axes: Any) -> None:
    """Check that only the batch axis is symbolic: light needs to know how long its vectors are."""
    for place, dim in enumerate(axes, 1):
        if dim.dim_value < 1:
            length = repr(dim.dim_param) if dim.dim_param else f"{dim.dim_value or 'unknown'}"
            raise NetworkError(
                f"axis {place} of input {name!r} has the length {length}, and only the batch axis may be open",
                hint="Give it a length: onnx.tools.update_model_dims, or export without dynamic_axes for it",
            )
