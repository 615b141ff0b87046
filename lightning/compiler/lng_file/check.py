"""Checks that a model fits together: a file may be well-formed and yet hold no model."""

from __future__ import annotations

from math import prod

import numpy as np

from lightning.compiler.lowering import lowered, photonic_nodes
from lightning.compiler.model import FULL, CompiledModel, PhotonicLayer
from lightning.compiler.schemes.published import check_published
from lightning.errors import ModelFileError
from lightning.networks.network import LARGEST, Network, Node
from lightning.networks.operations import apply
from lightning.networks.preprocess import check_preprocessing

_HINT = "Compile the model again: lightning compile NETWORK -o MODEL.lng"


def check_model(model: CompiledModel) -> None:
    """Raise `ModelFileError` for a document whose parts do not fit together.

    These are nodes that cannot be computed, products that no layer takes, layers without a node, and numbers
    out of their ranges.
    """
    _check_network(model.network)
    if model.scheme not in {"published", "scaled"}:
        raise _unfit(f"scheme {model.scheme!r} is not known")
    if model.perfect_scaling and model.scheme != "published":
        raise _unfit("perfect scaling belongs to the scheme `published`")
    nodes = {node.name: node for node in photonic_nodes(model.network)}
    if nodes.keys() != model.layers.keys():
        odd = ", ".join(sorted(nodes.keys() ^ model.layers.keys()))
        raise _unfit(f"layers are not those that replace a Gemm or Conv of the network: {odd}")
    for name, layer in model.layers.items():
        _check_layer(model.network, nodes[name], layer)
    if model.scheme == "published":
        check_published(model.network)


def _check_network(network: Network) -> None:
    if not {network.input, network.output} <= network.shapes.keys():
        raise _unfit("the network has no input or output")
    for name, shape in network.shapes.items():
        if min(shape, default=1) < 1 or prod(shape) > LARGEST:
            raise _unfit(f"activation {name} of shape {shape} cannot be")
    check_preprocessing(network.preprocessing, network.input_shape)
    for ports, tensor in ((network.inputs, network.input), (network.outputs, network.output)):
        if ports and sum(port.size for port in ports) != prod(network.shapes[tensor]):
            raise _unfit(f"{', '.join(port.name for port in ports)} do not make up {tensor}")
    there, names = {network.input, *network.constants}, set()
    for node in network.nodes:
        missing = [name for name in node.inputs if name and name not in there]
        if missing or not node.inputs or node.output not in network.shapes:
            raise _unfit(f"{node.operation} {node.name} has inputs that are not there yet, or no shape")
        if node.output in there or node.name in names:
            raise _unfit(f"{node.operation} {node.name} is there twice, or gives what is there")
        _check_node(network, node)
        there.add(node.output)
        names.add(node.name)
    if network.output not in there:
        raise _unfit("the network has no output")


def _check_node(network: Network, node: Node) -> None:
    """Send an empty batch through: what `node` gives must have the shape that the model says."""
    given = [network.shapes[name] for name in node.inputs if name in network.shapes]
    empty = {
        name: np.zeros((0, *network.shapes[name]), np.float32)
        for name in node.inputs
        if name in network.shapes
    }
    try:
        found = apply(node, empty, network.constants).shape
    except Exception as error:  # attributes may hold anything
        raise _unfit(f"{node.operation} {node.name} cannot be computed ({error!r})") from error
    wanted = network.shapes[node.output]
    as_many = node.operation != "Reshape" or prod(given[0]) == prod(wanted)
    if found != (0, *wanted) or not as_many:
        raise _unfit(f"{node.operation} {node.name} gives {found[1:]} for an input, and not {wanted}")


def _check_layer(network: Network, node: Node, layer: PhotonicLayer) -> None:
    wanted = lowered(network, node)
    rows = wanted.weights.shape[:2]
    shapes = layer.weights.shape, layer.bias.shape, layer.output_scale.shape
    if shapes != (wanted.weights.shape, rows, rows) or (layer.geometry, layer.vectors) != (
        wanted.geometry,
        wanted.vectors,
    ):
        raise _unfit(f"layer {node.name} has other sizes than its node")
    if prod(network.shapes[node.output]) != layer.positions * prod(rows):
        raise _unfit(f"layer {node.name} gives another shape than its node")
    if np.abs(layer.weights).max(initial=0) > FULL:
        raise _unfit(f"layer {node.name} has weights beyond {FULL}")
    if not (0 < layer.input_scale < np.inf and np.isfinite(layer.output_scale).all()):
        raise _unfit(f"layer {node.name} has scales that are no positive numbers")


def _unfit(what: str) -> ModelFileError:
    return ModelFileError(f"{what}", hint=_HINT)
