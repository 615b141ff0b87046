"""Calls over tensors whose first axis is not a batch of one: all their axes move one place back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.networks.imports.builder import Builder, Call

Array = npt.NDArray[Any]


def lifted(builder: Builder, call: Call, ranks: Sequence[int]) -> Call | None:
    """Return `call` for tensors with one more axis in front; None for an operation that does not allow it.

    `ranks` are those of its inputs as ONNX has them.
    """
    shift = _SHIFTS.get(call.operation)
    return None if shift is None else shift(builder, call, ranks)


def _as_it_is(_: Builder, call: Call, __: Sequence[int]) -> Call:
    return call


def _axis(default: int) -> Callable[[Builder, Call, Sequence[int]], Call]:
    def shift(_: Builder, call: Call, __: Sequence[int]) -> Call:
        axis = call.whole("axis", default)
        attributes = {**call.attributes, "axis": axis + 1 if axis >= 0 else axis}
        return replace(call, attributes=attributes)

    return shift


def _moved(axes: Iterable[Any]) -> list[int]:
    return [int(axis) + 1 if axis >= 0 else int(axis) for axis in axes]


def _reduction(builder: Builder, call: Call, ranks: Sequence[int]) -> Call | None:
    if call.given(1):
        return _axes_input(builder, call, 1)
    if "axes" in call.attributes:
        return replace(call, attributes={**call.attributes, "axes": tuple(_moved(call.attributes["axes"]))})
    if call.whole("noop_with_empty_axes", 0):
        return None
    return replace(call, attributes={**call.attributes, "axes": tuple(range(1, ranks[0] + 1))})


def _axes_input(builder: Builder, call: Call, place: int) -> Call | None:
    axes = builder.constants.get(call.given(place))
    if axes is None:
        return None
    kept = builder.constant(np.array(_moved(axes.reshape(-1)), np.int64), f"{call.name}.axes")
    return replace(call, inputs=(*call.inputs[:place], kept, *call.inputs[place + 1 :]))


def _slices(builder: Builder, call: Call, _: Sequence[int]) -> Call | None:
    starts = builder.constants.get(call.given(1))
    if starts is None:
        return None
    if call.given(3):
        return _axes_input(builder, call, 3)
    axes = builder.constant(np.arange(1, starts.size + 1), f"{call.name}.axes")
    inputs = (*call.inputs, "", "")[:3]
    return replace(call, inputs=(*inputs, axes, *call.inputs[4:]))


def _concat(builder: Builder, call: Call, ranks: Sequence[int]) -> Call:
    inputs = tuple(
        builder.constant(builder.constants[name][None], f"{call.name}.part")
        if builder.is_constant(name)
        else name
        for name in call.inputs
    )
    return _axis(0)(builder, replace(call, inputs=inputs), ranks)


def _transpose(_: Builder, call: Call, ranks: Sequence[int]) -> Call:
    perm = call.attributes.get("perm", tuple(reversed(range(ranks[0]))))
    return replace(call, attributes={**call.attributes, "perm": (0, *(int(axis) + 1 for axis in perm))})


_PLAIN = frozenset(
    "Abs Add Clip Div Elu Erf Exp Gelu Gemm HardSigmoid HardSwish LeakyRelu Log MatMul Max Mean Min Mish Mul "  # noqa: SIM905
    "Neg Pow PRelu Reciprocal Relu Sigmoid Softplus Sqrt Sub Sum Swish Tanh Where".split()
)
_SHIFTS: Mapping[str, Callable[[Builder, Call, Sequence[int]], Call | None]] = {
    **dict.fromkeys(_PLAIN, _as_it_is),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LayerNormalization"), _axis(-1)),
    **dict.fromkeys(("Split", "Gather"), _axis(0)),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _reduction),
    "Concat": _concat,
    "Slice": _slices,
    "Transpose": _transpose,
}
