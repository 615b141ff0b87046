"""A compiled model for the photonic smartNIC, which takes chains of dense layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fpga.photonic_mac.network import LANE_COUNT
from fpga.program import ProgramError
from fpga.smartnic.program import NicLayer, NicModel
from lightning.compiler.chain import SHAPE_OPERATIONS, DenseChain, compute_byte_activations, find_dense_chain
from lightning.compiler.model import FULL_VALUE, CompiledModel, PhotonicLayer
from lightning.errors import CompileError

_HINT = "Serve it in software, or compile a network of dense layers with ReLUs between them"


def make_nic_model(compiled_model: CompiledModel, name: str) -> NicModel:
    """Return the model for the NIC. Its answers equal those of the `exact` executor, bit for bit.

    Raise `CompileError` with the network, the node and the reason if the NIC does not support the model.
    """
    dense_chain = find_dense_chain(compiled_model)
    if reason := next(_find_faults(compiled_model, dense_chain), None):
        raise CompileError(reason, hint=_HINT)
    assert dense_chain  # otherwise `_find_faults` yields a reason
    # The step of a layer is the activation step of the next layer.
    steps = [
        1.0 if compiled_model.shift_normalised else layer.input_scale for layer in dense_chain.layers[1:]
    ]
    try:
        layers = tuple(
            NicLayer(
                layer.weights[0],
                layer.bias.reshape(-1),
                layer.output_scale.reshape(-1),
                np.float32(step),
                has_relu,
                layer.name,
            )
            for layer, has_relu, step in zip(
                dense_chain.layers, dense_chain.relu_flags, [*steps, 1.0], strict=True
            )
        )
        lookup_table = np.asarray(
            np.clip(compute_byte_activations(compiled_model, dense_chain.layers[0])[0], 0, FULL_VALUE),
            np.uint8,
        )
        return NicModel(
            name,
            layers,
            compiled_model.shift_normalised,
            compiled_model.wrap,
            lookup_table,
            compiled_model.perfect_scaling,
        )
    except ProgramError as error:
        reason = str(error).rstrip(".")
        raise CompileError(
            f"{compiled_model.network.name} does not fit the smartNIC: {reason}", hint=_HINT
        ) from error


def _find_faults(compiled_model: CompiledModel, dense_chain: DenseChain | None) -> Iterator[str]:
    """Yield reasons why the NIC does not support the model: first by node, then for the whole network."""
    network, hardware = compiled_model.network, compiled_model.hardware
    tensor_name = network.input
    has_layer = False
    for node in network.nodes:
        subject = f"{node.operation} {node.name} of {network.name}"
        layer = compiled_model.layers.get(node.name)
        if layer is not None:
            yield from (f"{subject} {reason}" for reason in _find_layer_faults(layer))
            has_layer = True
        elif node.operation == "Relu" and not has_layer:
            yield f"{subject} comes before the first dense layer; the smartNIC has ReLUs only behind one"
        elif node.operation not in {"Relu", *SHAPE_OPERATIONS}:
            yield f"{subject} is digital; the smartNIC has no operation but dense layers and ReLUs"
        if node.inputs[0] != tensor_name:
            yield f"{subject} does not read the node before it; the smartNIC takes chains of dense layers"
        tensor_name = node.output
    if dense_chain is None:
        yield f"{network.name} is not a chain of dense layers from its input to its output"
    if (hardware.lanes, hardware.wavelengths, hardware.cores) != (LANE_COUNT, 1, 1):
        yield (
            f"{network.name} is compiled for {hardware.lanes} lanes, {hardware.wavelengths} wavelengths and"
            f" {hardware.cores} cores; the smartNIC has {LANE_COUNT}, 1 and 1"
        )
    if hardware.skip_zeros:
        yield f"{network.name} is compiled with skipped zeros; the smartNIC sends every weight"
    if network.preprocessing.layout != "as-is":
        yield f"{network.name} takes images as {network.preprocessing.layout}; the smartNIC does not transpose them"
    elif dense_chain and len(compute_byte_activations(compiled_model, dense_chain.layers[0])) > 1:
        yield f"{network.name} preprocesses its inputs differently; the smartNIC has one look-up table for all inputs"


def _find_layer_faults(layer: PhotonicLayer) -> Iterator[str]:
    if layer.geometry is not None or len(layer.weights) != 1:
        yield "is a convolution; the smartNIC takes chains of dense layers"
    if layer.position_count != 1:
        yield f"has {layer.position_count} vectors of activations in an input; the smartNIC takes one"
    if layer.signed:
        yield "takes signed activations; the smartNIC sends light for 0 to 255"
