"""Tracing of a file's graph, node by node, with fixed shapes and an example.

Every sample is one call of the whole network. Several inputs and outputs, states, masks, integers and moving batch axes
are therefore allowed. Nodes that depend on no input are computed now. The translations of `operations` handle the other
nodes if they support them, so that constant products become photonic. All other nodes stay electronic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError, UnsupportedNode
from lightning.networks.electronic import ELECTRONIC, TENSOR, Operation
from lightning.networks.imports.onnx.parts import read_array, read_attributes
from lightning.networks.imports.onnx.scope import DynamicTensor, Scope, get_sample_shape
from lightning.networks.operations.builder import Builder, Call
from lightning.networks.operations.elementwise import ELEMENTWISE_OPERATORS
from lightning.networks.operations.operation_list import OPERATOR_BY_NAME, translate

_AXIS_FREE_OPERATIONS = frozenset({*ELEMENTWISE_OPERATORS, "Gemm", "MatMul", "Mean"})
"""Operations that need no change for an extra leading axis."""
Array = npt.NDArray[Any]
MIN_TRANSLATED_OPSET = 13
"""Lowest opset in which operations outside `STABLE_OPERATIONS` are translated. In older opsets they stay electronic."""
STABLE_OPERATIONS = frozenset(
    "Conv Gemm MatMul Relu Add Sub Mul Div Sigmoid Tanh MaxPool AveragePool GlobalAveragePool GlobalMaxPool Transpose "  # noqa: SIM905
    "Concat LeakyRelu Elu HardSigmoid Softplus Exp Sqrt BatchNormalization PRelu".split()
)
RESHAPE_OPERATIONS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
MAX_IMAGES = 16
"""Largest fixed batch that a convolution computes as groups."""
MAX_OUTPUT_SIZE = 1 << 28


def shift_axes(builder: Builder, call: Call, ranks: Sequence[int]) -> Call | None:
    """Return `call` with its axes shifted for an extra leading axis, or None if unsupported.

    `ranks` of its inputs exclude that axis.
    """
    shift = _SHIFTERS.get(call.operation)
    return None if shift is None else shift(builder, call, ranks)


def _return_unchanged(_: Builder, call: Call, __: Sequence[int]) -> Call:
    return call


def _shift_axis(default: int) -> Callable[[Builder, Call, Sequence[int]], Call]:
    def shift(_: Builder, call: Call, __: Sequence[int]) -> Call:
        axis = call.read_integer("axis", default)
        attributes = {**call.attributes, "axis": axis + 1 if axis >= 0 else axis}
        return replace(call, attributes=attributes)

    return shift


def _increase_axes(axes: Iterable[Any]) -> list[int]:
    return [int(axis) + 1 if axis >= 0 else int(axis) for axis in axes]


def _shift_reduction(builder: Builder, call: Call, ranks: Sequence[int]) -> Call | None:
    if call.get_input_name(1):
        return _shift_axes_input(builder, call, 1)
    if "axes" in call.attributes:
        return replace(
            call, attributes={**call.attributes, "axes": tuple(_increase_axes(call.attributes["axes"]))}
        )
    if call.read_integer("noop_with_empty_axes", 0):
        return None
    return replace(call, attributes={**call.attributes, "axes": tuple(range(1, ranks[0] + 1))})


def _shift_axes_input(builder: Builder, call: Call, index: int) -> Call | None:
    axes = builder.constants.get(call.get_input_name(index))
    if axes is None:
        return None
    constant = builder.add_constant(np.array(_increase_axes(axes.reshape(-1)), np.int64), f"{call.name}.axes")
    return replace(call, inputs=(*call.inputs[:index], constant, *call.inputs[index + 1 :]))


def _shift_slices(builder: Builder, call: Call, _: Sequence[int]) -> Call | None:
    starts = builder.constants.get(call.get_input_name(1))
    if starts is None:
        return None
    if call.get_input_name(3):
        return _shift_axes_input(builder, call, 3)
    axes = builder.add_constant(np.arange(1, starts.size + 1), f"{call.name}.axes")
    inputs = (*call.inputs, "", "")[:3]
    return replace(call, inputs=(*inputs, axes, *call.inputs[4:]))


def _shift_concat(builder: Builder, call: Call, ranks: Sequence[int]) -> Call:
    inputs = tuple(
        builder.add_constant(builder.constants[name][None], f"{call.name}.part")
        if builder.is_constant(name)
        else name
        for name in call.inputs
    )
    return _shift_axis(0)(builder, replace(call, inputs=inputs), ranks)


def _shift_transpose(_: Builder, call: Call, ranks: Sequence[int]) -> Call:
    perm = call.attributes.get("perm", tuple(reversed(range(ranks[0]))))
    return replace(call, attributes={**call.attributes, "perm": (0, *(int(axis) + 1 for axis in perm))})


_SHIFTERS: Mapping[str, Callable[[Builder, Call, Sequence[int]], Call | None]] = {
    **dict.fromkeys(_AXIS_FREE_OPERATIONS, _return_unchanged),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LayerNormalization"), _shift_axis(-1)),
    **dict.fromkeys(("Split", "Gather"), _shift_axis(0)),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _shift_reduction),
    "Concat": _shift_concat,
    "Slice": _shift_slices,
    "Transpose": _shift_transpose,
}


def read_python_attributes(node: Any, folder: Path) -> tuple[tuple[str, Any], ...]:
    """Return the attributes of a node as plain values: numbers, strings, tuples. Raise `UnsupportedNode` for graphs."""
    return tuple(
        (name, _convert_to_python(node, value, folder))
        for name, value in sorted(read_attributes(node).items())
    )


def _convert_to_python(node: Any, value: Any, folder: Path) -> Any:
    if isinstance(value, (int, float, str)):
        return value
    if hasattr(value, "float_data"):
        array = read_array(value, folder)
        return TENSOR, array.dtype.name, tuple(array.shape), tuple(array.reshape(-1).tolist())
    if hasattr(value, "node"):
        raise UnsupportedNode(
            f"node {node.name} ({node.op_type}) holds a graph",
            hint="Cut the network before it: --output NAME",
        )
    return tuple(entry.decode(errors="replace") if isinstance(entry, bytes) else entry for entry in value)


def add_electronic_nodes(scope: Scope, node: Any, outputs: Sequence[Array]) -> list[str]:
    """Add an electronic node for each named output, and return the tensors, with "" for unnamed outputs."""
    builder = scope.builder
    names = list(node.input)
    attributes: dict[str, Any] = {
        "operation": node.op_type,
        "domain": "" if node.domain == "ai.onnx" else node.domain,
        "kinds": tuple("" if not name else _find_dtype(scope, name) for name in names),
        "shapes": tuple(scope.values[name].shape if name in scope.values else None for name in names),
        "given": read_python_attributes(node, scope.folder),
        "outputs": len(node.output),
        "macs": count_macs_of_call(node, [scope.get_constant_or_example(name) for name in names], outputs),
    }
    attributes["opset"] = scope.find_opset(node)
    for array in outputs:
        if array.dtype.kind not in "fiub":
            raise UnsupportedNode(
                f"node {node.name} ({node.op_type}) produces {array.dtype}, not numbers",
                hint=f"Cut the network before it: --output {node.input[0]}",
            )
    tensors = [scope.require_tensor(name) for name in names if name]
    output_tensors = []
    for index, (name, array) in enumerate(zip(node.output, outputs, strict=True)):
        output_attributes = {**attributes, "place": index, "shape": get_sample_shape(array.shape)}
        output_tensors.append(
            builder.emit(ELECTRONIC, tensors, f"{node.name}", output_attributes) if name else ""
        )
    return output_tensors


def _find_dtype(scope: Scope, name: str) -> str:
    return scope.values[name].dtype if name in scope.values else scope.constants[name].dtype.name


def count_macs_of_call(node: Any, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> int:
    """Return the multiply-accumulates of one ONNX operation, or 0 for an operation without products."""
    size, operation = outputs[0].size, node.op_type
    if operation in {"MatMul", "Gemm", "MatMulInteger", "FusedMatMul"} and inputs[0] is not None:
        return size * int(inputs[0].shape[-1])
    if operation in {"Conv", "ConvInteger", "QLinearConv", "FusedConv"}:
        weights = inputs[3] if operation == "QLinearConv" else inputs[1]
        return size * int(prod(weights.shape[1:])) if weights is not None else 0
    if operation == "ConvTranspose" and inputs[0] is not None and inputs[1] is not None:
        return int(inputs[0].size * prod(inputs[1].shape[1:]))
    if operation in {"LSTM", "GRU", "RNN"}:
        sequence, *matrices = [matrix for matrix in inputs[:3] if matrix is not None]
        return int(prod(sequence.shape[:2]) * sum(matrix.size for matrix in matrices))
    return 0


def evaluate(scope: Scope, node: Any) -> list[Array]:
    """Return the outputs of `node` for its constants and examples. Raise `NetworkError`."""
    arrays = [scope.get_constant_or_example(name) for name in node.input]
    input_dtypes = tuple("" if array is None else array.dtype.name for array in arrays)
    domain = "" if node.domain == "ai.onnx" else node.domain
    attributes = read_python_attributes(node, scope.folder)
    operation = Operation(
        node.op_type, domain, scope.find_opset(node), input_dtypes, attributes, len(node.output)
    )
    _check_size(node, _bound_output_size(node.op_type, arrays))
    outputs = operation.run(arrays)
    for array in outputs:
        _check_size(node, array.size)
    return outputs


def _bound_output_size(operation: str, arrays: Sequence[Array | None]) -> int:
    """Return the size of an output that may not fit in memory, from the inputs; 0 for other operations."""
    index = {"ConstantOfShape": 0, "Expand": 1, "Pad": 1, "Tile": 1}.get(operation)
    sizes = arrays[index] if index is not None and index < len(arrays) else None
    if sizes is None or not np.issubdtype(sizes.dtype, np.integer):
        return 0
    lengths, data_array = [int(number) for number in sizes.ravel()], arrays[0]
    data_shape = () if data_array is None or operation == "ConstantOfShape" else data_array.shape
    if operation == "Expand":  # shapes that do not match fail later, in the runtime
        data_shape = (1,) * (len(lengths) - len(data_shape)) + data_shape
        return math.prod(map(max, zip(data_shape, lengths, strict=False)))
    if operation == "Pad":
        # `pads_after` is shorter if only some axes are padded.
        pads_before, pads_after = (
            lengths[: len(data_shape)],
            lengths[len(data_shape) :],
        )
        return (
            math.prod(map(sum, zip(data_shape, pads_before, pads_after, strict=True)))
            if len(pads_after) == len(data_shape)
            else 0
        )
    return math.prod((*data_shape, *lengths))


def _check_size(node: Any, size: int) -> None:
    """Raise `NetworkError` for an output with more than `MAX_OUTPUT_SIZE` numbers."""
    if size > MAX_OUTPUT_SIZE:
        raise NetworkError(
            (f"node {node.name} ({node.op_type}) makes {size:,} numbers; the limit is {MAX_OUTPUT_SIZE:,}"),
            hint="Fix smaller shapes: --shape NAME=1x3x64x64",
        )


def read_constant(node: Any, folder: Path) -> Array:
    """Return the value of a `Constant` node. Raise `NetworkError` unless it holds numbers."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return read_array(attribute.t, folder)
        if attribute.name in {"value_float", "value_floats"}:
            return np.asarray(
                attribute.f if attribute.name == "value_float" else attribute.floats, np.float32
            )
        if attribute.name in {"value_int", "value_ints"}:
            return np.asarray(attribute.i if attribute.name == "value_int" else attribute.ints, np.int64)
    raise NetworkError(f"node {node.name} (Constant) does not hold numbers", hint="Use numbers")


