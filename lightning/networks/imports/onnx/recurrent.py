"""LSTM, GRU and RNN step by step: matrices as constant products, gates digital; other operations rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.networks.imports.onnx.scope import MADE, Scope
from lightning.optional import require

Array = npt.NDArray[Any]
MOST_STEPS = 512
"""Longer sequences stay electronic: every step is a product of its own."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
Weights = tuple[Array, Array, int]


class Rewriting:
    """Nodes that stand for one node of the file; constants go into the scope."""

    def __init__(self, scope: Scope, node: Any) -> None:
        self.scope = scope
        self.node = node
        self.nodes: list[Any] = []
        self._made = 0
        self._shared: dict[bytes, str] = {}
        self.given = {attribute.name: attribute for attribute in node.attribute}

    def number(self, name: str, default: float) -> float:
        """Return a number among the attributes of the node."""
        attribute = self.given.get(name)
        return default if attribute is None else float(attribute.i if attribute.type == 2 else attribute.f)

    def wholes(self, name: str, default: Sequence[int]) -> list[int]:
        """Return a list of whole numbers among the attributes of the node."""
        attribute = self.given.get(name)
        return list(default) if attribute is None else [int(each) for each in attribute.ints]

    def text(self, name: str, default: str) -> str:
        """Return a text among the attributes of the node."""
        attribute = self.given.get(name)
        return default if attribute is None else str(attribute.s.decode())

    def length(self, name: str, axis: int = 0) -> int:
        """Return the length of an axis of a tensor."""
        return int(np.asarray(self.scope.array(name)).shape[axis])

    def add(self, operation: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node; the name of its output."""
        helper = require("onnx", "to read ONNX files").helper
        self._made += 1
        name = f"{self.node.name}/{operation.lower()}{self._made}"
        output = output or f"{name}:0"
        self.nodes.append(
            helper.make_node(operation, list(inputs), [output], name=name, doc_string=MADE, **attributes)
        )
        return output

    def constant(self, values: npt.ArrayLike) -> str:
        """Keep a constant; its name."""
        self._made += 1
        name = f"{self.node.name}/constant{self._made}"
        self.scope.known[name] = np.asarray(values, order="C")
        return name

    def share(self, title: str, values: Array) -> str:
        """Keep a constant once, however often it is asked for."""
        key = title.encode() + np.ascontiguousarray(values).tobytes()
        if key not in self._shared:
            self._shared[key] = self.constant(values)
        return self._shared[key]

    def whole(self, values: Any) -> str:
        """Keep whole numbers."""
        array = np.asarray(values, np.int64)
        return self.share(f"whole{array.shape}", array)

    def part(self, tensor: str, place: int, size: int) -> str:
        """Add a slice of the last axis."""
        start, stop = self.whole([place * size]), self.whole([(place + 1) * size])
        return self.add("Slice", [tensor, start, stop, self.whole([-1])])


def transpose_convolution(scope: Scope, node: Any) -> list[Any] | None:
    """Return a ConvTranspose as zeros between the values and a convolution with turned kernels.

    None for one that stays electronic: over other than one or two axes, or with weights that are not constant.
    """
    made = Rewriting(scope, node)
    weights, x = scope.known.get(node.input[1]), scope.array(node.input[0])
    if weights is None or x is None or weights.ndim not in {3, 4} or len(x) != 1:
        return None
    if made.text("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in made.given:
        return None
    sides, group = weights.ndim - 2, int(made.number("group", 1))
    strides, dilations = (made.wholes(name, [1] * sides) for name in ("strides", "dilations"))
    pads, more = made.wholes("pads", [0] * 2 * sides), made.wholes("output_padding", [0] * sides)
    tensor, shape = node.input[0], list(x.shape)
    for axis in range(sides):
        tensor = _spread(made, tensor, axis + 2, shape, strides)
    ends = []
    for axis in range(sides):
        reach = dilations[axis] * (weights.shape[axis + 2] - 1)
        ends.append((reach - pads[axis], reach - pads[axis + sides] + more[axis]))
    tensor = _around(made, tensor, ends)
    turned = np.flip(weights, axis=tuple(range(2, 2 + sides)))
    by_group = turned.reshape(group, weights.shape[0] // group, *weights.shape[1:]).swapaxes(1, 2)
    kernels = by_group.reshape(group * weights.shape[1], weights.shape[0] // group, *weights.shape[2:])
    inputs = [tensor, made.constant(kernels), *node.input[2:]]
    made.add("Conv", inputs, node.output[0], group=group, dilations=dilations)
    return made.nodes


def _spread(made: Rewriting, tensor: str, axis: int, shape: list[int], strides: list[int]) -> str:
    """Put `stride - 1` zeros behind every value along `axis`, and none behind the last; `shape` follows."""
    stride, length = strides[axis - 2], shape[axis]
    if stride == 1:
        return tensor
    apart = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    tensor = made.add("Reshape", [tensor, made.whole(apart)])
    pads = [0] * 2 * len(apart)
    pads[len(apart) + axis + 1] = stride - 1
    tensor = made.add("Pad", [tensor, made.whole(pads)])
    shape[axis] = length * stride
    tensor = made.add("Reshape", [tensor, made.whole(shape)])
    shape[axis] = (length - 1) * stride + 1
    return made.add("Slice", [tensor, made.whole([0]), made.whole([shape[axis]]), made.whole([axis])])


def _around(made: Rewriting, tensor: str, ends: Sequence[tuple[int, int]]) -> str:
    """Add zeros at both ends of the last axes, or cut them where there are less than none."""
    before, after = ([max(end[k], 0) for end in ends] for k in (0, 1))
    if any(before) or any(after):
        tensor = made.add("Pad", [tensor, made.whole([0, 0, *before, 0, 0, *after])])
    for axis, (first, last) in enumerate(ends):
        if first < 0 or last < 0:
            far = np.iinfo(np.int64).max if last >= 0 else last
            span = made.whole([max(-first, 0)]), made.whole([far])
            tensor = made.add("Slice", [tensor, *span, made.whole([axis + 2])])
    return tensor


def recurrent_steps(scope: Scope, node: Any) -> list[Any] | None:
    """Return the nodes that an LSTM, GRU or RNN is made of; None for one that stays electronic."""
    made = Rewriting(scope, node)
    if not _is_usual(scope, node, made):
        return None
    steps, directions = made.length(node.input[0]), len(scope.known[node.input[1]])
    outputs = [_direction(made, place, steps) for place in range(directions)]
    names = [*node.output, "", "", ""]
    if names[0]:
        by_step = [
            made.add("Concat", [hidden[step] for hidden, _ in outputs], axis=0) for step in range(steps)
        ]
        stacked = [made.add("Unsqueeze", [each, made.whole([0])]) for each in by_step]
        made.add("Concat", stacked, names[0], axis=0)
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
            made.add("Concat", lasts, name, axis=0)
    return made.nodes


def _order_directions(node: Any, outputs: Sequence[Any]) -> Sequence[Any]:
    """Return the directions; a single reverse one counts as the second."""
    return (
        outputs
        if _direction_of(node) != "reverse"
        else [(list(reversed(hidden)), cell) for hidden, cell in outputs]
    )


def _direction_of(node: Any) -> str:
    return next((a.s.decode() for a in node.attribute if a.name == "direction"), "forward")


def _is_usual(scope: Scope, node: Any, made: Rewriting) -> bool:
    """Return whether this is the form that frameworks export."""
    names = [*node.input, *[""] * 8]
    if not all(names[place] in scope.known for place in (1, 2)) or not scope.is_known(names[3]):
        return False
    x = scope.array(names[0])
    if x is None or x.ndim != 3 or len(x) > MOST_STEPS or made.number("layout", 0) or names[7]:
        return False
    lengths = scope.known.get(names[4])
    if names[4] and (lengths is None or np.any(lengths != len(x))):
        return False
    given = {a.name: a for a in node.attribute}
    directions = len(scope.known[names[1]])
    usual = [each.lower() for each in _DEFAULTS[node.op_type] * directions]
    if "activations" in given and [each.decode().lower() for each in given["activations"].strings] != usual:
        return False
    return not ({"clip", "activation_alpha", "activation_beta"} & given.keys()) and not made.number(
        "input_forget", 0
    )


def _direction(made: Rewriting, place: int, steps: int) -> tuple[list[str], str]:
    """Add one direction; the hidden states (1, batch, size) in the order of time, and the last cell."""
    node, scope = made.node, made.scope
    names = [*node.input, *[""] * 8]
    gates = _GATES[node.op_type]
    weights, recurrence = (np.asarray(scope.known[names[k]][place], np.float32) for k in (1, 2))
    size = recurrence.shape[1]
    bias = scope.known[names[3]][place] if names[3] else np.zeros(2 * gates * size, np.float32)
    reset = made.number("linear_before_reset", 0)
    ours, theirs = np.split(np.asarray(bias, np.float32), 2)
    if node.op_type != "GRU":
        ours, theirs = ours + theirs, 0 * theirs
    product = made.add("MatMul", [names[0], made.constant(weights.T)])
    product = made.add("Add", [product, made.constant(ours)])
    state = [_start(made, names[5 + k], place, size) for k in range(2 if node.op_type == "LSTM" else 1)]
    backwards = place == 1 or _direction_of(node) == "reverse"
    hidden = [""] * steps
    for step in reversed(range(steps)) if backwards else range(steps):
        x = made.add("Gather", [product, made.whole(step)], axis=0)
        state = _STEPS[node.op_type](made, x, state, (recurrence, theirs, size), reset)
        hidden[step] = made.add("Unsqueeze", [state[0], made.whole([0])])
    cell = made.add("Unsqueeze", [state[1], made.whole([0])]) if len(state) > 1 else ""
    return hidden, cell


def _start(made: Rewriting, name: str, place: int, size: int) -> str:
    if name:
        return made.add("Gather", [name, made.whole(place)], axis=0)
    return made.constant(np.zeros((made.length(made.node.input[0], 1), size), np.float32))


def _lstm(made: Rewriting, x: str, state: list[str], weights: Weights, _: float) -> list[str]:
    recurrence, _bias, size = weights
    hidden, cell = state
    total = made.add("Add", [x, made.add("MatMul", [hidden, made.share("recurrence", recurrence.T)])])
    into, out, forget, new = (made.part(total, k, size) for k in range(4))
    into, out, forget = (made.add("Sigmoid", [gate]) for gate in (into, out, forget))
    kept = made.add("Mul", [forget, cell])
    cell = made.add("Add", [kept, made.add("Mul", [into, made.add("Tanh", [new])])])
    return [made.add("Mul", [out, made.add("Tanh", [cell])]), cell]


def _gru(made: Rewriting, x: str, state: list[str], weights: Weights, reset_last: float) -> list[str]:
    recurrence, bias, size = weights
    (hidden,) = state
    two = made.add("MatMul", [hidden, made.share("recurrence", recurrence[: 2 * size].T)])
    two = made.add("Add", [two, made.share("bias", bias[: 2 * size])])
    update, reset = (
        made.add("Sigmoid", [made.add("Add", [made.part(x, k, size), made.part(two, k, size)])])
        for k in (0, 1)
    )
    new = made.share("new", recurrence[2 * size :].T)
    new_bias = made.share("new_bias", bias[2 * size :])
    if reset_last:
        past = made.add("Mul", [reset, made.add("Add", [made.add("MatMul", [hidden, new]), new_bias])])
    else:
        past = made.add("Add", [made.add("MatMul", [made.add("Mul", [reset, hidden]), new]), new_bias])
    fresh = made.add("Tanh", [made.add("Add", [made.part(x, 2, size), past])])
    change = made.add("Mul", [update, made.add("Sub", [hidden, fresh])])
    return [made.add("Add", [fresh, change])]


def _rnn(made: Rewriting, x: str, state: list[str], weights: Weights, _: float) -> list[str]:
    recurrence, _bias, _size = weights
    past = made.add("MatMul", [state[0], made.share("recurrence", recurrence.T)])
    return [made.add("Tanh", [made.add("Add", [x, past])])]


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
