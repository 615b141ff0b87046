"""Conversion of raw data to a network's inputs, and of its scores to named outputs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError, OutOfRange
from lightning.networks.network import Floats, Network, Port, Preprocessing

LAYOUTS = ("as-is", "HWC")

Array = npt.NDArray[Any]
LARGEST_EXACT_INTEGER = 1 << 24
"""Larger integers are not exact in float32."""


def preprocess(network: Network, raw: npt.ArrayLike) -> Floats:
    """Convert raw numbers or booleans (n, ...) to the network's inputs, (n, *input_shape).

    Axes of length 1 may be missing or extra. Images may replace rows, such as (n, 28, 28) for 784 inputs. Raise
    `InputError` for another shape, values that are not numbers, NaN and infinity.
    """
    numbers = _read_numbers(raw)
    if network.preprocessing.layout == "HWC" and numbers.ndim == 4:
        numbers = numbers.transpose(0, 3, 1, 2)
    expected_shape = network.input_shape
    shape = numbers.shape[1:]
    is_same_shape = [size for size in shape if size != 1] == [size for size in expected_shape if size != 1]
    is_flattened_image = (
        len(expected_shape) == 1
        and prod(shape) == expected_shape[0]
        and network.preprocessing.layout == "as-is"
    )
    if numbers.ndim == 0 or not (is_same_shape or is_flattened_image):
        expected = ", ".join(map(str, expected_shape))
        raise InputError(f"{network.name} takes (n, {expected}), but the data have shape {numbers.shape}")
    images = numbers.reshape(len(numbers), *expected_shape)
    preprocessing = network.preprocessing
    with np.errstate(over="ignore"):  # values beyond float32 become infinity, which is refused below
        inputs = images.astype(np.float32) * np.float32(preprocessing.scale)
        if any(preprocessing.mean):
            inputs -= _reshape_for_channels(preprocessing.mean, images.ndim)
        if any(deviation != 1 for deviation in preprocessing.deviation):
            inputs /= _reshape_for_channels(preprocessing.deviation, images.ndim)
    if not np.isfinite(inputs).all():
        raise InputError(
            f"{network.name}: the data contain NaN or infinity", hint="Clean them, or check their scale"
        )
    return inputs


def check_preprocessing(preprocessing: Preprocessing, input_shape: tuple[int, ...]) -> None:
    """Raise `OutOfRange` if `preprocessing` cannot be applied to inputs of this shape."""
    channels = input_shape[0] if input_shape else 1
    for name in ("mean", "deviation"):
        values = getattr(preprocessing, name)
        if len(values) not in {1, channels}:
            raise OutOfRange(
                f"preprocessing.{name} has {len(values)} entries",
                hint=f"Give one, or one per channel: {channels}",
            )
    numbers = (preprocessing.scale, *preprocessing.mean, *preprocessing.deviation)
    if not np.isfinite(numbers).all() or not preprocessing.scale or not all(preprocessing.deviation):
        raise OutOfRange("preprocessing needs finite numbers, and a scale and deviations other than 0")
    if preprocessing.layout not in LAYOUTS:
        raise OutOfRange(
            f"layout {preprocessing.layout!r} is unknown", hint=f"Give one of {', '.join(LAYOUTS)}"
        )
    if preprocessing.layout == "HWC" and len(input_shape) != 3:
        raise OutOfRange(f"layout HWC is for images, but the network takes {input_shape}")


def _read_numbers(raw_data: npt.ArrayLike) -> npt.NDArray[np.generic]:
    try:
        numbers = np.asarray(raw_data)
    except ValueError as error:
        raise InputError(f"the data are not an array: {error}", hint="Give rows of equal length") from error
    if numbers.dtype.kind not in "biuf":
        raise InputError(f"the data are of type {numbers.dtype}", hint="Give integers or floats")
    if numbers.size == 0:
        raise InputError(f"the data are empty: {numbers.shape}", hint="Give at least one image or row")
    return numbers


def _reshape_for_channels(values: tuple[float, ...], axis_count: int) -> Floats:
    return np.asarray(values, np.float32).reshape(-1, *(1,) * (axis_count - 2))


def pack_named_inputs(network: Network, arrays: Mapping[str, npt.ArrayLike]) -> Array:
    """Return raw inputs from named arrays: one for each input, or `x` for a network with one input.

    Raise `InputError` if they are missing or do not fit.
    """
    ports = network.inputs or (Port(network.input, (1, *network.input_shape)),)
    if all(port.name in arrays for port in ports) and (len(ports) > 1 or "x" not in arrays):
        return pack(network, {port.name: arrays[port.name] for port in ports})
    if len(ports) == 1 and "x" in arrays:
        return np.asarray(arrays["x"])
    names = ", ".join(port.name for port in ports)
    raise InputError(
        (
            f"the file contains no samples: {network.name} takes {names}, but its arrays are "
            f"{', '.join(arrays)}"
        ),
        hint="Give an .npz with one array per input, under its name",
    )


def pack(network: Network, arrays: Mapping[str, npt.ArrayLike]) -> Array:
    """Return raw inputs (n, ...) from arrays by input name, each (n, *shape) or one sample.

    Raise `InputError` for names, shapes or integers that the network does not accept.
    """
    ports = network.inputs or (Port(network.input, (1, *network.input_shape)),)
    differing_names = sorted(arrays.keys() ^ {port.name for port in ports})
    if differing_names:
        names = ", ".join(port.name for port in ports)
        given_names = ", ".join(sorted(arrays)) or "none"
        raise InputError(f"{network.name} takes the inputs {names}, but the data have {given_names}")
    samples_by_port = [_check_samples(network, port, np.asarray(arrays[port.name])) for port in ports]
    if len({len(port_samples) for port_samples in samples_by_port}) > 1:
        lengths = ", ".join(
            f"{port.name} {len(port_samples)}"
            for port, port_samples in zip(ports, samples_by_port, strict=True)
        )
        raise InputError(f"inputs of {network.name} have different numbers of samples: {lengths}")
    if len(samples_by_port) == 1:
        return samples_by_port[0].reshape(len(samples_by_port[0]), *network.input_shape)
    return np.concatenate(
        [port_samples.reshape(len(port_samples), -1).astype(np.float32) for port_samples in samples_by_port],
        axis=1,
    )


def _check_samples(network: Network, port: Port, array: Array) -> Array:
    if np.dtype(port.dtype).kind in "iu" and array.size and np.abs(array).max() > LARGEST_EXACT_INTEGER:
        raise InputError(
            f"{port.name} of {network.name} takes integers up to {LARGEST_EXACT_INTEGER:,}; the data exceed this"
        )
    if array.shape == port.shape:
        return array[None]
    is_batched = port.shape[:1] == (1,) and array.shape[1:] == port.shape[1:]
    if array.shape[1:] == port.shape or is_batched:
        return array
    raise InputError(
        f"{port.name} of {network.name} has the shape {port.shape}, but the data have {array.shape}"
    )


def unpack(network: Network, scores: Array) -> dict[str, Array]:
    """Return the outputs by name, (n, *shape), from the network's scores."""
    if not network.outputs:
        return {network.output: scores}
    flat_scores = scores.reshape(len(scores), -1)
    outputs, start = {}, 0
    for port in network.outputs:
        part = flat_scores[:, start : start + port.size]
        outputs[port.name] = part.reshape(len(scores), *port.shape)
        start += port.size
    return outputs
