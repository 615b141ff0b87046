"""Workloads from ONNX files. The reader infers shapes. It does not need the weights and does not read external data.

The first dimension of the first input is the number of samples. Computations in the bodies of `If`, `Loop` and `Scan`
are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lightbed.wording import describe_extra
from testbed.design.workloads.imports.traced import (
    ImportedModel,
    Source,
    TracedComputation,
    TracedKind,
    assemble_model,
    count_convolution_flops,
    count_einsum_flops,
    count_product_flops,
    count_recurrent_flops,
    count_transposed_flops,
    unite_computation_indices,
    unite_weights,
)
from testbed.design.workloads.model import is_whole
from testbed.errors import WorkloadError

#: Indices of the two factors among the inputs. Quantised products have scales and zero points between them.
PRODUCTS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger", "FusedMatMul", "FusedGemm"), (0, 1)),
    "QLinearMatMul": (0, 3),
}
CONVOLUTIONS: Mapping[str, int] = {
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "FusedConv"), 1),
    "QLinearConv": 3,
}
RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
ATTENTION = frozenset(("Attention", "MultiHeadAttention", "GroupQueryAttention"))
_TYPES_WITH_BODY = frozenset(("If", "Loop", "Scan", "SequenceMap"))
_TYPES_WITH_FORMULA = frozenset((*PRODUCTS, *CONVOLUTIONS, *RECURRENT, *ATTENTION, "Einsum"))

#: Nodes without computing: the result is the first input with another shape or type.
_TYPES_WITHOUT_COMPUTING = frozenset(
    ("Cast", "CastLike", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
)
#: Nodes whose results depend only on shapes.
_TYPES_OF_SHAPES = frozenset(("Constant", "ConstantOfShape", "Shape", "Size", "EyeLike"))


class Tensor(NamedTuple):
    """Dimensions of a tensor, and the bytes per number (0 if unknown)."""

    dims: tuple[int, ...]
    item_bytes: int

    @property
    def bytes(self) -> int:
        """Total bytes, 0 if the size of a number is unknown."""
        return prod(self.dims) * self.item_bytes


class FlopCount(NamedTuple):
    """Number of operations, and how they were counted."""

    flops: float
    how: str


class Call(NamedTuple):
    """A node with its attributes, and the tensors it reads and writes."""

    op_type: str
    domain: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


_UNKNOWN_SIZE = Tensor((), 0)


def count_flops(onnx_node: Call, weights: Mapping[str, int], *, is_standard: bool) -> FlopCount:
    """Return the operations of one node, or without a formula or known shapes an estimate, which `how` describes."""
    if onnx_node.op_type in _TYPES_WITH_BODY:
        return FlopCount(0.0, "bytes only: its body is not counted")
    if onnx_node.op_type not in _TYPES_WITH_FORMULA:
        return FlopCount(
            0.0, "bytes moved" if is_standard else "unknown: counted as element-wise, by bytes moved"
        )
    if not all(tensor.item_bytes for tensor in (*onnx_node.inputs[:2], *onnx_node.outputs[:1])):
        item_bytes = max((tensor.item_bytes for tensor in onnx_node.inputs), default=0) or 4
        return FlopCount(2.0 * sum(weights.values()) / item_bytes, "shapes unknown: 2 per weight")
    return _count_by_formula(onnx_node)


def _count_by_formula(onnx_node: Call) -> FlopCount:
    """Return the operations of a node with known shapes by the formula of its type.

    Attention multiplies each query with every key, and each weight with a value. Microsoft's `Attention` also has
    projections.
    """
    kind, inputs = onnx_node.op_type, [tensor.dims for tensor in onnx_node.inputs]
    if kind in PRODUCTS:
        left_dims, right_dims = (inputs[index] for index in PRODUCTS[kind])
        if onnx_node.attributes.get("transA"):
            left_dims = left_dims[::-1]
        if onnx_node.attributes.get("transB"):
            right_dims = (*right_dims[:-2], right_dims[-1], right_dims[-2])
        return FlopCount(count_product_flops(left_dims, right_dims), "2 m n k")
    if kind in CONVOLUTIONS:
        weight = inputs[CONVOLUTIONS[kind]]
        if kind == "ConvTranspose":
            return FlopCount(count_transposed_flops(inputs[0], weight), "2 per kernel weight and input value")
        return FlopCount(
            count_convolution_flops(onnx_node.outputs[0].dims, weight), "2 per kernel weight and output value"
        )
    if kind in RECURRENT:
        steps, samples = inputs[0][:2]
        weight_count = prod(inputs[1]) + prod(inputs[2])
        return FlopCount(count_recurrent_flops(steps, samples, weight_count), "2 per weight, step and sample")
    if kind in ATTENTION:
        query, key = inputs[:2]
        output = prod(onnx_node.outputs[0].dims)
        flops, formula = 2.0 * key[-2] * (prod(query) + output), "4 s t h"
        if kind == "Attention" and onnx_node.domain == "com.microsoft":
            flops, formula = count_product_flops(query, key) + 4.0 * query[-2] * output, "2 m n k, 4 s t h"
        return FlopCount(flops, formula)
    equation = onnx_node.attributes["equation"].decode()
    return FlopCount(count_einsum_flops(equation, inputs), "2 per combination of indices")


def import_onnx(
    path: str | Path,
    *,
    batch: int,
    training: bool = True,
    dimensions: Mapping[str, int] | None = None,
) -> ImportedModel:
    """Return the workload of an ONNX file with `batch` samples per iteration.

    `dimensions` sets the open dimensions of the inputs, as in `{"sequence": 128}`. A dimension without a name is named
    by input and index, `mask.1`. The first one, the number of samples, is 1 by default. Raises `WorkloadError` for
    files that are not models, open dimensions without a size, and sizes of other dimensions.
    """
    onnx = _import_onnx_package()
    model = _load_model(onnx, Path(path))
    samples = _fix_inputs(model, str(path), dimensions or {})
    try:
        reader = _Reader(_infer_tensors(onnx, model))
        reader.read(onnx, model)
    except Exception as error:  # onnx can raise any error while it infers the shapes of a damaged model
        raise WorkloadError(f"{path} is a damaged ONNX model: {error}; export it again") from error
    return assemble_model(
        Path(path).stem,
        reader.traced_computations,
        samples=samples,
        batch=batch,
        training=training,
        origin=f"ONNX file {Path(path).name}",
        notes=reader.notes,
    )


def _import_onnx_package() -> ModuleType:
    try:
        import onnx
        import onnx.inliner
        import onnx.shape_inference
    except ImportError as error:
        raise WorkloadError(
            f"reading ONNX files needs the package onnx ({error}): {describe_extra('onnx')}"
        ) from error
    module: ModuleType = onnx
    return module


def _load_model(onnx: Any, path: Path) -> Any:
    try:
        model = onnx.load(path, load_external_data=False)
        inlined = onnx.inliner.inline_local_functions(model) if model.functions else model
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}: give a readable file") from error
    except Exception as error:  # protobuf's errors have no public base
        raise WorkloadError(f"{path} is not an ONNX model: {error}") from error
    if not inlined.graph.node:
        raise WorkloadError(f"{path} is not an ONNX model, or an empty one: it has no nodes")
    return inlined


def _fix_inputs(model: Any, path: str, sizes: Mapping[str, int]) -> int:
    """Set every open dimension of the inputs in the model, and return the number of samples.

    The caller must infer the shapes again. Raises `WorkloadError` for missing and unknown dimensions.
    """
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if not inputs:
        raise WorkloadError(f"{path}: the model has no inputs, so nothing depends on samples")
    open_dimensions = list(_list_open_dimensions(inputs))
    names = list(dict.fromkeys(name for name, _ in open_dimensions))
    for name, size in sizes.items():
        if name not in names:
            known_names = f"those that do are {', '.join(names)}" if names else "none does"
            raise WorkloadError(f"{path}: {name!r} names no input dimension that needs a size; {known_names}")
        if not is_whole(size) or size < 1:
            raise WorkloadError(f"{path}: dimension {name} is {size}: give an integer of at least 1")
    first_dims = list(inputs[0].type.tensor_type.shape.dim)
    # An open first dimension is the number of samples: 1, unless the user gives a size.
    counts_samples = bool(first_dims) and not first_dims[0].dim_value
    dimension_sizes = {names[0]: 1, **sizes} if counts_samples else sizes
    unknown_names = [name for name in names if name not in dimension_sizes]
    if unknown_names:
        raise WorkloadError(
            f"{path}: input dimensions have no size ({', '.join(unknown_names)}): "
            f"give them, as dimensions={{{unknown_names[0]!r}: 128}} or --set {unknown_names[0]}=128"
        )
    for name, dim in open_dimensions:
        dim.dim_value = dimension_sizes[name]
    return int(first_dims[0].dim_value) if first_dims else 1


def _list_open_dimensions(inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and the open dimensions of inputs. A dimension without a name is named by its index: `mask.1`."""
    for value in inputs:
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.dim_value:
                yield dim.dim_param or f"{value.name}.{index}", dim


