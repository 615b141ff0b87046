"""Import with fixed shapes: any number of inputs and outputs, and every operation that ONNX Runtime supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError, UnsupportedNode
from lightning.networks.imports.onnx.choices import (
    Choices,
    apply_choices,
    choose_default_shape,
    has_open_shape,
    make_example_input,
    read_ports,
)
from lightning.networks.imports.onnx.parts import ModelVersions, limit_opsets, read_array, sort_topologically
from lightning.networks.imports.onnx.recurrent import rewrite_conv_transpose, rewrite_recurrent
from lightning.networks.imports.onnx.scope import DynamicTensor, Scope, get_sample_shape
from lightning.networks.imports.onnx.tracing import add_node, make_error, read_constant
from lightning.networks.imports.simplify import build_network
from lightning.networks.network import Network, Port, Preprocessing
from lightning.networks.operations.operation_list import INCONSISTENCY_ERRORS

Array = npt.NDArray[Any]

REWRITERS = {
    "LSTM": rewrite_recurrent,
    "GRU": rewrite_recurrent,
    "RNN": rewrite_recurrent,
    "ConvTranspose": rewrite_conv_transpose,
}
_LOOP_OPERATIONS = frozenset({"Loop", "Scan", "SequenceMap"})
_DATA_DEPENDENT_OPERATIONS = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression"})
_RANDOM_OPERATIONS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
PACKED_INPUT, PACKED_OUTPUT_NAME = "inputs", "outputs"

DEFAULT_LENGTHS = (0, 64, 512, 16, 1)
"""Lengths tried for open axes; 0 selects the default of `choose_default_shape`."""


@dataclass(frozen=True)
class Refusal:
    """A node that cannot be imported, with advice to avoid it."""

    node: str
    operation: str
    reason: str
    advice: str

    @property
    def error(self) -> UnsupportedNode:
        """The refusal as an error."""
        return UnsupportedNode(f"node {self.node} ({self.operation}) {self.reason}", hint=self.advice)


@dataclass(frozen=True)
class TracedGraph:
    """The traced graph of a file."""

    scope: Scope
    input_tensor: str
    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]
    refusals: tuple[Refusal, ...]


def import_fixed_shapes(
    model: Any, name: str, folder: Path, preprocessing: Preprocessing, opsets: Mapping[str, int]
) -> Network:
    """Return the network of a model whose inputs all have fixed shapes. Raise `NetworkError` if that is impossible."""
    traced_graph = trace_graph(model, name, folder, opsets)
    if traced_graph.refusals:
        raise traced_graph.refusals[0].error
    ports = tuple(_make_port(traced_graph.scope, output) for output in traced_graph.outputs)
    network = build_network(
        traced_graph.scope.builder,
        name,
        traced_graph.input_tensor,
        _pack_outputs(traced_graph.scope, traced_graph.outputs),
        preprocessing,
    )
    return replace(network, inputs=traced_graph.inputs, outputs=ports)


def trace_graph(model: Any, name: str, folder: Path, opsets: Mapping[str, int]) -> TracedGraph:
    """Trace every node that the outputs depend on, and collect refusals of unsupported nodes."""
    graph = model.graph
    scope = Scope(folder, opsets)
    for initialiser in graph.initializer:
        scope.constants[initialiser.name] = read_array(initialiser, folder)
    input_tensor, inputs = _declare_inputs(scope, graph, name)
    outputs = tuple(output.name for output in graph.output)
    refusals: list[Refusal] = []
    for number, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    sortable_nodes = [_make_sortable_node(node) for node in graph.node]
    scope.node_outputs.update(output for node in graph.node for output in node.output)
    available_tensors: set[str] = set(scope.constants) | set(scope.values)
    for output in outputs:
        for sortable_node in sort_topologically(sortable_nodes, available_tensors, output):
            _add_or_refuse(scope, sortable_node.node, refusals)
            available_tensors.update(sortable_node.output)
    return TracedGraph(scope, input_tensor, inputs, outputs, tuple(refusals))


def _declare_inputs(scope: Scope, graph: Any, name: str) -> tuple[str, tuple[Port, ...]]:
    """Declare the inputs and return (tensor, ports). Several inputs become slices of one packed tensor."""
    ports = read_ports(graph, scope.constants)
    scope.input_names.update(port.name for port in ports)
    if not ports:
        raise NetworkError(
            f"all inputs of {name}.onnx are constant", hint="Remove --set for one of its inputs"
        )
    for port in ports:
        scope.example_by_name[port.name] = make_example_input(port)
    if len(ports) == 1:
        port = ports[0]
        tensor = scope.builder.add_input(port.name, get_sample_shape(port.shape))
        scope.values[port.name] = DynamicTensor(tensor, port.shape, port.dtype)
        return tensor, ports
    packed_input = scope.builder.add_input(PACKED_INPUT, (sum(port.size for port in ports),))
    start = 0
    for port in ports:
        slice_attributes = {"axis": 1, "start": start, "stop": start + port.size, "step": 1}
        slice_tensor = scope.builder.emit("Slice", [packed_input], f"{port.name}/part", slice_attributes)
        tensor = scope.builder.reshape(slice_tensor, get_sample_shape(port.shape), f"{port.name}/shaped")
        scope.values[port.name] = DynamicTensor(tensor, port.shape, port.dtype)
        start += port.size
    return packed_input, ports


def _make_sortable_node(node: Any) -> Any:
    """Return a step for `sort_topologically`. Its inputs include the outer tensors that the node's subgraphs read."""
    outer_reads = sorted(_find_outer_tensors(node))
    return SimpleNamespace(name=node.name, input=[*node.input, *outer_reads], output=node.output, node=node)