def add_node(scope: Scope, node: Any) -> None:
    """Add one node without subgraphs to the network, or compute it if it is constant."""
    if all(scope.is_omitted_or_constant(name) for name in node.input) and node.input:
        scope.constants.update(zip(node.output, evaluate(scope, node), strict=False))
        return
    if node.op_type == "Dropout" or (node.op_type == "Identity" and not node.domain):
        scope.add_alias(node.output[0], node.input[0])
        for mask_name in node.output[1:]:
            if mask_name:
                scope.constants[mask_name] = np.ones(scope.values[node.input[0]].shape, bool)
        return
    outputs = evaluate(scope, node)
    if node.op_type in {"Shape", "Size"} and not node.domain:
        scope.constants[node.output[0]] = outputs[0]
        return
    tensors = _translate(scope, node, outputs)
    for name, tensor, array in zip(node.output, tensors, outputs, strict=True):
        if name:
            scope.example_by_name[name] = array
            scope.values[name] = DynamicTensor(tensor, array.shape, array.dtype.name)


def _translate(scope: Scope, node: Any, outputs: Sequence[Array]) -> list[str]:
    """Translate the node if possible, else add an electronic node; return the builder's tensors."""
    dtype_kinds = {array.dtype.kind for array in outputs}
    is_float = dtype_kinds <= {"f"} and all(
        scope.values[name].dtype.startswith("float") for name in node.input if name in scope.values
    )
    if node.op_type in RESHAPE_OPERATIONS and not node.domain and len(node.output) == 1:
        source = scope.values[node.input[0]].tensor
        return [scope.builder.reshape(source, get_sample_shape(outputs[0].shape), _read_name(node))]
    if node.op_type == "Cast" and is_float:
        return [scope.values[node.input[0]].tensor]
    used_outputs = [array for name, array in zip(node.output, outputs, strict=True) if name]
    if is_float and _has_translation(scope, node):
        for translator in (_translate_with_batch_axis, _translate_as_groups, _translate_with_extra_axis):
            node_count = len(scope.builder.nodes)
            note_count = len(scope.builder.notes)
            try:
                translated_tensors = translator(scope, node, used_outputs)
            except NetworkError:
                translated_tensors = None
            if translated_tensors is not None:
                remaining_tensors = iter(translated_tensors)
                return [next(remaining_tensors, "") if name else "" for name in node.output]
            # A failed attempt leaves nothing behind.
            del scope.builder.nodes[node_count:], scope.builder.notes[note_count:]
    return add_electronic_nodes(scope, node, outputs)


