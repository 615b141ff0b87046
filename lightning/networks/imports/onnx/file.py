"""Import of ONNX files, opset 7 to the newest. No code of a file runs, and pickles are not read.

Nodes that depend only on constants are folded. Most of them compute shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import LightningError, NetworkError
from lightning.networks.imports.onnx.choices import Choices, apply_choices
from lightning.networks.imports.onnx.fixed import import_fixed_shapes_or_advise
from lightning.networks.imports.onnx.parts import (
    convert_opset,
    parse_model,
    read_array,
    read_attributes,
    read_input_shape,
    read_opsets,
    sort_topologically,
)
from lightning.networks.imports.simplify import build_network
from lightning.networks.network import Network, Preprocessing
from lightning.networks.onnx_writer import PREPROCESSING_KEY, parse_metadata
from lightning.networks.operations.builder import BATCH_LENGTH, Builder, Call
from lightning.networks.operations.operation_list import INCONSISTENCY_ERRORS, compute_node, translate
from lightning.optional import require

Array = npt.NDArray[Any]
MAX_CONSTANT_SIZE = 1 << 28
"""Size limit of a folded constant, in numbers."""
FOLDABLE_OPERATIONS = frozenset(
    "Abs Add And Cast CastLike Ceil Concat ConstantOfShape Div Equal Erf Exp Expand Flatten Floor Gather Gemm "  # noqa: SIM905
    "Greater GreaterOrEqual Identity Less LessOrEqual Log MatMul Max Min Mod Mul Neg Not Or Pad Pow Range ReduceMax "
    "ReduceMean ReduceMin ReduceProd ReduceSum Reciprocal Reshape Sigmoid Size Slice Softmax Split Sqrt Squeeze Sub "
    "Tanh Tile Transpose Trilu Unsqueeze Where".split()
)
"""Operations folded with ONNX's reference evaluator. None draws random numbers or reads files."""


def from_onnx(
    path: Path, preprocessing: Preprocessing | None = None, choices: Choices | None = None
) -> Network:
    """Return the network in a file. Raise `NetworkError` or a subclass, never an error of onnx or protobuf."""
    return from_bytes(read_content(path), path.stem, path.parent, preprocessing, choices)


def read_content(path: Path) -> bytes:
    """Return the bytes of a file. Raise `NetworkError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error}", hint="Check the path") from error


def read_tensor_names(path: Path) -> frozenset[str]:
    """Return the names of all tensors that the nodes of a file produce. Raise `NetworkError` for an invalid file."""
    model = parse_model(read_content(path), path.stem)
    return frozenset(name for node in model.graph.node for name in node.output if name)


def from_bytes(
    content: bytes,
    name: str,
    folder: Path = Path(),
    preprocessing: Preprocessing | None = None,
    choices: Choices | None = None,
) -> Network:
    """Return the network in the content of an ONNX file. `folder` holds its external data. Raise `NetworkError`."""
    model = apply_choices(parse_model(content, name), name, choices or Choices())
    chosen_preprocessing = preprocessing or _read_metadata(model, name)
    try:
        with np.errstate(all="ignore"):  # `build_network` rejects weights that are not finite
            return _import_model(model, name, folder, chosen_preprocessing)
    except LightningError:
        raise
    except INCONSISTENCY_ERRORS as error:
        raise NetworkError(
            f"{name}.onnx is inconsistent: {error}", hint="Export the network again"
        ) from error


def _import_model(model: Any, name: str, folder: Path, preprocessing: Preprocessing) -> Network:
    """Return the network with an open batch axis if possible, else with the fixed shapes of the file."""
    versions = convert_opset(model, name)
    try:
        return versions.add_note(_build_network(versions.newest_model, name, folder, preprocessing))
    except INCONSISTENCY_ERRORS as error:
        first_error: NetworkError = NetworkError(
            f"{name}.onnx is inconsistent: {error}", hint="Export the network again"
        )
    except NetworkError as error:
        first_error = error
    return versions.add_note(
        import_fixed_shapes_or_advise(versions, name, folder, preprocessing, first_error)
    )


def _read_metadata(model: Any, name: str) -> Preprocessing:
    """Return the preprocessing that `to_onnx` wrote into the metadata, or the neutral one."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return (
        parse_metadata(metadata[PREPROCESSING_KEY], name)
        if PREPROCESSING_KEY in metadata
        else Preprocessing()
    )


