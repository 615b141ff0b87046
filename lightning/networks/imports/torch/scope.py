"""The context of one torch call during translation: its name, and the network so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning.errors import UnsupportedNode
from lightning.networks.operations.builder import BATCH_LENGTH, Builder, Call
from lightning.networks.operations.operation_list import translate


@dataclass(frozen=True)
class Tensor:
    """An activation, by the name of its tensor in the `Builder`."""

    name: str


@dataclass(frozen=True)
class Scope:
    """One call of a function or a layer of torch."""

    builder: Builder
    name: str
    operation: str

    def make_error(self, problem: str, hint: str = "Write it in another way") -> UnsupportedNode:
        """Return the error for a call that cannot be translated."""
        return UnsupportedNode(f"node {self.name} (torch {self.operation}) {problem}", hint=hint)

    def get_shape(self, x: Tensor) -> tuple[int, ...]:
        """Return the shape with the batch axis, whose length is `BATCH_LENGTH`."""
        return (BATCH_LENGTH, *self.builder.shapes[x.name])

    def normalise_axis(self, x: Tensor, axis: int, new_axes: int = 0) -> int:
        """Return a possibly negative axis as an index from the front, among the axes of `x` and `new_axes` new axes."""
        return axis % (len(self.get_shape(x)) + new_axes)

    def add(self, operation: str, inputs: Sequence[Any], part: str = "", /, **attributes: Any) -> Tensor:
        """Add an ONNX operation. Inputs are activations, torch tensors, numbers, or None if omitted."""
        return self.add_several(operation, inputs, part, 1, attributes)[0]

    def add_several(
        self,
        operation: str,
        inputs: Sequence[Any],
        part: str,
        output_count: int,
        attributes: Mapping[str, Any],
    ) -> tuple[Tensor, ...]:
        """Add an ONNX operation with several outputs."""
        name = f"{self.name}/{part}" if part else self.name
        names = tuple(self._require_tensor(value, f"{name}.{index}") for index, value in enumerate(inputs))
        return tuple(
            map(Tensor, translate(self.builder, Call(name, operation, names, dict(attributes), output_count)))
        )

    def _require_tensor(self, value: Any, name: str) -> str:
        if value is None:
            return ""
        if isinstance(value, Tensor):
            return value.name
        array = value.detach().cpu() if hasattr(value, "detach") else np.asarray(value)
        if array.ndim and array.shape[0] == BATCH_LENGTH:  # a view that repeats one entry for every image
            array = array[:1]
        return self.builder.add_constant(np.asarray(array), name)


def count_spatial_axes(scope: Scope, x: Tensor) -> int:
    """Return the number of spatial axes, over which a window moves."""
    return len(scope.get_shape(x)) - 2


def list_sizes(value: Any, axis_count: int) -> list[int | None]:
    """Return a sequence as a list, or a single number repeated for every axis."""
    numbers = list(value) if isinstance(value, (tuple, list)) else [value]
    return numbers * axis_count if len(numbers) == 1 else numbers


def repeat_per_axis(value: Any, axis_count: int) -> list[int]:
    """Return the numbers of `list_sizes` as integers."""
    return [int(number or 0) for number in list_sizes(value, axis_count)]