def _read_name(node: Any) -> str:
    return str(node.name)


def _has_translation(scope: Scope, node: Any) -> bool:
    if node.domain not in {"", "ai.onnx"} or node.op_type not in OPERATOR_BY_NAME:
        return False
    return scope.find_opset(node) >= MIN_TRANSLATED_OPSET or node.op_type in STABLE_OPERATIONS


def _make_call(scope: Scope, node: Any, tensors: Sequence[str]) -> Call:
    attributes = dict(read_python_attributes(node, scope.folder))
    output_count = max((number for number, name in enumerate(node.output, 1) if name), default=1)
    return Call(
        _read_name(node), node.op_type, tuple(tensors), attributes, output_count, "", scope.find_opset(node)
    )


def _translate_with_batch_axis(scope: Scope, node: Any, outputs: Sequence[Array]) -> list[str] | None:
    """Translate a node if all its tensors have a leading batch axis of length 1, else return None."""
    shapes = [scope.values[name].shape for name in node.input if name in scope.values]
    if any(shape[:1] != (1,) for shape in [*shapes, *(array.shape for array in outputs)]):
        return None
    translated = translate(
        scope.builder, _make_call(scope, node, [scope.require_tensor(name) for name in node.input])
    )
    return _select_matching_tensors(scope, translated, [array.shape[1:] for array in outputs])


