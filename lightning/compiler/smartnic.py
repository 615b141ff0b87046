"""A compiled model for the photonic smartNIC, which takes chains of dense layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fpga.photonic_mac.network import LANES
from fpga.program import ProgramError
from fpga.smartnic.program import NicLayer, NicModel
from lightning.compiler.model import FULL, CompiledModel, PhotonicLayer
from lightning.errors import CompileError
from lightning.networks.preprocess import preprocess

_SHAPE_ONLY = frozenset({"Flatten", "Reshape", "Identity", "Dropout"})
_HINT = "Serve it in software, or compile a network of dense layers with ReLUs between them"


def nic_model(compiled: CompiledModel, name: str) -> NicModel:
    """Return the model for the NIC under this name; its answers are those of the `exact` executor, bit for bit.

    Raise `CompileError`, with the network, the node and the reason, for a model that the NIC does not take.
    """
    if reason := next(_faults(compiled), None):
        raise CompileError(reason, hint=_HINT)
    chain = _chain(compiled)
    # The step of a layer is that in which the next one takes its results.
    steps = [1.0 if compiled.shift_normalised else layer.input_scale for layer, _ in chain[1:]]
    try:
        layers = tuple(
            NicLayer(
                layer.weights[0],
                layer.bias.reshape(-1),
                layer.output_scale.reshape(-1),
                np.float32(step),
                rectified,
                layer.name,
            )
            for (layer, rectified), step in zip(chain, [*steps, 1.0], strict=True)
        )
        look_up = _look_up(compiled, chain[0][0])
        return NicModel(
            name, layers, compiled.shift_normalised, compiled.wrap, look_up, compiled.perfect_scaling
        )
    except ProgramError as error:
        reason = str(error).rstrip(".")
        raise CompileError(
            f"{compiled.network.name} does not fit the smartNIC: {reason}", hint=_HINT
        ) from error


def _chain(compiled: CompiledModel) -> list[tuple[PhotonicLayer, bool]]:
    """Return the layers in the order of execution, and whether a ReLU follows each."""
    chain: list[tuple[PhotonicLayer, bool]] = []
    for node in compiled.network.nodes:
        if node.name in compiled.layers:
            chain.append((compiled.layers[node.name], False))
        elif node.operation == "Relu":
            chain[-1] = chain[-1][0], True
    return chain


def _faults(compiled: CompiledModel) -> Iterator[str]:
    """Yield what the NIC does not take, in the order of the network's nodes; then what is wrong with the whole."""
    network, hardware = compiled.network, compiled.hardware
    tensor = network.input
    has_layer = False
    for node in network.nodes:
        subject = f"{node.operation} {node.name} of {network.name}"
        layer = compiled.layers.get(node.name)
        if layer is not None:
            yield from (f"{subject} {reason}" for reason in _faults_of_layer(layer))
            has_layer = True
        elif node.operation == "Relu" and not has_layer:
            yield f"{subject} comes before the first dense layer; the smartNIC has ReLUs only behind one"
        elif node.operation not in {"Relu", *_SHAPE_ONLY}:
            yield f"{subject} is digital; the smartNIC has no operation but dense layers and ReLUs"
        if node.inputs[0] != tensor:
            yield f"{subject} does not read the node before it; the smartNIC takes chains of dense layers"
        tensor = node.output
    if not has_layer or tensor != network.output:
        yield f"{network.name} is not a chain of dense layers from its input to its output"
    if (hardware.lanes, hardware.wavelengths, hardware.cores) != (LANES, 1, 1):
        yield (
            f"{network.name} is compiled for {hardware.lanes} lanes, {hardware.wavelengths} wavelengths and"
            f" {hardware.cores} cores; the smartNIC has {LANES}, 1 and 1"
        )
    if hardware.skip_zeros:
        yield f"{network.name} is compiled with skipped zeros; the smartNIC sends every weight"
    if network.preprocessing.layout != "as-is":
        yield f"{network.name} takes images as {network.preprocessing.layout}; the smartNIC does not transpose them"
    elif len(_tables(compiled)) > 1:
        yield f"{network.name} preprocesses its inputs differently; the smartNIC has one look-up table for all inputs"


def _faults_of_layer(layer: PhotonicLayer) -> Iterator[str]:
    if layer.geometry is not None or len(layer.weights) != 1:
        yield "is a convolution; the smartNIC takes chains of dense layers"
    if layer.positions != 1:
        yield f"has {layer.positions} vectors of activations in an input; the smartNIC takes one"
    if layer.signed:
        yield "takes signed activations; the smartNIC sends light for 0 to 255"


def _look_up(compiled: CompiledModel, first: PhotonicLayer) -> npt.NDArray[np.uint8]:
    """Return the first activation of every byte (256,): clipped to 0 .. 255, ties to even."""
    steps = np.rint(_tables(compiled)[0] / np.float32(first.input_scale))
    return np.asarray(np.clip(steps, 0, FULL), np.uint8)


def _tables(compiled: CompiledModel) -> npt.NDArray[np.float32]:
    """Return the preprocessed value of every byte, (1, 256) if it is the same in every input, else (inputs, 256)."""
    network = compiled.network
    raw = np.arange(256, dtype=np.uint8).reshape(-1, *(1,) * len(network.input_shape))
    real = preprocess(network, np.broadcast_to(raw, (256, *network.input_shape))).reshape(256, -1).T
    return real[:1] if (real == real[:1]).all() else real