def _build_network(model: Any, name: str, folder: Path, preprocessing: Preprocessing) -> Network:
    opsets, graph = read_opsets(model, name), model.graph
    graph_input, output = _find_input(graph, name), _find_output(graph, name)
    batch_length, *image_shape = read_input_shape(graph_input)
    builder = Builder(compute_node, is_batched=batch_length != 1)
    builder_name_by_tensor = {"": "", graph_input.name: builder.add_input(graph_input.name, image_shape)}
    for initialiser in graph.initializer:
        builder_name_by_tensor[initialiser.name] = builder.add_constant(
            read_array(initialiser, folder), initialiser.name
        )
    for number, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    for node in sort_topologically(graph.node, builder_name_by_tensor, output):
        output_names = _add_node(builder, node, builder_name_by_tensor, opsets, folder)
        builder_name_by_tensor.update(zip(node.output, output_names, strict=False))
        missing_outputs = [tensor for tensor in node.output[len(output_names) :] if tensor]
        if missing_outputs:
            raise NetworkError(
                f"node {node.name} ({node.op_type}) does not produce {missing_outputs} here",
                hint="Export the node with one output",
            )
    return build_network(builder, name, graph_input.name, builder_name_by_tensor[output], preprocessing)


def _add_node(
    builder: Builder,
    node: Any,
    builder_name_by_tensor: dict[str, str],
    opsets: Mapping[str, int],
    folder: Path,
) -> tuple[str, ...]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if node.op_type == "Constant" and not domain:
        return (builder.add_constant(_read_constant(node, folder), node.output[0]),)
    inputs = tuple(builder_name_by_tensor[tensor] for tensor in node.input)
    output_count = max((number for number, tensor in enumerate(node.output, 1) if tensor), default=1)
    call = Call(
        node.name, node.op_type, inputs, read_attributes(node), output_count, domain, opsets.get(domain, 0)
    )
    return fold_node(builder, call, node) if is_foldable(builder, call) else translate(builder, call)


def _read_constant(node: Any, folder: Path) -> npt.NDArray[Any]:
    attributes = read_attributes(node)
    for name, value in attributes.items():
        if name == "value":
            return read_array(value, folder)
        if name in {"value_float", "value_floats"}:
            return np.asarray(value, np.float32)
        if name in {"value_int", "value_ints"}:
            return np.asarray(value, np.int64)
    raise NetworkError(
        f"node {node.name} (Constant) holds {', '.join(attributes) or 'nothing'}, not numbers",
        hint="Use numbers",
    )


def _find_input(graph: Any, name: str) -> Any:
    constant_names = {initialiser.name for initialiser in graph.initializer}
    graph_inputs = [entry for entry in graph.input if entry.name not in constant_names]
    if len(graph_inputs) != 1:
        names = ", ".join(entry.name for entry in graph_inputs)
        raise NetworkError(
            f"{name}.onnx has {len(graph_inputs)} inputs ({names})", hint="Export the network with one input"
        )
    if graph.sparse_initializer:
        raise NetworkError(f"{name}.onnx holds sparse initialisers", hint="Export dense ones")
    return graph_inputs[0]


def _find_output(graph: Any, name: str) -> str:
    outputs = [output.name for output in graph.output]
    if len(outputs) != 1:
        raise NetworkError(
            f"{name}.onnx has {len(outputs)} outputs ({', '.join(outputs)})",
            hint="Export the network with one output: the scores",
        )
    return str(outputs[0])