def _translate_as_groups(scope: Scope, node: Any, outputs: Sequence[Array]) -> list[str] | None:
    """Translate a convolution of several images to a grouped convolution, one group per image; else return None."""
    image_batch = scope.values.get(node.input[0])
    if node.op_type != "Conv" or image_batch is None or not 1 < image_batch.shape[0] <= MAX_IMAGES:
        return None
    image_count, channels, *spatial_shape = image_batch.shape
    call = _make_call(scope, node, [scope.require_tensor(name) for name in node.input])
    flat_images = scope.builder.reshape(
        image_batch.tensor, (image_count * channels, *spatial_shape), f"{call.name}/images"
    )
    inputs = [flat_images]
    for index, name in enumerate(call.inputs[1:], 1):
        weights = scope.builder.require_constant(call, index)
        tiled = np.concatenate([weights] * image_count)
        inputs.append(scope.builder.add_constant(tiled, f"{name}.tiled") if name else "")
    attributes = {**call.attributes, "group": call.read_integer("group", 1) * image_count}
    output_tensors = translate(
        scope.builder, Call(call.name, "Conv", tuple(inputs), attributes, 1, "", call.opset)
    )
    return [scope.builder.reshape(output_tensors[0], outputs[0].shape, f"{call.name}/apart")]


def _translate_with_extra_axis(scope: Scope, node: Any, outputs: Sequence[Array]) -> list[str] | None:
    """Translate a node with an extra batch axis, so that all its axes belong to one sample; None if unsupported."""
    builder = scope.builder
    tensors, ranks = [], []
    for index, name in enumerate(node.input):
        dynamic_tensor = scope.values.get(name)
        if dynamic_tensor is None:
            tensors.append(scope.require_tensor(name))
            ranks.append(scope.constants[name].ndim if name else 0)
        else:
            tensors.append(
                builder.reshape(dynamic_tensor.tensor, dynamic_tensor.shape, f"{_read_name(node)}/all{index}")
            )
            ranks.append(len(dynamic_tensor.shape))
    call = shift_axes(builder, _make_call(scope, node, tensors), ranks)
    if call is None:
        return None
    translated_tensors = _select_matching_tensors(
        scope, translate(builder, call), [array.shape for array in outputs]
    )
    if translated_tensors is None:
        return None
    return [
        builder.reshape(tensor, get_sample_shape(array.shape), f"{_read_name(node)}/first")
        for tensor, array in zip(translated_tensors, outputs, strict=True)
    ]


def _select_matching_tensors(
    scope: Scope, names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> list[str] | None:
    """Return the tensors if they have the shapes that ONNX Runtime computed, else None."""
    tensors = [tensor for tensor in names if tensor]
    has_expected_shapes = len(tensors) == len(shapes) and all(
        scope.builder.shapes.get(tensor) == tuple(shape)
        for tensor, shape in zip(tensors, shapes, strict=True)
    )
    return tensors if has_expected_shapes else None


def make_error(node: Any, problem: str, advice: str) -> UnsupportedNode:
    """Return the error for a node that cannot be imported."""
    return UnsupportedNode(f"node {node.name} ({node.op_type}) {problem}", hint=advice)
