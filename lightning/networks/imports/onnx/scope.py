"""The state while a file's graph is traced: constants, tensors of the network, and their examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from lightning.networks.operations.builder import Builder
from lightning.networks.operations.operation_list import compute_node

Array = npt.NDArray[Any]

REWRITTEN_DOC_STRING = "written as other operations"
"""Marks nodes that replace a node of the file. They use the opset `REWRITTEN_OPSET`."""
REWRITTEN_OPSET = 21


@dataclass(frozen=True)
class DynamicTensor:
    """A tensor that depends on the inputs."""

    tensor: str
    """Name in the builder. A first axis of length 1 is the batch axis there."""
    shape: tuple[int, ...]
    """Shape in ONNX, with all axes."""
    dtype: str


def get_sample_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one sample: without the first axis if its length is 1, else unchanged."""
    return tuple(shape[1:] if tuple(shape[:1]) == (1,) else shape)


@dataclass
class Scope:
    """Constants, tensors and examples during a trace."""

    folder: Path
    opsets: Mapping[str, int]
    builder: Builder = field(default_factory=lambda: Builder(compute_node, is_batched=False))
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, DynamicTensor] = field(default_factory=dict)
    example_by_name: dict[str, Array] = field(default_factory=dict)
    constant_names: dict[str, str] = field(default_factory=dict)
    input_names: set[str] = field(default_factory=set)
    """Names of the inputs."""
    node_outputs: set[str] = field(default_factory=set)
    """Names of the tensors that the file's nodes produce, without tensors inside branches."""

    def find_opset(self, node: Any) -> int:
        """Return the opset of the domain of `node`."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        return REWRITTEN_OPSET if node.doc_string == REWRITTEN_DOC_STRING else self.opsets.get(domain, 1)

    def is_omitted_or_constant(self, name: str) -> bool:
        """Return whether a tensor is omitted or constant."""
        return not name or name in self.constants

    def require_tensor(self, name: str) -> str:
        """Return the name of a tensor in the builder. Add a constant to the builder at its first use."""
        if not name:
            return ""
        if name in self.values:
            return self.values[name].tensor
        if name not in self.constant_names:
            self.constant_names[name] = self.builder.add_constant(self.constants[name], name)
        return self.constant_names[name]

    def get_constant_or_example(self, name: str) -> Array | None:
        """Return a constant, or the example of a tensor."""
        if not name:
            return None
        return self.constants[name] if name in self.constants else self.example_by_name[name]

    def add_alias(self, output: str, source: str) -> None:
        """Give a tensor a second name."""
        tables: tuple[dict[str, Any], ...] = (
            self.constants,
            self.values,
            self.example_by_name,
            self.constant_names,
        )
        for table in tables:
            if source in table:
                table[output] = table[source]
