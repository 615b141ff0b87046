"""Tensors of torch that share memory: what changes one in place changes the others, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning.errors import UnsupportedNode

RECTIFIERS = frozenset(
    {"relu", "relu6", "leaky_relu", "elu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh"}
)
"""Functions with `inplace` as their last argument."""

VIEWS = frozenset(
    {"view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel", "permute", "transpose", "t",
     "swapaxes", "swapdims", "movedim", "moveaxis", "squeeze", "unsqueeze", "expand", "expand_as", "getitem", "getattr",
     "chunk", "split", "unbind", "narrow", "select", "contiguous", "detach", "float", "to", "dropout", "type_as",
     "Flatten", "Unflatten", "Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"}
)  # fmt: skip
"""What may give the memory of its first argument another shape, or none: methods, functions and layers."""


@dataclass
class Aliases:
    """The nodes of a graph of `torch.fx`, taken in order."""

    leaves: Mapping[str, Any]
    """Layers by name."""
    places: dict[Any, int] = field(default_factory=dict)
    memories: dict[Any, Any] = field(default_factory=dict)
    """The node that made the memory in which a node's tensor lies."""
    tensors: dict[Any, Any] = field(default_factory=dict)
    """The node that first gave the very tensor."""

    def take(self, node: Any) -> list[Any]:
        """Return the nodes before `node` whose tensor it has changed in place.

        Raises `UnsupportedNode` where that changes a view, too, that is read later: views are copies here.
        """
        self.places[node] = len(self.places)
        source = node.args[0] if node.args and node.args[0] in self.memories else node
        changes = source is not node and in_place(node, self.leaves)
        shared = changes or title(node, self.leaves) in VIEWS
        self.memories[node] = self.memories[source] if shared and source is not node else node
        self.tensors[node] = self.tensors[source] if changes else node
        if not changes:
            return []
        others = [other for other, memory in self.memories.items() if memory is self.memories[node]]
        self._check_views(node, others)
        return [other for other in others if self.tensors[other] is self.tensors[node] and other is not node]

    def _check_views(self, node: Any, others: list[Any]) -> None:
        for other in others:
            later = any(self.places.get(user, len(self.places)) > self.places[node] for user in other.users)
            if later and self.tensors[other] is not self.tensors[node]:
                raise UnsupportedNode(
                    f"node {node.name} (torch {title(node, self.leaves)}) changes in place what shares its memory with "
                    f"{other.name}, which is read later",
                    hint="Write it without in-place",
                )


def title(node: Any, leaves: Mapping[str, Any]) -> str:
    """Return the name of the method, function or kind of layer."""
    if node.op == "call_module":
        return type(leaves[node.target]).__name__
    return str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))


def in_place(node: Any, leaves: Mapping[str, Any]) -> bool:
    """Return whether whoever reads the first argument later sees what `node` made of it."""
    if node.op == "call_module":
        return bool(getattr(leaves[node.target], "inplace", False))
    if node.op == "call_method":
        return bool(node.target.endswith("_"))
    positional = title(node, leaves) in RECTIFIERS and node.args[-1] is True
    return positional or bool(node.kwargs.get("inplace"))
