"""Multiply-accumulates of a network, photonic and digital, per node."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from lightning.networks.electronic import ELECTRONIC
from lightning.networks.network import PHOTONIC, Network, Node


def macs_of(network: Network) -> Mapping[str, int]:
    """Return the multiply-accumulates of one image by node name, without nodes that have none.

    A `MatMul` of two activations counts as digital. Products with padding count too.
    """
    counted = {node.name: _count_node_macs(network, node) for node in network.nodes}
    return {name: macs for name, macs in counted.items() if macs}


def photonic_macs(network: Network) -> int:
    """Return the photonic multiply-accumulates of one image, in `Gemm` and `Conv`."""
    macs = macs_of(network)
    return sum(macs[node.name] for node in network.nodes if node.operation in PHOTONIC)


def photonic_share(network: Network) -> float:
    """Return the photonic share of all multiply-accumulates, 0 .. 1, or 1 for a network without any."""
    every = sum(macs_of(network).values())
    return photonic_macs(network) / every if every else 1.0


def _count_node_macs(network: Network, node: Node) -> int:
    if node.operation == ELECTRONIC:
        return int(node.attributes["macs"])
    if node.operation not in PHOTONIC | {"MatMul"}:
        return 0
    outputs = prod(network.shapes[node.output])
    if node.operation == "MatMul":
        first = node.inputs[0]
        shape = network.shapes[first] if first in network.shapes else network.constants[first].shape
        return outputs * shape[-1]
    return outputs * prod(network.constants[node.inputs[1]].shape[1:])
