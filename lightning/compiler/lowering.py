"""`Gemm` and `Conv` as rows of products: weights (groups, rows, terms), vectors of activations, and sums."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import Geometry
from lightning.errors import CompileError
from lightning.networks.network import PHOTONIC_OPERATIONS, Network, Node

Floats = npt.NDArray[np.float32]

Integers = npt.NDArray[np.int32]
_MAX_FLOAT32_TERMS = 2**16
"""Largest number of products of up to 254 with an exact sum in float32, which holds integers up to 2**24."""


@dataclass(frozen=True)
class LoweredNode:
    """A photonic node before it is quantised."""

    node: Node
    weights: Floats
    """(groups, rows, terms)."""
    bias: Floats | None
    """(groups, rows), or None."""
    geometry: Geometry | None = None
    vector_count: int = 1

    @property
    def value_count(self) -> int:
        """Number of values in all vectors of one image."""
        positions = self.vector_count if self.geometry is None else prod(self.geometry.output)
        groups, _, terms = self.weights.shape
        return int(positions * groups * terms)


def list_photonic_nodes(network: Network) -> tuple[Node, ...]:
    """Return the nodes whose products are photonic, in the order of execution."""
    return tuple(
        node
        for node in network.nodes
        if node.operation in PHOTONIC_OPERATIONS and node.inputs[1] in network.constants
    )


def lower_node(network: Network, node: Node) -> LoweredNode:
    """Return the rows of products of a photonic node. Raise `CompileError` for weights that are not finite."""
    weights = _read_constant(network, node, node.inputs[1])
    bias = _read_constant(network, node, node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    input_shape = network.shapes[node.inputs[0]]
    if node.operation == "Gemm":
        vector_count = prod(input_shape[:-1])
        return LoweredNode(
            node, weights[None], None if bias is None else bias.reshape(1, -1), None, vector_count
        )
    group_count = int(node.attributes.get("groups", 1))
    rows_per_group = weights.shape[0] // group_count
    return LoweredNode(
        node,
        weights.reshape(group_count, rows_per_group, -1),
        None if bias is None else bias.reshape(group_count, rows_per_group),
        make_geometry(node, input_shape, (int(weights.shape[2]), int(weights.shape[3]))),
    )


def make_geometry(node: Node, input_shape: tuple[int, ...], kernel: tuple[int, int]) -> Geometry:
    """Return the geometry of a convolution of activations (channels, height, width)."""
    channels, height, width = input_shape
    attributes = node.attributes
    return Geometry(
        channels,
        height,
        width,
        kernel,
        _make_pair(attributes.get("strides", (1, 1))),
        _make_pads(attributes.get("pads", (0, 0, 0, 0))),
        _make_pair(attributes.get("dilations", (1, 1))),
    )


def make_vectors(lowered_node: LoweredNode, activations: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert activations (images, ...) to vectors (images * positions, groups, terms), in the order of weights."""
    geometry = lowered_node.geometry
    if geometry is None:
        return activations.reshape(-1, 1, lowered_node.weights.shape[2])
    from lightning.networks.patches import extract_patches

    patches = extract_patches(
        activations,
        geometry.kernel,
        strides=geometry.strides,
        pads=geometry.pads,
        dilations=geometry.dilations,
        group_count=len(lowered_node.weights),
    )
    return np.asarray(patches).reshape(-1, *lowered_node.weights.shape[::2])


def _read_constant(network: Network, node: Node, name: str) -> Floats:
    values = np.asarray(network.constants[name], np.float32)
    if not np.isfinite(values).all():
        raise CompileError(
            f"{node.operation} {node.name}: {name} holds values that are not finite",
            hint="Train the network again, or repair the file",
        )
    return values


def _make_pair(values: Any) -> tuple[int, int]:
    height, width = values
    return int(height), int(width)


def _make_pads(values: Any) -> tuple[int, int, int, int]:
    top, left, bottom, right = values
    return int(top), int(left), int(bottom), int(right)


def compute_integer_sums(activations: npt.NDArray[np.int16], weights: npt.NDArray[np.int16]) -> Integers:
    """Return the sums, (vectors, rows), of activations (vectors, terms) and weights (rows, terms), both -255 .. 255.

    A product is sign(a * w) * ((|a| * |w|) >> 8).

    >>> compute_integer_sums(np.array([[255, -128]], np.int16), np.array([[255, 2]], np.int16)).tolist()
    [[253]]
    """
    dtype = np.float32 if weights.shape[1] <= _MAX_FLOAT32_TERMS else np.float64
    magnitudes = np.abs(activations).astype(np.uint16)  # 255 * 255 fits
    signs = np.sign(activations).astype(dtype) if activations.min(initial=0) < 0 else None
    sums = np.empty((len(activations), len(weights)), np.int32)
    for row, row_weights in enumerate(weights):
        nonzero_terms = np.flatnonzero(row_weights)
        products = (
            (magnitudes[:, nonzero_terms] * np.abs(row_weights[nonzero_terms]).astype(np.uint16)) >> 8
        ).astype(dtype)
        signed_products = products if signs is None else products * signs[:, nonzero_terms]
        sums[:, row] = signed_products @ np.sign(row_weights[nonzero_terms]).astype(dtype)
    return sums