def _find_outer_tensors(node: Any) -> set[str]:
    read_names: set[str] = set()
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner_names = {value_info.name for value_info in (*attribute.g.initializer, *attribute.g.input)}
            for inner_node in attribute.g.node:
                read_names |= (
                    {name for name in inner_node.input if name} | _find_outer_tensors(inner_node)
                ) - inner_names
                inner_names |= set(inner_node.output)
            read_names |= {value_info.name for value_info in attribute.g.output} - inner_names
    return read_names


def _add_or_refuse(scope: Scope, node: Any, refusals: list[Refusal]) -> None:
    """Add a node to the network, or append its refusal. Skip a node that reads the output of a refused node."""
    missing_inputs = [
        name for name in node.input if name and name not in scope.constants and name not in scope.values
    ]
    if missing_inputs:
        return
    try:
        _add_supported(scope, node, refusals)
    except UnsupportedNode as error:
        advice = error.hint or _advise_cut(scope, node)
        reason = error.problem.removeprefix(f"node {node.name} ({node.op_type}) ")
        refusals.append(Refusal(node.name, node.op_type, reason, advice))


def _add_supported(scope: Scope, node: Any, refusals: list[Refusal]) -> None:
    if node.op_type == "Constant" and not node.domain:
        scope.constants[node.output[0]] = read_constant(node, scope.folder)
        return
    if node.op_type == "If":
        _add_branch(scope, node, refusals)
        return
    _check_supported(scope, node)
    is_constant = all(scope.is_omitted_or_constant(name) for name in node.input) and len(node.input) > 0
    rewrite = None if is_constant or node.domain not in {"", "ai.onnx"} else REWRITERS.get(node.op_type)
    nodes = rewrite(scope, node) if rewrite else None
    for new_node in nodes or [node]:
        add_node(scope, new_node)


def _add_branch(scope: Scope, node: Any, refusals: list[Refusal]) -> None:
    """Add the nodes of the branch that an `If` with a constant condition selects."""
    condition = scope.constants.get(node.input[0])
    if condition is None:
        raise make_error(node, "branches on a value that depends on an input", _advise_if(scope, node))
    attribute_name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    graph = next(attribute.g for attribute in node.attribute if attribute.name == attribute_name)
    for initialiser in graph.initializer:
        scope.constants[initialiser.name] = read_array(initialiser, scope.folder)
    for number, inner_node in enumerate(graph.node):
        inner_node.name = f"{node.name}/{inner_node.name or f'{inner_node.op_type}_{number}'}"
        _add_or_refuse(scope, inner_node, refusals)
    for node_output, branch_output in zip(node.output, graph.output, strict=True):
        scope.add_alias(node_output, branch_output.name)


def _check_supported(scope: Scope, node: Any) -> None:
    is_constant = all(scope.is_omitted_or_constant(name) for name in node.input)
    if node.op_type in _LOOP_OPERATIONS:
        raise make_error(
            node, "repeats a number of times that depends on its values", _advise_cut(scope, node)
        )
    if node.op_type in _DATA_DEPENDENT_OPERATIONS and not is_constant:
        raise make_error(
            node, "produces a number of values that depends on its inputs", _advise_cut(scope, node)
        )
    if node.op_type in _RANDOM_OPERATIONS:
        raise make_error(node, "draws random numbers", _advise_cut(scope, node))


