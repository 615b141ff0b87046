"""The list of supported ONNX operations: translation to nodes, and computation in float32.

Each operation is an entry of a table in a neighbouring module, such as `ELEMENTWISE_OPERATORS`. Its functions stand
above the table. An operation composed of others needs only a translation.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError, NetworkError, UnsupportedNode
from lightning.networks.electronic import ELECTRONIC, compute_electronic
from lightning.networks.network import Floats, Network, Node
from lightning.networks.operations.axes import AXIS_OPERATORS
from lightning.networks.operations.builder import Array, Builder, Call, Operator
from lightning.networks.operations.elementwise import ELEMENTWISE_OPERATORS
from lightning.networks.operations.products import PRODUCT_OPERATORS
from lightning.networks.operations.shaping import SHAPING_OPERATORS
from lightning.networks.operations.windows import WINDOW_OPERATORS

OPERATOR_BY_NAME: Mapping[str, Operator] = {
    **PRODUCT_OPERATORS,
    **WINDOW_OPERATORS,
    **ELEMENTWISE_OPERATORS,
    **SHAPING_OPERATORS,
    **AXIS_OPERATORS,
}

_COMPUTATIONS = {name: operator.computation for name, operator in OPERATOR_BY_NAME.items()} | {
    ELECTRONIC: compute_electronic
}

INCONSISTENCY_ERRORS = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
    MemoryError,
)
"""Errors of numpy and Python for contradictory shapes, types or attributes of a damaged file."""

UNSUPPORTED_HINT = (
    "Use supported operations instead (reference page Trained networks), or end the network before this node"
)
"""Hint for an unsupported operation."""

QUANTISED_PREFIXES = ("Quantize", "Dequantize", "QLinear", "DynamicQuantize")
"""Prefixes of the names of operations on quantised tensors."""
QUANTISED_HINT = "Import the network in floats: `lightning compile` quantises it"


def translate(builder: Builder, call: Call) -> tuple[str, ...]:
    """Add the nodes of `call` to `builder`, and return the names of its outputs.

    Raise `UnsupportedNode` for an unsupported operation, and `NetworkError` for contradictory inputs and attributes.
    Both errors name the node.
    """
    if call.domain or call.operation not in OPERATOR_BY_NAME:
        hint = QUANTISED_HINT if call.operation.startswith(QUANTISED_PREFIXES) else UNSUPPORTED_HINT
        raise call.make_error("is an unsupported operation", hint)
    try:
        outputs = OPERATOR_BY_NAME[call.operation].translator(builder, call)
    except INCONSISTENCY_ERRORS as error:
        raise NetworkError(
            f"{call.description} is inconsistent: {error}", hint="Export the network again"
        ) from error
    return (outputs,) if isinstance(outputs, str) else outputs


def compute_node(node: Node, arrays: Mapping[str, Array], constants: Mapping[str, Array]) -> Array:
    """Return the output of `node`, float32 (n, ...). `arrays` hold activations with the batch axis in front.

    Raise `UnsupportedNode` for an unknown operation.
    """
    compute = _COMPUTATIONS.get(node.operation)
    if compute is None:
        raise UnsupportedNode(f"node {node.name}: {node.operation} is not supported")
    inputs = [arrays[name] if name in arrays else constants[name] for name in node.inputs]
    with np.errstate(all="ignore"):
        return np.asarray(compute(inputs, node.attributes), np.float32)


def run_float(network: Network, inputs: npt.ArrayLike) -> Floats:
    """Return the outputs, (n, *output_shape), for preprocessed inputs (n, *input_shape).

    Raise `InputError` for another shape. Overflow gives infinity, as in other float32 runtimes.
    """
    return compute_activations(network, inputs, (network.output,))[network.output]


def compute_activations(
    network: Network, inputs: npt.ArrayLike, tensor_names: tuple[str, ...]
) -> dict[str, Floats]:
    """Return the tensors `tensor_names`, computed like `run_float`. Other tensors are freed after their last use."""
    images = np.asarray(inputs, np.float32)
    if images.shape[1:] != network.input_shape or images.ndim == 0:
        raise InputError(
            f"{network.name} takes (n, {', '.join(map(str, network.input_shape))}), not {images.shape}",
            hint="Call preprocess(network, raw) first",
        )
    arrays = {network.input: images}
    for node, spent_tensors in network.find_last_uses(tensor_names):
        arrays[node.output] = compute_node(node, arrays, network.constants)
        for name in spent_tensors:
            arrays.pop(name, None)
    return {name: arrays[name] for name in tensor_names}