def _infer_tensors(onnx: Any, model: Any) -> Mapping[str, Tensor]:
    """Return the tensor of every value with a known shape, by name."""
    stripped = type(model)()
    stripped.CopyFrom(model)
    del stripped.graph.value_info[:]
    for value in stripped.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(stripped, data_prop=True).graph
    values = [*model.graph.value_info, *inferred.value_info, *inferred.output, *inferred.input]
    tensors = {}
    for value in values:
        tensor = value.type.tensor_type
        dims = [dim.dim_value for dim in tensor.shape.dim]
        if tensor.HasField("shape") and all(dims):
            tensors[value.name] = Tensor(tuple(dims), _find_item_bytes(onnx, tensor.elem_type))
    for weight in model.graph.initializer:
        tensors[weight.name] = Tensor(tuple(weight.dims), _find_item_bytes(onnx, weight.data_type))
    return tensors


def _find_item_bytes(onnx: Any, data_type: int) -> int:
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize)
    except KeyError:
        return 0


@dataclass(slots=True)
class _Reader:
    """Reader of a model's nodes, in their order of execution. It tracks the source of each value."""

    tensors: Mapping[str, Tensor]
    traced_computations: list[TracedComputation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _sources: dict[str, Source] = field(default_factory=dict)

    def read(self, onnx: Any, model: Any) -> None:
        for value in model.graph.input:
            self._sources[value.name] = Source(depends_on_input=True)
        for weight in model.graph.initializer:
            # Floating-point and quantised tensors are trained; indices, flags and texts are not.
            tensor_proto = onnx.TensorProto
            untrained_types = {tensor_proto.INT64, tensor_proto.INT32, tensor_proto.BOOL, tensor_proto.STRING}
            tensor = self.tensors[weight.name]
            weights = {} if weight.data_type in untrained_types else {weight.name: tensor.bytes}
            self._sources[weight.name] = Source(weights=weights)
        for index, node in enumerate(model.graph.node):
            source = self._read_node(onnx, node, index)
            self._sources.update(dict.fromkeys(node.output, source))

    def _read_node(self, onnx: Any, node: Any, index: int) -> Source:
        """Record the computation of a node, if any, and return the source of its results."""
        inputs = [self._sources.get(name, Source()) for name in node.input if name]
        if node.op_type in _TYPES_OF_SHAPES:
            return Source()
        if node.op_type in _TYPES_WITHOUT_COMPUTING and inputs:
            return inputs[0]
        weights = unite_weights(inputs[:3] if node.op_type == "BatchNormalization" else inputs)
        if not any(source.depends_on_input for source in inputs):
            return Source(weights=weights)
        name = node.name or f"{node.op_type}_{index}"
        self.traced_computations.append(
            self._trace_node(onnx, node, unite_computation_indices(inputs), weights, name)
        )
        return Source(computation_indices=(len(self.traced_computations) - 1,), depends_on_input=True)

    def _trace_node(
        self, onnx: Any, node: Any, input_indices: tuple[int, ...], weights: Mapping[str, int], name: str
    ) -> TracedComputation:
        input_tensors = [
            self.tensors.get(name, _UNKNOWN_SIZE) if name else _UNKNOWN_SIZE for name in node.input
        ]
        output_tensors = [self.tensors.get(name, _UNKNOWN_SIZE) for name in node.output if name]
        kind = self._find_kind(node)
        attributes = {
            attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
        }
        is_standard = node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type)
        onnx_node = Call(node.op_type, node.domain, attributes, input_tensors, output_tensors)
        flops, formula = count_flops(onnx_node, weights, is_standard=is_standard)
        unknown_names = [name for name in (*node.input, *node.output) if name and name not in self.tensors]
        if unknown_names:
            self.notes.append(
                f"{name} ({node.op_type}): shape unknown of {', '.join(unknown_names)}: counted as 0 bytes"
            )
        output_bytes = sum(tensor.bytes for tensor in output_tensors)
        data_tensors = [
            tensor
            for input_name, tensor in zip(node.input, input_tensors, strict=True)
            if self._sources.get(input_name, Source()).depends_on_input
        ]
        read_bytes = sum(tensor.bytes for tensor in data_tensors) + (
            output_bytes if kind == "embedding" else 0
        )
        return TracedComputation(
            name, node.op_type, kind, input_indices, flops, weights, read_bytes, output_bytes, formula
        )

    def _find_kind(self, node: Any) -> TracedKind:
        sources = [self._sources.get(name, Source()) for name in node.input]
        has_weights = any(source.weights and not source.depends_on_input for source in sources[:2])
        if node.op_type in CONVOLUTIONS:
            return "convolution"
        if node.op_type in RECURRENT:
            return "recurrent"
        if node.op_type == "Gather" and sources[0].weights and not sources[0].depends_on_input:
            return "embedding"
        return "dense" if has_weights and node.op_type in (*PRODUCTS, *ATTENTION, "Einsum") else "other"
