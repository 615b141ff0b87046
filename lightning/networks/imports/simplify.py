"""Simplification of a network: folding into products and removal of unused nodes. Results do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import NetworkError
from lightning.networks.network import PHOTONIC_OPERATIONS, Network, Node, Preprocessing
from lightning.networks.operations.builder import Builder

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Affine:
    """x * scale + shift, both (rows,)."""

    scale: Array
    shift: Array


def build_network(
    builder: Builder, name: str, input_tensor: str, output: str, preprocessing: Preprocessing
) -> Network:
    """Return the simplified network of a builder.

    Raise `NetworkError` if the output does not depend on the input, or weights are not finite.
    """
    if output not in builder.shapes:
        raise NetworkError(f"{name}: the output does not depend on the input", hint="Check the export")
    nodes, output = _fold(builder, output)
    nodes = _find_needed_nodes(_replace_normalisations(builder, nodes), output)
    # Masks may hold infinity. Photonic weights may not.
    for node in nodes:
        if node.operation in PHOTONIC_OPERATIONS and not all(
            np.isfinite(builder.constants[tensor]).all() for tensor in node.inputs[1:]
        ):
            raise NetworkError(
                f"node {node.name} ({node.operation}) has weights that hold NaN or infinity",
                hint="Train the network again",
            )
    read_tensors = {tensor for node in nodes for tensor in node.inputs}
    tensors = {input_tensor, output} | {node.output for node in nodes}
    return Network(
        name,
        tuple(nodes),
        {key: value for key, value in builder.constants.items() if key in read_tensors},
        input_tensor,
        output,
        {key: shape for key, shape in builder.shapes.items() if key in tensors},
        preprocessing,
        tuple(builder.notes),
    )


def _fold(builder: Builder, output: str) -> tuple[list[Node], str]:
    """Fold every scale and shift into the product before it; return the nodes and the new output.

    Remove unneeded nodes first: folding one of them would change a product that the output depends on.
    """
    needed_nodes = _find_needed_nodes(builder.nodes, output)
    fusion = _Folder(builder, Counter(tensor for node in needed_nodes for tensor in set(node.inputs)))
    for node in needed_nodes:
        fusion.add(node)
    return fusion.folded_nodes, fusion.tensor_aliases.get(output, output)


@dataclass
class _Folder:
    """Folder of nodes, added in order. It tracks which product each tensor comes from."""

    builder: Builder
    reader_counts: Counter[str]
    folded_nodes: list[Node] = field(default_factory=list)
    tensor_aliases: dict[str, str] = field(default_factory=dict)
    product_indices: dict[str, int] = field(default_factory=dict)
    """For each tensor, the index in `folded_nodes` of the product whose rows it holds."""

    def add(self, node: Node) -> None:
        renamed_node = replace(
            node, inputs=tuple(self.tensor_aliases.get(tensor, tensor) for tensor in node.inputs)
        )
        source = _find_activation(self.builder, renamed_node)
        product_index = self.product_indices.get(source) if self.reader_counts[source] == 1 else None
        affine = (
            None
            if product_index is None
            else _find_affine(self.builder, renamed_node, self.folded_nodes[product_index])
        )
        if product_index is None or affine is None:
            self._append(renamed_node, product_index)
            return
        product = self.folded_nodes[product_index] = _absorb(
            self.builder, self.folded_nodes[product_index], affine
        )
        self.tensor_aliases[node.output] = source
        self.reader_counts[source] = self.reader_counts[node.output]
        verb = "merged" if node.operation in {"Add", "Sub"} else "folded"
        self.builder.add_note(f"{node.operation} {node.name} {verb} into {product.operation} {product.name}")

    def _append(self, node: Node, product_index: int | None) -> None:
        if node.operation in PHOTONIC_OPERATIONS:
            self.product_indices[node.output] = len(self.folded_nodes)
        elif product_index is not None and self._removes_row(node):
            self.product_indices[node.output] = product_index
        self.folded_nodes.append(node)

    def _removes_row(self, node: Node) -> bool:
        """Return whether `node` reshapes an image of one row to a sequence, as after a one-dimensional convolution."""
        if node.operation != "Reshape":
            return False
        shape_before, shape_after = (self.builder.shapes[tensor] for tensor in (node.inputs[0], node.output))
        return len(shape_before) == 3 and shape_before == (shape_after[0], 1, *shape_after[1:])


def _find_activation(builder: Builder, node: Node) -> str:
    """Return the only activation that `node` reads, or "" if it reads several or none."""
    activations = [tensor for tensor in node.inputs if not builder.is_constant(tensor)]
    return activations[0] if len(activations) == 1 else ""


def _find_affine(builder: Builder, node: Node, product: Node) -> Affine | None:
    """Return the scale and shift that `node` applies to each row of `product`, or None if it does something else."""
    source = _find_activation(builder, node)
    if (
        node.operation not in AFFINE_FACTORY_BY_OPERATION
        or builder.shapes[node.output] != builder.shapes[source]
    ):
        return None
    constants = [
        _find_row_values(builder, product, source, tensor) for tensor in node.inputs if tensor != source
    ]
    row_values = [values.astype(np.float64) for values in constants if values is not None]
    if len(row_values) != len(constants):
        return None
    return AFFINE_FACTORY_BY_OPERATION[node.operation](row_values, node.inputs[0] != source)


def _make_quotient(row_values: list[Array], is_constant_first: bool) -> Affine | None:
    is_usable = not is_constant_first and row_values[0].all()
    return Affine(1 / row_values[0], 0 * row_values[0]) if is_usable else None


AFFINE_FACTORY_BY_OPERATION: Mapping[str, Callable[[list[Array], bool], Affine | None]] = {
    "BatchNormalization": lambda rows, _: Affine(rows[0], rows[1]),
    "Add": lambda rows, _: Affine(np.ones_like(rows[0]), rows[0]),
    "Sub": lambda rows, is_constant_first: Affine(
        np.full_like(rows[0], -1 if is_constant_first else 1), rows[0] if is_constant_first else -rows[0]
    ),
    "Mul": lambda rows, _: Affine(rows[0], np.zeros_like(rows[0])),
    "Div": _make_quotient,
}
"""Functions that return the scale and shift of a node. Arguments: its constants as values per row, and whether the
constant is the first input."""


def _find_row_values(builder: Builder, product: Node, source: str, tensor: str) -> Array | None:
    """Return a constant as (rows,) if it has one value per row of `product` or one value for all, else None."""
    value = builder.constants[tensor]
    rank = builder.get_rank(source)
    aligned = value.reshape((1,) * (rank - value.ndim) + value.shape)
    axis = 1 if product.operation == "Conv" else rank - 1
    row_count = len(builder.constants[product.inputs[1]])
    if aligned.size != aligned.shape[axis] or aligned.size not in {1, row_count}:
        return None
    return np.broadcast_to(aligned.reshape(-1), (row_count,))


def _absorb(builder: Builder, product: Node, affine: Affine) -> Node:
    """Return `product` with weights and bias scaled and shifted, computed in float64."""
    x, weights_name, *bias_names = product.inputs
    weight_values = builder.constants[weights_name].astype(np.float64)
    bias_values = (
        builder.constants[bias_names[0]].astype(np.float64) if bias_names else np.zeros(len(weight_values))
    )
    scaled = weight_values * affine.scale.reshape(-1, *(1,) * (weight_values.ndim - 1))
    new_weights = builder.add_constant(scaled, weights_name)
    shifted = bias_values * affine.scale + affine.shift
    inputs: tuple[str, ...] = (x, new_weights)
    if bias_names or shifted.any():
        inputs = (x, new_weights, builder.add_constant(shifted, f"{product.name}.bias"))
    return replace(product, inputs=inputs)


def _replace_normalisations(builder: Builder, nodes: list[Node]) -> list[Node]:
    """Replace every remaining normalisation with a digital `Mul` and `Add`; return the nodes."""
    result: list[Node] = []
    for node in nodes:
        if node.operation != "BatchNormalization":
            result.append(node)
            continue
        x, scale, shift = node.inputs
        scaled = f"{node.name}/scaled"
        builder.shapes[scaled] = builder.shapes[x]
        result.append(Node(scaled, "Mul", (x, scale), scaled))
        result.append(Node(node.name, "Add", (scaled, shift), node.output))
        builder.add_note(
            f"BatchNormalization {node.name} computed digitally: no product with one reader before it"
        )
    return result


def _find_needed_nodes(nodes: list[Node], output: str) -> list[Node]:
    """Return the nodes that the output depends on, in their order."""
    read_tensors, needed_nodes = {output}, []
    for node in reversed(nodes):
        if node.output in read_tensors:
            read_tensors |= set(node.inputs)
            needed_nodes.append(node)
    return needed_nodes[::-1]
