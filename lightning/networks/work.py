"""Multiply-accumulates of a network, photonic and digital, per node."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from lightning.networks.electronic import ELECTRONIC
from lightning.networks.network import PHOTONIC_OPERATIONS, Network, Node


def count_macs(network: Network) -> Mapping[str, int]:
    """Return the multiply-accumulates of one image by node name, without nodes that have none.

    A `MatMul` of two activations counts as digital. Products with padding count too.
    """
    macs_by_node = {node.name: _count_node_macs(network, node) for node in network.nodes}
    return {name: macs for name, macs in macs_by_node.items() if macs}


def count_photonic_macs(network: Network) -> int:
    """Return the photonic multiply-accumulates of one image, in `Gemm` and `Conv`."""
    macs = count_macs(network)
    return sum(macs[node.name] for node in network.nodes if node.operation in PHOTONIC_OPERATIONS)


def compute_photonic_share(network: Network) -> float:
    """Return the photonic share of all multiply-accumulates, 0 .. 1, or 1 for a network without any."""
    total_macs = sum(count_macs(network).values())
    return count_photonic_macs(network) / total_macs if total_macs else 1.0


def _count_node_macs(network: Network, node: Node) -> int:
    if node.operation == ELECTRONIC:
        return int(node.attributes["macs"])
    if node.operation not in PHOTONIC_OPERATIONS | {"MatMul"}:
        return 0
    output_size = prod(network.shapes[node.output])
    if node.operation == "MatMul":
        left_factor = node.inputs[0]
        shape = (
            network.shapes[left_factor]
            if left_factor in network.shapes
            else network.constants[left_factor].shape
        )
        return output_size * shape[-1]
    return output_size * prod(network.constants[node.inputs[1]].shape[1:])
