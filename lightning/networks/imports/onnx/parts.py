"""Readers for the parts of an ONNX file, which convert errors of `onnx` to `NetworkError`; order of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import CyclicNetwork, NetworkError
from lightning.networks.network import Network
from lightning.optional import require

UNCONVERTED_OPSETS = range(13, 22)
"""Opsets that need no conversion. Later opsets change no supported operation."""
OLDEST_OPSET = 7

EXPORT_HINT = "Export the network again"
TARGET_OPSET = 21
NEWEST_RUNTIME_OPSET = 26
"""The newest opset that ONNX Runtime supports. Later files are read as this opset."""


def find_newest_opset() -> int:
    """Return the newest opset of the installed `onnx`."""
    return int(require("onnx.defs", "to read ONNX files").onnx_opset_version())


def parse_model(content: bytes, name: str) -> Any:
    """Return the `ModelProto` with its functions inlined. Raise `NetworkError` if the content is not valid."""
    onnx = require("onnx", "to read ONNX files")
    decode_error = require("google.protobuf.message", "to read ONNX files").DecodeError
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (decode_error, RuntimeError, ValueError) as error:
        raise NetworkError(f"{name}.onnx is not a valid ONNX file", hint="Export it again") from error
    if not model.HasField("graph"):
        raise NetworkError(f"{name}.onnx contains no network", hint="Export it again")
    return _inline_functions(model, name) if model.functions else model


def _inline_functions(model: Any, name: str) -> Any:
    inliner = require("onnx.inliner", "to read ONNX files")
    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError) as error:
        raise NetworkError(
            f"{name}.onnx: its functions cannot be inlined: {error}", hint="Export it again"
        ) from error


def read_opsets(model: Any, name: str) -> dict[str, int]:
    """Return the opset by domain, "" for ONNX's own domain. Raise `NetworkError` if this domain has no opset."""
    versions = [entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}]
    if not versions:
        raise NetworkError(f"{name}.onnx does not state its opset", hint="Export it with opset_version=17")
    opset_by_domain = {entry.domain: int(entry.version) for entry in model.opset_import}
    return {**opset_by_domain, "": int(versions[0])}


def read_array(tensor: Any, folder: Path) -> npt.NDArray[Any]:
    """Return the array of a `TensorProto`. `folder` holds its external data. Raise `NetworkError` if it is invalid."""
    onnx = require("onnx", "to read ONNX files")
    helper = require("onnx.numpy_helper", "to read ONNX files")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor = _load_external_data(onnx, tensor, folder)
    try:
        array = np.asarray(helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, AttributeError) as error:
        raise NetworkError(
            f"constant {tensor.name!r} is damaged: {error}", hint="Export the network again"
        ) from error
    if array.dtype.kind == "O":
        raise NetworkError(
            f"constant {tensor.name!r} does not hold numbers", hint="Export the network without strings"
        )
    return array


def _load_external_data(onnx: Any, tensor: Any, folder: Path) -> Any:
    external = require("onnx.external_data_helper", "to read ONNX files")
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


