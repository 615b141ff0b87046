"""Networks that are chains of dense layers: their layers, and the activation of each input byte."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.networks.network import PHOTONIC_OPERATIONS, Network, Node
from lightning.networks.preprocess import preprocess

SHAPE_OPERATIONS = frozenset({"Flatten", "Reshape", "Identity", "Dropout"})
"""Operations that do not change the values of a chain."""


@dataclass(frozen=True)
class DenseChain:
    """The layers of a chain, whether a ReLU follows each layer, and the digital nodes after the last layer."""

    layers: tuple[PhotonicLayer, ...]
    relu_flags: tuple[bool, ...]
    tail_nodes: tuple[Node, ...]


def find_dense_chain(model: CompiledModel) -> DenseChain | None:
    """Return the network as a chain of dense layers with optional ReLUs between them, or None for another network.

    The nodes after the last layer read only its sums, and return one score for each.
    """
    layers: list[PhotonicLayer] = []
    relu_flags: list[bool] = []
    tail_nodes: list[Node] = []
    tensor_name = model.network.input
    for node in model.network.nodes:
        if node.inputs[0] != tensor_name:
            return None
        tensor_name = node.output
        layer = model.layers.get(node.name)
        if layer is not None:
            if (
                tail_nodes
                or layer.geometry is not None
                or layer.position_count != 1
                or len(layer.weights) != 1
            ):
                return None
            layers.append(layer)
            relu_flags.append(False)
        elif node.operation == "Relu" and layers and not tail_nodes:
            relu_flags[-1] = True
        elif node.operation not in SHAPE_OPERATIONS or tail_nodes:
            tail_nodes.append(node)
    if (
        not layers
        or tensor_name != model.network.output
        or any(node.operation in PHOTONIC_OPERATIONS for node in tail_nodes)
    ):
        return None
    dense_chain = DenseChain(tuple(layers), tuple(relu_flags), tuple(tail_nodes))
    return dense_chain if _is_valid_tail(model.network, layers[-1], tail_nodes) else None


def _is_valid_tail(network: Network, last_layer: PhotonicLayer, tail_nodes: list[Node]) -> bool:
    """Return whether `tail_nodes` read only the last layer's sums and constants, and return one score per sum."""
    scores_shape = (last_layer.weights.shape[1],)
    if prod(network.output_shape) != prod(scores_shape):
        return False
    if not tail_nodes:
        return True
    tail_input = tail_nodes[0].inputs[0]
    known_tensors = {tail_input, *network.constants, *(node.output for node in tail_nodes)}
    return network.shapes[tail_input] == scores_shape and all(
        known_tensors.issuperset(node.inputs) for node in tail_nodes
    )


def compute_byte_activations(
    model: CompiledModel, first_layer: PhotonicLayer, *, signs_dropped: bool = False
) -> npt.NDArray[np.int16]:
    """Return the activation of every byte, (inputs, 256), or (1, 256) if all inputs have the same activations.

    Values are limited to -256..256, not to the range of activations, so that clipping can still be counted.
    """
    network = model.network
    all_bytes = np.arange(256, dtype=np.uint8).reshape(-1, *(1,) * len(network.input_shape))
    network_inputs = preprocess(network, np.broadcast_to(all_bytes, (256, *network.input_shape)))
    activations = first_layer.convert_to_steps(np.abs(network_inputs) if signs_dropped else network_inputs)
    table = np.ascontiguousarray(np.clip(activations, -256, 256).astype(np.int16).reshape(256, -1).T)
    return table[:1].copy() if (table == table[0]).all() else table
