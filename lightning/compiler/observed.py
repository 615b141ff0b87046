"""What activations a network meets: its float32 run over samples, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.lowering import Lowered, lowered, photonic_nodes, vectors_of
from lightning.compiler.model import FULL
from lightning.networks.network import Network, Node

Floats = npt.NDArray[np.float32]

_IMAGES = 256
"""Samples of which ranges are measured; of more, so many are chosen."""
_FEWEST = 16
_FLOATS = 2**26
"""Of the largest tensor of all samples together; with more, fewer samples are taken."""
_PATCHED = 64
"""Images of which a convolution's patches are cut."""
_VECTORS = 1024
"""Vectors of activations on which a layer's errors are measured."""
_KEEPS_SIGN = frozenset(
    {"MaxPool", "AveragePool", "GlobalAveragePool", "Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze",
     "Identity", "Dropout", "Concat", "Add"}
)  # fmt: skip
_NOT_NEGATIVE = frozenset({"Relu", "Softmax", "Sigmoid"})


@dataclass(frozen=True)
class Observed:
    """What one photonic layer was given."""

    layer: Lowered
    magnitudes: Floats
    """Of all activations seen, flat."""
    vectors: Floats
    """(vectors, groups, terms) some of them."""
    signed: bool
    """Whether any would be rounded to less than 0."""


def observe(network: Network, raw: npt.NDArray[Any], seed: int) -> Iterator[Observed]:
    """The layers in the order of execution, each with what it is given by the float network."""
    random = np.random.default_rng(seed)
    positive = never_negative(network)
    for node, activations in _inputs(network, _some(raw, _affordable(network), random)):
        layer = lowered(network, node)
        vectors = _some(vectors_of(layer, activations[:_PATCHED]), _VECTORS, random)
        magnitudes = np.abs(activations).ravel()
        below = float(-activations.min(initial=0.0)) * 2 * FULL > magnitudes.max(initial=0.0)
        yield Observed(layer, magnitudes, vectors, bool(below) and node.inputs[0] not in positive)


def never_negative(network: Network) -> frozenset[str]:
    """Tensors that a rectifier stands before, with nothing between that could make them negative."""
    found: set[str] = set()
    for node in network.nodes:
        data = node.inputs[: _reach(node)]
        kept = node.operation in _KEEPS_SIGN and all(_positive(name, found, network) for name in data)
        if node.operation in _NOT_NEGATIVE or kept:
            found.add(node.output)
    return frozenset(found)


def _reach(node: Node) -> int:
    """How many of the inputs are data: a shape or axes may follow."""
    return len(node.inputs) if node.operation in {"Add", "Concat"} else 1


def _positive(name: str, found: set[str], network: Network) -> bool:
    constant = network.constants.get(name)
    return name in found if constant is None else bool(np.all(constant >= 0))


def _inputs(network: Network, raw: npt.NDArray[Any]) -> Iterator[tuple[Node, Floats]]:
    """Photonic nodes and their activations (images, ...). Tensors are let go after their last use."""
    from lightning.networks.operations import apply
    from lightning.networks.preprocess import preprocess

    photonic = {node.name for node in photonic_nodes(network)}
    tensors: dict[str, npt.NDArray[Any]] = {network.input: preprocess(network, raw)}
    last = {name: place for place, node in enumerate(network.nodes) for name in node.inputs}
    for place, node in enumerate(network.nodes):
        if node.name in photonic:
            yield node, tensors[node.inputs[0]]
        tensors[node.output] = apply(node, tensors, network.constants)
        for name in {name for name in node.inputs if last[name] == place}:
            tensors.pop(name, None)


def _affordable(network: Network) -> int:
    largest = max(int(np.prod(shape)) for shape in network.shapes.values())
    return min(_IMAGES, max(_FEWEST, _FLOATS // max(largest, 1)))


def _some(rows: npt.NDArray[Any], most: int, random: np.random.Generator) -> npt.NDArray[Any]:
    """All rows, or so many of them, in their order."""
    if len(rows) <= most:
        return rows
    return np.asarray(rows[np.sort(random.choice(len(rows), most, replace=False))])