def _advise_if(scope: Scope, node: Any) -> str:
    """Return advice to set the condition, if it is an input, or to cut the network before the node."""
    if node.input[0] in scope.input_names:
        return f"Give the value: --set {node.input[0]}=1"
    return _advise_cut(scope, node)


def _advise_cut(scope: Scope, node: Any) -> str:
    """Return advice to end the network at a float tensor that `node` reads, else at the latest float tensor."""
    read_names = [*node.input, *sorted(_find_outer_tensors(node))]
    for name in [*read_names, *reversed(scope.values)]:
        dynamic_tensor = scope.values.get(name)
        if (
            dynamic_tensor is not None
            and dynamic_tensor.dtype.startswith("float")
            and name in scope.node_outputs - scope.input_names
        ):
            return f"Cut the network before it: --output {name}"
    return "Use another network: nothing comes before this node"


def _make_port(scope: Scope, output: str) -> Port:
    if output in scope.values:
        dynamic_tensor = scope.values[output]
        return Port(output, dynamic_tensor.shape, dynamic_tensor.dtype)
    if output in scope.constants:
        array = scope.constants[output]
        return Port(output, array.shape, array.dtype.name)
    raise NetworkError(f"no node produces the output {output!r}", hint="Choose another: --output NAME")


def _pack_outputs(scope: Scope, outputs: Iterable[str]) -> str:
    """Return the tensor of a single output, or all outputs flattened and concatenated."""
    names = list(outputs)
    if len(names) == 1 and names[0] in scope.values:
        return scope.values[names[0]].tensor
    flat_outputs = []
    for name in names:
        if name in scope.values:
            dynamic_tensor = scope.values[name]
            size = int(np.prod(dynamic_tensor.shape))
            flat_outputs.append(scope.builder.reshape(dynamic_tensor.tensor, (size,), f"{name}/flat"))
        else:
            flat = np.asarray(scope.constants[name], np.float32).reshape(1, -1)
            flat_outputs.append(scope.builder.add_constant(flat, f"{name}.flat"))
    return scope.builder.emit("Concat", flat_outputs, PACKED_OUTPUT_NAME, {"axis": 1})


def import_fixed_shapes_or_advise(
    versions: ModelVersions, name: str, folder: Path, preprocessing: Preprocessing, first_error: NetworkError
) -> Network:
    """Return the network with the shapes of the file if all are fixed.

    `first_error` is the error of the import with an open batch axis. If the file has open shapes, this always raises
    an error: the refusal of a node that is refused with fixed shapes too, or else `first_error`. The hint of
    `first_error` then names fixed shapes with which the import succeeds, if there are any.
    """
    open_inputs = find_open_inputs(versions.newest_model)
    if not open_inputs:
        return _import_converted_or_original(versions, name, folder, preprocessing, first_error)
    for length in DEFAULT_LENGTHS:
        shapes = {graph_input.name: choose_default_shape(graph_input, length) for graph_input in open_inputs}
        try:
            # Discard the network: these shapes are only advice.
            model = apply_choices(versions.newest_model, name, Choices(shapes))
            import_fixed_shapes(model, name, folder, preprocessing, limit_opsets(model, name))
        except UnsupportedNode as error:
            raise UnsupportedNode(error.problem, hint=error.hint) from first_error
        except (NetworkError, *INCONSISTENCY_ERRORS):
            continue
        shape_options = " ".join(
            f"--shape {input_name}={'x'.join(map(str, shape))}" for input_name, shape in shapes.items()
        )
        raise type(first_error)(
            first_error.problem, hint=f"Fix the shapes of its inputs: {shape_options}"
        ) from first_error
    raise first_error


def find_open_inputs(model: Any) -> list[Any]:
    """Return the inputs with an open shape."""
    constant_names = {initialiser.name for initialiser in model.graph.initializer}
    return [
        graph_input
        for graph_input in model.graph.input
        if graph_input.name not in constant_names and has_open_shape(graph_input)
    ]


def _import_converted_or_original(
    versions: ModelVersions, name: str, folder: Path, preprocessing: Preprocessing, first_error: NetworkError
) -> Network:
    """Return the network of the converted model, or else of the original. Raise the first refusal, or `first_error`."""
    models = (
        [versions.newest_model]
        if versions.converted_opset is None
        else [versions.newest_model, versions.original_model]
    )
    errors = [first_error]
    for model in models:
        try:
            return import_fixed_shapes(model, name, folder, preprocessing, limit_opsets(model, name))
        except UnsupportedNode as refusal:
            errors.append(refusal)
        except (NetworkError, *INCONSISTENCY_ERRORS):
            continue
    raise errors[1] if len(errors) > 1 else first_error
