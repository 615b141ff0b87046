"""Inspection of an ONNX file: supported nodes, and refusals of the others."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lightning.errors import LightningError, NetworkError
from lightning.networks.imports.onnx.choices import (
    Choices,
    apply_choices,
    choose_default_shape,
    has_open_shape,
    read_data_type,
)
from lightning.networks.imports.onnx.file import from_bytes, read_content
from lightning.networks.imports.onnx.fixed import (
    DEFAULT_LENGTHS,
    Refusal,
    TracedGraph,
    find_open_inputs,
    trace_graph,
)
from lightning.networks.imports.onnx.parts import ModelVersions, convert_opset, limit_opsets, parse_model
from lightning.networks.network import Network
from lightning.networks.operations.operation_list import INCONSISTENCY_ERRORS

_NODE_MESSAGE = re.compile(r"node (.+?) \((\S+?)[,)] ?(.*)", re.DOTALL)


@dataclass(frozen=True)
class Inspection:
    """Properties of an ONNX file, and the result of its import."""

    opset: int
    converted_opset: int | None
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    network: Network | None
    """The network; its supported part if there are refusals; None if no node is supported."""
    refusals: tuple[Refusal, ...]


def inspect_model(path: Path, choices: Choices | None = None) -> Inspection:
    """Inspect a file. Raise `NetworkError` if it is not an ONNX file, or for choices that do not fit."""
    content, applied_choices = read_content(path), choices or Choices()
    model = apply_choices(parse_model(content, path.stem), path.stem, applied_choices)
    versions = convert_opset(model, path.stem)
    constant_names = {initialiser.name for initialiser in model.graph.initializer}
    inputs = tuple(_describe_port(entry) for entry in model.graph.input if entry.name not in constant_names)
    outputs = tuple(_describe_port(entry) for entry in model.graph.output)
    network: Network | None
    refusals: tuple[Refusal, ...] = ()
    try:
        network = from_bytes(content, path.stem, path.parent, None, applied_choices)
    except NetworkError as error:
        network, refusals = _trace_supported_part(versions, path, _parse_refusal(error))
    return Inspection(versions.opset, versions.converted_opset, inputs, outputs, network, refusals)


def _describe_port(value_info: Any) -> dict[str, Any]:
    tensor_type = value_info.type.tensor_type
    shape = (
        [int(dim.dim_value) or dim.dim_param or None for dim in tensor_type.shape.dim]
        if tensor_type.HasField("shape")
        else None
    )
    try:
        return {"name": value_info.name, "shape": shape, "type": read_data_type(value_info)}
    except (LightningError, KeyError, TypeError):
        return {"name": value_info.name, "shape": shape, "type": None}


def _parse_refusal(error: NetworkError) -> Refusal:
    match = _NODE_MESSAGE.match(error.problem)
    if match:
        reason = error.problem[match.start(3) :].removeprefix(f"opset {match.group(2)}")
        return Refusal(match.group(1), match.group(2), re.sub(r"^opset \S+\) ", "", reason), error.hint or "")
    return Refusal("", "", error.problem, error.hint or "")


def _trace_supported_part(
    versions: ModelVersions, path: Path, first_refusal: Refusal
) -> tuple[Network | None, tuple[Refusal, ...]]:
    """Trace the graph with default shapes; return the supported part of the network and all refusals."""
    open_inputs = find_open_inputs(versions.newest_model)
    for length in DEFAULT_LENGTHS if open_inputs else (0,):
        shapes = {
            entry.name: choose_default_shape(entry, length) for entry in open_inputs if has_open_shape(entry)
        }
        try:
            model = apply_choices(versions.newest_model, path.stem, Choices(shapes))
            with np.errstate(all="ignore"):
                traced_graph = trace_graph(model, path.stem, path.parent, limit_opsets(model, path.stem))
        except (NetworkError, *INCONSISTENCY_ERRORS):
            continue
        other_refusals = tuple(
            refusal for refusal in traced_graph.refusals if refusal.node != first_refusal.node
        )
        return _build_partial_network(traced_graph, path.stem), (first_refusal, *other_refusals)
    return None, (first_refusal,)


def _build_partial_network(traced_graph: TracedGraph, name: str) -> Network | None:
    builder = traced_graph.scope.builder
    if not builder.nodes:
        return None
    last_tensor = builder.nodes[-1].output
    network = Network(
        name, tuple(builder.nodes), builder.constants, traced_graph.input_tensor, last_tensor, builder.shapes
    )
    return replace(network, notes=tuple(builder.notes), inputs=traced_graph.inputs)
