"""How many multiply-accumulates a network asks for, node by node."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from lightning.networks.network import Network, Node


def macs_of(network: Network, node: Node) -> int:
    """Of one image; 0 for operations that do not multiply matrices.

    `Gemm` and `Conv` have a weight (rows, ...), all of whose other axes are added up over; of a `MatMul` of two
    activations it is the last axis of the first.
    """
    if node.operation in {"Gemm", "Conv"}:
        weights = network.constants[node.inputs[1]]
        return prod(network.shapes[node.output]) * prod(weights.shape[1:])
    if node.operation == "MatMul":
        first = network.shapes.get(node.inputs[0])
        terms = first[-1] if first else network.constants[node.inputs[0]].shape[-1]
        return prod(network.shapes[node.output]) * int(terms)
    return 0


def digital_macs(network: Network, photonic: Collection[str]) -> int:
    """Of one image in all nodes whose names are not among the photonic ones."""
    return sum(macs_of(network, node) for node in network.nodes if node.name not in photonic)
