"""Networks that are chains of dense layers, which one function can compute from bytes to scores."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.networks.network import PHOTONIC, Network, Node

_SHAPE_ONLY = frozenset({"Flatten", "Reshape", "Identity", "Dropout"})


@dataclass(frozen=True)
class Links:
    """The layers of a chain, whether a ReLU follows each, and what is digital after the last."""

    layers: tuple[PhotonicLayer, ...]
    rectified: tuple[bool, ...]
    tail: tuple[Node, ...]


def links_of(model: CompiledModel) -> Links | None:
    """Return what the network is as a chain: dense layers, ReLU between them or nothing; None for any other.

    What follows the last layer reads nothing from before it, and gives as many scores.
    """
    layers: list[PhotonicLayer] = []
    rectified: list[bool] = []
    tail: list[Node] = []
    tensor = model.network.input
    for node in model.network.nodes:
        if node.inputs[0] != tensor:
            return None
        tensor = node.output
        layer = model.layers.get(node.name)
        if layer is not None:
            if tail or layer.geometry is not None or layer.positions != 1 or len(layer.weights) != 1:
                return None
            layers.append(layer)
            rectified.append(False)
        elif node.operation == "Relu" and layers and not tail:
            rectified[-1] = True
        elif node.operation not in _SHAPE_ONLY or tail:
            tail.append(node)
    if not layers or tensor != model.network.output or any(node.operation in PHOTONIC for node in tail):
        return None
    found = Links(tuple(layers), tuple(rectified), tuple(tail))
    return found if _ends(model.network, layers[-1], tail) else None


def _ends(network: Network, last: PhotonicLayer, tail: list[Node]) -> bool:
    """Return whether `tail` makes of the last layer's sums, and of nothing else, as many scores."""
    scores = (last.weights.shape[1],)
    if prod(network.output_shape) != prod(scores):
        return False
    if not tail:
        return True
    start = tail[0].inputs[0]
    known = {start, *network.constants, *(node.output for node in tail)}
    return network.shapes[start] == scores and all(known.issuperset(node.inputs) for node in tail)
