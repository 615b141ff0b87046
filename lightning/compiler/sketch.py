"""A network in integers without samples: the sizes and signs of its weights are right, its scales are not.

It serves what depends on no activation: cycles, energy and memory. Activations count as signed unless the network
makes sure that they are not, so the passes are an upper bound.
"""

from __future__ import annotations

import numpy as np

from lightning.compiler.hardware import Hardware
from lightning.compiler.lowering import Lowered, lowered, photonic_nodes
from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.compiler.schemes.observed import never_negative
from lightning.compiler.schemes.quantisation import quantise_weights, weight_scales
from lightning.networks.network import Network


def sketched(network: Network, hardware: Hardware | None = None) -> CompiledModel:
    """Return the model of a network of which no activations are known. It is not for execution."""
    positive = never_negative(network)
    layers = {
        node.name: _layer(lowered(network, node), signed=node.inputs[0] not in positive)
        for node in photonic_nodes(network)
    }
    return CompiledModel(network, layers, hardware or Hardware())


def _layer(each: Lowered, *, signed: bool) -> PhotonicLayer:
    weights = quantise_weights(each.weights, weight_scales(each.weights, per_channel=True))
    rows = weights.shape[:2]
    return PhotonicLayer(
        each.node.name,
        weights,
        np.zeros(rows, np.int32),
        1.0,
        np.ones(rows, np.float32),
        signed,
        each.geometry,
        each.vectors,
    )
