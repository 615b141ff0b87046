"""Folding of what depends on constants only: shapes above all, which exporters write as small programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError
from lightning.networks.imports.builder import BATCH, Builder, Call
from lightning.networks.imports.translators.operation_list import CONTRADICTIONS
from lightning.optional import needed

Array = npt.NDArray[Any]

MOST = 1 << 28
"""Numbers in a constant that is made of a few others."""

FOLDED = frozenset(
    "Abs Add And Cast CastLike Ceil Concat ConstantOfShape Div Equal Erf Exp Expand Flatten Floor Gather Gemm "  # noqa: SIM905
    "Greater GreaterOrEqual Identity Less LessOrEqual Log MatMul Max Min Mod Mul Neg Not Or Pad Pow Range ReduceMax "
    "ReduceMean ReduceMin ReduceProd ReduceSum Reciprocal Reshape Sigmoid Size Slice Softmax Split Sqrt Squeeze Sub "
    "Tanh Tile Transpose Trilu Unsqueeze Where".split()
)
"""Operations that ONNX's own reference computes for us. None draws random numbers or reads files."""


def foldable(builder: Builder, call: Call) -> bool:
    """Return whether `call` needs no image."""
    if call.operation == "Shape" and not call.domain:
        return True
    given = [tensor for tensor in call.inputs if tensor]
    known = bool(given) and all(builder.is_constant(tensor) for tensor in given)
    return known and not call.domain and call.operation in FOLDED


def fold(builder: Builder, call: Call, node: Any) -> tuple[str, ...]:
    """Compute ONNX's `node` and keep its outputs as constants; their names. Raises `NetworkError`."""
    if call.operation == "Shape" and not builder.is_constant(call.given(0)):
        return (builder.constant(_shape(builder, call), call.name),)
    inputs: list[Any] = [builder.constants[tensor] if tensor else None for tensor in call.inputs]
    if call.operation == "Expand" and BATCH in np.ravel(inputs[1]):
        builder.note(f"Expand {call.name}: a constant that is repeated for every image is kept once")
        inputs[1] = np.where(inputs[1] == BATCH, 1, inputs[1])
    largest = _largest(call, inputs)
    if largest > MOST:
        raise NetworkError(
            f"{call.title} makes a constant of {largest:,.0f} numbers, and {MOST:,} are allowed",
            hint="Export the network without it, or with smaller shapes",
        )
    values = _evaluated(call, node, inputs)
    return tuple(
        builder.constant(value, f"{call.name}.{k}" if k else call.name) for k, value in enumerate(values)
    )


def _shape(builder: Builder, call: Call) -> Array:
    """Return the shape of an activation, `BATCH` in front where any number of images may come."""
    shape = np.array([BATCH if builder.batched else 1, *builder.shapes[builder.activation(call)]], np.int64)
    stop = call.attributes.get("end")
    return shape[call.whole("start", 0) : stop if isinstance(stop, int) else None]


def _largest(call: Call, inputs: Sequence[Any]) -> float:
    """Return a limit of how many numbers come out, judged before they do."""
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


def _evaluated(call: Call, node: Any, inputs: Sequence[Any]) -> list[Array]:
    reference = needed("onnx.reference", "to read ONNX files")
    names = [name for name in node.input if name]
    given: Mapping[str, Any] = dict(zip(names, (value for value in inputs if value is not None), strict=True))
    try:
        with np.errstate(all="ignore"):
            outputs = reference.ReferenceEvaluator(node, opsets={"": call.opset}).run(None, dict(given))
    except (*CONTRADICTIONS, RuntimeError, AssertionError, ArithmeticError) as error:
        raise NetworkError(
            f"{call.title} contradicts itself: {error}", hint="Export the network again"
        ) from error
    return [np.asarray(output) for output in outputs]
