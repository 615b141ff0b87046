"""Rewriting of LSTM, GRU, RNN and ConvTranspose as other operations: constant products, and digital gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.networks.imports.onnx.scope import REWRITTEN, Scope
from lightning.optional import require

Array = npt.NDArray[Any]
MOST_STEPS = 512
"""Longer sequences stay electronic, because every step adds its own product."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
Weights = tuple[Array, Array, int]


class Rewriting:
    """The nodes that replace one node of the file; constants are added to the scope."""

    def __init__(self, scope: Scope, node: Any) -> None:
        self.scope = scope
        self.node = node
        self.nodes: list[Any] = []
        self._count = 0
        self._shared: dict[bytes, str] = {}
        self.attributes = {attribute.name: attribute for attribute in node.attribute}

    def number(self, name: str, default: float) -> float:
        """Return a number among the attributes of the node."""
        attribute = self.attributes.get(name)
        return default if attribute is None else float(attribute.i if attribute.type == 2 else attribute.f)

    def wholes(self, name: str, default: Sequence[int]) -> list[int]:
        """Return a list of whole numbers among the attributes of the node."""
        attribute = self.attributes.get(name)
        return list(default) if attribute is None else [int(each) for each in attribute.ints]

    def text(self, name: str, default: str) -> str:
        """Return a text among the attributes of the node."""
        attribute = self.attributes.get(name)
        return default if attribute is None else str(attribute.s.decode())

    def length(self, name: str, axis: int = 0) -> int:
        """Return the length of an axis of a tensor."""
        return int(np.asarray(self.scope.array(name)).shape[axis])

    def add(self, operation: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        helper = require("onnx", "to read ONNX files").helper
        self._count += 1
        name = f"{self.node.name}/{operation.lower()}{self._count}"
        output = output or f"{name}:0"
        self.nodes.append(
            helper.make_node(operation, list(inputs), [output], name=name, doc_string=REWRITTEN, **attributes)
        )
        return output

    def constant(self, values: npt.ArrayLike) -> str:
        """Add a constant and return its name."""
        self._count += 1
        name = f"{self.node.name}/constant{self._count}"
        self.scope.known[name] = np.asarray(values, order="C")
        return name

    def share(self, title: str, values: Array) -> str:
        """Return the name of a constant, which is added only once."""
        key = title.encode() + np.ascontiguousarray(values).tobytes()
        if key not in self._shared:
            self._shared[key] = self.constant(values)
        return self._shared[key]

    def whole(self, values: Any) -> str:
        """Return the name of a shared constant of integers."""
        array = np.asarray(values, np.int64)
        return self.share(f"whole{array.shape}", array)

    def part(self, tensor: str, place: int, size: int) -> str:
        """Add slice number `place`, of length `size`, of the last axis; return its name."""
        start, stop = self.whole([place * size]), self.whole([(place + 1) * size])
        return self.add("Slice", [tensor, start, stop, self.whole([-1])])


def transpose_convolution(scope: Scope, node: Any) -> list[Any] | None:
    """Return the nodes of a ConvTranspose: zeros between the values, then a convolution with flipped kernels.

    None for one that stays electronic: with more than two spatial axes or one sample, variable weights, `auto_pad` or
    `output_shape`.
    """
    rewriting = Rewriting(scope, node)
    weights, x = scope.known.get(node.input[1]), scope.array(node.input[0])
    if weights is None or x is None or weights.ndim not in {3, 4} or len(x) != 1:
        return None
    if rewriting.text("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in rewriting.attributes:
        return None
    sides, group = weights.ndim - 2, int(rewriting.number("group", 1))
    strides, dilations = (rewriting.wholes(name, [1] * sides) for name in ("strides", "dilations"))
    pads, more = rewriting.wholes("pads", [0] * 2 * sides), rewriting.wholes("output_padding", [0] * sides)
    tensor, shape = node.input[0], list(x.shape)
    for axis in range(sides):
        tensor = _spread(rewriting, tensor, axis + 2, shape, strides)
    ends = []
    for axis in range(sides):
        reach = dilations[axis] * (weights.shape[axis + 2] - 1)
        ends.append((reach - pads[axis], reach - pads[axis + sides] + more[axis]))
    tensor = _around(rewriting, tensor, ends)
    turned = np.flip(weights, axis=tuple(range(2, 2 + sides)))
    by_group = turned.reshape(group, weights.shape[0] // group, *weights.shape[1:]).swapaxes(1, 2)
    kernels = by_group.reshape(group * weights.shape[1], weights.shape[0] // group, *weights.shape[2:])
    inputs = [tensor, rewriting.constant(kernels), *node.input[2:]]
    rewriting.add("Conv", inputs, node.output[0], group=group, dilations=dilations)
    return rewriting.nodes


def _spread(rewriting: Rewriting, tensor: str, axis: int, shape: list[int], strides: list[int]) -> str:
    """Insert `stride - 1` zeros between the values along `axis`, and update `shape`."""
    stride, length = strides[axis - 2], shape[axis]
    if stride == 1:
        return tensor
    apart = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    tensor = rewriting.add("Reshape", [tensor, rewriting.whole(apart)])
    pads = [0] * 2 * len(apart)
    pads[len(apart) + axis + 1] = stride - 1
    tensor = rewriting.add("Pad", [tensor, rewriting.whole(pads)])
    shape[axis] = length * stride
    tensor = rewriting.add("Reshape", [tensor, rewriting.whole(shape)])
    shape[axis] = (length - 1) * stride + 1
    return rewriting.add(
        "Slice", [tensor, rewriting.whole([0]), rewriting.whole([shape[axis]]), rewriting.whole([axis])]
    )


def _around(rewriting: Rewriting, tensor: str, ends: Sequence[tuple[int, int]]) -> str:
    """Pad both ends of the last axes with zeros, or crop them for negative counts."""
    before, after = ([max(end[k], 0) for end in ends] for k in (0, 1))
    if any(before) or any(after):
        tensor = rewriting.add("Pad", [tensor, rewriting.whole([0, 0, *before, 0, 0, *after])])
    for axis, (first, last) in enumerate(ends):
        if first < 0 or last < 0:
            far = np.iinfo(np.int64).max if last >= 0 else last
            span = rewriting.whole([max(-first, 0)]), rewriting.whole([far])
            tensor = rewriting.add("Slice", [tensor, *span, rewriting.whole([axis + 2])])
    return tensor


def recurrent_steps(scope: Scope, node: Any) -> list[Any] | None:
    """Return the nodes that replace an LSTM, GRU or RNN; None for one that stays electronic."""
    rewriting = Rewriting(scope, node)
    if not _is_usual(scope, node, rewriting):
        return None
    steps, directions = rewriting.length(node.input[0]), len(scope.known[node.input[1]])
    outputs = [_direction(rewriting, place, steps) for place in range(directions)]
    names = [*node.output, "", "", ""]
    if names[0]:
        by_step = [
            rewriting.add("Concat", [hidden[step] for hidden, _ in outputs], axis=0) for step in range(steps)
        ]
        stacked = [rewriting.add("Unsqueeze", [each, rewriting.whole([0])]) for each in by_step]
        rewriting.add("Concat", stacked, names[0], axis=0)
    for name, lasts in (
        (
            names[1],
            [
                hidden[-1 if place == 0 else 0]
                for place, (hidden, _) in enumerate(_order_directions(node, outputs))
            ],
        ),
        (names[2], [cell for _, cell in outputs]),
    ):
        if name:
            rewriting.add("Concat", lasts, name, axis=0)
    return rewriting.nodes


def _order_directions(node: Any, outputs: Sequence[Any]) -> Sequence[Any]:
    """Return the directions so that the last hidden state of a single reverse one is at its end."""
    return (
        outputs
        if _direction_of(node) != "reverse"
        else [(list(reversed(hidden)), cell) for hidden, cell in outputs]
    )


def _direction_of(node: Any) -> str:
    return next((a.s.decode() for a in node.attribute if a.name == "direction"), "forward")


def _is_usual(scope: Scope, node: Any, rewriting: Rewriting) -> bool:
    """Return whether a node has the form that frameworks export, with constant weights and full-length sequences."""
    names = [*node.input, *[""] * 8]
    if not all(names[place] in scope.known for place in (1, 2)) or not scope.is_known(names[3]):
        return False
    x = scope.array(names[0])
    if x is None or x.ndim != 3 or len(x) > MOST_STEPS or rewriting.number("layout", 0) or names[7]:
        return False
    lengths = scope.known.get(names[4])
    if names[4] and (lengths is None or np.any(lengths != len(x))):
        return False
    given = {a.name: a for a in node.attribute}
    directions = len(scope.known[names[1]])
    usual = [each.lower() for each in _DEFAULTS[node.op_type] * directions]
    if "activations" in given and [each.decode().lower() for each in given["activations"].strings] != usual:
        return False
    return not ({"clip", "activation_alpha", "activation_beta"} & given.keys()) and not rewriting.number(
        "input_forget", 0
    )


def _direction(rewriting: Rewriting, place: int, steps: int) -> tuple[list[str], str]:
    """Add one direction; return its hidden states (1, batch, size) in the order of time, and the last cell state."""
    node, scope = rewriting.node, rewriting.scope
    names = [*node.input, *[""] * 8]
    gates = _GATES[node.op_type]
    weights, recurrence = (np.asarray(scope.known[names[k]][place], np.float32) for k in (1, 2))
    size = recurrence.shape[1]
    bias = scope.known[names[3]][place] if names[3] else np.zeros(2 * gates * size, np.float32)
    reset = rewriting.number("linear_before_reset", 0)
    ours, theirs = np.split(np.asarray(bias, np.float32), 2)
    if node.op_type != "GRU":
        ours, theirs = ours + theirs, 0 * theirs
    product = rewriting.add("MatMul", [names[0], rewriting.constant(weights.T)])
    product = rewriting.add("Add", [product, rewriting.constant(ours)])
    state = [_start(rewriting, names[5 + k], place, size) for k in range(2 if node.op_type == "LSTM" else 1)]
    backwards = place == 1 or _direction_of(node) == "reverse"
    hidden = [""] * steps
    for step in reversed(range(steps)) if backwards else range(steps):
        x = rewriting.add("Gather", [product, rewriting.whole(step)], axis=0)
        state = _STEPS[node.op_type](rewriting, x, state, (recurrence, theirs, size), reset)
        hidden[step] = rewriting.add("Unsqueeze", [state[0], rewriting.whole([0])])
    cell = rewriting.add("Unsqueeze", [state[1], rewriting.whole([0])]) if len(state) > 1 else ""
    return hidden, cell


def _start(rewriting: Rewriting, name: str, place: int, size: int) -> str:
    if name:
        return rewriting.add("Gather", [name, rewriting.whole(place)], axis=0)
    return rewriting.constant(np.zeros((rewriting.length(rewriting.node.input[0], 1), size), np.float32))


def _lstm(rewriting: Rewriting, x: str, state: list[str], weights: Weights, _: float) -> list[str]:
    recurrence, _bias, size = weights
    hidden, cell = state
    total = rewriting.add(
        "Add", [x, rewriting.add("MatMul", [hidden, rewriting.share("recurrence", recurrence.T)])]
    )
    into, out, forget, new = (rewriting.part(total, k, size) for k in range(4))
    into, out, forget = (rewriting.add("Sigmoid", [gate]) for gate in (into, out, forget))
    remembered = rewriting.add("Mul", [forget, cell])
    cell = rewriting.add("Add", [remembered, rewriting.add("Mul", [into, rewriting.add("Tanh", [new])])])
    return [rewriting.add("Mul", [out, rewriting.add("Tanh", [cell])]), cell]


def _gru(rewriting: Rewriting, x: str, state: list[str], weights: Weights, reset_last: float) -> list[str]:
    recurrence, bias, size = weights
    (hidden,) = state
    two = rewriting.add("MatMul", [hidden, rewriting.share("recurrence", recurrence[: 2 * size].T)])
    two = rewriting.add("Add", [two, rewriting.share("bias", bias[: 2 * size])])
    update, reset = (
        rewriting.add(
            "Sigmoid", [rewriting.add("Add", [rewriting.part(x, k, size), rewriting.part(two, k, size)])]
        )
        for k in (0, 1)
    )
    new = rewriting.share("new", recurrence[2 * size :].T)
    new_bias = rewriting.share("new_bias", bias[2 * size :])
    if reset_last:
        past = rewriting.add(
            "Mul", [reset, rewriting.add("Add", [rewriting.add("MatMul", [hidden, new]), new_bias])]
        )
    else:
        past = rewriting.add(
            "Add", [rewriting.add("MatMul", [rewriting.add("Mul", [reset, hidden]), new]), new_bias]
        )
    fresh = rewriting.add("Tanh", [rewriting.add("Add", [rewriting.part(x, 2, size), past])])
    change = rewriting.add("Mul", [update, rewriting.add("Sub", [hidden, fresh])])
    return [rewriting.add("Add", [fresh, change])]


def _rnn(rewriting: Rewriting, x: str, state: list[str], weights: Weights, _: float) -> list[str]:
    recurrence, _bias, _size = weights
    past = rewriting.add("MatMul", [state[0], rewriting.share("recurrence", recurrence.T)])
    return [rewriting.add("Tanh", [rewriting.add("Add", [x, past])])]


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
