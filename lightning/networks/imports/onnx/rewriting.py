"""Operations of ONNX written as others that light has a part in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.networks.imports.onnx.scope import MADE, Scope
from lightning.optional import needed

Array = npt.NDArray[Any]


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
        helper = needed("onnx", "to read ONNX files").helper
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

    def shared(self, title: str, values: Array) -> str:
        """Keep a constant once, however often it is asked for."""
        key = title.encode() + np.ascontiguousarray(values).tobytes()
        if key not in self._shared:
            self._shared[key] = self.constant(values)
        return self._shared[key]

    def whole(self, values: Any) -> str:
        """Keep whole numbers."""
        array = np.asarray(values, np.int64)
        return self.shared(f"whole{array.shape}", array)

    def part(self, tensor: str, place: int, size: int) -> str:
        """Add a slice of the last axis."""
        start, stop = self.whole([place * size]), self.whole([(place + 1) * size])
        return self.add("Slice", [tensor, start, stop, self.whole([-1])])


def transposed_convolution(scope: Scope, node: Any) -> list[Any] | None:
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