def is_foldable(builder: Builder, call: Call) -> bool:
    """Return whether `call` needs no image: it is a `Shape`, or a foldable operation of constants."""
    if call.operation == "Shape" and not call.domain:
        return True
    tensors = [tensor for tensor in call.inputs if tensor]
    is_constant = bool(tensors) and all(builder.is_constant(tensor) for tensor in tensors)
    return is_constant and not call.domain and call.operation in FOLDABLE_OPERATIONS


def fold_node(builder: Builder, call: Call, node: Any) -> tuple[str, ...]:
    """Compute `node`, add its outputs as constants, and return their names. Raise `NetworkError`."""
    if call.operation == "Shape" and not builder.is_constant(call.get_input_name(0)):
        return (builder.add_constant(_read_shape(builder, call), call.name),)
    inputs: list[Any] = [builder.constants[tensor] if tensor else None for tensor in call.inputs]
    if call.operation == "Expand" and BATCH_LENGTH in np.ravel(inputs[1]):
        builder.add_note(f"Expand {call.name}: a constant that is repeated for every image is kept once")
        inputs[1] = np.where(inputs[1] == BATCH_LENGTH, 1, inputs[1])
    max_output_size = _bound_output_size(call, inputs)
    if max_output_size > MAX_CONSTANT_SIZE:
        raise NetworkError(
            f"{call.description} makes a constant of {max_output_size:,.0f} numbers; the limit is"
            f" {MAX_CONSTANT_SIZE:,}",
            hint="Export the network without it, or with smaller shapes",
        )
    values = _evaluate(call, node, inputs)
    return tuple(
        builder.add_constant(value, f"{call.name}.{index}" if index else call.name)
        for index, value in enumerate(values)
    )


def _read_shape(builder: Builder, call: Call) -> Array:
    """Return the shape of an activation. The length of the batch axis is `BATCH_LENGTH` if open, else 1."""
    shape = np.array(
        [BATCH_LENGTH if builder.is_batched else 1, *builder.shapes[builder.require_activation(call)]],
        np.int64,
    )
    stop = call.attributes.get("end")
    return shape[call.read_integer("start", 0) : stop if isinstance(stop, int) else None]


def _bound_output_size(call: Call, inputs: Sequence[Any]) -> float:
    """Return an upper bound for the size of the output, or 0 for operations that cannot make it large."""
    # A shape has few entries. Longer inputs are data.
    sizes = [abs(float(value)) for array in inputs[:1] if array is not None for value in np.ravel(array)[:16]]
    if call.operation == "ConstantOfShape":
        return prod(sizes)
    if call.operation == "Range":
        start, stop, step = (float(np.ravel(array)[0]) for array in inputs)
        return abs((stop - start) / step) if step else np.inf
    if call.operation in {"Expand", "Tile"}:
        return float(prod(abs(float(value)) for value in np.ravel(inputs[1]))) * max(np.size(inputs[0]), 1)
    if call.operation == "Pad":
        return float(np.abs(inputs[1], dtype=np.float64).sum() + 1) * max(np.size(inputs[0]), 1)
    return 0


def _evaluate(call: Call, node: Any, inputs: Sequence[Any]) -> list[Array]:
    reference = require("onnx.reference", "to read ONNX files")
    names = [name for name in node.input if name]
    feeds: Mapping[str, Any] = dict(zip(names, (value for value in inputs if value is not None), strict=True))
    try:
        with np.errstate(all="ignore"):
            outputs = reference.ReferenceEvaluator(node, opsets={"": call.opset}).run(None, dict(feeds))
    except (*INCONSISTENCY_ERRORS, RuntimeError, AssertionError, ArithmeticError) as error:
        raise NetworkError(
            f"{call.description} is inconsistent: {error}", hint="Export the network again"
        ) from error
    return [np.asarray(output) for output in outputs]
