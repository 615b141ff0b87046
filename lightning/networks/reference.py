"""A network in float32: what every integer, noisy or measured answer is compared with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.networks.network import Floats, Network
from lightning.networks.operations import apply


def run_float(network: Network, inputs: npt.ArrayLike) -> Floats:
    """Return the outputs, (n, *output_shape), of inputs (n, *input_shape) to which preprocessing has been applied.

    Raises `InputError` for another shape. Overflow gives infinity, as in every other float32 runtime.
    """
    return activations(network, inputs, (network.output,))[network.output]


def activations(network: Network, inputs: npt.ArrayLike, wanted: tuple[str, ...]) -> dict[str, Floats]:
    """Return the tensors `wanted`, as in `run_float`; others are let go as soon as nobody reads them."""
    x = np.asarray(inputs, np.float32)
    if x.shape[1:] != network.input_shape or x.ndim == 0:
        raise InputError(
            f"{network.name} takes (n, {', '.join(map(str, network.input_shape))}), not {x.shape}",
            hint="Call preprocess(network, raw) first",
        )
    arrays = {network.input: x}
    for node, spent in network.last_uses(wanted):
        arrays[node.output] = apply(node, arrays, network.constants)
        for name in spent:
            arrays.pop(name, None)
    return {name: arrays[name] for name in wanted}