def read_attributes(node: Any) -> dict[str, Any]:
    """Return the attributes by name: numbers, lists of numbers, strings, tensors. Raise `NetworkError` if damaged."""
    helper = require("onnx.helper", "to read ONNX files")
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        try:
            value = helper.get_attribute_value(attribute)
        except (ValueError, TypeError, KeyError) as error:
            raise NetworkError(
                f"node {node.name} ({node.op_type}) is damaged: {error}", hint="Export again"
            ) from error
        attributes[attribute.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return attributes


def read_input_shape(graph_input: Any) -> list[int]:
    """Return the shape of a float input, with 0 for an open batch axis. Raise `NetworkError` for other inputs."""
    tensor_type = graph_input.type.tensor_type
    if (
        not graph_input.type.HasField("tensor_type")
        or not tensor_type.HasField("shape")
        or not tensor_type.shape.dim
    ):
        raise NetworkError(
            f"input {graph_input.name!r} has no shape", hint="Export the network with the shape of its input"
        )
    if tensor_type.elem_type not in {1, 10, 11, 16}:
        raise NetworkError(
            f"input {graph_input.name!r} does not take floats", hint="Export a network that takes floats"
        )
    # Only the batch axis may be symbolic: photonic products need vectors of known length.
    for axis, dim in enumerate(tensor_type.shape.dim[1:], 1):
        if dim.dim_value < 1:
            length = repr(dim.dim_param) if dim.dim_param else f"{dim.dim_value or 'unknown'}"
            raise NetworkError(
                (
                    f"axis {axis} of input {graph_input.name!r} has the length {length}; only the batch axis may have "
                    "any length"
                ),
                hint="Give it a length: onnx.tools.update_model_dims, or export without dynamic_axes for it",
            )
    batch, *image = [int(dim.dim_value) for dim in tensor_type.shape.dim]
    if batch not in {0, 1}:
        raise NetworkError(
            f"input {graph_input.name!r} takes {batch} images at a time, or has no batch axis",
            hint="Export it with a batch axis in front, symbolic or of length 1",
        )
    if not image:
        raise NetworkError(
            f"input {graph_input.name!r} has no axis after the batch axis",
            hint="Export it with the shape of one input",
        )
    return [batch, *image]


def sort_topologically(nodes: Sequence[Any], known_tensors: Iterable[str], target: str) -> list[Any]:
    """Return the nodes that `target` depends on, in topological order. `known_tensors` are available from the start.

    Nodes have `name`, `input` and `output` as in ONNX. Raise `CyclicNetwork` with the nodes of a cycle, and
    `NetworkError` for a tensor that no node or two nodes produce.
    """
    producer_by_tensor, available_tensors = _map_producers(nodes), {"", *known_tensors}
    ordered_nodes: list[Any] = []
    dependency_path = (
        []
        if target in available_tensors
        else [_find_producer(producer_by_tensor, target, "the network's output")]
    )
    while dependency_path:  # each node depends on the next one in the path
        node = nodes[dependency_path[-1]]
        missing_tensor = next((tensor for tensor in node.input if tensor not in available_tensors), None)
        if missing_tensor is None:
            dependency_path.pop()
            available_tensors.update(node.output)
            ordered_nodes.append(node)
            continue
        dependency_path.append(_find_producer(producer_by_tensor, missing_tensor, f"node {node.name}"))
        if dependency_path[-1] in dependency_path[:-1]:
            names = " -> ".join(
                nodes[number].name or "?"
                for number in dependency_path[dependency_path.index(dependency_path[-1]) :]
            )
            raise CyclicNetwork(
                f"nodes form a cycle: {names}", hint="Unroll the loop, or export the network again"
            )
    return ordered_nodes


def _find_producer(producer_by_tensor: Mapping[str, int], tensor: str, reader: str) -> int:
    if tensor not in producer_by_tensor:
        raise NetworkError(f"{reader} needs {tensor!r}, which no node produces", hint=EXPORT_HINT)
    return producer_by_tensor[tensor]


def _map_producers(nodes: Sequence[Any]) -> Mapping[str, int]:
    producer_by_tensor: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for output in node.output:
            if output and output in producer_by_tensor:
                names = f"{nodes[producer_by_tensor[output]].name} and {node.name}"
                raise NetworkError(f"nodes {names} both produce {output!r}", hint=EXPORT_HINT)
            producer_by_tensor[output] = number
    return producer_by_tensor


@dataclass(frozen=True)
class ModelVersions:
    """The original model, and the converted one."""

    original_model: Any
    opset: int
    newest_model: Any
    converted_opset: int | None

    def add_note(self, network: Network) -> Network:
        """Return the network with a note of the conversion, if there was one."""
        if self.converted_opset is None:
            return network
        note = f"converted from opset {self.opset} to {self.converted_opset}"
        return replace(network, notes=(note, *network.notes))


def convert_opset(model: Any, name: str) -> ModelVersions:
    """Convert a model below opset 13 to `TARGET_OPSET` if possible. Raise `NetworkError` for an unsupported opset."""
    opset = read_opsets(model, name)[""]
    if not OLDEST_OPSET <= opset <= find_newest_opset():
        raise NetworkError(
            f"{name}.onnx uses opset {opset}; supported are {OLDEST_OPSET} to {find_newest_opset()}",
            hint="Export it with opset_version=17"
            if opset < OLDEST_OPSET
            else "Run: pip install --upgrade onnx",
        )
    if opset >= UNCONVERTED_OPSETS[0]:
        return ModelVersions(model, opset, model, None)
    converter = require("onnx.version_converter", "to read ONNX files of older opsets")
    try:
        return ModelVersions(model, opset, converter.convert_version(model, TARGET_OPSET), TARGET_OPSET)
    except Exception:  # noqa: BLE001 - the converter raises errors of many classes, and asserts
        return ModelVersions(model, opset, model, None)


def limit_opsets(model: Any, name: str) -> Mapping[str, int]:
    """Return the opsets by domain, with ONNX's own limited to `NEWEST_RUNTIME_OPSET`."""
    opsets = read_opsets(model, name)
    return {**opsets, "": min(opsets[""], NEWEST_RUNTIME_OPSET)}
