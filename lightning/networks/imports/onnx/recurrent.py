"""Rewriting of LSTM, GRU, RNN and ConvTranspose as products with constant matrices, and electronic gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lightning.networks.imports.onnx.scope import REWRITTEN_DOC_STRING, Scope
from lightning.optional import require

Array = npt.NDArray[Any]
MAX_STEPS = 512
"""Longer sequences stay electronic, because every step adds its own product."""
_GATE_COUNTS = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULT_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


class StepWeights(NamedTuple):
    """Recurrent weights of all gates, their recurrent bias, and the number of hidden values."""

    recurrent_weights: Array
    recurrent_bias: Array
    hidden_size: int


class NodeReplacement:
    """The nodes that replace one node of the file. Their constants go to the scope."""

    def __init__(self, scope: Scope, node: Any) -> None:
        self.scope = scope
        self.node = node
        self.nodes: list[Any] = []
        self._constant_count = 0
        self._name_by_content: dict[bytes, str] = {}
        self.attributes = {attribute.name: attribute for attribute in node.attribute}

    def read_number(self, name: str, default: float) -> float:
        """Return a number attribute of the node."""
        attribute = self.attributes.get(name)
        return default if attribute is None else float(attribute.i if attribute.type == 2 else attribute.f)

    def read_integers(self, name: str, default: Sequence[int]) -> list[int]:
        """Return a list attribute of the node, of integers."""
        attribute = self.attributes.get(name)
        return list(default) if attribute is None else [int(integer) for integer in attribute.ints]

    def read_text(self, name: str, default: str) -> str:
        """Return a string attribute of the node."""
        attribute = self.attributes.get(name)
        return default if attribute is None else str(attribute.s.decode())

    def read_length(self, name: str, axis: int = 0) -> int:
        """Return the length of an axis of a tensor."""
        return int(np.asarray(self.scope.get_constant_or_example(name)).shape[axis])

    def add(self, operation: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        helper = require("onnx", "to read ONNX files").helper
        self._constant_count += 1
        name = f"{self.node.name}/{operation.lower()}{self._constant_count}"
        output = output or f"{name}:0"
        self.nodes.append(
            helper.make_node(
                operation, list(inputs), [output], name=name, doc_string=REWRITTEN_DOC_STRING, **attributes
            )
        )
        return output

    def add_constant(self, values: npt.ArrayLike) -> str:
        """Add a constant and return its name."""
        self._constant_count += 1
        name = f"{self.node.name}/constant{self._constant_count}"
        self.scope.constants[name] = np.asarray(values, order="C")
        return name

    def share_constant(self, label: str, values: Array) -> str:
        """Return the name of a constant. Equal constants are added only once."""
        key = label.encode() + np.ascontiguousarray(values).tobytes()
        if key not in self._name_by_content:
            self._name_by_content[key] = self.add_constant(values)
        return self._name_by_content[key]

    def share_integers(self, values: Any) -> str:
        """Return the name of a shared constant of integers."""
        array = np.asarray(values, np.int64)
        return self.share_constant(f"whole{array.shape}", array)

    def add_slice(self, tensor: str, index: int, size: int) -> str:
        """Add a slice of the last axis, number `index` of the slices of length `size`; return its name."""
        start, stop = self.share_integers([index * size]), self.share_integers([(index + 1) * size])
        return self.add("Slice", [tensor, start, stop, self.share_integers([-1])])


def rewrite_conv_transpose(scope: Scope, node: Any) -> list[Any] | None:
    """Return nodes that replace a ConvTranspose: they insert zeros between values, then convolve with flipped kernels.

    Return None if the node stays electronic, because it has more than two spatial axes, more than one sample, variable
    weights, `auto_pad` or `output_shape`.
    """
    replacement = NodeReplacement(scope, node)
    weights, x = scope.constants.get(node.input[1]), scope.get_constant_or_example(node.input[0])
    if weights is None or x is None or weights.ndim not in {3, 4} or len(x) != 1:
        return None
    if replacement.read_text("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in replacement.attributes:
        return None
    axis_count, group_count = weights.ndim - 2, int(replacement.read_number("group", 1))
    strides, dilations = (
        replacement.read_integers(name, [1] * axis_count) for name in ("strides", "dilations")
    )
    pads, extra_ends = (
        replacement.read_integers("pads", [0] * 2 * axis_count),
        replacement.read_integers("output_padding", [0] * axis_count),
    )
    tensor, shape = node.input[0], list(x.shape)
    for axis in range(axis_count):
        tensor = _insert_zeros(replacement, tensor, axis + 2, shape, strides)
    paddings = []
    for axis in range(axis_count):
        overlap = dilations[axis] * (weights.shape[axis + 2] - 1)
        paddings.append((overlap - pads[axis], overlap - pads[axis + axis_count] + extra_ends[axis]))
    tensor = _pad_or_crop(replacement, tensor, paddings)
    flipped_kernels = np.flip(weights, axis=tuple(range(2, 2 + axis_count)))
    kernels_by_group = flipped_kernels.reshape(
        group_count, weights.shape[0] // group_count, *weights.shape[1:]
    ).swapaxes(1, 2)
    kernels = kernels_by_group.reshape(
        group_count * weights.shape[1], weights.shape[0] // group_count, *weights.shape[2:]
    )
    inputs = [tensor, replacement.add_constant(kernels), *node.input[2:]]
    replacement.add("Conv", inputs, node.output[0], group=group_count, dilations=dilations)
    return replacement.nodes


def _insert_zeros(
    replacement: NodeReplacement, tensor: str, axis: int, shape: list[int], strides: list[int]
) -> str:
    """Insert `stride - 1` zeros between the values along `axis`, and update `shape`."""
    stride, length = strides[axis - 2], shape[axis]
    if stride == 1:
        return tensor
    widened_shape = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    tensor = replacement.add("Reshape", [tensor, replacement.share_integers(widened_shape)])
    pads = [0] * 2 * len(widened_shape)
    pads[len(widened_shape) + axis + 1] = stride - 1
    tensor = replacement.add("Pad", [tensor, replacement.share_integers(pads)])
    shape[axis] = length * stride
    tensor = replacement.add("Reshape", [tensor, replacement.share_integers(shape)])
    shape[axis] = (length - 1) * stride + 1
    bounds = [replacement.share_integers([number]) for number in (0, shape[axis], axis)]
    return replacement.add("Slice", [tensor, *bounds])


def _pad_or_crop(replacement: NodeReplacement, tensor: str, paddings: Sequence[tuple[int, int]]) -> str:
    """Pad both ends of the last axes with zeros, or crop them for negative counts."""
    pads_before, pads_after = ([max(end[side], 0) for end in paddings] for side in (0, 1))
    if any(pads_before) or any(pads_after):
        tensor = replacement.add(
            "Pad", [tensor, replacement.share_integers([0, 0, *pads_before, 0, 0, *pads_after])]
        )
    for axis, (start_padding, end_padding) in enumerate(paddings):
        if start_padding < 0 or end_padding < 0:
            stop = np.iinfo(np.int64).max if end_padding >= 0 else end_padding
            span = (
                replacement.share_integers([max(-start_padding, 0)]),
                replacement.share_integers([stop]),
            )
            tensor = replacement.add("Slice", [tensor, *span, replacement.share_integers([axis + 2])])
    return tensor


def rewrite_recurrent(scope: Scope, node: Any) -> list[Any] | None:
    """Return the nodes that replace an LSTM, GRU or RNN, or None if the node stays electronic."""
    replacement = NodeReplacement(scope, node)
    if not _is_supported(scope, node, replacement):
        return None
    step_count, direction_count = replacement.read_length(node.input[0]), len(scope.constants[node.input[1]])
    direction_outputs = [
        _add_direction(replacement, direction, step_count) for direction in range(direction_count)
    ]
    names = [*node.output, "", "", ""]
    if names[0]:
        step_outputs = [
            replacement.add("Concat", [hidden[step] for hidden, _ in direction_outputs], axis=0)
            for step in range(step_count)
        ]
        stacked = [
            replacement.add("Unsqueeze", [step_output, replacement.share_integers([0])])
            for step_output in step_outputs
        ]
        replacement.add("Concat", stacked, names[0], axis=0)
    for name, last_states in (
        (
            names[1],
            [
                # The reverse direction ends at the first step.
                hidden[-1 if direction == 0 else 0]
                for direction, (hidden, _) in enumerate(_order_directions(node, direction_outputs))
            ],
        ),
        (names[2], [cell for _, cell in direction_outputs]),
    ):
        if name:
            replacement.add("Concat", last_states, name, axis=0)
    return replacement.nodes


def _order_directions(node: Any, direction_outputs: Sequence[Any]) -> Sequence[Any]:
    """Return the outputs. Reverse the states of a single reverse direction, so that the last state comes last."""
    return (
        direction_outputs
        if _read_direction(node) != "reverse"
        else [(list(reversed(hidden)), cell) for hidden, cell in direction_outputs]
    )


def _read_direction(node: Any) -> str:
    return next(
        (attribute.s.decode() for attribute in node.attribute if attribute.name == "direction"), "forward"
    )


def _is_supported(scope: Scope, node: Any, replacement: NodeReplacement) -> bool:
    """Return whether a node has the attributes that exporters set, constant weights and full-length sequences."""
    # The inputs are X, W, R, B, sequence_lens, initial_h, initial_c and, of an LSTM, the peepholes P.
    input_names = [*node.input, *[""] * 8]
    if not all(input_names[index] in scope.constants for index in (1, 2)) or not scope.is_omitted_or_constant(
        input_names[3]
    ):
        return False
    x = scope.get_constant_or_example(input_names[0])
    if (
        x is None
        or x.ndim != 3
        or len(x) > MAX_STEPS
        or replacement.read_number("layout", 0)
        or input_names[7]
    ):
        return False
    lengths = scope.constants.get(input_names[4])
    if input_names[4] and (lengths is None or np.any(lengths != len(x))):
        return False
    attributes = {attribute.name: attribute for attribute in node.attribute}
    direction_count = len(scope.constants[input_names[1]])
    default_activations = [
        activation.lower() for activation in _DEFAULT_ACTIVATIONS[node.op_type] * direction_count
    ]
    if (
        "activations" in attributes
        and [activation.decode().lower() for activation in attributes["activations"].strings]
        != default_activations
    ):
        return False
    return not (
        {"clip", "activation_alpha", "activation_beta"} & attributes.keys()
    ) and not replacement.read_number("input_forget", 0)


def _add_direction(replacement: NodeReplacement, direction: int, step_count: int) -> tuple[list[str], str]:
    """Add one direction; return its hidden states (1, batch, size) in time order, and the last cell state."""
    node, scope = replacement.node, replacement.scope
    input_names = [*node.input, *[""] * 8]
    gate_count = _GATE_COUNTS[node.op_type]
    input_weights, recurrent_weights = (
        np.asarray(scope.constants[input_names[index]][direction], np.float32) for index in (1, 2)
    )
    hidden_size = recurrent_weights.shape[1]
    bias = (
        scope.constants[input_names[3]][direction]
        if input_names[3]
        else np.zeros(2 * gate_count * hidden_size, np.float32)
    )
    linear_before_reset = replacement.read_number("linear_before_reset", 0)
    input_bias, recurrent_bias = np.split(np.asarray(bias, np.float32), 2)
    if node.op_type != "GRU":
        input_bias, recurrent_bias = input_bias + recurrent_bias, 0 * recurrent_bias
    product = replacement.add("MatMul", [input_names[0], replacement.add_constant(input_weights.T)])
    product = replacement.add("Add", [product, replacement.add_constant(input_bias)])
    state_tensors = [
        _add_initial_state(replacement, input_names[5 + index], direction, hidden_size)
        for index in range(2 if node.op_type == "LSTM" else 1)
    ]
    is_backwards = direction == 1 or _read_direction(node) == "reverse"
    hidden_states = [""] * step_count
    for step in reversed(range(step_count)) if is_backwards else range(step_count):
        input_sums = replacement.add("Gather", [product, replacement.share_integers(step)], axis=0)
        state_tensors = _STEP_FUNCTIONS[node.op_type](
            replacement,
            input_sums,
            state_tensors,
            StepWeights(recurrent_weights, recurrent_bias, hidden_size),
            linear_before_reset,
        )
        hidden_states[step] = replacement.add(
            "Unsqueeze", [state_tensors[0], replacement.share_integers([0])]
        )
    cell = (
        replacement.add("Unsqueeze", [state_tensors[1], replacement.share_integers([0])])
        if len(state_tensors) > 1
        else ""
    )
    return hidden_states, cell


def _add_initial_state(replacement: NodeReplacement, name: str, direction: int, hidden_size: int) -> str:
    if name:
        return replacement.add("Gather", [name, replacement.share_integers(direction)], axis=0)
    return replacement.add_constant(
        np.zeros((replacement.read_length(replacement.node.input[0], 1), hidden_size), np.float32)
    )


def _step_lstm(
    replacement: NodeReplacement, input_sums: str, state: list[str], weights: StepWeights, _: float
) -> list[str]:
    recurrent_weights, _bias, hidden_size = weights
    hidden, cell = state
    gate_sums = replacement.add(
        "Add",
        [
            input_sums,
            replacement.add(
                "MatMul", [hidden, replacement.share_constant("recurrence", recurrent_weights.T)]
            ),
        ],
    )
    # ONNX orders the gates of an LSTM as input, output, forget, cell.
    input_gate, output_gate, forget_gate, new_state = (
        replacement.add_slice(gate_sums, index, hidden_size) for index in range(4)
    )
    input_gate, output_gate, forget_gate = (
        replacement.add("Sigmoid", [gate]) for gate in (input_gate, output_gate, forget_gate)
    )
    kept_cell = replacement.add("Mul", [forget_gate, cell])
    cell = replacement.add(
        "Add", [kept_cell, replacement.add("Mul", [input_gate, replacement.add("Tanh", [new_state])])]
    )
    return [replacement.add("Mul", [output_gate, replacement.add("Tanh", [cell])]), cell]


def _step_gru(
    replacement: NodeReplacement,
    input_sums: str,
    state: list[str],
    weights: StepWeights,
    linear_before_reset: float,
) -> list[str]:
    recurrent_weights, recurrent_bias, hidden_size = weights
    (hidden,) = state
    gate_sums = replacement.add(
        "MatMul", [hidden, replacement.share_constant("recurrence", recurrent_weights[: 2 * hidden_size].T)]
    )
    gate_sums = replacement.add(
        "Add", [gate_sums, replacement.share_constant("bias", recurrent_bias[: 2 * hidden_size])]
    )
    update_gate, reset_gate = (
        replacement.add(
            "Sigmoid",
            [
                replacement.add(
                    "Add",
                    [
                        replacement.add_slice(input_sums, index, hidden_size),
                        replacement.add_slice(gate_sums, index, hidden_size),
                    ],
                )
            ],
        )
        for index in (0, 1)
    )
    candidate_weights = replacement.share_constant("new", recurrent_weights[2 * hidden_size :].T)
    new_bias = replacement.share_constant("new_bias", recurrent_bias[2 * hidden_size :])
    if linear_before_reset:
        reset_product = replacement.add(
            "Mul",
            [
                reset_gate,
                replacement.add("Add", [replacement.add("MatMul", [hidden, candidate_weights]), new_bias]),
            ],
        )
    else:
        reset_product = replacement.add(
            "Add",
            [
                replacement.add("MatMul", [replacement.add("Mul", [reset_gate, hidden]), candidate_weights]),
                new_bias,
            ],
        )
    candidate_state = replacement.add(
        "Tanh", [replacement.add("Add", [replacement.add_slice(input_sums, 2, hidden_size), reset_product])]
    )
    kept_state = replacement.add("Mul", [update_gate, replacement.add("Sub", [hidden, candidate_state])])
    return [replacement.add("Add", [candidate_state, kept_state])]


def _step_rnn(
    replacement: NodeReplacement, input_sums: str, state: list[str], weights: StepWeights, _: float
) -> list[str]:
    recurrent_weights, _bias, _size = weights
    recurrent_part = replacement.add(
        "MatMul", [state[0], replacement.share_constant("recurrence", recurrent_weights.T)]
    )
    return [replacement.add("Tanh", [replacement.add("Add", [input_sums, recurrent_part])])]


_STEP_FUNCTIONS = {"LSTM": _step_lstm, "GRU": _step_gru, "RNN": _step_rnn}
