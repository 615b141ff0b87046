"""Inputs and outputs by name: several of them lie one behind the other in what the network takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError
from lightning.networks.network import Network, Port

Array = npt.NDArray[Any]

LARGEST_WHOLE = 1 << 24
"""Whole numbers beyond are not exact in float32."""


def raw_of(network: Network, arrays: Mapping[str, npt.ArrayLike]) -> Array:
    """Return raw inputs of named arrays: one for each input, or `x` alone for a network with one input.

    Raises `InputError` where there are none that fit.
    """
    ports = network.inputs or (Port(network.input, (1, *network.input_shape)),)
    if all(port.name in arrays for port in ports) and (len(ports) > 1 or "x" not in arrays):
        return pack(network, {port.name: arrays[port.name] for port in ports})
    if len(ports) == 1 and "x" in arrays:
        return np.asarray(arrays["x"])
    names = ", ".join(port.name for port in ports)
    raise InputError(
        f"the file holds no samples: {network.name} takes {names}, and its arrays are {', '.join(arrays)}",
        hint="Give an .npz with an array for each input, by its name",
    )


def pack(network: Network, arrays: Mapping[str, npt.ArrayLike]) -> Array:
    """Return raw inputs (n, ...) of one array for each input, (n, *shape) or of one sample, by name.

    Raises `InputError` for names, shapes and whole numbers that the network does not take.
    """
    ports = network.inputs or (Port(network.input, (1, *network.input_shape)),)
    odd = sorted(arrays.keys() ^ {port.name for port in ports})
    if odd:
        names = ", ".join(port.name for port in ports)
        raise InputError(f"{network.name} takes {names}, and these differ: {', '.join(odd)}")
    parts = [_samples(network, port, np.asarray(arrays[port.name])) for port in ports]
    if len({len(part) for part in parts}) > 1:
        lengths = ", ".join(f"{port.name} {len(part)}" for port, part in zip(ports, parts, strict=True))
        raise InputError(f"inputs of {network.name} have different numbers of samples: {lengths}")
    if len(parts) == 1:
        return parts[0].reshape(len(parts[0]), *network.input_shape)
    return np.concatenate([part.reshape(len(part), -1).astype(np.float32) for part in parts], axis=1)


def _samples(network: Network, port: Port, array: Array) -> Array:
    if np.dtype(port.kind).kind in "iu" and array.size and np.abs(array).max() > LARGEST_WHOLE:
        raise InputError(f"{port.name} of {network.name} takes whole numbers up to {LARGEST_WHOLE:,}")
    if array.shape == port.shape:
        return array[None]
    batched = port.shape[:1] == (1,) and array.shape[1:] == port.shape[1:]
    if array.shape[1:] == port.shape or batched:
        return array
    raise InputError(
        f"{port.name} of {network.name} has the shape {port.shape}, and the data are {array.shape}"
    )


def unpack(network: Network, scores: Array) -> dict[str, Array]:
    """Return the outputs by name, (n, *shape), of what the network gives."""
    if not network.outputs:
        return {network.output: scores}
    flat = scores.reshape(len(scores), -1)
    found, start = {}, 0
    for port in network.outputs:
        part = flat[:, start : start + port.size]
        found[port.name] = part.reshape(len(scores), *port.shape)
        start += port.size
    return found
