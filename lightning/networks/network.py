"""A trained network: nodes in the order of execution, constants, one input and one output.

Tensors have a leading batch axis, which `shapes` omit. Operations have ONNX's names (https://onnx.ai/onnx/operators),
in a canonical form:

- `Gemm`: activations (..., k), weights (rows, k), bias (rows,) or none.
- `Conv`: activations (channels, height, width), weights (rows, channels / groups, kh, kw), bias (rows,) or none;
  attributes `strides` (2), `pads` (top, left, bottom, right), `dilations` (2), `groups`.
- `MaxPool`, `AveragePool`: attributes `kernel` (2), `strides`, `pads`, `dilations`, `count_include_pad`, and `excess`
  (bottom, right), the extra padding of `ceil_mode`. A mean never includes `excess`.
- `Add`, `Mul`, `MatMul`: two tensors. Each may be a constant.
- `Reshape`: attribute `shape`, without the batch axis. `Slice`: `axis`, `start`, `stop` (or None), `step`. `Pad`:
  `value`, and `pads`: a pair (before, after) for each axis. `Clip`: `min`, `max`. `Gather`: the indices are constant.
  `Concat`: constants have a batch axis of length 1.
- `Electronic`: any other operation of ONNX, computed sample by sample; see `electronic`.
- `Relu`, `LeakyRelu`, `Gelu`, `Softmax`, `LayerNormalization`, `Flatten`, ...: attributes as in ONNX, axes counted with
  the batch axis as axis 0, and never negative. `operations` says what each means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MAX_ACTIVATION_SIZE = 1 << 28
"""Maximum number of entries in one activation of one image. A file with more counts as damaged."""
PHOTONIC_OPERATIONS = frozenset({"Gemm", "Conv"})
"""Operations with constant weights. They are photonic; all others are digital."""


@dataclass(frozen=True)
class Preprocessing:
    """Conversion of raw data to network inputs: (raw * scale - mean) / deviation.

    This applies to raw data of every type. `mean` and `deviation` have one entry, or one per channel (or feature).
    `layout` describes the raw data: "as-is", or "HWC", which is transposed to channels first.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    layout: str = "as-is"


@dataclass(frozen=True)
class Node:
    """One operation. `inputs` name activations or constants."""

    name: str
    operation: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Port:
    """An input or output of the file, with all its axes."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)


@dataclass(frozen=True)
class Network:
    """An imported network. Nodes are in topological order."""

    name: str
    nodes: tuple[Node, ...]
    constants: Mapping[str, npt.NDArray[Any]]
    input: str
    output: str
    shapes: Mapping[str, tuple[int, ...]]
    """Shape of every tensor of activations, without the batch axis."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    notes: tuple[str, ...] = ()
    """Changes that the importer made, for example "BatchNormalization bn1 folded into Conv conv1"."""
    inputs: tuple[Port, ...] = ()
    """Inputs of a file with fixed shapes; several are concatenated in `input`."""
    outputs: tuple[Port, ...] = ()
    """Outputs of a file with fixed shapes; several are concatenated in `output`."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch axis."""
        return self.shapes[self.input]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one output, without the batch axis."""
        return self.shapes[self.output]

    def find_last_uses(self, retained: Collection[str] = ()) -> Iterator[tuple[Node, frozenset[str]]]:
        """Yield every node with the tensors that no later node reads. Callers free these to limit memory.

        The output and the `retained` tensors are never among them.
        """
        last_index = {name: index for index, node in enumerate(self.nodes) for name in node.inputs}
        never_freed = {self.output, *retained}
        for index, node in enumerate(self.nodes):
            yield (
                node,
                frozenset(
                    name for name in node.inputs if last_index[name] == index and name not in never_freed
                ),
            )
