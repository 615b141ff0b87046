"""Whether a model fits together: what a file says may be well-formed and yet no model."""

from __future__ import annotations

from math import prod

import numpy as np

from lightning.compiler.lowering import lowered
from lightning.compiler.model import FULL, CompiledModel, PhotonicLayer
from lightning.errors import ModelFileError
from lightning.networks.network import PHOTONIC, Network, Node

_CURE = "Compile the model again: lightning compile NETWORK -o MODEL.lng"


def check_model(model: CompiledModel) -> None:
    """Raises `ModelFileError` for nodes out of order, layers without a node, and numbers out of their ranges."""
    _check_network(model.network)
    if model.scheme not in {"published", "scaled"}:
        raise _unfit(f"scheme {model.scheme!r} is not known")
    if model.perfect_scaling and model.scheme != "published":
        raise _unfit("perfect scaling belongs to the scheme `published`")
    nodes = {node.name: node for node in model.network.nodes}
    for name, layer in model.layers.items():
        if name not in nodes or nodes[name].operation not in PHOTONIC:
            raise _unfit(f"layer {name} replaces no Gemm or Conv of the network")
        _check_layer(model.network, nodes[name], layer)


def _check_network(network: Network) -> None:
    there = {network.input, *network.constants}
    for node in network.nodes:
        missing = [name for name in node.inputs if name and name not in there]
        if missing or node.output not in network.shapes:
            raise _unfit(f"{node.operation} {node.name} has inputs that are not there yet, or no shape")
        there.add(node.output)
    if not {network.input, network.output} <= network.shapes.keys() or network.output not in there:
        raise _unfit("the network has no input or output")


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
    return ModelFileError(f"{what}", cure=_CURE)
