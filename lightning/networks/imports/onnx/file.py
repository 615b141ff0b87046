"""ONNX files, opset 7 to the newest. Nothing in a file is run, and pickles are not read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import LightningError, NetworkError
from lightning.networks.imports.builder import Builder, Call
from lightning.networks.imports.onnx.advice import fixed_or_advised
from lightning.networks.imports.onnx.choices import Choices, chosen
from lightning.networks.imports.onnx.converting import converted
from lightning.networks.imports.onnx.folding import fold, foldable
from lightning.networks.imports.onnx.order import ordered
from lightning.networks.imports.onnx.parts import array_of, attributes_of, opsets_of, parsed, shape_of
from lightning.networks.imports.simplify import finished
from lightning.networks.imports.translators.operation_list import CONTRADICTIONS, translate
from lightning.networks.network import Network, Preprocessing
from lightning.networks.onnx_metadata import PREPROCESSING, from_metadata


def from_onnx(
    path: Path, preprocessing: Preprocessing | None = None, choices: Choices | None = None
) -> Network:
    """Return the network in a file. Raises `NetworkError` and those under it, never an error of onnx or protobuf."""
    return from_bytes(content_of(path), path.stem, path.parent, preprocessing, choices)


def content_of(path: Path) -> bytes:
    """Return the bytes of a file. Raises `NetworkError` where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error}", hint="Check the path") from error


def tensors_of(path: Path) -> frozenset[str]:
    """Return the names of the tensors that the nodes of a file make. Raises `NetworkError`."""
    model = parsed(content_of(path), path.stem)
    return frozenset(name for node in model.graph.node for name in node.output if name)


def from_bytes(
    content: bytes,
    name: str,
    folder: Path = Path(),
    preprocessing: Preprocessing | None = None,
    choices: Choices | None = None,
) -> Network:
    """Return the network as `from_onnx` does; `folder` is where external data lie."""
    model = chosen(parsed(content, name), name, choices or Choices())
    given = preprocessing or _of_metadata(model, name)
    try:
        with np.errstate(all="ignore"):  # a weight that is not finite is refused in the end
            return _imported(model, name, folder, given)
    except LightningError:
        raise
    except CONTRADICTIONS as error:
        raise NetworkError(
            f"{name}.onnx contradicts itself: {error}", hint="Export the network again"
        ) from error


def _imported(model: Any, name: str, folder: Path, preprocessing: Preprocessing) -> Network:
    """Return the network with an open batch where that can be, else with the shapes of the file."""
    versions = converted(model, name)
    try:
        return versions.noted(_network(versions.newest, name, folder, preprocessing))
    except CONTRADICTIONS as error:
        first: NetworkError = NetworkError(
            f"{name}.onnx contradicts itself: {error}", hint="Export the network again"
        )
    except NetworkError as error:
        first = error
    return versions.noted(fixed_or_advised(versions, name, folder, preprocessing, first))


def _of_metadata(model: Any, name: str) -> Preprocessing:
    """Return the preprocessing as `to_onnx` has written it, or none."""
    found = {entry.key: entry.value for entry in model.metadata_props}
    return from_metadata(found[PREPROCESSING], name) if PREPROCESSING in found else Preprocessing()


def _network(model: Any, name: str, folder: Path, preprocessing: Preprocessing) -> Network:
    opsets, graph = opsets_of(model, name), model.graph
    entry, output = _entry(graph, name), _output(graph, name)
    batch, *image = shape_of(entry)
    builder = Builder(batched=batch != 1)
    tensors = {"": "", entry.name: builder.input(entry.name, image)}
    for initialiser in graph.initializer:
        tensors[initialiser.name] = builder.constant(array_of(initialiser, folder), initialiser.name)
    for number, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    for node in ordered(graph.node, tensors, output):
        made = _outputs(builder, node, tensors, opsets, folder)
        tensors.update(zip(node.output, made, strict=False))
        lost = [tensor for tensor in node.output[len(made) :] if tensor]
        if lost:
            raise NetworkError(
                f"node {node.name} ({node.op_type}) does not make {lost} here", hint="Use one output"
            )
    return finished(builder, name, entry.name, tensors[output], preprocessing)


def _outputs(
    builder: Builder, node: Any, tensors: dict[str, str], opsets: Mapping[str, int], folder: Path
) -> tuple[str, ...]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if node.op_type == "Constant" and not domain:
        return (builder.constant(_constant(node, folder), node.output[0]),)
    inputs = tuple(tensors[tensor] for tensor in node.input)
    used = max((place for place, tensor in enumerate(node.output, 1) if tensor), default=1)
    call = Call(node.name, node.op_type, inputs, attributes_of(node), used, domain, opsets.get(domain, 0))
    return fold(builder, call, node) if foldable(builder, call) else translate(builder, call)


def _constant(node: Any, folder: Path) -> npt.NDArray[Any]:
    given = attributes_of(node)
    for name, value in given.items():
        if name == "value":
            return array_of(value, folder)
        if name in {"value_float", "value_floats"}:
            return np.asarray(value, np.float32)
        if name in {"value_int", "value_ints"}:
            return np.asarray(value, np.int64)
    raise NetworkError(
        f"node {node.name} (Constant) holds {', '.join(given) or 'nothing'}", hint="Use numbers"
    )


def _entry(graph: Any, name: str) -> Any:
    held = {initialiser.name for initialiser in graph.initializer}
    entries = [entry for entry in graph.input if entry.name not in held]
    if len(entries) != 1:
        names = ", ".join(entry.name for entry in entries)
        raise NetworkError(
            f"{name}.onnx has {len(entries)} inputs ({names})", hint="Export the network with one input"
        )
    if graph.sparse_initializer:
        raise NetworkError(f"{name}.onnx holds sparse initialisers", hint="Export dense ones")
    return entries[0]


def _output(graph: Any, name: str) -> str:
    outputs = [output.name for output in graph.output]
    if len(outputs) != 1:
        raise NetworkError(
            f"{name}.onnx has {len(outputs)} outputs ({', '.join(outputs)})",
            hint="Export the network with one output: the scores",
        )
    return str(outputs[0])
