"""Operations of ONNX nodes, from the shapes of what they read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from testbed.design.workloads.imports.formulas import (
    convolution_flops,
    einsum_flops,
    product_flops,
    recurrent_flops,
    transposed_flops,
)

#: Where the two factors stand among the inputs. Quantised ones have scales and zero points between them.
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
_BODIES = frozenset(("If", "Loop", "Scan", "SequenceMap"))


class Tensor(NamedTuple):
    """Dimensions, and bytes of a number."""

    dims: tuple[int, ...]
    item_bytes: int

    @property
    def bytes(self) -> int:
        """All of it; none where the size of a number is unknown."""
        return prod(self.dims) * self.item_bytes


class Counted(NamedTuple):
    """Operations, and how they were found."""

    flops: float
    how: str


class Call(NamedTuple):
    """A node with its attributes, and the tensors it reads and writes."""

    op_type: str
    domain: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


def counted_flops(call: Call, weights: Mapping[str, int], *, is_standard: bool) -> Counted:
    """Return operations of one node. What has no formula, or no shapes to put into it, is estimated and says so."""
    formula = _formula(call.op_type)
    if formula is None:
        return Counted(0.0, _light(call, is_standard=is_standard))
    if not all(tensor.item_bytes for tensor in (*call.inputs[:2], *call.outputs[:1])):
        item_bytes = max((tensor.item_bytes for tensor in call.inputs), default=0) or 4
        return Counted(2.0 * sum(weights.values()) / item_bytes, "shapes unknown: two operations a weight")
    return formula(call)


def _formula(op_type: str) -> Callable[[Call], Counted] | None:
    if op_type in PRODUCTS:
        return _product
    if op_type in CONVOLUTIONS:
        return _convolution
    if op_type in RECURRENT:
        return _recurrent
    if op_type in ATTENTION:
        return _attention
    return _einsum if op_type == "Einsum" else None


def _light(call: Call, *, is_standard: bool) -> str:
    if call.op_type in _BODIES:
        return "bytes only: its body is not looked into"
    return "bytes moved" if is_standard else "unknown: counted as element-wise, by bytes moved"


def _product(call: Call) -> Counted:
    left, right = (call.inputs[place].dims for place in PRODUCTS[call.op_type])
    if call.attributes.get("transA"):
        left = left[::-1]
    if call.attributes.get("transB"):
        right = (*right[:-2], right[-1], right[-2])
    return Counted(product_flops(left, right), "2 m n k")


def _convolution(call: Call) -> Counted:
    weight = call.inputs[CONVOLUTIONS[call.op_type]].dims
    if call.op_type == "ConvTranspose":
        return Counted(transposed_flops(call.inputs[0].dims, weight), "2 a kernel and input number")
    return Counted(convolution_flops(call.outputs[0].dims, weight), "2 a kernel and output number")


def _recurrent(call: Call) -> Counted:
    steps, samples = call.inputs[0].dims[:2]
    weights = prod(call.inputs[1].dims) + prod(call.inputs[2].dims)
    return Counted(recurrent_flops(steps, samples, weights), "2 a weight and step")


def _attention(call: Call) -> Counted:
    """Return each query number meets every key, each output number sums over every value.

    Projections, where it has any.
    """
    first, second = call.inputs[0].dims, call.inputs[1].dims
    output = prod(call.outputs[0].dims)
    if call.domain == "com.microsoft" and call.op_type == "Attention":
        return Counted(product_flops(first, second) + 4.0 * first[-2] * output, "2 m n k, 4 s t h")
    return Counted(2.0 * second[-2] * (prod(first) + output), "4 s t h")


def _einsum(call: Call) -> Counted:
    equation = call.attributes["equation"].decode()
    return Counted(
        einsum_flops(equation, [tensor.dims for tensor in call.inputs]), "2 a combination of indices"
    )
