"""Operations that no importer understands, as nodes `Electronic` of the network."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy.typing as npt

from lightning.errors import UnsupportedNode
from lightning.networks.electronic import ELECTRONIC, TENSOR
from lightning.networks.imports.onnx.parts import array_of, attributes_of
from lightning.networks.imports.onnx.scope import Scope, sample_shape

Array = npt.NDArray[Any]


def attributes_in_words(node: Any, folder: Path) -> tuple[tuple[str, Any], ...]:
    """Return the attributes of a node as plain values: numbers, texts, tuples of them. Raises `UnsupportedNode`."""
    return tuple((name, _plain(node, value, folder)) for name, value in sorted(attributes_of(node).items()))


def _plain(node: Any, value: Any, folder: Path) -> Any:
    if isinstance(value, (int, float, str)):
        return value
    if hasattr(value, "float_data"):
        array = array_of(value, folder)
        return TENSOR, array.dtype.name, tuple(array.shape), tuple(array.reshape(-1).tolist())
    if hasattr(value, "node"):
        raise UnsupportedNode(
            f"node {node.name} ({node.op_type}) holds a graph",
            hint="Cut the network before it: --output NAME",
        )
    return tuple(each.decode(errors="replace") if isinstance(each, bytes) else each for each in value)


def emit_electronic(scope: Scope, node: Any, outputs: Sequence[Array]) -> list[str]:
    """Add a node for each output that has a name; the tensors they give."""
    builder = scope.builder
    names = list(node.input)
    attributes: dict[str, Any] = {
        "operation": node.op_type,
        "domain": "" if node.domain == "ai.onnx" else node.domain,
        "kinds": tuple("" if not name else _kind(scope, name) for name in names),
        "shapes": tuple(scope.values[name].shape if name in scope.values else None for name in names),
        "given": attributes_in_words(node, scope.folder),
        "outputs": len(node.output),
        "macs": macs_of_call(node, [scope.array(name) for name in names], outputs),
    }
    attributes["opset"] = scope.opset_of(node)
    _check_kinds(node, outputs)
    tensors = [scope.tensor(name) for name in names if name]
    made = []
    for place, (name, array) in enumerate(zip(node.output, outputs, strict=True)):
        own = {**attributes, "place": place, "shape": sample_shape(array.shape)}
        made.append(builder.emit(ELECTRONIC, tensors, f"{node.name}", own) if name else "")
    return made


def _kind(scope: Scope, name: str) -> str:
    return scope.values[name].kind if name in scope.values else scope.known[name].dtype.name


def _check_kinds(node: Any, outputs: Sequence[Array]) -> None:
    for array in outputs:
        if array.dtype.kind not in "fiub":
            raise UnsupportedNode(
                f"node {node.name} ({node.op_type}) gives {array.dtype} and no numbers",
                hint=f"Cut the network before it: --output {node.input[0]}",
            )


def macs_of_call(node: Any, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> int:
    """Return the multiply-accumulates of one operation of ONNX."""
    size, operation = outputs[0].size, node.op_type
    if operation in {"MatMul", "Gemm", "MatMulInteger", "FusedMatMul"} and inputs[0] is not None:
        return size * int(inputs[0].shape[-1])
    if operation in {"Conv", "ConvInteger", "QLinearConv", "FusedConv"}:
        weights = inputs[3] if operation == "QLinearConv" else inputs[1]
        return size * int(prod(weights.shape[1:])) if weights is not None else 0
    if operation == "ConvTranspose" and inputs[0] is not None and inputs[1] is not None:
        return int(inputs[0].size * prod(inputs[1].shape[1:]))
    if operation in {"LSTM", "GRU", "RNN"}:
        steps, *matrices = [each for each in inputs[:3] if each is not None]
        return int(prod(steps.shape[:2]) * sum(each.size for each in matrices))
    return 0
