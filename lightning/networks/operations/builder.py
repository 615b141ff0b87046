"""A network under construction: nodes in canonical form. Shapes result from computing an empty batch."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError, UnsupportedNode
from lightning.networks.network import MAX_ACTIVATION_SIZE, Node

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]
Computation = Callable[[Sequence[Array], Attributes], Array]

BATCH_LENGTH = (1 << 31) - 1
"""Placeholder for the number of images in computed shapes: a prime that is a factor of no real shape."""


@dataclass(frozen=True)
class Call:
    """One call of an ONNX operation. `inputs` name tensors of a `Builder`, "" if omitted."""

    name: str
    operation: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    output_count: int = 1
    domain: str = ""
    opset: int = 21

    @property
    def description(self) -> str:
        """The node's name and operation, for messages."""
        operation = f"{self.domain}::{self.operation}" if self.domain else self.operation
        return f"node {self.name} ({operation}, opset {self.opset or 'undeclared'})"

    def make_error(self, problem: str, hint: str = "Check the export of this node") -> UnsupportedNode:
        """Return the error for a node that cannot be translated."""
        return UnsupportedNode(f"{self.description} {problem}", hint=hint)

    def get_input_name(self, index: int) -> str:
        """Return the name of an input, "" if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def read_number(self, name: str, default: float) -> float:
        """Return a float attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, (int, float)):
            raise self.make_error(f"has {name} = {value!r}", "Give a number")
        return float(value)

    def read_integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        return int(self.read_number(name, default))

    def read_integers(self, name: str, default: Sequence[int], minimum: int = 0) -> tuple[int, ...]:
        """Return an attribute of integers, as many as in `default`, each `minimum` or more.

        Raise `UnsupportedNode` for anything else.
        """
        value = self.attributes.get(name, default)
        numbers = tuple(value) if isinstance(value, (list, tuple)) else ()
        is_valid = len(numbers) == len(default) and all(isinstance(n, int) and n >= minimum for n in numbers)
        if not is_valid:
            raise self.make_error(
                f"has {name} = {value!r}", f"Give {len(default)} numbers of at least {minimum}"
            )
        return numbers


