"""The scheme of the published datapath: one scale for all weights, no biases, activations shifted.

Source: artifact of Lightning (SIGCOMM 2023). `fpga.photonic_mac.network` has the same arithmetic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fpga.photonic_mac.network import quantise
from lightning.compiler.lowering import lower_node
from lightning.compiler.model import PhotonicLayer
from lightning.errors import CompileError
from lightning.networks.network import Network, Node

_SHAPE_OPERATIONS = frozenset({"Flatten", "Reshape"})
_HINT = "Compile it with --scheme scaled, which takes every network"


def compile_published(network: Network) -> dict[str, PhotonicLayer]:
    """Return the layers of a chain of `Gemm` and `Relu` without biases. Raise `CompileError` for other networks."""
    step = _compute_raw_step(network)
    gemm_nodes = _find_chain(network)
    weights = [lower_node(network, node).weights[0] for node in gemm_nodes]
    integer_weights = quantise(weights).layers
    steps = [step] + [1.0] * (len(gemm_nodes) - 1)
    return {
        node.name: _make_layer(node.name, layer_weights, input_scale)
        for node, layer_weights, input_scale in zip(gemm_nodes, integer_weights, steps, strict=True)
    }


def check_published(network: Network) -> None:
    """Raise `CompileError` for a network that the published datapath does not support."""
    _compute_raw_step(network)
    _find_chain(network)


def _make_layer(name: str, weights: npt.NDArray[np.int32], step: float) -> PhotonicLayer:
    sums_shape = (1, len(weights))
    return PhotonicLayer(
        name,
        weights[None].astype(np.int16),
        np.zeros(sums_shape, np.int32),
        step,
        np.ones(sums_shape, np.float32),
    )


def _find_chain(network: Network) -> list[Node]:
    """Return the `Gemm` nodes. Raise `CompileError` with the first unsupported node."""
    chain: list[Node] = []
    tensor_name, is_rectified, is_ended = network.input, True, False
    for node in network.nodes:
        if node.inputs[0] != tensor_name or is_ended:
            raise _make_refusal(node, "is not part of the chain of layers")
        if node.operation == "Gemm":
            _check_gemm(network, node, is_rectified=is_rectified)
            chain.append(node)
        elif node.operation == "Softmax" and chain:
            is_ended = True
        elif node.operation not in _SHAPE_OPERATIONS | {"Relu"}:
            raise _make_refusal(node, "is not supported by the published datapath, which has Gemm and Relu")
        elif node.operation == "Relu" and node.output == network.output:
            raise _make_refusal(
                node, "ends the network; the published datapath rectifies only between layers"
            )
        is_rectified = node.operation == "Relu" or (is_rectified and node.operation in _SHAPE_OPERATIONS)
        tensor_name = node.output
    if not chain:
        raise CompileError(f"network {network.name} has no Gemm: nothing for light to compute", hint=_HINT)
    return chain


def _check_gemm(network: Network, node: Node, *, is_rectified: bool) -> None:
    if not is_rectified:
        raise _make_refusal(
            node, "reads values that no Relu has rectified; the published datapath always rectifies"
        )
    if len(network.shapes[node.inputs[0]]) != 1:
        raise _make_refusal(node, "takes several vectors per image; the published datapath takes one")
    if len(node.inputs) > 2 and node.inputs[2] and np.any(network.constants[node.inputs[2]]):
        raise _make_refusal(node, "has a bias; the published datapath has none")


def _compute_raw_step(network: Network) -> float:
    """Return the value of one step of the raw data, 0 .. 255, which are sent unchanged.

    Raise `CompileError` if the preprocessing shifts or inverts them.
    """
    preprocessing = network.preprocessing
    step = preprocessing.scale / preprocessing.deviation[0]
    if any(preprocessing.mean) or len(set(preprocessing.deviation)) > 1 or step <= 0:
        raise CompileError(
            (
                f"network {network.name} shifts or inverts its inputs; the published datapath sends bytes "
                "unchanged"
            ),
            hint=_HINT,
        )
    return step


def _make_refusal(node: Node, problem: str) -> CompileError:
    return CompileError(f"{node.operation} {node.name} {problem}", hint=_HINT)