@dataclass
class Builder:
    """A network under construction. `is_batched` is true for a symbolic batch axis, false for a batch of 1.

    `compute_node` computes a node, like `operation_list.compute_node`. The builder uses it to find shapes.
    """

    compute_node: Callable[[Node, Mapping[str, Array], Mapping[str, Array]], Array]
    is_batched: bool = True
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add_constant(self, array: npt.ArrayLike, name: str) -> str:
        """Add a constant, floats as float32, and return its name: `name`, with a suffix if already in use."""
        constant = np.asarray(array)
        if constant.dtype.kind == "f" or constant.dtype.name == "bfloat16":
            constant = constant.astype(np.float32)
        unique_name = self._make_unique(name, self._list_names())
        self.constants[unique_name] = np.asarray(constant, order="C")
        return unique_name

    def add_input(self, name: str, shape: Sequence[int]) -> str:
        """Declare the network's input."""
        self.shapes[name] = self._check_shape(name, tuple(shape))
        return name

    def emit(
        self, operation: str, inputs: Sequence[str], name: str, attributes: Mapping[str, Any] | None = None
    ) -> str:
        """Add a node in canonical form, and return the name of its output.

        Raise `NetworkError` if the output's shape is empty or too large.
        """
        unique_name = self._make_unique(name, {node.name for node in self.nodes})
        output = self._make_unique(unique_name, self._list_names())
        node = Node(unique_name, operation, tuple(inputs), output, dict(attributes or {}))
        self.shapes[output] = self._check_shape(unique_name, self.infer_shape(node))
        self.nodes.append(node)
        return output

    def infer_shape(self, node: Node) -> tuple[int, ...]:
        """Return the shape of one image after `node`. Compute an empty batch to find it."""
        empty = {
            name: np.zeros((0, *shape), np.float32)
            for name, shape in self.shapes.items()
            if name in node.inputs
        }
        result = self.compute_node(node, empty, self.constants)
        if result.ndim == 0 or result.shape[0] != 0:
            raise NetworkError(
                f"node {node.name} ({node.operation}) loses the batch axis",
                hint="Keep the batch axis in front",
            )
        return result.shape[1:]

    def reshape(self, tensor: str, shape: Sequence[int], name: str) -> str:
        """Reshape each image of `tensor` and return the result's name, or `tensor` if it already has this shape."""
        target_shape = tuple(int(size) for size in shape)
        if target_shape == self.shapes[tensor]:
            return tensor
        if prod(target_shape) != prod(self.shapes[tensor]) or min(target_shape, default=1) < 1:
            raise NetworkError(
                f"node {name}: images of shape {self.shapes[tensor]} cannot be reshaped to {target_shape}"
            )
        return self.emit("Reshape", [tensor], name, {"shape": target_shape})

    def is_constant(self, tensor: str) -> bool:
        """Return whether a tensor is constant."""
        return tensor in self.constants

    def get_rank(self, tensor: str) -> int:
        """Return the number of axes, including the batch axis."""
        return len(self.shapes[tensor]) + 1

    def require_activation(self, call: Call, index: int = 0) -> str:
        """Return an input that depends on the image. Raise `UnsupportedNode` if it is missing or constant."""
        tensor = call.get_input_name(index)
        if tensor in self.shapes:
            return tensor
        raise call.make_error(f"needs an activation as input {index}, not {tensor or 'nothing'}")

    def require_constant(self, call: Call, index: int) -> Array:
        """Return a constant input. Raise `UnsupportedNode` if it is missing or depends on the image."""
        tensor = call.get_input_name(index)
        if tensor in self.constants:
            return self.constants[tensor]
        problem = "depends on the image" if tensor else "is missing"
        raise call.make_error(
            f"needs a constant as input {index}, which {problem}", "Export it with constant folding"
        )

    def find_constant(self, call: Call, index: int) -> Array | None:
        """Return a constant input, or None if it is omitted. Raise `UnsupportedNode` if it depends on the image."""
        return self.require_constant(call, index) if call.get_input_name(index) else None

    def normalise_axis(self, call: Call, axis: int, rank: int) -> int:
        """Return `axis` as an index from the front. Raise `UnsupportedNode` for the batch axis or an invalid axis."""
        positive_axis = axis + rank if axis < 0 else axis
        if not 0 <= positive_axis < rank:
            raise call.make_error(f"uses axis {axis}, but the tensor has axes 0 to {rank - 1}")
        if positive_axis == 0:
            raise call.make_error("works across images, along the batch axis", "Keep images apart")
        return positive_axis

    def add_note(self, sentence: str) -> None:
        """Add a note about a change, for the user."""
        self.notes.append(sentence)

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if min(shape, default=1) < 1 or prod(shape) > MAX_ACTIVATION_SIZE:
            raise NetworkError(
                f"{name}: an activation cannot have the shape {shape}", hint="Check the shapes"
            )
        return shape

    def _list_names(self) -> Container[str]:
        return self.constants.keys() | self.shapes.keys()

    @staticmethod
    def _make_unique(name: str, used_names: Container[str]) -> str:
        unique_name, number = name, 1
        while unique_name in used_names:
            number += 1
            unique_name = f"{name}_{number}"
        return unique_name


@dataclass(frozen=True)
class Operator:
    """An ONNX operation.

    `translator` adds the nodes of a call to a builder and returns the names of its outputs. `computation` returns the
    float32 result of a node from its inputs and attributes. It is None if `translator` uses only other operations.
    Activations have the batch axis in front. Computing an empty batch shows the output shape, so there are no separate
    rules for shapes.
    """

    translator: Callable[[Builder, Call], str | tuple[str, ...]]
    computation: Computation | None = None
